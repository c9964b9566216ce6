"""Micro-batched vmap: per-record gradients of any module that one record can pass through alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from skdpfair.engine.batch import Batch
from skdpfair.engine.losses import Loss
from skdpfair.engine.per_sample.layers.grad_sampler import GradSampler, norm2_of_rows
from skdpfair.engine.per_sample.proof import ModuleCode
from skdpfair.engine.per_sample.records import Gradients, OutputGradient, Strategy, in_two_passes
from skdpfair.engine.precision import without_grad

# numbers of a batch's gradients, which take less time to keep than to make twice: 128 MiB in
# float32, for instance of 256 records of a network with 130,000 parameters
_MAX_KEPT = 2**25


class MicroVmap(Strategy):
    """Instantiate the gradients of a few records at a time, once for norms, once for the sum."""

    name = "vmap"
    # rows at a time; all of an example, where that has more
    micro_batch = 32

    def __init__(self, module: nn.Module, loss: Loss, code: ModuleCode, reason: str = "") -> None:
        super().__init__(module, loss, code, reason)
        self.draws = code.gradients.draws

    @without_grad
    def per_sample_gradients(
        self, batch: Batch, scale: Tensor | None = None, own: list[Tensor] | None = None
    ) -> Gradients:
        """Return the gradients, or those at parameters moved by ``scale`` times their own.

        ``own`` has the gradients of all rows, by parameter, if they are known.
        """
        parts = batch.split(self.micro_batch)
        sizes, n_rows = [len(part.examples) for part in parts], [len(part) for part in parts]
        scales = [None] * len(parts) if scale is None else scale.split(sizes)
        owns = (
            [None] * len(parts)
            if own is None
            else zip(*(g.split(n_rows) for g in own), strict=True)
        )
        at_ascent = partial(self.per_sample_gradients, batch)
        is_kept = len(batch) * self.n_parameters <= _MAX_KEPT
        chunks = [*zip(parts, scales, owns, strict=True)]
        return in_two_passes(self, chunks, self._of_few, at_ascent, is_kept=is_kept)

    def _of_few(self, part: Batch, scale: Tensor | None, own: Sequence[Tensor] | None) -> Gradients:
        terms, gradients = self._rows(part, scale, own)
        examples = part.examples
        norm = examples.over_size(norm2_of_rows([g.flatten(1) for g in gradients], examples).sqrt())

        def weighted_sum(weight: Tensor, out: Tensor, finite_mask: Tensor | None = None) -> None:
            views, weight = self.views(out), examples.spread(examples.over_size(weight))
            counts = weight != 0  # 0 times what is not finite is not 0
            is_plain = bool(counts.all())
            for p, g in zip(self.parameters, gradients, strict=True):
                rows = g.flatten(1) if is_plain else torch.where(counts[:, None], g.flatten(1), 0.0)
                views[p].view(-1).addmv_(rows.t(), weight)

        loss, probability = map(examples.mean, terms.terms())
        return Gradients(norm, loss, probability, weighted_sum)

    def _rows(
        self, part: Batch, scale: Tensor | None, gradients: Sequence[Tensor] | None
    ) -> tuple[OutputGradient, Sequence[Tensor]]:
        """Return loss terms and the gradient of each row."""
        rng_state, terms, x = self.rng_state(), OutputGradient(self, part), part.dense_x
        code = self.code(x)
        if gradients is None:
            _, gradients = code.gradients(self.generator, self._values(), x, output_gradient=terms)
            if scale is None:
                return terms, gradients
            self.set_rng_state(rng_state)
        assert scale is not None
        examples = part.examples
        steps = iter(
            (examples.mean(g) * scale[:, None]).view(-1, *p.shape)
            for p, g in zip(self.parameters, (g.flatten(1) for g in gradients), strict=True)
        )
        perturbed = [
            v + examples.spread(next(steps)) if trains else v.expand(len(x), *v.shape)
            for v, trains in zip(self._values(), code.trained.values(), strict=True)
        ]
        trace, terms = code.gradients_by_record, OutputGradient(self, part)
        return terms, trace(self.generator, [], *perturbed, x, output_gradient=terms)[1]


def gradients_at_ascent(
    model: Strategy, batch: Batch, samplers: Sequence[GradSampler], scale: Tensor
) -> Gradients:
    """Return the gradients of ``batch`` at parameters moved by ``scale`` times an example's own.

    These are made of ``samplers`` where they take little memory, else by another pass.
    """
    model_of_batch = MicroVmap(model.module, model.loss, model.code(batch.dense_x))
    # a batch that draws is taken as a whole, as ``model`` takes it: the masks are the same
    model_of_batch.micro_batch = len(batch) if model.draws else model_of_batch.micro_batch
    model_of_batch.generator = model.generator
    own: dict[Tensor, Tensor | None] = {}
    if len(batch) * model.n_parameters <= _MAX_KEPT:
        for s in samplers:
            own |= {s.module.weight: s.weight_rows()} if s.weight_trains else {}
            own |= {s.module.bias: s.bias_rows} if s.bias_trains else {}
    known = [rows for p in model.parameters if (rows := own.get(p)) is not None]
    is_known = len(known) == len(model.parameters)
    return model_of_batch.per_sample_gradients(batch, scale, known if is_known else None)
