"""The code of a module as a function of its parameters and of one record, traced once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.fx import GraphModule

from skdpfair._utils.describe import state_of
from skdpfair.engine.flat import split
from skdpfair.engine.losses import Loss
from skdpfair.engine.per_sample.proof.frozen_statistics import hold_statistics
from skdpfair.engine.per_sample.proof.module_checks import REMEMBERS, check_module, refuse_mixing
from skdpfair.engine.per_sample.proof.record_trace import RecordTrace
from skdpfair.engine.per_sample.proof.tracing import trace
from skdpfair.exceptions import UnsupportedModuleError

T = TypeVar("T")


def prove(module: nn.Module, example: Tensor, loss: Loss) -> ModuleCode:
    """Return the code of a module, in which no record acts on the results of another.

    ``example`` has records of the shape, dtype and device of those to come; no number in it is
    used.  An UnsupportedModuleError says what of the module, or of its outputs, is refused.  All
    else is proven where it is needed: a `ModuleCode` traces nothing that it cannot prove.
    """
    return ModuleCode(module, check_module(module, example, loss), loss)


class ModuleCode:
    """The operations of a module's code on one record, for any values of the parameters.

    The code of a copy runs on made-up records, like those of ``probe`` (batch, ...), while it is
    traced; training repeats the operations.  See `prove`.
    """

    def __init__(self, module: nn.Module, probe: Tensor, loss: Loss) -> None:
        # every place that holds a parameter, once: functional_call's own tying does not put a
        # parameter back where a layer is reached under two names
        names = {p: name for name, p in module.named_parameters()}
        self._places = {
            f"{prefix}.{local}".lstrip("."): names[p]
            for prefix, layer in module.named_modules()
            for local, p in layer.named_parameters(recurse=False, remove_duplicate=False)
        }
        self.trained = {name: p.requires_grad for name, p in module.named_parameters()}
        self.called = hold_statistics(copy.deepcopy(module))
        # for calls of other functions than its forward
        self._holder = nn.ModuleDict({"module": self.called})
        self._holder.forward = lambda run: run()
        self.module, self.probe, self.loss = module, probe, loss
        self._record = probe.new_full(probe.shape[1:], 0.5 if probe.is_floating_point() else 0)
        self._values = [p.detach() for p in self.called.parameters()]
        self._slope = self._values[0].new_full((loss.n_outputs,), 0.5)
        self._is_unmixed = False

    def outputs(self, values: Sequence[Tensor], x: Tensor) -> Tensor:
        """Return the outputs of one record; autograd may pass."""
        # a copy, since a layer may change it in place
        return self._with(values, lambda: cast(Tensor, self.called(x[None].clone())[0]))

    def _with(self, values: Sequence[Tensor], run: Callable[[], T]) -> T:
        """Return the result of ``run()`` where the parameters have other values."""
        named = dict(zip(self.trained, values, strict=True))
        parameters = {f"module.{place}": named[name] for place, name in self._places.items()}
        return cast(T, functional_call(self._holder, parameters, (run,), tie_weights=False))

    def leaves(self, values: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return the parameters as leaves of autograd's graph, all of them and the trained ones."""
        trained = self.trained.values()
        leaves = [
            v if v.requires_grad or not trains else v.detach().requires_grad_()
            for v, trains in zip(values, trained, strict=True)
        ]
        return leaves, [v for v, trains in zip(leaves, trained, strict=True) if trains]

    def trace(
        self,
        function: Callable[..., Any],
        *columns: Tensor,
        parameters_by_record: bool = False,
        output_gradient: bool = False,
    ) -> RecordTrace:
        """Return the trace of a function of parameters, a record and what goes with it.

        ``columns`` are of one record; ``output_gradient`` adds the gradient in the outputs.  A
        module that brings records together, or remembers them, is refused.
        """
        shared, record = self._values, [self._record, *columns, *[self._slope] * output_gradient]
        if not isinstance(function, GraphModule):
            function = self._operations(function, *shared, *record)
        if parameters_by_record:
            shared, record = [], [*shared, *record]
        return RecordTrace(function, shared, record, output_gradient=output_gradient)

    def _operations(self, function: Callable[..., Any], *args: Tensor) -> GraphModule:
        """Return the operations of a function, of one record and for any parameters."""
        if not self._is_unmixed:
            refuse_mixing(self.module, self.probe)
            self._is_unmixed = True
        before = state_of(self.called)
        traced = trace(function, args)
        # the first call may change what torch keeps of it
        if (after := state_of(self.called)) != before:
            trace(function, args)
            if state_of(self.called) != after:
                raise UnsupportedModuleError(REMEMBERS)
        return traced

    @cached_property
    def forward(self) -> RecordTrace:
        """The outputs of the module."""
        return self.trace(lambda *args: self.outputs(args[:-1], args[-1]))

    @cached_property
    def gradient_operations(self) -> GraphModule:
        """Those of the outputs, and of their products with the derivatives in what trains."""
        return self._operations(self._gradient, *self._values, self._record, self._slope)

    @cached_property
    def gradients(self) -> RecordTrace:
        """The outputs, and their products with the derivatives in the trained parameters."""
        return self.trace(self.gradient_operations, output_gradient=True)

    @cached_property
    def gradients_by_record(self) -> RecordTrace:
        """The same where each record has parameters of its own."""
        return self.trace(self.gradient_operations, output_gradient=True, parameters_by_record=True)

    def _gradient(self, *args: Tensor) -> tuple[Tensor, list[Tensor]]:
        *values, x, output_gradient = args
        leaves, trained = self.leaves(values)

        def run() -> tuple[Tensor, list[Tensor]]:
            outputs = self.called(x[None].clone())[0]
            each = torch.autograd.grad(outputs, trained, output_gradient, materialize_grads=True)
            return outputs, list(each)

        # a backward pass may read parameters again, as that of torch.utils.checkpoint does
        return self._with(leaves, run)

    @cached_property
    def hessian_products(self) -> RecordTrace:
        """The Hessian of a record's loss, times a factor and its own vector."""
        like = next(self.called.parameters())
        vector = like.new_ones(sum(p.numel() for p in self.called.parameters() if p.requires_grad))
        target = self.loss.probe_targets(1, like.device)[0]
        return self.trace(self._hessian_product, target, like.new_ones(()), vector)

    def _hessian_product(self, *args: Tensor) -> list[Tensor]:
        *values, x, y, factor, vector = args
        leaves, trained = self.leaves(values)
        loss = factor * self.loss.each(self.outputs(leaves, x)[None], y[None]).sum()
        gradients = torch.autograd.grad(loss, trained, create_graph=True, materialize_grads=True)
        parts = zip(gradients, split(vector, trained), strict=True)
        along = torch.stack([(g * part).sum() for g, part in parts]).sum()
        return list(torch.autograd.grad(along, trained, materialize_grads=True))
