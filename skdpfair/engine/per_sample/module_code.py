"""The code of a module as a function of its parameters and of one record, traced once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from skdpfair._utils.describe import state_of
from skdpfair.engine.flat import split
from skdpfair.engine.losses import Loss
from skdpfair.engine.per_sample.batch_statistics import hold_statistics
from skdpfair.engine.per_sample.tracing import RecordTrace, trace
from skdpfair.exceptions import UnsupportedModuleError


class ModuleCode:
    """What a module's code does with one record, for any values of the parameters.

    The code of a copy runs on made-up records, like those of ``example`` in shape, dtype and
    device, while it is traced; training repeats the operations.
    """

    def __init__(self, module: nn.Module, example: Tensor, loss: Loss) -> None:
        # every place that holds a parameter, once: functional_call's own tying does not put a
        # parameter back where a layer is reached under two names
        names = {p: name for name, p in module.named_parameters()}
        self.places = {
            f"{prefix}.{local}".lstrip("."): names[p]
            for prefix, layer in module.named_modules()
            for local, p in layer.named_parameters(recurse=False, remove_duplicate=False)
        }
        self.trained = {name: p.requires_grad for name, p in module.named_parameters()}
        self.called = hold_statistics(copy.deepcopy(module))
        self.record = example.new_full(example.shape[1:], 0.5 if example.is_floating_point() else 0)
        self.loss = loss

    def outputs(self, values: Sequence[Tensor], x: Tensor) -> Tensor:
        """Return the outputs of one record; autograd may pass."""
        named = dict(zip(self.trained, values, strict=True))
        parameters = {place: named[name] for place, name in self.places.items()}
        # a copy, since a layer may change it in place
        row = x[None].clone()
        outputs: Tensor = functional_call(self.called, parameters, (row,), tie_weights=False)[0]
        return outputs

    def leaves(self, values: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return the parameters as leaves of autograd's graph, all of them and the trained ones."""
        leaves = [
            v if v.requires_grad or not trains else v.detach().requires_grad_()
            for v, trains in zip(values, self.trained.values(), strict=True)
        ]
        return leaves, [
            v for v, trains in zip(leaves, self.trained.values(), strict=True) if trains
        ]

    def trace(
        self,
        function: Callable[..., Any],
        *columns: Tensor,
        parameters_by_record: bool = False,
        any_size: bool = False,
        slope: bool = False,
    ) -> RecordTrace:
        """Return the trace of a function of parameters, a record and what goes with it.

        ``columns`` are of one record; ``slope`` adds the gradient in the outputs.
        """
        values = [p.detach() for p in self.called.parameters()]
        record = [self.record, *columns]
        if slope:
            record.append(values[0].new_full((self.loss.n_outputs,), 0.5))
        shared, by_record = ([], [*values, *record]) if parameters_by_record else (values, record)
        before = state_of(self.called)
        traced = RecordTrace(function, shared, by_record, any_size=any_size, slope=slope)
        after = state_of(self.called)
        # the first call may change what torch keeps of it
        if after != before:
            trace(function, (*shared, *by_record))
            if state_of(self.called) != after:
                raise UnsupportedModuleError(_REMEMBERS)
        return traced

    @cached_property
    def forward(self) -> RecordTrace:
        """The outputs of the module."""
        return self.trace(lambda *args: self.outputs(args[:-1], args[-1]))

    @cached_property
    def gradients(self) -> RecordTrace:
        """The outputs, and their products with the derivatives in the trained parameters."""
        return self.trace(self.gradient, slope=True)

    @cached_property
    def gradients_by_record(self) -> RecordTrace:
        """The same where each record has parameters of its own."""
        return self.trace(self.gradient, slope=True, parameters_by_record=True)

    def gradient(self, *args: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return that of one record, with the slope last."""
        *values, x, slope = args
        leaves, trained = self.leaves(values)
        outputs = self.outputs(leaves, x)
        gradients = torch.autograd.grad(outputs, trained, slope, materialize_grads=True)
        return outputs, list(gradients)

    @cached_property
    def hessian_products(self) -> RecordTrace:
        """The Hessian of a record's loss, times a factor and its own vector."""
        like = next(self.called.parameters())
        target, n = (
            self.loss.probe_targets(1, like.device)[0],
            sum(p.numel() for p in self._trained()),
        )
        return self.trace(self._hessian_product, target, like.new_ones(()), like.new_ones(n))

    def _hessian_product(self, *args: Tensor) -> list[Tensor]:
        *values, x, y, factor, vector = args
        leaves, trained = self.leaves(values)
        loss = factor * self.loss.each(self.outputs(leaves, x)[None], y[None]).sum()
        gradients = torch.autograd.grad(loss, trained, create_graph=True, materialize_grads=True)
        parts = zip(gradients, split(vector, self._trained()), strict=True)
        along = torch.stack([(g * part).sum() for g, part in parts]).sum()
        return list(torch.autograd.grad(along, trained, materialize_grads=True))

    def _trained(self) -> list[nn.Parameter]:
        return [p for p in self.called.parameters() if p.requires_grad]


_REMEMBERS = (
    "module remembers: its forward pass changes its attributes, buffers or parameters, or differs "
    "from call to call, so that one record could act on the gradients of others, or stay in the "
    "model. Make the forward pass depend on its input and parameters only."
)
