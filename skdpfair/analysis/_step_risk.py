"""Risk that clipping and noise add to each group in one step, and the curvature it depends on."""

import warnings
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh
from torch import Tensor
from torch.utils._pytree import tree_map_only

from skdpfair.analysis._problem import Problem
from skdpfair.engine import PoissonSampler, Streams
from skdpfair.engine.flat import split
from skdpfair.engine.mechanism import Mechanism, PerSample
from skdpfair.engine.step import weigh
from skdpfair.training.batches import record_rates

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


# a norm that any method clips
_LONG = 1e12


@dataclass(frozen=True)
class _Noiseless(Mechanism):
    """A mechanism without noise on the gradient; the noise of its queries is that of training."""

    noisy: Mechanism

    @property
    def queries(self):
        """The queries of the mechanism in training."""
        return self.noisy.queries


def noiseless(mechanism: Mechanism) -> Mechanism:
    """Return the mechanism without noise on the gradient; its queries keep theirs."""
    return _Noiseless(mechanism.method, mechanism.task, 0.0, mechanism)


@dataclass(frozen=True)
class WeighedStep:
    """A batch's mean gradient, the weighted one, its sensitivity, and clipping by group.

    ``unclipped`` is the mean of the method's own gradients, which may be those of other parameters.
    """

    plain: Tensor
    unclipped: Tensor
    gradient: Tensor
    sensitivity: float
    by_group: tuple[np.ndarray, np.ndarray]  # share that is clipped, norm above which one is


def weighed(strategy, batch, mechanism, state, noise, chunk) -> WeighedStep:
    """Let a method weigh a batch as in training, and add up."""
    method, like = mechanism.method, strategy.flat()
    state = tree_map_only(
        Tensor, lambda t: t.to(like.device, like.dtype if t.is_floating_point() else None), state
    )
    shift = method.parameter_perturbation(state)
    # whether the method's gradients are those of the loss at the parameters
    is_plain = (
        shift is None
        and not method.per_sample_perturbation_radius()
        and not method.changes_gradients
    )
    with torch.no_grad(), nullcontext() if shift is None else strategy.moved(shift):
        step = weigh(strategy, batch, mechanism, state, noise, chunk)
        size = mechanism.expected_batch_size
        gradient, unclipped = strategy.flat(), strategy.flat()
        step.add_weighted(step.weight / size, gradient)
        step.add_weighted(torch.full_like(step.weight, 1 / size), unclipped)
    plain = unclipped if is_plain else _mean_gradient(strategy, batch, chunk, size)
    bound = float(step.clip.bound)
    by_group = _by_group(step, mechanism, state, bound)
    return WeighedStep(plain, unclipped, gradient, bound, by_group)


def _by_group(step, mechanism, state, bound):
    """Probe the method with a record of no norm and one of an endless norm in each group."""
    n_groups, sample = mechanism.task.n_groups, step.sample
    probes = [_probe(sample, n_groups, norm) for norm in (0.0, _LONG)]
    whole, end = (mechanism.method.clip(p, state, step.release).weight for p in probes)
    # the weighted norm of an endless gradient: C_k, C, or 0 if it is dropped
    reach = end * _LONG
    threshold = torch.where(reach > 0, reach, torch.full_like(reach, bound)) / whole
    clipped = step.weight < whole[sample.group] * (1 - 1e-6)
    counts = torch.bincount(sample.group, minlength=n_groups)
    share = torch.bincount(sample.group, clipped.to(counts.dtype), minlength=n_groups) / counts
    if not mechanism.method.private and bound == np.inf:
        threshold = torch.full_like(reach, np.inf)
    return share.double().cpu().numpy(), threshold.double().cpu().numpy()


def _probe(sample: PerSample, n_groups, norm):
    """Return one record of a norm in each group."""
    like, n_classes = sample.norm, sample.probability.shape[1]
    group = torch.arange(n_groups, device=like.device)
    probability = like.new_full((n_groups, n_classes), 1 / max(n_classes, 1))
    return PerSample(like.new_full((n_groups,), norm), like.new_zeros(n_groups), group, probability)


def _mean_gradient(strategy, batch, chunk, size) -> Tensor:
    """Return the sum of the records' gradients over ``size``."""
    total = strategy.flat()
    for part in batch.split(chunk) if len(batch) else []:
        gradients = strategy.per_sample_gradients(part)
        gradients.weighted_sum(torch.full_like(gradients.norm, 1 / size), total)
    return total


TERMS = ("clip", "magnitude", "direction", "magnitude_star", "direction_star")


@dataclass(frozen=True)
class StepRisk:
    """The risk of one step: a row a group, a row a batch, and the terms of both together."""

    groups: pd.DataFrame
    batches: pd.DataFrame
    by_batch: dict[str, np.ndarray]
    lr: float
    expected_batch_size: float


def step_risk(
    problem: Problem,
    mechanism,
    state,
    lr,
    rng,
    *,
    n_batches,
    n_vectors,
    curvature_records,
    eigenvalues,
) -> StepRisk:
    """Return the step risk of a problem, see the notes and parameters of `GroupRecorder`."""
    with problem.strategy() as strategy:
        gradients, facts = problem.group_gradients(strategy)
        steps, sizes = _batch_steps(problem, strategy, mechanism, state, n_batches, rng)
    plain = torch.stack([step.plain for step in steps])
    clipped = torch.stack([step.gradient for step in steps])
    curved = problem.of_each_group(curvature_records, rng)
    bent = products(curved, torch.cat([plain, clipped]))
    rows = step_terms(gradients, plain, clipped, bent, lr)
    batches = pd.DataFrame(
        {
            "size": sizes,
            "gradient_norm": _lengths(plain),
            "clipped_gradient_norm": _lengths(clipped),
            "cosine": _cosines(plain @ clipped.T, plain, clipped).diagonal(),
            "sensitivity": [step.sensitivity for step in steps],
        }
    )
    shares, thresholds = zip(*(step.by_group for step in steps), strict=True)
    largest = largest_eigenvalues(curved, rng) if eigenvalues else np.nan
    groups = facts | {name: rows[name].mean(1) for name in TERMS}
    groups |= {f"{name}_se": _standard_error(rows[name]) for name in TERMS}
    groups |= {name: _known_mean(rows[name].T) for name in ("cosine", "clipped_cosine")}
    groups |= {"clipped_share": _known_mean(shares), "threshold": _known_mean(thresholds)}
    groups |= {"lambda_max": largest}
    sensitivity = (batches["sensitivity"] ** 2).mean() ** 0.5
    groups |= _noise(curved, mechanism, lr, sensitivity, n_vectors, rng)
    frame = pd.DataFrame(groups, index=problem.index)
    return StepRisk(frame, batches, rows, lr, mechanism.expected_batch_size)


def _batch_steps(problem: Problem, strategy, mechanism, state, n_batches, rng):
    """Return the steps of Poisson batches without noise on the gradient, and the batches' sizes."""
    records = problem.batch
    rates = record_rates(mechanism, records.group.cpu().numpy())
    index = PoissonSampler(rates, len(records), rng).draw(n_batches)
    device = records.y.device
    noise = Streams.seeded(int(rng.integers(2**63)), digest=bytes(32)).noise(device)
    quiet = noiseless(mechanism)
    batches = [records.select(rows.to(device)) for rows in index]
    steps = [weighed(strategy, batch, quiet, state, noise, problem.chunk) for batch in batches]
    return steps, [len(batch) for batch in batches]


def _lengths(vectors):
    return torch.linalg.vector_norm(vectors, dim=1).cpu().numpy()


def _cosines(inner, first, second):
    """Return the cosines of the angles between all pairs, NaN if one of them is zero."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return inner.cpu().numpy() / np.outer(_lengths(first), _lengths(second))


def _standard_error(values):
    return pd.DataFrame(values).sem(axis=1).to_numpy()


def _known_mean(values):
    """Return the means over the first axis of what is not NaN; NaN where all are."""
    return pd.DataFrame(np.array(values)).mean().to_numpy()


def _noise(curved, mechanism, lr, sensitivity, n_vectors, rng):
    """Return trace and noise term of each group."""
    if n_vectors == 0:
        return dict.fromkeys(("trace", "trace_se", "noise", "noise_se"), np.nan)
    values = traces(curved, n_vectors, rng)
    trace = {"trace": values.mean(axis=1), "trace_se": _standard_error(values)}
    sigma, size = mechanism.noise_multiplier, mechanism.expected_batch_size
    # what the baselines without privacy add
    plain = mechanism.method.gradient_noise
    scale = (plain, 1.0, 1.0) if plain > 0 else (sensitivity, sigma, size)
    noise = {name.replace("trace", "noise"): noise_term(v, lr, *scale) for name, v in trace.items()}
    return trace | noise


def step_terms(gradients, plain, clipped, bent, lr):
    """Return the loss that clipping adds to each group in each step, and its parts, in nats.

    These are Propositions 1, 2 and 2* of Esipova et al., ICLR 2023, see `GroupRecorder`, as arrays
    (n_groups, n_batches), from g_k, the batches' mean gradients without and with clipping, and the
    products of H_k with the former and then with the latter.  The starred parts turn the step
    first, and then shorten it.  If either gradient is zero, it has no direction, and the whole risk
    is magnitude.  With them are the cosines between each batch and each group.
    """
    n = len(plain)
    inner = gradients @ plain.T, gradients @ clipped.T
    curved = (bent[:, :n] * plain).sum(-1), (bent[:, n:] * clipped).sum(-1)
    first, first_clipped, second, second_clipped = (v.cpu().numpy() for v in (*inner, *curved))
    length, clipped_length = _lengths(plain), _lengths(clipped)
    half = lr**2 / 2
    clip = lr * (first - first_clipped) + half * (second_clipped - second)
    with np.errstate(invalid="ignore", divide="ignore"):
        s = clipped_length / length
        magnitude = lr * (1 - s) * first + half * (s**2 - 1) * second
        direction = lr * (s * first - first_clipped) + half * (second_clipped - s**2 * second)
        last = lr * (1 / s - 1) * first_clipped + half * (1 - s**-2) * second_clipped
        turned = lr * (first - first_clipped / s) + half * (s**-2 * second_clipped - second)
    # a group that is absent stays NaN
    pathless = (length == 0) | (clipped_length == 0)
    lengths = (np.where(pathless, clip, part) for part in (magnitude, last))
    turns = (np.where(pathless, 0.0, part) for part in (direction, turned))
    parts = [part for pair in zip(lengths, turns, strict=True) for part in pair]
    return dict(zip(TERMS, (clip, *parts), strict=True)) | {
        "cosine": _cosines(inner[0], gradients, plain),
        "clipped_cosine": _cosines(inner[1], gradients, clipped),
    }


def noise_term(trace, lr, sensitivity, noise_multiplier, batch_size):
    """Return the loss that the noise of one step adds to a group, to second order, in nats.

    The sum of the step has noise of standard deviation ``sensitivity * noise_multiplier``, and is
    divided by ``batch_size``: Esipova et al. and their code leave out the division.
    """
    if noise_multiplier == 0:
        return 0.0
    return lr**2 / 2 * trace * (sensitivity * noise_multiplier / batch_size) ** 2
