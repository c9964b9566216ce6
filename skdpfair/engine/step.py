"""The private step: norms, noisy queries, weights, noisy sum, next state."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from skdpfair.engine.change import changed_gradients, early_sample
from skdpfair.engine.noise import Noise
from skdpfair.engine.per_sample import Records, Strategy
from skdpfair.engine.per_sample.materialised import Gradients
from skdpfair.engine.per_sample.records import at_most
from skdpfair.engine.precision import full_precision, is_exact, without_grad
from skdpfair.engine.units import Units
from skdpfair.mechanism import Clip, Mechanism, PerSample, Query

Attack: TypeAlias = Callable[[Any, Tensor, Tensor], Tensor]
AddWeighted: TypeAlias = Callable[[Tensor, Tensor], None]

BOUND_TOLERANCE = 1e-5


@dataclass(frozen=True)
class Batch:
    """The records of one step.

    Parameters
    ----------
    x : Tensor or SparseRows of shape (batch, ...)
        Inputs of the module; sparse rows are made dense chunk by chunk.
    y : Tensor of shape (batch,)
        Class codes, int64; targets in [-1, 1], float32, of a regression.
    group : Tensor of shape (batch,), int64
        Group codes.
    weight : Tensor of shape (batch,), or None
        Factor of each record's loss, >= 0; None for 1.
    units : Units or None
        The persons whose records these are, one after the other; None if each record is a person.
        The loss of a person is the mean of the losses of her records in the batch.

    Examples
    --------
    >>> batch = Batch(torch.eye(3), y=torch.tensor([0, 1, 1]), group=torch.tensor([0, 0, 1]))
    >>> batch.select(torch.tensor([2])).group, [len(part) for part in batch.split(2)]
    (tensor([1]), [2, 1])
    """

    x: Any
    y: Tensor
    group: Tensor
    weight: Tensor | None = None
    units: Units | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def dense_x(self) -> Tensor:
        """The inputs as a tensor, of sparse rows too."""
        x: Tensor = self.x if isinstance(self.x, Tensor) else self.x.dense()
        return x

    @property
    def unit_group(self) -> Tensor:
        """Group code of each person, which all her records have; of each record without units."""
        if self.units is None:
            return self.group
        if self.units.each is not None:
            return self.group[:: self.units.each]
        return self.group.index_select(0, self.units.first)

    def repeated(self, n: int) -> Batch:
        """Return the batch with ``n`` copies of each record, which count as it did.

        The copies stand together, as the records of one person: of the same one, where she has
        several already.
        """
        if n == 1:
            return self
        index = torch.arange(len(self), device=self.y.device).repeat_interleave(n)
        units = Units(torch.full_like(self.y, n), n) if self.units is None else self.units.times(n)
        return replace(self.select(index), units=units)

    def select(self, index: Tensor, out: Tensor | None = None) -> Batch:
        """Return the records at some positions.

        Parameters
        ----------
        index : Tensor of shape (n,), int64
            Positions in the batch, each at least 0.
        out : Tensor of shape (n, ...), optional
            Memory for the inputs.

        Returns
        -------
        Batch
            With the records in the order of ``index``.
        """
        x = self.x
        return Batch(
            x.index_select(0, index) if out is None else torch.index_select(x, 0, index, out=out),
            self.y.index_select(0, index),
            self.group.index_select(0, index),
            weight=None if self.weight is None else self.weight.index_select(0, index),
        )

    def split(self, size: int) -> list[Batch]:
        """Return the batch in chunks of at most ``size`` records, in order.

        A person stays whole, also where she has more records.
        """
        parts: list[Any] = [None] if self.units is None else self.units.split(size)
        sizes = size if self.units is None else [part.n_records for part in parts]
        columns = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "units"}
        split = {name: c.split(sizes) for name, c in columns.items() if c is not None}
        chunks = [
            dict(zip(split, chunk, strict=True)) for chunk in zip(*split.values(), strict=True)
        ]
        if self.units is None:
            return [Batch(**chunk) for chunk in chunks]
        return [Batch(**c, units=part) for c, part in zip(chunks, parts, strict=True)]


@dataclass(frozen=True)
class Step:
    """Results of one step.

    Parameters
    ----------
    gradient : Tensor of shape (n_parameters,)
        Noisy sum of the weighted gradients over the expected batch size; released.
    state : object
        The method's next state, made of released values.
    longest : Tensor, 0-d, or None
        Longest weighted gradient over the declared bound; None without a record.  Private: it is
        checked against 1 and never released.
    bound : Tensor, 0-d
        Sensitivity of the sum, as the method declared it; it follows from released values.

    Examples
    --------
    >>> one = torch.tensor(1.0)
    >>> Step(gradient=torch.zeros(4), state=None, longest=1.5 * one, bound=one).sound
    False
    """

    gradient: Tensor
    state: Any
    longest: Tensor | None
    bound: Tensor

    @property
    def sound(self) -> bool:
        """Whether no weighted gradient was longer than the declared bound."""
        return self.longest is None or bool(self.longest <= 1 + BOUND_TOLERANCE)


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

    Parameters
    ----------
    model : Strategy
        Per-record gradients of the module, see :func:`skdpfair.engine.per_sample.select_strategy`.
    batch : Batch
        A Poisson sample; may be empty, for its noise is still released.
    mechanism : Mechanism
        Method, public facts and noise.  Sensitivities are those of its queries and of the
        ``Clip`` that the method returns; noise is ``noise_multiplier`` times these.
    state : object
        What the method keeps, made of released values.
    generator : Noise
        The stream of the noise.
    chunk_size : int, optional
        Records held in memory at once.  All norms come before any weight, and noise is added
        once, so chunking changes nothing but memory.
    attack : callable, optional
        ``attack(module, x, y)`` returns other inputs to train on, each made from its own record;
        for ``module`` it gets a function from inputs to logits.
    out : Tensor, optional
        Flat vector to write the gradient to; a new one by default.

    Returns
    -------
    Step
        The gradient is the noisy sum over the EXPECTED batch size, a public constant.

    Examples
    --------
    >>> from skdpfair import get_method
    >>> from skdpfair.engine import Streams, select_strategy
    >>> from skdpfair.testing import task
    >>> batch = Batch(torch.eye(3), y=torch.tensor([0, 1, 1]), group=torch.tensor([0, 0, 1]))
    >>> mechanism = Mechanism(get_method("dpsgd"), task(), noise_multiplier=1.0)
    >>> with select_strategy(torch.nn.Linear(3, 2), batch.x, n_classes=2) as model:
    ...     step = private_step(model, batch, mechanism, None, Streams.fresh().noise())
    >>> step.gradient.shape, step.sound
    (torch.Size([8]), True)
    """
    if not is_exact(batch.x.device):
        with full_precision(batch.x.device):
            return private_step(
                model, batch, mechanism, state, generator,
                chunk_size=chunk_size, attack=attack, out=out,
            )  # fmt: skip
    if attack is not None:
        batch = attacked(model, batch, attack, chunk_size)
    move = mechanism.method.parameter_perturbation(state)
    if move is None:
        return _step(model, batch, mechanism, state, generator, chunk_size, out)
    with model.moved(move):
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
class Weighed:
    """A batch with its weights, before noise is added to the sum.

    ``weight`` (batch,) is 0 for what counts for nothing; ``add_weighted(weight, out)`` adds the
    weighted sum of the method's gradients to the flat vector ``out``.
    """

    sample: PerSample
    release: dict[str, Tensor]
    clip: Clip
    weight: Tensor
    add_weighted: AddWeighted


def weigh(
    model: Strategy,
    batch: Batch,
    mechanism: Mechanism,
    state: Any,
    generator: Noise,
    chunk_size: int | None,
) -> Weighed:
    """Return the records' weights, from their norms and the noisy queries."""
    method = mechanism.method
    changed: Gradients | Tensor | None = None
    release: dict[str, Tensor] = {}
    if method.changes_gradients():
        early, counted = early_sample(model, batch, mechanism, chunk_size)
        share = None if batch.units is None else batch.units.share
        release = noisy_sums(
            mechanism.queries, early, counted, state, generator, early=True, share=share
        )
        if len(batch):
            extra = method.extra(early, state, release)
            if extra is not None:
                changed = changed_gradients(model, batch, mechanism, early, counted, extra)
    measured = _measure(model, batch, chunk_size, method.per_sample_perturbation_radius(), changed)
    sample, finite, add_weighted = measured
    release |= noisy_sums(mechanism.queries, sample, finite, state, generator, early=False)
    clip = method.clip(sample, state, release)
    weight = clip.weight if finite is None else torch.where(finite, clip.weight, 0.0)
    return Weighed(sample, release, clip, weight, add_weighted)


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
    found = weigh(model, batch, mechanism, state, generator, chunk_size)
    clip, weight = found.clip, found.weight
    longest: Tensor | None = None
    if len(batch):
        longest = torch.linalg.vector_norm(weight * found.sample.norm, math.inf) / clip.bound
    size = mechanism.expected_batch_size
    gradient = model.flat() if out is None else out
    if mechanism.noise_multiplier > 0:
        generator.fill_(gradient, clip.bound, mechanism.noise_multiplier / size)
    elif method.gradient_noise > 0:
        generator.fill_(gradient, method.gradient_noise)
    else:
        gradient.zero_()
    # norms carry a rounding error, and so does the sum, more where records are many: shrinking by
    # more than both, whatever the batch, keeps the bound true
    shrink = (1 - (100 + 10 * size**0.5) * torch.finfo(weight.dtype).eps) / size
    found.add_weighted(weight * model.number(shrink), gradient)
    generator.all_reduce_(gradient)
    if model.fixed is not None:  # the sum is zero there, with and without any record
        gradient.index_fill_(0, model.fixed, 0.0)
    state = method.update(state, {**found.release, "gradient": gradient})
    return Step(gradient, state, longest, clip.bound)


def noisy_sums(
    queries: tuple[Query, ...],
    sample: PerSample,
    finite: Tensor | None,
    state: Any,
    generator: Noise,
    *,
    early: bool | None = None,
    share: Tensor | None = None,
) -> dict[str, Tensor]:
    """Return each query's sum of rows (sensitivity as declared) plus its Gaussian noise.

    ``early`` picks the early or the other queries; None takes all.  ``share`` is that of each
    record in its person: a person's row is the mean of her records' rows, no longer than the
    longest of them.
    """
    release = {}
    for query in queries:
        if early is not None and query.early != early:
            continue
        rows = query.rows(sample, state)
        if finite is not None:
            rows = torch.where(finite[:, None], rows, 0.0)
        if share is not None:
            rows = rows * share.to(rows.dtype)[:, None]
        total = rows.sum(0)
        if query.noise_multiplier > 0:
            noise = torch.empty_like(total)
            total += generator.fill_(noise, query.sensitivity, query.noise_multiplier)
        release[query.name] = generator.all_reduce_(total)
    return release


def measure(
    model: Strategy, batch: Batch, chunk_size: int | None = None
) -> tuple[PerSample, Tensor | None]:
    """Return the batch's :class:`PerSample`, and which records count (None for all)."""
    sample, finite, _ = _measure(model, batch, chunk_size, 0.0, None)
    return sample, finite


def _measure(
    model: Strategy,
    batch: Batch,
    chunk_size: int | None,
    radius: float,
    changed: Gradients | Tensor | None,
) -> tuple[PerSample, Tensor | None, AddWeighted]:
    """Return the sample, which records count (None for all), and a function for weighted sums.

    All of it is by person where the batch has units.
    """
    if len(batch) == 0:
        return _nothing(model, batch), None, lambda weight, out: None
    size = chunk_size or len(batch)
    if isinstance(changed, Gradients) or len(batch) <= size:
        records: Gradients | Records
        if isinstance(changed, Gradients):
            records = changed
        else:
            records = _records(model, batch, radius, changed)
        sample, finite = screened(records.norm, records.loss, records.probability, batch)
        return sample, finite, lambda w, out: records.weighted_sum(w, out, finite)
    return _measure_in_chunks(model, batch, size, radius, changed)


def _nothing(model: Strategy, batch: Batch) -> PerSample:
    like = model.parameters[0]
    empty = torch.zeros(0, dtype=like.dtype, device=like.device)
    return PerSample(empty, empty, batch.group, empty.new_zeros((0, model.loss.n_outputs)))


def _measure_in_chunks(
    model: Strategy, batch: Batch, chunk_size: int, radius: float, logit_gradient: Tensor | None
) -> tuple[PerSample, Tensor | None, AddWeighted]:
    chunks, chances = batch.split(chunk_size), []
    columns: list[tuple[Tensor, Tensor, Tensor]] = []
    slopes: Sequence[Tensor | None] = [None] * len(chunks)
    if logit_gradient is not None:
        slopes = logit_gradient.split([len(chunk) for chunk in chunks])
    for chunk, extra in zip(chunks, slopes, strict=True):
        chances.append(model.chance())
        records = _records(model, chunk, radius, extra)
        columns.append((records.norm, records.loss, records.probability))
        del records
    norm, loss, probability = (torch.cat(part) for part in zip(*columns, strict=True))
    sample, finite = screened(norm, loss, probability, batch)

    def add_weighted(weight: Tensor, out: Tensor) -> None:
        norms = [norm for norm, _, _ in columns]
        weights = weight.split([len(norm) for norm in norms])
        for chunk, extra, w, then, chance in zip(
            chunks, slopes, weights, norms, chances, strict=True
        ):
            model.replay(chance)  # the dropout masks that the norms were taken with
            records = _records(model, chunk, radius, extra)
            # the first pass decided the weights: this one may only make them smaller
            w = at_most(w, then, records.norm)
            records.weighted_sum(w, out, torch.isfinite(then) & torch.isfinite(records.norm))

    return sample, finite, add_weighted


def _records(
    model: Strategy, batch: Batch, radius: float, logit_gradient: Tensor | None
) -> Records:
    """Return the records' gradients, each ``radius`` ahead along itself."""
    weight, units = batch.weight, batch.units
    if not radius:
        return model.records(batch.dense_x, batch.y, logit_gradient, weight, units)
    chance = model.chance()
    here = model.records(batch.dense_x, batch.y, weight=weight, units=units)
    model.replay(chance)  # the same dropout masks
    return here.ahead(torch.where(here.norm > 0, radius / here.norm, 0.0))


def screened(
    norm: Tensor, loss: Tensor, probability: Tensor, batch: Batch
) -> tuple[PerSample, Tensor | None]:
    """Return the sample, and which records count (None for all).

    Records without a finite gradient contribute zero to every sum.
    """
    if norm.device.type == "cpu" and math.isfinite(norm.sum().item()):
        return PerSample(norm, loss, batch.unit_group, probability), None
    finite = torch.isfinite(norm)
    norm, loss = torch.where(finite, norm, 0.0), torch.where(finite, loss, 0.0)
    probability = torch.where(finite[:, None], probability, 0.0)
    return PerSample(norm, loss, batch.unit_group, probability), finite
