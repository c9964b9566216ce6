"""Closed form: forward and backward of a chain of Linear layers by formulas, without autograd."""

from collections.abc import Callable
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from skdpfair._networks import FineColumns
from skdpfair.engine.batch import Batch
from skdpfair.engine.losses import Loss
from skdpfair.engine.per_sample.ascent import gradients_at_ascent
from skdpfair.engine.per_sample.proof import TraceError
from skdpfair.engine.per_sample.records import Gradients, Strategy
from skdpfair.engine.per_sample.samplers import ProductGradSampler, SparseGradSampler, lengths_of
from skdpfair.engine.precision import without_grad
from skdpfair.engine.sparse_rows import SparseBatch

_aten = torch.ops.aten

# forward(z), which may overwrite z, and backward(b, out), from its output alone
Activation: TypeAlias = tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]
ACTIVATIONS: dict[type[nn.Module], Activation] = {
    nn.Tanh: (torch.tanh_, _aten.tanh_backward),
    nn.Sigmoid: (torch.sigmoid_, _aten.sigmoid_backward),
    nn.ReLU: (torch.relu_, lambda b, out: _aten.threshold_backward(b, out, 0)),
}
Chain: TypeAlias = list[tuple[nn.Linear, Activation | None]]
# of parameters, record by record: gradients, and what they are times
Shift: TypeAlias = tuple[list[ProductGradSampler], Tensor]


class ClosedForm(Strategy):
    """Per-record gradients of Linear layers, each with an activation after it or none."""

    name = "closed_form"
    proof = "per-record by formulas"

    def __init__(self, module: nn.Module, loss: Loss, chain: Chain) -> None:
        reason = "the module is a chain of Linear layers and activations with known derivatives"
        super().__init__(module, loss, reason=reason)
        trains = [any(p.requires_grad for p in layer.parameters()) for layer, _ in chain]
        self._chain, self._first = chain, trains.index(True)
        self._one = self.parameters[0].new_ones(())
        # more than squares too small for the type can take from a length
        widest = max(max(layer.weight.shape) for layer, _ in chain)
        self._least = self._one * (widest * torch.finfo(self._one.dtype).tiny) ** 0.5
        self._lengths = lengths_of(widest)

    def forward(self, x: Tensor | SparseBatch) -> Tensor:
        return forward_of(self._chain, x)

    def logits(self, batch: Batch) -> Tensor:
        return self.forward(batch.x)  # stays sparse

    @without_grad
    def per_sample_gradients(self, batch: Batch, shift: Shift | None = None) -> Gradients:
        """Return the gradients of the examples, at shifted parameters if ``shift`` is given."""

        def change(i: int, a: Any) -> Any:
            i -= self._first
            return 0.0 if shift is None or i < 0 else shift[0][i].shift(shift[1], a)

        inputs: list[Any] = []
        logits = forward_of(self._chain, batch.x, inputs, None if shift is None else change)
        loss, probability, b = self.loss_terms(logits, batch)
        samplers = self._backward(inputs, logits, b, shift)
        is_plain = batch.examples.rows_per_example == 1

        def at_ascent(scale: Tensor) -> Gradients:
            if is_plain:
                return self.per_sample_gradients(batch, (samplers, scale))
            return gradients_at_ascent(self, batch, samplers, scale)

        norm = self._norm(samplers) if is_plain else None
        return self.gradients_of(batch, samplers, norm, loss, probability, at_ascent)

    def _backward(
        self, inputs: list[Any], out: Tensor, b: Tensor, shift: Shift | None
    ) -> list[ProductGradSampler]:
        """Return the grad samplers from the first layer that trains to the last."""
        grad_samplers = []
        for i in range(len(self._chain) - 1, self._first - 1, -1):
            layer, activation = self._chain[i]
            if activation is not None:
                b = activation[1](b, out)
            out = inputs[i]
            kind = ProductGradSampler if isinstance(out, Tensor) else SparseGradSampler
            of_layer = layer.weight, layer.bias
            trained = [p if p is not None and p.requires_grad else None for p in of_layer]
            grad_samplers.append(kind(out, b, *trained))
            if i > self._first:
                change = shift and shift[0][i - self._first].shift_back(shift[1], b)
                b = b @ layer.weight
                if change is not None:
                    b += change
        return grad_samplers[::-1]

    def _norm(self, grad_samplers: list[ProductGradSampler]) -> Tensor:
        """Return the root of the sum of (|a|^2 + 1) |b|^2 over the layers, for frozen ones less."""
        lengths = [self._lengths(grad_sampler.b) for grad_sampler in grad_samplers]
        factors = [self._factor(grad_sampler) for grad_sampler in grad_samplers]
        if len(grad_samplers) == 1 and self._chain[-1][1] is None:
            return factors[0].mul_(lengths[0])  # see losses.MIN_OUTPUT_GRADIENT
        rows = torch.stack(lengths).add_(self._least)
        norm: Tensor = torch.linalg.vector_norm(torch.stack(factors).mul_(rows), dim=0)
        return norm

    def _factor(self, grad_sampler: ProductGradSampler) -> Tensor:
        a, b, has_bias = grad_sampler.a, grad_sampler.b, grad_sampler.bias is not None
        if grad_sampler.weight is None:
            return b.new_full((len(b),), float(has_bias))
        length = self._lengths(a) if isinstance(a, Tensor) else a.lengths(b)
        return length.hypot_(self._one) if has_bias else length.add_(self._least)


def forward_of(
    chain: Chain,
    x: Tensor | SparseBatch,
    inputs: list[Any] | None = None,
    change: Callable[[int, Any], Any] | None = None,
) -> Tensor:
    """Return the outputs of a chain of layers, whose inputs are appended to ``inputs``.

    ``change(i, a)`` is added to what layer ``i`` makes of its input ``a``.
    """
    a: Any = x.flatten(1) if isinstance(x, Tensor) else x
    for i, (layer, activation) in enumerate(chain):
        if inputs is not None:
            inputs.append(a)
        product = linear if isinstance(a, Tensor) else SparseBatch.linear
        z = product(a, layer.weight, layer.bias)
        if change is not None:
            z += change(i, a)
        a = z if activation is None else activation[0](z)
    return cast("Tensor", a)


def linear_layers(module: nn.Module, x: Tensor) -> Chain:
    """Return the chain of ``module`` for inputs like ``x``; a `TraceError` says why it is none."""
    chain, seen, flat = Chain(), set[nn.Parameter](), x.dim() == 2
    for part in _parts(module):
        kind = type(part)
        if _is_altered(part):
            raise TraceError(f"{kind.__name__} has hooks, or a forward of its own")
        if type(part) is nn.Flatten and (part.start_dim, part.end_dim) == (1, -1):
            flat = True
        elif type(part) is nn.Linear and flat and seen.isdisjoint(part.parameters()):
            seen.update(part.parameters())
            chain.append((part, None))
        elif kind in ACTIVATIONS and chain and chain[-1][1] is None:
            chain[-1] = chain[-1][0], ACTIVATIONS[kind]
        elif not (kind is nn.Identity or (kind is FineColumns and x.shape[1] == part.width)):
            raise TraceError(f"{kind.__name__} is not one that the closed form covers here")
    if not chain:
        raise TraceError("there is no Linear layer")
    return chain


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def _parts(module: nn.Module) -> list[nn.Module]:
    if type(module) is not nn.Sequential or _is_altered(module):
        return [module]
    return [part for child in module for part in _parts(child)]


def _is_altered(part: nn.Module) -> bool:
    return "forward" in vars(part) or any(getattr(part, hooks) for hooks in _HOOKS)
