"""Book-keeping: one forward, one backward to the layers' outputs, no per-record gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from skdpfair.engine.batch import Batch
from skdpfair.engine.losses import Loss
from skdpfair.engine.per_sample import layers
from skdpfair.engine.per_sample.proof import ModuleCode, RecordTrace, TraceError
from skdpfair.engine.per_sample.records import Gradients, OutputGradient, Strategy
from skdpfair.engine.per_sample.vmap import gradients_at_ascent
from skdpfair.engine.precision import without_grad


class LayerTrace:
    """The inputs of a module's layers and the derivatives in their outputs, of one record.

    A `TraceError` says where the layers do not make up all that trains, each called once.
    """

    def __init__(self, code: ModuleCode) -> None:
        self._code, self._trace_calls = code, list[int]()
        self._layers = {
            i: layer for i, layer in enumerate(code.called.modules()) if _is_covered(layer)
        }
        owned = [p for layer in self._layers.values() for p in layer.parameters(recurse=False)]
        if len(owned) > len(set(owned)):
            raise TraceError("two layers share a parameter")
        for name, p in code.called.named_parameters():
            if p.requires_grad and all(p is not other for other in owned):
                raise TraceError(f"parameter {name!r} is not in a layer that book-keeping covers")
        self.trace: RecordTrace = code.trace(
            self._layer_inputs_and_output_gradients, any_size=True, output_gradient=True
        )
        self.order = self._trace_calls

    def _layer_inputs_and_output_gradients(
        self, *args: Tensor
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        *values, x, output_gradient = args
        with self._calls() as calls:
            outputs = self._code.outputs(self._code.leaves(values)[0], x)
        self._trace_calls = [i for i, *_ in calls]
        if sorted(self._trace_calls) != sorted(self._layers):
            raise TraceError("a layer is not called once in a forward pass")
        for i, a, _ in calls:
            if len(a) != 1 or not layers.takes_rows(self._layers[i], a):
                raise TraceError(f"{type(self._layers[i]).__name__} is not called on one record")
        gradients = torch.autograd.grad(outputs, [edge for *_, edge in calls], output_gradient)
        return outputs, [a[0] for _, a, _ in calls], [b[0] for b in gradients]

    @contextmanager
    def _calls(self) -> Iterator[list[tuple[int, Tensor, GradientEdge]]]:
        """Yield the layers that are called, their inputs and the edges of their outputs."""
        calls: list[tuple[int, Tensor, GradientEdge]] = []

        def forward(i: int, run: Callable[[Tensor], Tensor], a: Tensor) -> Tensor:
            out = run(a)
            # copy and edge: what follows may overwrite input and output in place
            calls.append((i, a.clone(), get_gradient_edge(out)))
            return out

        for i, layer in self._layers.items():
            layer.forward = partial(forward, i, type(layer).forward.__get__(layer))
        try:
            yield calls
        finally:
            for layer in self._layers.values():
                del layer.forward


def _is_covered(layer: nn.Module) -> bool:
    trains = any(p.requires_grad for p in layer.parameters(recurse=False))
    return trains and layers.is_covered(layer) and "forward" not in vars(layer)


class BookKeeping(Strategy):
    """Norms and weighted sums from layer inputs and output gradients (Bu et al. 2023).

    The backward stops at the layers' outputs, so plain weight gradients are never computed; the
    weighted sum then costs what they would have cost.
    """

    name = "bookkeeping"

    def __init__(
        self, module: nn.Module, loss: Loss, code: ModuleCode, layer_trace: LayerTrace
    ) -> None:
        reason = "every trainable layer has book-keeping formulas and is called once"
        super().__init__(module, loss, code, reason)
        self._trace = layer_trace.trace
        modules = list(module.modules())
        self._layers = [modules[i] for i in layer_trace.order]
        self.draws = self._trace.draws

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        del self._trace

    @without_grad
    def per_sample_gradients(self, batch: Batch) -> Gradients:
        last, x = OutputGradient(self, batch), batch.dense_x
        _, inputs, gradients = self._trace(self.generator, self._values(), x, output_gradient=last)
        samplers = [
            layers.sampler_of(layer)(layer, a, b)
            for layer, a, b in zip(self._layers, inputs, gradients, strict=True)
        ]
        at_ascent = partial(gradients_at_ascent, self, batch, samplers)
        return self._gradients(batch, samplers, None, *last.terms(), at_ascent)
