"""Risk that clipping and noise add to each group in one step."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from skdpfair.analysis._clipped_step import noiseless, weighed
from skdpfair.analysis._curvature import largest_eigenvalues, products, traces
from skdpfair.analysis._problem import Problem
from skdpfair.engine import PoissonSampler, Streams
from skdpfair.training.batches import record_rates, records_at

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
    groups = facts | {name: rows[name].mean(1) for name in TERMS}
    groups |= {f"{name}_se": _standard_error(rows[name]) for name in TERMS}
    groups |= {name: _known_mean(rows[name].T) for name in ("cosine", "clipped_cosine")}
    groups |= {"clipped_share": _known_mean(shares), "threshold": _known_mean(thresholds)}
    groups["lambda_max"] = largest_eigenvalues(curved, rng) if eigenvalues else np.nan
    sensitivity = (batches["sensitivity"] ** 2).mean() ** 0.5
    groups |= _noise(curved, mechanism, lr, sensitivity, n_vectors, rng)
    frame = pd.DataFrame(groups, index=problem.index)
    return StepRisk(frame, batches, rows, lr, mechanism.expected_batch_size)


def _batch_steps(problem: Problem, strategy, mechanism, state, n_batches, rng):
    """Return the steps of Poisson batches without noise on the gradient, and the batches' sizes."""
    records = problem.batch
    rates = record_rates(mechanism.rates_at(state), records.group.cpu().numpy())
    index = PoissonSampler(rates, len(records), rng).draw(n_batches)
    device = records.y.device
    noise = Streams.seeded(int(rng.integers(2**63)), digest=bytes(32)).noise(device)
    quiet = noiseless(mechanism)
    batches = [records_at(records, rows.to(device)) for rows in index]
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
