"""Products of each group's Hessian with vectors, its trace and largest eigenvalue."""

import warnings

import numpy as np
import pandas as pd
import torch
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh
from torch import Tensor

from skdpfair import _validate
from skdpfair.analysis._problem import Problem, problem_of
from skdpfair.engine.flat import split

_BLOCK = 8  # vectors at once
_DENSE = 64  # up to so many parameters the matrix is cheaper than Lanczos


class GroupCurvature:
    r"""Products with the Hessian :math:`H_k` of each group's mean loss; NOT private.

    Parameters
    ----------
    model, X, y, sensitive_features, chunk_size
        As in `step_risk_terms`.  The results are computed in the dtype of the module.

    Attributes
    ----------
    levels : list
        The groups, in the order of all results.

    Notes
    -----
    :math:`H_k v` is the gradient of :math:`\langle \nabla L_k, v \rangle`.  It takes two backward
    passes, or the time of two to five gradient steps for all groups together.

    References
    ----------
    Pearlmutter, "Fast Exact Multiplication by the Hessian", 1994; Hutchinson, "A Stochastic
    Estimator of the Trace of the Influence Matrix", 1990; Esipova et al., ICLR 2023, App. B.3.

    Examples
    --------
    Softmax regression at zero: the Hessian is a quarter of [[1, -1], [-1, 1]] times x x'.

    >>> import numpy as np, torch
    >>> from skdpfair.analysis import GroupCurvature
    >>> module = torch.nn.Linear(1, 2, bias=False).double()
    >>> _ = torch.nn.init.zeros_(module.weight)
    >>> curvature = GroupCurvature(module, np.array([[1.0], [2.0]]), np.array([0, 1]),
    ...                            sensitive_features=["a", "b"])
    >>> curvature.products(torch.tensor([1.0, 0.0]))[:, 0].tolist()
    [[0.25, -0.25], [1.0, -1.0]]
    >>> curvature.largest_eigenvalues().round(6).to_dict()
    {'a': 0.5, 'b': 2.0}
    """

    def __init__(self, model, X, y, *, sensitive_features=None, chunk_size="auto"):
        self._problem = problem_of(
            model, X, y, sensitive_features=sensitive_features, chunk_size=chunk_size
        )
        self.levels = self._problem.levels

    def products(self, vectors) -> Tensor:
        """Return H_k v for each group and vector.

        Parameters
        ----------
        vectors : Tensor of shape (n_parameters,) or (n_vectors, n_parameters)
            In the order of the trainable parameters in ``module.parameters()``.

        Returns
        -------
        Tensor of shape (n_groups, n_vectors, n_parameters)
            In the dtype of the module.
        """
        vectors = torch.as_tensor(vectors).detach()
        vectors = vectors[None] if vectors.dim() == 1 else vectors
        wanted = self._problem.n_parameters
        if vectors.dim() != 2 or vectors.shape[1] != wanted:
            raise ValueError(
                f"vectors must have {wanted} numbers each, one per parameter that trains, got "
                f"shape {tuple(vectors.shape)}."
            )
        return products(self._problem, vectors)

    def trace(self, n_vectors=100, *, random_state=None) -> pd.DataFrame:
        """Estimate the trace of each group's Hessian by Hutchinson's method.

        Parameters
        ----------
        n_vectors : int, default=100
            Number of random sign vectors, at least 2.
        random_state : int, numpy.random.Generator or None, default=None
            Seed of these vectors.

        Returns
        -------
        pandas.DataFrame
            Index group; columns ``trace`` (unbiased) and ``standard_error``.
        """
        n_vectors = _validate.integer("n_vectors", n_vectors, low=2)
        rng = _validate.generator("random_state", random_state)
        values = pd.DataFrame(traces(self._problem, n_vectors, rng), self._problem.index)
        return pd.DataFrame({"trace": values.mean(axis=1), "standard_error": values.sem(axis=1)})

    def largest_eigenvalues(self, *, random_state=0) -> pd.Series:
        """Compute the largest eigenvalue of each group's Hessian by Lanczos' method.

        Parameters
        ----------
        random_state : int, numpy.random.Generator or None, default=0
            Seed of the start vector.

        Returns
        -------
        pandas.Series
            Index group.  A ``UserWarning`` says if the iteration has not converged.
        """
        rng = _validate.generator("random_state", random_state)
        values = largest_eigenvalues(self._problem, rng)
        return pd.Series(values, self._problem.index, name="lambda_max")


def products(problem: Problem, vectors: Tensor) -> Tensor:
    """Return H_k v, shape (n_groups, n_vectors, n_parameters); NaN for a group without records."""
    like = problem.parameters[0]
    vectors = vectors.to(like)
    total = like.new_zeros((problem.n_groups, len(vectors), problem.n_parameters))
    total[torch.from_numpy(problem.absent)] = torch.nan
    parts = [split(vector, problem.parameters) for vector in vectors]
    with torch.enable_grad():
        for k, part in enumerate(problem.by_group):
            for chunk in part.chunks():
                _add_products(part, chunk, parts, total[k])
    return total


def _add_products(problem, chunk, vectors, total):
    """Add a chunk's part of a group's products; one graph serves all vectors."""
    mean = problem.loss(chunk).sum() / len(problem.batch)
    slope = torch.autograd.grad(mean, problem.parameters, create_graph=True, allow_unused=True)
    curved = [i for i, g in enumerate(slope) if g is not None and g.requires_grad]
    slope = [slope[i] for i in curved]
    for j, vector in enumerate(vectors):
        rows = torch.autograd.grad(
            slope,
            problem.parameters,
            [vector[i] for i in curved],
            retain_graph=j + 1 < len(vectors),
            allow_unused=True,
            materialize_grads=True,
        )
        for part, row in zip(split(total[j], problem.parameters), rows, strict=True):
            part += row


def traces(problem: Problem, n_vectors: int, rng) -> np.ndarray:
    """Return z' H_k z for random signs z, shape (n_groups, n_vectors)."""
    like, values = problem.parameters[0], []
    for start in range(0, n_vectors, _BLOCK):
        shape = min(_BLOCK, n_vectors - start), problem.n_parameters
        z = torch.from_numpy(rng.integers(0, 2, shape) * 2.0 - 1.0).to(like)
        values.append((products(problem, z) * z).sum(-1).cpu().double().numpy())
    return np.concatenate(values, axis=1)


def largest_eigenvalues(problem: Problem, rng) -> np.ndarray:
    """Return lambda_max of each H_k, shape (n_groups,)."""
    n, like = problem.n_parameters, problem.parameters[0]
    if n <= _DENSE:
        matrices = products(problem, torch.eye(n, dtype=like.dtype, device=like.device))
        largest = torch.linalg.eigvalsh(matrices.double().nan_to_num())[:, -1].cpu().numpy()
        return np.where(problem.absent, np.nan, largest)
    return np.array([_lanczos(part, rng) for part in problem.by_group])


def _lanczos(problem, rng):
    """Return lambda_max of the Hessian of a problem of one group."""
    if not len(problem.batch):
        return np.nan
    n, like = problem.n_parameters, problem.parameters[0]

    def matvec(vector):
        v = torch.from_numpy(np.ascontiguousarray(vector.ravel())).to(like)
        return products(problem, v[None])[0, 0].cpu().double().numpy()

    operator = LinearOperator((n, n), matvec=matvec, dtype=np.float64)
    start = rng.standard_normal(n)
    if not matvec(start).any():  # a loss without curvature, as of a class of weight zero
        return 0.0
    try:
        return float(
            eigsh(operator, k=1, which="LA", v0=start, tol=1e-4, return_eigenvectors=False)[0]
        )
    except ArpackNoConvergence as error:
        warnings.warn(f"lambda_max did not converge: {error}.", UserWarning, stacklevel=2)
        return float(error.eigenvalues[0]) if len(error.eigenvalues) else np.nan
