"""Book-keeping: one forward, one backward to the layers' outputs, no per-record gradients."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from skdpfair.engine.losses import Loss
from skdpfair.engine.per_sample import layers
from skdpfair.engine.per_sample.graph import Graph
from skdpfair.engine.per_sample.layers import GradSampler
from skdpfair.engine.per_sample.layers.grad_sampler import sum_of
from skdpfair.engine.per_sample.records import Records, Strategy
from skdpfair.engine.units import Units


@dataclass
class _Call:
    """One call of a layer: its input, and the edge of its output in autograd's graph."""

    module: nn.Module
    a: Tensor
    version: int
    edge: GradientEdge


class BookKeeping(Strategy):
    """Norms and weighted sums from layer inputs and output gradients (Bu et al. 2023).

    The first backward stops at the layers' outputs, so plain weight gradients are never
    computed; the weighted sum then costs what they would have cost.
    """

    name = "bookkeeping"
    proof = "per-record by traced graph"

    def __init__(self, module: nn.Module, loss: Loss, graph: Graph) -> None:
        reason = "every trainable layer has book-keeping formulas and is called once"
        super().__init__(module, loss, reason)
        self.graph, self.draws = graph, graph.draws

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of a batch."""
        return self.graph(x, self.generator)

    def records(
        self,
        x: Tensor,
        y: Tensor,
        logit_gradient: Tensor | None = None,
        weight: Tensor | None = None,
        units: Units | None = None,
    ) -> Records:
        """Return the gradients of a batch that is not empty."""
        return self._records(x, y, logit_gradient, weight, units, {})

    def _records(
        self,
        x: Tensor,
        y: Tensor,
        logit_gradient: Tensor | None,
        weight: Tensor | None,
        units: Units | None,
        shifts: dict[nn.Module, tuple[GradSampler, Tensor]],
    ) -> Records:
        calls: list[_Call] = []

        def called(module: nn.Module, a: Tensor, out: Tensor) -> Tensor:
            if shifts:
                grad_sampler, scale = shifts[module]
                out = out + grad_sampler.shift(scale, a)
            a = a.detach()
            # the edge, not the tensor: an activation may overwrite the output in place
            calls.append(_Call(module, a, a._version, get_gradient_edge(out)))
            return out

        with torch.enable_grad():
            logits = self.graph(x, self.generator, called)
        loss, probability, total = self.loss_terms(logits, y, logit_gradient, weight)
        grads = torch.autograd.grad(logits, [call.edge for call in calls], total)
        with torch.no_grad():
            samplers = [self._book(call, b) for call, b in zip(calls, grads, strict=True)]
            if units is not None:
                samplers = [sampler.by_unit(units) for sampler in samplers]
                loss, probability = units.mean(loss), units.mean(probability)
            norm = sum_of(grad_sampler.norm2() for grad_sampler in samplers).sqrt()
        return Records(
            norm if units is None else units.divided(norm).to(loss.dtype),
            loss,
            probability,
            partial(self._add_samplers, samplers),
            lambda s: self._records(
                x,
                y,
                logit_gradient,
                weight,
                units,
                {g.module: (g, s) for g in samplers},
            ),
        )

    def _book(self, call: _Call, b: Tensor) -> GradSampler:
        if call.a._version != call.version:
            raise RuntimeError(
                f"The input of layer {call.module} was changed in place after the layer used it; "
                "write the operation out of place."
            )
        return layers.sampler_of(call.module)(call.module, call.a, b)


def uncovered(graph: Graph, module: nn.Module) -> str | None:
    """Return why book-keeping does not cover the parameters of a recorded module, or None."""
    layers_called = graph.layers
    owners = {id(p): m for m in layers_called for p in m.parameters(recurse=False)}
    for name, p in module.named_parameters():
        if p.requires_grad and id(p) not in owners:
            return f"parameter {name!r} is not in a layer that book-keeping covers"
    if len(set(layers_called)) < len(layers_called):
        return "a layer is called more than once in a forward pass"
    if len(owners) < sum(len(list(m.parameters(recurse=False))) for m in layers_called):
        return "two layers share a parameter"
    return None
