"""Micro-batched vmap: per-record gradients of any module that one record can pass through alone."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skdpfair.engine.batch import Batch, Examples
from skdpfair.engine.losses import Loss
from skdpfair.engine.per_sample.layers.grad_sampler import norm2_of_rows, over_batch
from skdpfair.engine.per_sample.module_code import ModuleCode
from skdpfair.engine.per_sample.records import Gradients, Slope, Strategy, capped
from skdpfair.engine.precision import without_grad


class MicroVmap(Strategy):
    """Instantiate the gradients of a few records at a time, once for norms, once for the sum."""

    name = "vmap"
    # rows at a time; all of an example, where that has more
    micro_batch = 32

    def __init__(self, module: nn.Module, loss: Loss, code: ModuleCode, reason: str = "") -> None:
        super().__init__(module, loss, code, reason)
        self.draws = code.gradients.draws

    @without_grad
    def per_sample_gradients(self, batch: Batch, scale: Tensor | None = None) -> Gradients:
        """Return the gradients of the examples of a batch that is not empty.

        They are at parameters moved by ``scale`` times an example's own gradient, if given.
        """
        parts, examples = batch.split(self.micro_batch), batch.examples
        sizes = [len(part.examples) for part in parts]
        scales = [None] * len(parts) if scale is None else scale.split(sizes)
        rng_state = self.rng_state()

        def each() -> Iterator[tuple[Examples, Slope, list[Tensor], Tensor]]:
            for part, s in zip(parts, scales, strict=True):
                slope, gradients = self._rows(part, s)
                norm = norm2_of_rows([g.flatten(1) for g in gradients], part.examples).sqrt()
                yield part.examples, slope, gradients, part.examples.over_size(norm)

        slopes, norms = [], []
        for _, slope, _, norm in each():
            slopes.append(slope)
            norms.append(norm)

        @without_grad
        def weighted_sum(weight: Tensor, out: Tensor, finite: Tensor | None = None) -> None:
            self.set_rng_state(rng_state)  # the same dropout masks
            views, weights = self.views(out), weight.split([len(norm) for norm in norms])
            for then, w, (of, _, gradients, now) in zip(norms, weights, each(), strict=True):
                w = of.spread(of.over_size(capped(w, then, now)))
                for p, g in zip(self.parameters, gradients, strict=True):
                    rows = torch.where((w != 0)[:, None], g.flatten(1), 0.0)
                    views[p].view(-1).addmv_(rows.t(), w)

        return Gradients(
            torch.cat(norms),
            examples.mean(torch.cat([slope.loss for slope in slopes])),
            examples.mean(torch.cat([slope.probability for slope in slopes])),
            weighted_sum,
            lambda scale: self.per_sample_gradients(batch, scale),
        )

    def _rows(self, part: Batch, scale: Tensor | None) -> tuple[Slope, list[Tensor]]:
        """Return loss terms and the gradient of each row."""
        rng_state, slope, x = self.rng_state(), Slope(self, part), part.dense_x
        code = self.code(x)
        _, gradients = code.gradients(self.generator, self._values(), x, slope=slope)
        if scale is None:
            return slope, gradients
        self.set_rng_state(rng_state)
        examples = part.examples
        steps = iter(examples.mean(g) * over_batch(scale, g) for g in gradients)
        moved = [
            v + examples.spread(next(steps)) if trains else v.expand(len(x), *v.shape)
            for v, trains in zip(self._values(), code.trained.values(), strict=True)
        ]
        trace, slope = code.gradients_by_record, Slope(self, part)
        return slope, trace(self.generator, [], *moved, x, slope=slope)[1]


def gradients_ahead(model: Strategy, batch: Batch, scale: Tensor) -> Gradients:
    """Return the gradients of ``batch`` at parameters moved by ``scale`` times an example's own."""
    whole = MicroVmap(model.module, model.loss, model.code(batch.dense_x))
    # a batch that draws is taken as a whole, as ``model`` takes it: the masks are the same
    whole.micro_batch = len(batch) if model.draws else whole.micro_batch
    whole.generator = model.generator
    return whole.per_sample_gradients(batch, scale)
