"""Products with the Hessian of each group's loss, their traces and largest eigenvalues."""

import warnings

import numpy as np
import torch
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh
from torch import Tensor

from skdpfair.analysis._problem import Problem
from skdpfair.engine.flat import split

_BLOCK = 8  # vectors at once
# up to so many parameters the matrix is cheaper than Lanczos
_DENSE = 64


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
    gradient = torch.autograd.grad(mean, problem.parameters, create_graph=True, allow_unused=True)
    curved = [i for i, g in enumerate(gradient) if g is not None and g.requires_grad]
    gradient = [gradient[i] for i in curved]
    for j, vector in enumerate(vectors):
        rows = torch.autograd.grad(
            gradient,
            problem.parameters,
            [vector[i] for i in curved],
            retain_graph=j + 1 < len(vectors),
            allow_unused=True,
            materialize_grads=True,
        )
        for part, row in zip(split(total[j], problem.parameters), rows, strict=True):
            part += row


def traces(problem: Problem, n_vectors: int, rng) -> np.ndarray:
    """Return z' H_k z for random signs z, shape (n_groups, n_vectors), whose means are the traces.

    M. F. Hutchinson, "A Stochastic Estimator of the Trace of the Influence Matrix", 1990.
    """
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
    # a loss without curvature, as of a class of weight zero
    if not matvec(start).any():
        return 0.0
    try:
        return float(
            eigsh(operator, k=1, which="LA", v0=start, tol=1e-4, return_eigenvectors=False)[0]
        )
    except ArpackNoConvergence as error:
        warnings.warn(f"lambda_max did not converge: {error}.", UserWarning, stacklevel=2)
        return float(error.eigenvalues[0]) if len(error.eigenvalues) else np.nan
