"""Micro-batched vmap: per-record gradients of any module that one record can pass through alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from skdpfair.engine.losses import Loss
from skdpfair.engine.per_sample.layers.grad_sampler import over_batch, rounding, sum_of
from skdpfair.engine.per_sample.module_code import ModuleCode
from skdpfair.engine.per_sample.records import Records, Slope, Strategy, at_most
from skdpfair.engine.precision import without_grad
from skdpfair.engine.units import Units

MICRO_BATCH = 32


class Traced(Strategy):
    """A strategy that repeats the traced operations of a module's code on one record."""

    proof = "per-record by vmap"

    def __init__(self, module: nn.Module, loss: Loss, code: ModuleCode, reason: str = "") -> None:
        super().__init__(module, loss, reason)
        self.code = code

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        del self.code  # traces cannot be copied

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of a batch."""
        outputs: Tensor = self.code.forward(self.generator, self._values(), x)
        return outputs

    def _values(self) -> list[Tensor]:
        return self.code.values(self.module)


class MicroVmap(Traced):
    """Instantiate the gradients of a few records at a time, once for norms, once for the sum."""

    name = "vmap"

    def __init__(
        self,
        module: nn.Module,
        loss: Loss,
        code: ModuleCode,
        reason: str = "",
        records_per_unit: int = 1,
    ) -> None:
        super().__init__(module, loss, code, reason)
        self.micro_batch = max(MICRO_BATCH, records_per_unit)  # takes all records of a person
        self.draws = code.gradients.draws

    def records(
        self,
        x: Tensor,
        y: Tensor,
        logit_gradient: Tensor | None = None,
        weight: Tensor | None = None,
        units: Units | None = None,
    ) -> Records:
        """Return the gradients of a batch that is not empty."""
        return self._records((x, y, logit_gradient, weight), units, None)

    @without_grad
    def _records(
        self, batch: tuple[Tensor | None, ...], units: Units | None, scale: Tensor | None
    ) -> Records:
        """Return gradients, at parameters moved by ``scale`` times a person's own if given."""
        y = batch[1]
        assert y is not None
        persons = Units(torch.ones_like(y), each=1) if units is None else units
        parts = persons.split(self.micro_batch)
        sizes = [part.n_records for part in parts]
        columns = [[None] * len(parts) if c is None else c.split(sizes) for c in batch]
        scales = [None] * len(parts) if scale is None else scale.split([len(p) for p in parts])
        state = self.chance()

        def each() -> Iterator[tuple[Units, Slope, list[Tensor]]]:
            for part, s, x, *others in zip(parts, scales, *columns, strict=True):
                yield part, *self._gradients(part, s, x, others)

        norms, losses, probabilities = [], [], []
        for part, slope, gradients in each():
            norms.append(_norm(gradients, None if units is None else part))
            losses.append(slope.loss)
            probabilities.append(slope.probability)
        loss, probability = torch.cat(losses), torch.cat(probabilities)

        @without_grad
        def weighted_sum(weight: Tensor, out: Tensor, finite: Tensor | None = None) -> None:
            self.replay(state)  # the same dropout masks
            views, weights = self.views(out), weight.split([len(norm) for norm in norms])
            for norm, w, (part, _, gradients) in zip(norms, weights, each(), strict=True):
                w = at_most(w, norm, _norm(gradients, None if units is None else part))
                w = part.spread(part.divided(w))
                for p, g in zip(self.parameters, gradients, strict=True):
                    rows = torch.where((w != 0)[:, None], _rows(g), 0.0)
                    views[p].view(-1).addmv_(rows.t(), w)

        return Records(
            torch.cat(norms),
            persons.mean(loss),
            persons.mean(probability),
            weighted_sum,
            lambda scale: self._records(batch, units, scale),
        )

    def _gradients(
        self, part: Units, scale: Tensor | None, x: Tensor, targets: Sequence[Any]
    ) -> tuple[Slope, list[Tensor]]:
        """Return loss terms and gradients of the records of persons."""
        state, slope = self.chance(), Slope(self, *targets)
        _, gradients = self.code.gradients(self.generator, self._values(), x, slope=slope)
        if scale is None:
            return slope, gradients
        self.replay(state)
        steps = iter(part.mean(g) * over_batch(scale, g) for g in gradients)
        moved = [
            v + part.spread(next(steps)) if trains else v.expand(len(x), *v.shape)
            for v, trains in zip(self._values(), self.code.trained.values(), strict=True)
        ]
        trace, slope = self.code.gradients_by_record, Slope(self, *targets)
        return slope, trace(self.generator, [], *moved, x, slope=slope)[1]


def records_ahead(
    model: Strategy,
    code: ModuleCode,
    batch: tuple[Tensor | None, ...],
    units: Units | None,
    scale: Tensor,
) -> Records:
    """Return the gradients of ``batch`` at parameters moved by ``scale`` times a person's own."""
    # a batch that draws is taken as a whole, as ``model`` takes it: the masks are the same
    size = len(scale) if units is None else units.n_records
    each = size if model.draws else 1 if units is None else units.most
    whole = MicroVmap(model.module, model.loss, code, records_per_unit=each)
    whole.generator = model.generator
    return whole._records(batch, units, scale)


def _norm(gradients: Sequence[Tensor], units: Units | None = None) -> Tensor:
    """Return the norm of each record's or person's gradient, from those of all parameters."""
    norm2 = sum_of(_rows(g).square().sum(1) for g in gradients)
    if units is None:
        return norm2.sqrt()
    # long gradients that cancel leave an error when they are added up
    longest = units.sum(norm2.sqrt())
    norm2 = sum_of(units.sum(_rows(g)).square().sum(1) for g in gradients)
    return units.divided((norm2 + rounding(units.size, longest) * longest.square()).sqrt())


def _rows(gradient: Tensor) -> Tensor:
    return gradient.reshape(len(gradient), -1)
