"""Risk that clipping and noise add to each group in one step."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from skdpfair._utils import validate
from skdpfair.analysis._curvature import largest_eigenvalues, products, traces
from skdpfair.analysis._mechanisms import noiseless, weighed
from skdpfair.analysis._problem import Problem
from skdpfair.engine import PoissonSampler, Streams
from skdpfair.training.batches import record_rates

TERMS = ("clip", "magnitude", "direction", "magnitude_star", "direction_star")


@dataclass(frozen=True)
class Expectations:
    """How the expectations of a step risk are computed; parameters of `GroupRecorder`."""

    n_batches: int
    n_vectors: int
    curvature_records: int | None
    eigenvalues: bool

    def __post_init__(self):
        validate.integer("n_batches", self.n_batches)
        validate.integer("n_vectors", self.n_vectors, low=0)
        if self.curvature_records is not None:
            validate.integer("curvature_records", self.curvature_records)
        validate.flag("eigenvalues", self.eigenvalues)


@dataclass(frozen=True)
class StepRisk:
    """The risk of one step: a row a group, a row a batch, and the terms of both together."""

    groups: pd.DataFrame
    batches: pd.DataFrame
    by_batch: dict[str, np.ndarray]
    lr: float
    noise_multiplier: float
    expected_batch_size: float


def step_risk(problem: Problem, mechanism, state, lr, how: Expectations, rng) -> StepRisk:
    """Return the step risk of a problem; the terms are those of the notes of `GroupRecorder`."""
    with problem.strategy() as strategy:
        gradients, facts = problem.group_gradients(strategy)
        batches = _Batches(problem, strategy, mechanism, state, how.n_batches, rng)
    curved = problem.of_each_group(how.curvature_records, rng)
    bent = products(curved, torch.cat([batches.plain, batches.clipped]))
    rows = _terms_of(gradients, batches, bent, lr)
    largest = np.full(problem.n_groups, np.nan)
    if how.eigenvalues:
        largest = largest_eigenvalues(curved, rng)
    groups = facts | {name: rows[name].mean(1) for name in TERMS}
    groups |= {f"{name}_se": _standard_error(rows[name]) for name in TERMS}
    groups |= {name: _known_mean(rows[name].T) for name in ("cosine", "clipped_cosine")}
    groups |= batches.by_group | {"lambda_max": largest}
    groups |= _noise(curved, mechanism, lr, batches, how.n_vectors, rng)
    return StepRisk(
        pd.DataFrame(groups, index=problem.index),
        batches.frame,
        rows,
        lr,
        mechanism.noise_multiplier,
        mechanism.expected_batch_size,
    )


class _Batches:
    """Gradients of Poisson batches, with and without the weights of the method.

    ``plain`` and ``clipped`` are tensors of shape (n_batches, n_parameters), over the expected
    batch size; ``by_group`` has the share of clipped records and the threshold of each group.
    """

    def __init__(self, problem: Problem, strategy, mechanism, state, n_batches, rng):
        records = problem.batch
        rates = record_rates(mechanism, records.group.cpu().numpy())
        index = PoissonSampler(rates, len(records), rng).draw(n_batches)
        device = records.y.device
        noise = Streams.seeded(int(rng.integers(2**63)), digest=bytes(32)).noise(device)
        quiet = noiseless(mechanism)
        batches = [records.select(rows.to(device)) for rows in index]
        steps = [weighed(strategy, b, quiet, state, noise, problem.chunk) for b in batches]
        self.plain = torch.stack([step.plain for step in steps])
        self.clipped = torch.stack([step.gradient for step in steps])
        lengths = [
            torch.linalg.vector_norm(v, dim=1).cpu().numpy() for v in (self.plain, self.clipped)
        ]
        self.frame = pd.DataFrame(
            {
                "size": [len(batch) for batch in batches],
                "gradient_norm": lengths[0],
                "clipped_gradient_norm": lengths[1],
                "cosine": [cosine(step.plain, step.gradient) for step in steps],
                "sensitivity": [step.sensitivity for step in steps],
            }
        )
        shares, thresholds = zip(*(step.by_group for step in steps), strict=True)
        self.by_group = {"clipped_share": _known_mean(shares), "threshold": _known_mean(thresholds)}


def _terms_of(gradients, batches, bent, lr):
    """Return each term of each group and batch, as arrays (n_groups, n_batches)."""
    n = len(batches.plain)
    rows = []
    for k, gradient in enumerate(gradients):
        for i, (plain, clipped) in enumerate(zip(batches.plain, batches.clipped, strict=True)):
            angles = {"cosine": cosine(gradient, plain)}
            angles["clipped_cosine"] = cosine(gradient, clipped)
            terms = step_terms(gradient, plain, clipped, bent[k, i], bent[k, n + i], lr)
            rows.append(terms | angles)
    return {name: values.to_numpy().reshape(-1, n) for name, values in pd.DataFrame(rows).items()}


def _standard_error(values):
    return pd.DataFrame(values).sem(axis=1).to_numpy()


def _known_mean(values):
    """Return the means over the first axis of what is not NaN; NaN where all are."""
    return pd.DataFrame(np.array(values)).mean().to_numpy()


def _noise(curved, mechanism, lr, batches, n_vectors, rng):
    """Return trace and noise term of each group."""
    if n_vectors == 0:
        nothing = np.full(curved.n_groups, np.nan)
        return dict.fromkeys(("trace", "trace_se", "noise", "noise_se"), nothing)
    values = traces(curved, n_vectors, rng)
    mean, error = values.mean(axis=1), _standard_error(values)
    sensitivity = (batches.frame["sensitivity"] ** 2).mean() ** 0.5
    sigma, size = mechanism.noise_multiplier, mechanism.expected_batch_size
    # what the baselines without privacy add
    plain = mechanism.method.gradient_noise
    scale = (plain, 1.0, 1.0) if plain > 0 else (sensitivity, sigma, size)
    noise, noise_se = (noise_term(trace, lr, *scale) for trace in (mean, error))
    return {"trace": mean, "trace_se": error, "noise": noise, "noise_se": noise_se}


def step_terms(group_gradient, plain, clipped, plain_product, clipped_product, lr):
    """Return the loss that clipping adds to a group in one step, and its parts, in nats.

    These are Propositions 1, 2 and 2* of Esipova et al., ICLR 2023, see `GroupRecorder`, from
    g_k, the batch's mean gradient without and with clipping, and the products of H_k with these
    two.  The starred parts turn the step first, and then shorten it.  If either gradient is zero,
    it has no direction, and the whole risk is magnitude.
    """
    first, first_clipped = (float(group_gradient @ v) for v in (plain, clipped))
    second, second_clipped = float(plain @ plain_product), float(clipped @ clipped_product)
    length, clipped_length = (float(torch.linalg.vector_norm(v)) for v in (plain, clipped))
    half = lr**2 / 2
    clip = lr * (first - first_clipped) + half * (second_clipped - second)
    # a group that is absent stays NaN
    if length == 0 or clipped_length == 0:
        return dict(zip(TERMS, (clip, clip, 0.0, clip, 0.0), strict=True))
    s = clipped_length / length
    return {
        "clip": clip,
        "magnitude": lr * (1 - s) * first + half * (s**2 - 1) * second,
        "direction": lr * (s * first - first_clipped) + half * (second_clipped - s**2 * second),
        "magnitude_star": lr * (1 / s - 1) * first_clipped + half * (1 - s**-2) * second_clipped,
        "direction_star": lr * (first - first_clipped / s)
        + half * (s**-2 * second_clipped - second),
    }


def noise_term(trace, lr, sensitivity, noise_multiplier, batch_size):
    """Return the loss that the noise of one step adds to a group, to second order, in nats.

    The sum of the step has noise of standard deviation ``sensitivity * noise_multiplier``, and is
    divided by ``batch_size``: Esipova et al. and their code leave out the division.
    """
    if noise_multiplier == 0:
        return 0.0
    return lr**2 / 2 * trace * (sensitivity * noise_multiplier / batch_size) ** 2


def cosine(a: Tensor, b: Tensor) -> float:
    """Return the cosine of the angle between two vectors, NaN if one is zero."""
    lengths = torch.linalg.vector_norm(a) * torch.linalg.vector_norm(b)
    return float(a @ b / lengths) if lengths > 0 else float("nan")
