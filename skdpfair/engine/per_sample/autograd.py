"""Autograd: the gradient of a batch as torch takes it, for modules that mix its records."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import torch
from torch import Tensor, nn
from torch.func import functional_call

from skdpfair.engine.losses import Loss
from skdpfair.engine.per_sample.graph import fixed_draws
from skdpfair.engine.per_sample.records import Records, Strategy
from skdpfair.engine.precision import without_grad
from skdpfair.engine.units import Units


class Autograd(Strategy):
    """The weighted sum of the losses of a batch, differentiated as a whole; NOT private.

    Layers normalise by the statistics of the batch and keep running ones, as in torch. Gradients of
    single records do not exist: ``norm`` is 0, and whatever needs more is refused.
    """

    name = "autograd"
    proof = "none: the records of a batch are mixed"
    draws = True
    per_record = False

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        reason = "the module normalises by batch statistics, and the method is not private"
        super().__init__(module, loss, reason)
        shared = {id(t): t for t in (*module.parameters(), *module.buffers())}
        self._predicting = copy.deepcopy(module, shared).eval()

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of a batch by running statistics."""
        logits: Tensor = self._predicting(x)
        return logits

    def records(
        self,
        x: Tensor,
        y: Tensor,
        logit_gradient: Tensor | None = None,
        weight: Tensor | None = None,
        units: Units | None = None,
    ) -> Records:
        """Return losses and probabilities of a batch; its weighted sum moves running statistics."""
        if logit_gradient is not None:
            self._refuse()
        # a batch of one has no statistics
        module = self.module if len(x) > 1 else self._predicting
        # replaced where the sum is taken: a batch that is looked at twice counts once
        kept = {name: b.clone() for name, b in module.named_buffers()}
        with torch.enable_grad(), self._drawing():
            logits: Tensor = functional_call(module, kept, (x,))
            each = self.loss.each(logits, y)
            factor = self.loss.factor(y, weight)
            each = each if factor is None else each * factor
        loss, probability = each.detach(), self.loss.predicted(logits.detach())
        if units is not None:
            loss, probability = units.mean(loss), units.mean(probability)

        @without_grad
        def weighted_sum(weight: Tensor, out: Tensor, finite: Tensor | None = None) -> None:
            own = weight if units is None else units.spread(units.divided(weight))
            found = torch.autograd.grad(each, self.parameters, own, allow_unused=True)
            views = self.views(out)
            for p, gradient in zip(self.parameters, found, strict=True):
                if gradient is not None:
                    views[p].add_(gradient)
            for name, b in module.named_buffers():
                b.copy_(kept[name])

        return Records(loss * 0.0, loss, probability, weighted_sum, lambda scale: self._refuse())

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """Let the module's random numbers follow from the strategy's generator."""
        device = self.parameters[0].device
        seed = torch.randint(2**62, (), generator=self.generator, device=device)
        with fixed_draws(device, int(seed)):
            yield

    def _refuse(self) -> NoReturn:
        raise ValueError(
            "The method looks at gradients of single records, which a module that normalises by "
            "batch statistics does not have. Use GroupNorm, or method='sgd'."
        )
