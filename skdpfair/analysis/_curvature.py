"""Products of each group's Hessian with vectors, its trace and largest eigenvalue."""

import warnings

import numpy as np
import pandas as pd
import torch
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh
from torch import Tensor, nn
from torch.nn.functional import linear, softmax

from skdpfair import _validate
from skdpfair.analysis._problem import Problem, problem
from skdpfair.engine.flat import split
from skdpfair.engine.per_sample.closed_form import ACTIVATIONS, chain_of
from skdpfair.engine.per_sample.closed_list import TraceError

_BLOCK = 8  # vectors at once
_DENSE = 64  # up to so many parameters the matrix is cheaper than Lanczos
# f'' over f', from the activation's output
_CURVE = {
    ACTIVATIONS[nn.Tanh]: lambda out: -2.0 * out,
    ACTIVATIONS[nn.Sigmoid]: lambda out: 1.0 - 2.0 * out,
    ACTIVATIONS[nn.ReLU]: torch.zeros_like,
}


class GroupCurvature:
    r"""Products with the Hessian :math:`H_k` of each group's mean loss; NOT private.

    Parameters
    ----------
    model, X, y, sensitive_features, chunk_size
        As in `group_gradients`.
    dtype : {"float32", "float64"} or None, default=None
        Type of the computation; None is the module's own.

    Attributes
    ----------
    levels : list
        The groups, in the order of all results.

    Notes
    -----
    :math:`H_k v` is the gradient of :math:`\langle \nabla L_k, v \rangle`.  It takes two backward
    passes, or the time of two to three gradient steps for all groups together.

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

    def __init__(self, model, X, y, *, sensitive_features=None, chunk_size="auto", dtype=None):
        self._problem = problem(
            model, X, y, sensitive_features=sensitive_features, chunk_size=chunk_size, dtype=dtype
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
            In the dtype of the computation.

        Raises
        ------
        ValueError
            If the vectors have a different length.
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
            Number of random sign vectors.
        random_state : int, numpy.random.Generator or None, default=None
            Seed of these vectors.

        Returns
        -------
        pandas.DataFrame
            Index group; columns ``trace`` (unbiased) and ``standard_error``.

        Raises
        ------
        TypeError, ValueError
            If ``n_vectors`` is below 2, or ``random_state`` is not a seed.
        """
        n_vectors = _validate.integer("n_vectors", n_vectors, low=2)
        rng = _validate.generator("random_state", random_state)
        found = traces(self._problem, n_vectors, rng)
        error = found.std(axis=1, ddof=1) / n_vectors**0.5
        return pd.DataFrame(
            {"trace": found.mean(axis=1), "standard_error": error}, index=self._problem.index
        )

    def largest_eigenvalues(self, *, random_state=0) -> pd.Series:
        """Compute the largest eigenvalue of each group's Hessian by Lanczos' method.

        Parameters
        ----------
        random_state : int, numpy.random.Generator or None, default=0
            Seed of the start vector.

        Returns
        -------
        pandas.Series
            Index group.

        Raises
        ------
        TypeError, ValueError
            If ``random_state`` is not a seed.

        Warns
        -----
        UserWarning
            If the iteration has not converged.
        """
        rng = _validate.generator("random_state", random_state)
        return pd.Series(
            largest_eigenvalues(self._problem, rng), self._problem.index, name="lambda_max"
        )


def products(found: Problem, vectors: Tensor) -> Tensor:
    """Return H_k v, shape (n_groups, n_vectors, n_parameters)."""
    like = found.parameters[0]
    vectors = vectors.to(like)
    total = like.new_zeros((found.n_groups, len(vectors), found.n_parameters))
    total[torch.from_numpy(found.absent)] = torch.nan
    chain = _chain_curvature(found)
    if chain is not None:
        for part in found.sorted.split(found.chunk):
            chain.add(part.x, part.y, found.ranges(part), vectors, total)
        return total
    parts = [found.unflat(vector) for vector in vectors]
    with torch.enable_grad():
        for k in np.flatnonzero(~found.absent).tolist():
            for chunk in found.of_group(k).chunks():
                _add_products(found, chunk, parts, total[k], float(found.sizes[k]))
    return total


def _add_products(found, chunk, vectors, total, size):
    """Add a chunk's part of a group's products; one graph serves all vectors."""
    mean = found.loss(chunk).sum() / size
    slope = torch.autograd.grad(mean, found.parameters, create_graph=True, allow_unused=True)
    curved = [i for i, g in enumerate(slope) if g is not None and g.requires_grad]
    slope = [slope[i] for i in curved]
    for j, vector in enumerate(vectors):
        rows = torch.autograd.grad(
            slope,
            found.parameters,
            [vector[i] for i in curved],
            retain_graph=j + 1 < len(vectors),
            allow_unused=True,
            materialize_grads=True,
        )
        for part, row in zip(split(total[j], found.parameters), rows, strict=True):
            part += row


def traces(found: Problem, n_vectors: int, rng) -> np.ndarray:
    """Return z' H_k z for random signs z, shape (n_groups, n_vectors)."""
    like, values = found.parameters[0], []
    for start in range(0, n_vectors, _BLOCK):
        shape = min(_BLOCK, n_vectors - start), found.n_parameters
        z = torch.from_numpy(rng.integers(0, 2, shape) * 2.0 - 1.0).to(like)
        values.append((products(found, z) * z).sum(-1).cpu().double().numpy())
    return np.concatenate(values, axis=1)


def largest_eigenvalues(found: Problem, rng) -> np.ndarray:
    """Return lambda_max of each H_k, shape (n_groups,)."""
    n, like = found.n_parameters, found.parameters[0]
    if n <= _DENSE:
        identity = torch.eye(n, dtype=like.dtype, device=like.device)
        matrices = products(found, identity).double().nan_to_num()
        largest = torch.linalg.eigvalsh(matrices)[:, -1].cpu().numpy()
    else:
        parts = [None if out else found.of_group(k) for k, out in enumerate(found.absent)]
        largest = np.array([np.nan if part is None else _lanczos(part, rng) for part in parts])
    return np.where(found.absent, np.nan, largest)


def _lanczos(found, rng):
    n, like = found.n_parameters, found.parameters[0]

    def matvec(vector):
        v = torch.from_numpy(np.ascontiguousarray(vector.ravel())).to(like)
        return products(found, v[None])[0, 0].cpu().double().numpy()

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


class _ChainCurvature:
    """H_k v of a chain of Linear layers by formulas: Pearlmutter's R operator.

    ``chain`` is that of `chain_of`, with softmax cross-entropy after it; ``curves`` are f'' over f'
    of the activations, and ``parameters`` those that train, in the order of the flat vectors.
    """

    def __init__(self, chain, curves, parameters, n_classes, class_weight):
        self.chain, self.curves, self.parameters = chain, curves, parameters
        self.identity = torch.eye(n_classes, dtype=parameters[0].dtype, device=parameters[0].device)
        self.class_weight = class_weight

    @torch.no_grad()
    def add(self, x: Tensor, y: Tensor, ranges, vectors: Tensor, total: Tensor) -> None:
        """Add sums over ranges of records to ``total`` (n_groups, n_vectors, n_parameters).

        ``ranges`` are (group, slice of records, factor of their sum).
        """
        inputs, logits = self._forward(x.flatten(1))
        p, s = self._slope(logits, y)
        slopes = self._backward(inputs, logits, s)
        for j, vector in enumerate(vectors):
            part = dict(zip(self.parameters, split(vector, self.parameters), strict=True))
            tangents = self._tangents(inputs, part)
            moved = p * tangents[-1][1]
            moved -= p * moved.sum(1, keepdim=True)
            if self.class_weight is not None:
                moved *= self.class_weight[y][:, None]
            for k, rows, factor in ranges:
                views = dict(zip(self.parameters, split(total[k, j], self.parameters), strict=True))
                self._add_rows(inputs, slopes, tangents, moved, part, rows, factor, views)

    def _forward(self, a):
        inputs = [a]
        for layer, activation in self.chain:
            z = linear(inputs[-1], layer.weight, layer.bias)
            inputs.append(z if activation is None else activation.forward(z))
        return inputs, inputs[-1]

    def _slope(self, logits, y):
        p = softmax(logits, dim=1)
        s = p - self.identity.index_select(0, y)
        return p, s if self.class_weight is None else s * self.class_weight[y][:, None]

    def _backward(self, inputs, out, s):
        """Return, for each layer, the gradient in its output and, after its activation, in z."""
        found = []
        for i in range(len(self.chain) - 1, -1, -1):
            layer, activation = self.chain[i]
            b = s if activation is None else activation.backward(s, inputs[i + 1])
            found.append((s, b))
            s = b @ layer.weight if i else None
        return found[::-1]

    def _tangents(self, inputs, part):
        """Return, for each layer, how its z and its output move along the vector."""
        found, moving = [], None
        for i, (layer, activation) in enumerate(self.chain):
            weight, bias = part.get(layer.weight), part.get(layer.bias)
            rz = None
            if weight is not None:
                rz = linear(inputs[i], weight, bias)
            elif bias is not None:
                rz = bias.expand(len(inputs[i]), -1)
            if moving is not None:
                rz = (
                    moving @ layer.weight.T
                    if rz is None
                    else torch.addmm(rz, moving, layer.weight.T)
                )
            if rz is None:
                rz = torch.zeros_like(inputs[i + 1])
            moving = rz if activation is None else activation.backward(rz, inputs[i + 1])
            found.append((rz, moving))
        return found

    def _add_rows(self, inputs, slopes, tangents, rs, part, rows, factor, views):
        """Add the sums over the records ``rows``, going back through the layers."""
        rs = rs[rows]
        for i in range(len(self.chain) - 1, -1, -1):
            layer, activation = self.chain[i]
            s, b = (value[rows] for value in slopes[i])
            a = inputs[i][rows]
            if activation is None:
                rb = rs
            else:
                out = inputs[i + 1][rows]
                rb = activation.backward(rs + self.curves[i](out) * tangents[i][0][rows] * s, out)
            if layer.weight in views:
                views[layer.weight].addmm_(rb.T, a, alpha=factor)
                if i:
                    views[layer.weight].addmm_(b.T, tangents[i - 1][1][rows], alpha=factor)
            if layer.bias in views:
                views[layer.bias].add_(rb.sum(0), alpha=factor)
            if i:
                rs = rb @ layer.weight
                if layer.weight in part:
                    rs = torch.addmm(rs, b, part[layer.weight])


def _chain_curvature(problem) -> _ChainCurvature | None:
    """Return the formulas for a problem's module, or None if it is no such chain."""
    try:
        chain = chain_of(problem.module, problem.batch.x[:1])
    except TraceError:
        return None
    curves = [None if activation is None else _CURVE[activation] for _, activation in chain]
    return _ChainCurvature(
        chain, curves, problem.parameters, problem.n_classes, problem.class_weight
    )
