"""The private step: norms, noisy queries, weights, noisy sum, next state."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from skdpfair.engine.batch import Batch, Examples
from skdpfair.engine.mechanism import (
    Clip,
    GradientTerm,
    GroupRows,
    Mechanism,
    PerSample,
    PerSampleGradients,
    Query,
)
from skdpfair.engine.noise import Noise
from skdpfair.engine.per_sample import Gradients, Strategy, gradients_of_rows, in_two_passes, norms
from skdpfair.engine.precision import full_precision, is_exact, without_grad
from skdpfair.exceptions import PrivacyAccountingError

Attack: TypeAlias = Callable[[Any, Tensor, Tensor], Tensor]
AddWeighted: TypeAlias = Callable[[Tensor, Tensor], None]

# rounding of norms and weights; the shrink of a step takes off more
BOUND_TOLERANCE = 1e-5


@dataclass(frozen=True)
class Step:
    """Results of one step.

    ``gradient`` (n_parameters,), the noisy sum of the weighted gradients over the expected batch
    size, and the method's next ``state`` are released, and the declared sensitivity ``bound`` of
    the sum follows from released values.  ``max_bound_ratio``, the longest weighted gradient over
    the bound, None without a record, is private: it is checked against 1 and never released.
    """

    gradient: Tensor
    state: Any
    max_bound_ratio: Tensor | None
    bound: Tensor

    @property
    def sound(self) -> bool:
        """Whether no weighted gradient was longer than the declared bound."""
        return self.max_bound_ratio is None or bool(self.max_bound_ratio <= 1 + BOUND_TOLERANCE)


@without_grad
def private_step(
    model: Strategy,
    batch: Batch,
    mechanism: Mechanism,
    state: Any,
    generator: Noise,
    *,
    chunk_size: int | None = None,
    attack: Attack | None = None,
    out: Tensor | None = None,
) -> Step:
    """Take the gradient of one batch, privately if the mechanism is.

    ``batch`` is a Poisson sample, which may be empty: its noise is still released.  Sensitivities
    are those of the mechanism's queries and of the ``Clip`` that its method returns; noise is
    ``noise_multiplier`` times these.  The sum is divided by the EXPECTED batch size, a public
    constant.

    All norms are computed before any weight, ``chunk_size`` records at a time, and noise is added
    once: chunks affect memory only.  ``attack(module, x, y)`` returns other inputs to train on,
    each made from its own record; for ``module`` it gets a function from inputs to logits.  ``out``
    is the flat vector to write the gradient to.
    """
    device = batch.x.device
    with nullcontext() if is_exact(device) else full_precision(device):
        batch = attacked(model, batch, attack, chunk_size)
        shift = mechanism.method.parameter_perturbation(state)
        with nullcontext() if shift is None else model.perturbed_parameters(shift):
            return _step(model, batch, mechanism, state, generator, chunk_size, out)


def attacked(
    model: Strategy, batch: Batch, attack: Attack | None, chunk_size: int | None = None
) -> Batch:
    """Return the batch with adversarial inputs; the batch itself if ``attack`` is None."""
    if attack is None or len(batch) == 0:
        return batch
    chunks = batch.split(chunk_size or len(batch))
    with torch.enable_grad():
        x = torch.cat([attack(model.forward, c.dense_x, c.y).detach() for c in chunks])
    return replace(batch, x=x)


@dataclass(frozen=True)
class ClippedBatch:
    """A batch with its weights, before noise is added to the sum.

    ``weight`` (n_examples,) is 0 for what counts for nothing; ``add_weighted(weight, out)`` adds
    the weighted sum of the method's gradients to the flat vector ``out``.
    """

    sample: PerSample
    release: dict[str, Tensor]
    clip: Clip
    weight: Tensor
    add_weighted: AddWeighted


def clip_weights(
    model: Strategy,
    batch: Batch,
    mechanism: Mechanism,
    state: Any,
    generator: Noise,
    chunk_size: int | None,
) -> ClippedBatch:
    """Return the weights of the examples, from their norms and the noisy queries."""
    method, hooks = mechanism.method, mechanism.hooks
    regularised: Gradients | Batch = batch
    release: dict[str, Tensor] = {}
    if method.changes_gradients:
        early, finite_mask = _early_sample(model, batch, mechanism, chunk_size)
        args = early, finite_mask, state, generator
        release = noisy_sums(hooks.queries, *args, early=True, examples=batch.examples)
        term = hooks.gradient_term(early, state, release) if len(batch) else None
        if term is not None:
            regularised = _with_term(model, batch, mechanism, early, finite_mask, term)
    measured = measure(
        model, regularised, batch, chunk_size, method.per_sample_perturbation_radius()
    )
    sample, finite_mask, add_weighted = measured
    release |= noisy_sums(hooks.queries, sample, finite_mask, state, generator, early=False)
    clip = hooks.clip(sample, state, release)
    weight = clip.weight if finite_mask is None else torch.where(finite_mask, clip.weight, 0.0)
    if (of_example := batch.example_weight) is not None:
        weight = weight * of_example  # at most 1
    return ClippedBatch(sample, release, clip, weight, add_weighted)


def _early_sample(
    model: Strategy, batch: Batch, mechanism: Mechanism, chunk_size: int | None
) -> tuple[PerSample, Tensor | None]:
    """Return the rows as early queries see them, and which of them count (None for all)."""
    sees_gradients = mechanism.method.sees_gradients
    sample: PerSample
    if len(batch) == 0:
        sample = _empty_sample(model, batch)
        if sees_gradients:
            no_gradients = sample.norm.new_zeros((0, model.n_parameters))
            sample = PerSampleGradients(**vars(sample), gradient=no_gradients)
        return sample, sample.norm.bool()
    if sees_gradients:
        gradients, loss, probability = model.gradient_matrix(batch)
        columns = norms(gradients), loss, batch.group, probability, gradients
        sample, finite_mask = PerSampleGradients(*columns), torch.isfinite(columns[0])
    else:
        chunks = batch.split(chunk_size or len(batch))
        logits = torch.cat([model.logits(chunk).detach() for chunk in chunks])
        loss, probability, _ = model.loss_terms(logits, batch)
        sample = PerSample(torch.full_like(loss, torch.nan), loss, batch.group, probability)
        finite_mask = torch.isfinite(probability).all(1)
    if finite_mask.device.type == "cpu" and bool(finite_mask.all()):
        return sample, None
    examples = batch.examples  # each counts with all its rows or not at all
    return sample, examples.spread(examples.sum((~finite_mask).to(torch.int64)) == 0)


def _with_term(
    model: Strategy,
    batch: Batch,
    mechanism: Mechanism,
    sample: PerSample,
    finite_mask: Tensor | None,
    term: GradientTerm,
) -> Gradients | Batch:
    """Return the gradients with their term, or the batch with the term in the logits."""
    if term.logit_gradient is not None and term.logit_gradient.shape != sample.probability.shape:
        raise PrivacyAccountingError(
            f"{mechanism.method!r} returns a logit_gradient of another shape than "
            "sample.probability: (n_records, n_outputs)."
        )
    batch = replace(batch, logit_gradient=term.logit_gradient)
    if not isinstance(sample, PerSampleGradients):
        return batch
    if term.averaged and mechanism.method.private:
        raise PrivacyAccountingError(
            f"{mechanism.method!r} adds a mean over the batch to every record's gradient, so one "
            "record moves all others; it cannot be private."
        )
    gradients, *terms = model.gradient_matrix(batch, term.hvp_vectors)
    if term.averaged:  # by methods that take no examples of several rows
        change = gradients.sub_(sample.gradient)
        if finite_mask is not None:
            change = torch.where(finite_mask[:, None], change, 0.0)
        n = len(change) if finite_mask is None else finite_mask.sum().clamp(min=1)
        gradients = sample.gradient + change.sum(0) / n
    return gradients_of_rows(batch.examples, gradients, *terms)


def _step(
    model: Strategy,
    batch: Batch,
    mechanism: Mechanism,
    state: Any,
    generator: Noise,
    chunk_size: int | None,
    out: Tensor | None,
) -> Step:
    method = mechanism.method
    clipped = clip_weights(model, batch, mechanism, state, generator, chunk_size)
    clip, weight = clipped.clip, clipped.weight
    max_bound_ratio: Tensor | None = None
    if len(batch):
        lengths = weight * clipped.sample.norm
        if (factors := mechanism.factors_at(state)) is not None:
            lengths = lengths / factors.to(lengths).index_select(0, clipped.sample.group)
        max_bound_ratio = torch.linalg.vector_norm(lengths, math.inf) / clip.bound
    size = mechanism.expected_batch_size
    gradient = model.flat() if out is None else out
    if mechanism.noise_multiplier > 0:
        generator.fill_(gradient, clip.bound, mechanism.noise_multiplier / size)
    elif method.gradient_noise > 0:
        generator.fill_(gradient, method.gradient_noise)
    else:
        gradient.zero_()
    # norms are rounded by some eps, wherever rows are long (`lengths_of`), and sums of n weighted
    # rows by about eps sqrt(n): shrinking by well more than both keeps the bound true.  The size is
    # the expected one, for the bound must not tell how many records there are
    shrink = (1 - (100 + 10 * size**0.5) * torch.finfo(weight.dtype).eps) / size
    clipped.add_weighted(weight * model.number(shrink), gradient)
    generator.all_reduce_(gradient)
    # the sum is zero there, with and without any record
    if model.fixed is not None:
        gradient.index_fill_(0, model.fixed, 0.0)
    state = method.update(state, {**clipped.release, "gradient": gradient})
    return Step(gradient, state, max_bound_ratio, clip.bound)


def noisy_sums(
    queries: tuple[Query, ...],
    sample: PerSample,
    finite_mask: Tensor | None,
    state: Any,
    generator: Noise,
    *,
    early: bool | None = None,
    examples: Examples | None = None,
) -> dict[str, Tensor]:
    """Return each query's sum of rows (sensitivity as declared) plus its Gaussian noise.

    ``early`` picks the early or the other queries; None takes all.  ``examples`` is given where
    the sample is of their rows: the row of an example in the sum is then the mean of its own, no
    longer than the longest of them.
    """
    release = {}
    for query in queries:
        if early is not None and query.early != early:
            continue
        rows = query.rows(sample, state)
        if isinstance(rows, GroupRows):
            share = torch.ones_like(sample.norm)
            if examples is not None:
                share /= examples.spread(examples.sum(share))
            total = rows.sum(share if finite_mask is None else torch.where(finite_mask, share, 0.0))
        else:
            rows = rows if finite_mask is None else torch.where(finite_mask[:, None], rows, 0.0)
            rows = rows if examples is None else examples.mean(rows)
            total = rows.sum(0, dtype=sample.norm.dtype)
        if query.noise_multiplier > 0:
            noise = torch.empty_like(total)
            total += generator.fill_(noise, query.sensitivity, query.noise_multiplier)
        release[query.name] = generator.all_reduce_(total)
    return release


def measure(
    model: Strategy,
    regularised: Gradients | Batch,
    batch: Batch,
    chunk_size: int | None,
    radius: float,
) -> tuple[PerSample, Tensor | None, AddWeighted]:
    """Return the sample, which examples count (None for all), and a function for weighted sums."""
    if len(batch) == 0:
        return _empty_sample(model, batch), None, lambda weight, out: None
    if isinstance(regularised, Gradients):
        gradients = regularised
    elif chunk_size is not None and len(batch) > chunk_size:
        chunks = [(model, chunk, radius) for chunk in regularised.split(chunk_size)]
        gradients = in_two_passes(model, chunks, _gradients)
    else:
        gradients = _gradients(model, regularised, radius)
    sample, finite_mask = mask_non_finite(
        gradients.norm, gradients.loss, gradients.probability, batch
    )
    return sample, finite_mask, lambda w, out: gradients.weighted_sum(w, out, finite_mask)


def _empty_sample(model: Strategy, batch: Batch) -> PerSample:
    like = model.parameters[0]
    empty = torch.zeros(0, dtype=like.dtype, device=like.device)
    return PerSample(empty, empty, batch.group, empty.new_zeros((0, model.loss.n_outputs)))


def _gradients(model: Strategy, batch: Batch, radius: float) -> Gradients:
    """Return the gradients of the examples, each ``radius`` uphill along itself."""
    if not radius:
        return model.per_sample_gradients(batch)
    rng_state = model.rng_state()
    at_parameters = model.per_sample_gradients(batch)
    model.set_rng_state(rng_state)  # the same dropout masks
    norm = at_parameters.norm
    at_ascent: Gradients = at_parameters.at_ascent(torch.where(norm > 0, radius / norm, 0.0))
    return at_ascent


def mask_non_finite(
    norm: Tensor, loss: Tensor, probability: Tensor, batch: Batch
) -> tuple[PerSample, Tensor | None]:
    """Return the sample, and which examples count (None for all).

    Examples without a finite gradient or loss contribute zero to every sum.
    """
    if norm.device.type == "cpu" and math.isfinite((norm.sum() + loss.sum()).item()):
        return PerSample(norm, loss, batch.example_group, probability), None
    finite_mask = torch.isfinite(norm) & torch.isfinite(loss)
    norm, loss = torch.where(finite_mask, norm, 0.0), torch.where(finite_mask, loss, 0.0)
    probability = torch.where(finite_mask[:, None], probability, 0.0)
    return PerSample(norm, loss, batch.example_group, probability), finite_mask
