"""Book-keeping: one forward, one backward to the layers' outputs, no per-record gradients."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from skdpfair.engine.per_sample import layers
from skdpfair.engine.per_sample.records import Records, Strategy


@dataclass
class _Call:
    """One call of a captured layer: its input, and the edge of its output in the graph."""

    module: nn.Module
    a: Tensor
    version: int
    edge: object


class BookKeeping(Strategy):
    """Norms and weighted sums from layer inputs and output gradients (Bu et al. 2023).

    The first backward stops at the layers' outputs, so plain weight gradients are never
    computed; the weighted sum then costs what they would have cost.
    """

    name = "bookkeeping"

    def __init__(self, module, n_classes, class_weight=None):
        reason = "every trainable layer has book-keeping formulas and is called once"
        super().__init__(module, n_classes, class_weight, reason)
        self._calls: list[_Call] = []
        self._handles = []

    def __enter__(self):
        for module in self.module.modules():
            if any(p.requires_grad for p in module.parameters(recurse=False)):
                self._handles.append(module.register_forward_hook(self._capture))
        return self

    def __exit__(self, *exc):
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._calls.clear()
        super().__exit__(*exc)

    def _capture(self, module, inputs, output):
        if torch.is_grad_enabled() and output.requires_grad:
            a = inputs[0].detach()
            # the edge, not the tensor: an activation may overwrite the output in place
            self._calls.append(_Call(module, a, a._version, get_gradient_edge(output)))

    def records(self, x, y):
        """Return the gradients of a batch that is not empty."""
        self._calls.clear()
        with torch.enable_grad():
            logits = self.module(x)
        loss, probability, slope = self.loss_terms(logits, y)
        edges = [call.edge for call in self._calls]
        grads = torch.autograd.grad(logits, edges, slope)
        calls, self._calls = self._calls, []
        with torch.no_grad():
            return self._close(calls, grads, loss, probability)

    def _close(self, calls, grads, loss, probability):
        norm2, adders = 0.0, []
        for call, b in zip(calls, grads, strict=True):
            if call.a._version != call.version:
                raise RuntimeError(
                    f"The input of layer {call.module} was changed in place after the layer "
                    "used it; write the operation out of place."
                )
            part, add = layers.find(call.module).books(call.module, call.a, b)
            norm2 = norm2 + part
            adders.append(add)

        def weighted_sum(weight, out, finite=None):
            views = self.views(out)
            if finite is None:
                for add in adders:
                    add(weight, views)
                return
            for call, b in zip(calls, grads, strict=True):
                a, b = _masked(call.a, finite), _masked(b, finite)
                layers.find(call.module).books(call.module, a, b)[1](weight, views)

        return Records(norm2.sqrt(), loss, probability, weighted_sum)


def _masked(rows, finite):
    return torch.where(finite.view(-1, *[1] * (rows.dim() - 1)), rows, 0.0)
