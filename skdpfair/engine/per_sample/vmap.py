"""Micro-batched vmap: per-record gradients of any module that one record can pass through alone."""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from operator import itemgetter
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch._decomp import get_decompositions
from torch._guards import TracingContext, tracing
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.func import functional_call, vmap
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves, tree_map_only

from skdpfair._describe import state_of
from skdpfair.engine.flat import split
from skdpfair.engine.losses import Loss
from skdpfair.engine.per_sample.apart import Apart
from skdpfair.engine.per_sample.batch_statistics import hold_statistics
from skdpfair.engine.per_sample.bounded import BOUNDED
from skdpfair.engine.per_sample.closed_list import PLAIN_TENSORS, explained, reason_to_refuse
from skdpfair.engine.per_sample.graph import shared_draws, with_place
from skdpfair.engine.per_sample.layers.grad_sampler import rounding, sum_of
from skdpfair.engine.per_sample.records import Records, Strategy, at_most
from skdpfair.engine.per_sample.stand_ins import NotRecorded
from skdpfair.engine.precision import without_grad
from skdpfair.engine.units import Units

Tensors: TypeAlias = dict[str, Tensor]

MICRO_BATCH = 32
_TRACING = threading.Lock()  # torch's tracer keeps a state of the whole process
_ATEN = torch.ops.aten
# by numbers of a given generator; and what reads memory beyond a tensor that is too small
_DECOMPOSED: Any = get_decompositions(
    [
        _ATEN.native_dropout,
        _ATEN._weight_norm_interface,
        _ATEN.unfold_backward,
        _ATEN._native_batch_norm_legit,
        _ATEN.native_batch_norm_backward,
        _ATEN.native_group_norm_backward,
        _ATEN.native_layer_norm_backward,
    ]
)
_DECOMPOSED[_ATEN._weight_norm_interface_backward.default] = (
    _ATEN._weight_norm_differentiable_backward
)
_DECOMPOSED.update(BOUNDED)
_LIKE: Any = {  # vmap would draw for one record after the other
    torch.ops.aten.rand_like.default: torch.ops.aten.rand.generator,
    torch.ops.aten.randn_like.default: torch.ops.aten.randn.generator,
}


class MicroVmap(Strategy):
    """Instantiate the gradients of a few records at a time, once for norms, once for the sum.

    The module's code runs under vmap, where it sees one record.  It does so once, on made-up
    records, while torch traces the operations; training repeats these.  So no line of the code
    sees a record of the data, nor remembers one.
    """

    name = "vmap"
    proof = "per-record by vmap"

    def __init__(
        self,
        module: nn.Module,
        loss: Loss,
        reason: str = "",
        records_per_unit: int = 1,
    ) -> None:
        super().__init__(module, loss, reason)
        self.micro_batch = max(MICRO_BATCH, records_per_unit)  # takes all records of a person
        # every place that holds a parameter, once: functional_call's own tying does not put a
        # parameter back where a layer is reached under two names
        names = {p: name for name, p in module.named_parameters()}
        self._places = {
            f"{prefix}.{local}".lstrip("."): names[p]
            for prefix, layer in module.named_modules()
            for local, p in layer.named_parameters(recurse=False, remove_duplicate=False)
        }
        self._called = hold_statistics(copy.deepcopy(module))
        self._traced: dict[str, tuple[GraphModule, Sequence[Tensor]]] = {}
        self._drawing: list[bool] = []

    @property
    def draws(self) -> bool:  # type: ignore[override]  # known once it is traced
        """Whether a pass may draw random numbers: so it may before it was traced."""
        return not self._drawing or any(self._drawing)

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self._traced = {}  # which draw from the generator

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of a batch."""
        return torch.cat(list(self._each(self._logits, [x])))

    def records(
        self,
        x: Tensor,
        y: Tensor,
        logit_gradient: Tensor | None = None,
        weight: Tensor | None = None,
        units: Units | None = None,
    ) -> Records:
        """Return the gradients of a batch that is not empty."""
        columns = self._columns(x, y, logit_gradient, weight)
        self._trace(self._gradient, columns)
        return self._records(columns, weight, units, partial(self._each, self._gradient, columns))

    def _columns(
        self, x: Tensor, y: Tensor, logit_gradient: Tensor | None, weight: Tensor | None
    ) -> tuple[Tensor, ...]:
        """Return what the gradients of a batch are made of, a row per record."""
        like = self.parameters[0]
        if logit_gradient is None:
            logit_gradient = like.new_zeros((len(x), self.loss.n_outputs))
        factor = self.loss.factor(y, weight)
        return x, y, logit_gradient, like.new_ones(len(x)) if factor is None else factor

    def _records(
        self,
        given: tuple[Tensor, ...],
        weight: Tensor | None,
        units: Units | None,
        each: Callable[..., Iterator[Any]],
    ) -> Records:
        """Return the gradients that ``each`` yields, a few records at a time."""
        parts = None if units is None else units.split(self.micro_batch)
        chance, logits, norms = self.chance(), [], []
        for k, (gradients, out) in enumerate(each(parts)):
            norms.append(_norm(gradients, parts[k] if parts else None))
            logits.append(out)
        loss, probability, _ = self.loss_terms(torch.cat(logits), given[1], None, weight)
        if units is not None:
            loss, probability = units.mean(loss), units.mean(probability)

        @without_grad
        def weighted_sum(weight: Tensor, out: Tensor, finite: Tensor | None = None) -> None:
            self.replay(chance)  # the same dropout masks
            views, weights = self.views(out), weight.split([len(norm) for norm in norms])
            for k, (gradients, _) in enumerate(each(parts)):
                own = parts[k] if parts else None
                w = at_most(weights[k], norms[k], _norm(gradients, own))
                w = own.spread(own.divided(w)) if own else w
                for name, p in self._named(True).items():
                    rows = torch.where((w != 0)[:, None], _rows(gradients[name]), 0.0)
                    views[p].view(-1).addmv_(rows.t(), w)

        def ahead(scale: Tensor) -> Records:
            persons = Units(torch.ones_like(given[1]), each=1) if units is None else units
            own = persons.split(self.micro_batch)
            return self._records(
                given, weight, units, lambda parts: self._each_ahead(given, scale, own)
            )

        return Records(torch.cat(norms), loss, probability, weighted_sum, ahead)

    def _each(
        self,
        function: Callable[..., Any],
        columns: Sequence[Tensor],
        parts: Sequence[Units] | None = None,
    ) -> Iterator[Any]:
        """Yield what ``function`` of one record gives for each record, a few at a time.

        ``parts`` holds the persons whose records are taken at a time.
        """
        run, values = self._trace(function, columns), self._values()
        sizes = self.micro_batch if parts is None else [part.n_records for part in parts]
        for part in zip(*(column.split(sizes) for column in columns), strict=True):
            n = len(part[0])
            found = run(*values, *(_filled(column, self.micro_batch) for column in part))
            yield tree_map_only(torch.Tensor, itemgetter(slice(n)), found)

    def _each_ahead(
        self, given: Sequence[Tensor], scale: Tensor, parts: Sequence[Units]
    ) -> Iterator[Any]:
        """Yield gradients where parameters are moved by ``scale`` times those of the person."""
        here, sizes = self._each(self._gradient, given, parts), [part.n_records for part in parts]
        columns = zip(*(column.split(sizes) for column in given), strict=True)
        scales = scale.split([len(part) for part in parts])
        for part, own, s, (gradients, _) in zip(parts, columns, scales, here, strict=True):
            rows = torch.cat([_rows(g) for g in gradients.values()], dim=1)
            step = part.spread(part.mean(rows) * s[:, None])
            yield from self._each(self._gradient_along, (*own, step))

    def _trace(self, function: Callable[..., Any], columns: Sequence[Tensor]) -> GraphModule:
        """Return the operations of ``function`` on so many records, traced once."""
        name = function.__name__
        if name not in self._traced:
            few = [column[:1] for column in columns]
            self._traced[name] = self._newly_traced(function, few), few
        traced, _ = self._traced[name]
        return traced

    def _newly_traced(self, function: Callable[..., Any], columns: Sequence[Tensor]) -> GraphModule:
        made_up = [column[0].new_full(column.shape[1:], _half(column)) for column in columns]
        one = operations_of(function, (*self._values(), *made_up), n_shared=2)
        each = vmap(one, (None, None, *[0] * len(columns)), randomness="different")
        several = [row.expand(self.micro_batch, *row.shape) for row in made_up]
        found = operations_of(each, (*self._values(), *several))
        self._drawing.append(draw_from(found, self.generator))
        return found

    def remembers(self) -> bool:
        """Tell whether the module's code changes anything when it is traced once more."""
        before = state_of(self._called)
        functions, self._traced = self._traced, {}
        for name, (_, columns) in functions.items():
            self._trace(getattr(self, name), columns)
        return state_of(self._called) != before

    def _logits(self, trained: Tensors, frozen: Tensors, x: Tensor) -> Tensor:
        return self._forward({**trained, **frozen}, x)

    def _gradient(
        self,
        trained: Tensors,
        frozen: Tensors,
        x: Tensor,
        y: Tensor,
        logit_gradient: Tensor,
        factor: Tensor,
    ) -> tuple[Tensors, Tensor]:
        given = frozen, x, y, logit_gradient, factor
        return gradient_of(lambda values: self._loss(values, *given), trained)

    def _gradient_along(
        self,
        trained: Tensors,
        frozen: Tensors,
        x: Tensor,
        y: Tensor,
        logit_gradient: Tensor,
        factor: Tensor,
        step: Tensor,
    ) -> tuple[Tensors, Tensor]:
        steps = zip(trained.items(), split(step, self.parameters), strict=True)
        moved = {name: value + part for (name, value), part in steps}
        return self._gradient(moved, frozen, x, y, logit_gradient, factor)

    def _values(self) -> tuple[Tensors, Tensors]:
        trained, frozen = (
            {k: p.detach() for k, p in self._named(t).items()} for t in (True, False)
        )
        return trained, frozen

    def _named(self, trained: bool) -> dict[str, nn.Parameter]:
        return {k: p for k, p in self.module.named_parameters() if p.requires_grad == trained}

    def _forward(self, values: Tensors, x: Tensor) -> Tensor:
        values = {place: values[name] for place, name in self._places.items()}
        own = x[None].clone()  # which a layer may change in place
        logits: Tensor = functional_call(self._called, values, (own,), tie_weights=False)[0]
        return logits

    def _loss(
        self,
        trained: Tensors,
        frozen: Tensors,
        x: Tensor,
        y: Tensor,
        logit_gradient: Tensor,
        factor: Tensor,
    ) -> tuple[Tensor, Tensor]:
        logits = self._forward({**trained, **frozen}, x)
        loss = factor * self.loss.each(logits[None], y[None]).sum()
        return loss + (logit_gradient * logits).sum(), logits.detach()


def gradient_of(
    function: Callable[[Tensors], tuple[Tensor, Tensor]], values: Tensors
) -> tuple[Tensors, Tensor]:
    """Return the gradient of the first result of a function in ``values``, and the second result.

    Autograd takes it while operations are traced, so that gradients of the module's own are, too.
    """
    leaves = {k: v if v.requires_grad else v.detach().requires_grad_() for k, v in values.items()}
    total, other = function(leaves)
    found = torch.autograd.grad(
        total, tuple(leaves.values()), create_graph=True, materialize_grads=True
    )
    return dict(zip(leaves, found, strict=True)), other


def operations_of(
    function: Callable[..., Any], given: tuple[Any, ...], n_shared: int | None = None
) -> GraphModule:
    """Return the operations that a function carries out on tensors, none of them in place.

    Its Python runs once, on copies of the tensors ``given``.

    Parameters
    ----------
    function : callable
        Takes tensors, or dicts of them.
    given : tuple
        Its arguments, made up.
    n_shared : int, optional
        How many of the first arguments are the same for all records, where the operations are
        those of one record: each is then tried on several.

    Returns
    -------
    torch.fx.GraphModule
        The operations, called with arguments of the same shapes.

    Raises
    ------
    NotRecorded
        If the function decides by values, by Python's or numpy's random numbers, changes what it
        is given or reads parameters from elsewhere; with the line.
    """

    def run(*args: Any) -> Any:
        found = function(*args)
        mutated: Any = torch._functionalize_has_data_mutation  # type: ignore[attr-defined]
        if any(mutated(t.elem) for t in tree_leaves(args)):
            raise NotRecorded("it changes its input or its parameters in place")
        return found

    copies = tree_map_only(torch.Tensor, torch.clone, given)
    devices = {t.device for t in tree_leaves(given) if t.is_cuda}
    with _TRACING, torch.random.fork_rng(devices), warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore")  # of operations that vmap takes one by one
        draws = shared_draws()
        try:
            # vmap knows neither mkldnn's and cuDNN's recurrences nor fused attention
            with (
                torch.backends.mkldnn.flags(enabled=False),
                _without_cudnn(),
                sdpa_kernel(SDPBackend.MATH),
                _noted(),
            ):
                found = make_fx(dispatch_functionalize(run), _DECOMPOSED)(*copies)
        except Exception as error:
            raise with_place(explained(error), error) from None
        if shared_draws() != draws:
            raise NotRecorded("it draws random numbers that all records of a batch share")
        for node in found.graph.nodes:
            if reason := reason_to_refuse(node):
                raise NotRecorded(reason)
        held = [getattr(found, n.target) for n in found.graph.nodes if n.op == "get_attr"]
        held = [t for t in held if not isinstance(t, torch.Generator)]  # which `draw_from` refuses
        if any(type(t) not in PLAIN_TENSORS or t.requires_grad for t in held):
            raise NotRecorded("it reads a parameter that is not its own, as a patched method may")
        versions = [t._version for t in held]
        found(*copies)
        if versions != [t._version for t in held]:
            raise NotRecorded("it changes a tensor that is kept from call to call")
        if n_shared is not None:
            Apart(found, len(tree_leaves(copies[:n_shared]))).check(*copies)
    return found


@contextmanager
def _without_cudnn() -> Iterator[None]:
    """Turn cuDNN off; its ``flags`` read a switch of TF32 that full precision leaves undefined."""
    before = torch.backends.cudnn.enabled
    torch.backends.cudnn.enabled = False
    try:
        yield
    finally:
        torch.backends.cudnn.enabled = before


def _noted() -> AbstractContextManager[Any]:
    """Let the tracer note all shapes by one fake mode; it would make another for each tensor."""
    return tracing(TracingContext(FakeTensorMode(allow_fallback_kernels=True)))


def draw_from(operations: GraphModule, generator: torch.Generator) -> bool:
    """Let random operations draw from a generator, and tell whether there are any."""
    drawn = [
        node
        for node in operations.graph.nodes
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    ]
    for node in drawn:
        if node.kwargs.get("generator") is not None:
            raise NotRecorded("it draws random numbers from a generator of its own")
        node.target = _drawing(node.target, generator)
    for node in operations.graph.nodes:
        if "empty" in getattr(getattr(node.target, "overloadpacket", None), "__name__", ""):
            node.target = _zeroed(node.target)  # memory that nobody wrote may hold anything
    operations.recompile()
    return bool(drawn)


def _half(column: Tensor) -> float:
    return 0.5 if column.is_floating_point() else 0


def _norm(gradients: Tensors, units: Units | None = None) -> Tensor:
    """Return the norm of each record's or person's gradient, from those of all parameters."""
    norm2 = sum_of(_rows(g).square().sum(1) for g in gradients.values())
    if units is None:
        return norm2.sqrt()
    # long gradients that cancel leave an error when they are added up
    longest = units.sum(norm2.sqrt())
    norm2 = sum_of(units.sum(_rows(g)).square().sum(1) for g in gradients.values())
    return units.divided((norm2 + rounding(units.size, longest) * longest.square()).sqrt())


def _rows(gradient: Tensor) -> Tensor:
    return gradient.reshape(len(gradient), -1)


def _filled(column: Tensor, size: int) -> Tensor:
    """Return a column of as many rows as were traced."""
    missing = size - len(column)
    return (
        torch.cat([column, column.new_zeros((missing, *column.shape[1:]))]) if missing else column
    )


def _drawing(operation: OpOverload[..., Any], generator: torch.Generator) -> Callable[..., Any]:
    """Return a random operation that draws from ``generator``."""
    if operation in _LIKE:
        return _bound_like(_LIKE[operation], generator)
    packet = operation.overloadpacket
    for overload in (operation, *(getattr(packet, name) for name in packet.overloads())):
        takes = [a.name for a in overload._schema.arguments]
        if "generator" in takes and takes[: len(_names(operation))] == _names(operation):
            return _bound(overload, generator)
    raise NotRecorded(f"it draws random numbers by {operation}, which takes no generator")


def _zeroed(operation: OpOverload[..., Any]) -> Callable[..., Any]:
    def zeros(*args: Any, **kwargs: Any) -> Any:
        return operation(*args, **kwargs).zero_()

    return zeros


def _bound(operation: OpOverload[..., Any], generator: torch.Generator) -> Callable[..., Any]:
    def drawn(*args: Any, **kwargs: Any) -> Any:
        return operation(*args, generator=generator, **kwargs)

    return drawn


def _bound_like(operation: OpOverload[..., Any], generator: torch.Generator) -> Callable[..., Any]:
    def drawn(like: Tensor, *, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
        kind = {"dtype": dtype or like.dtype, "device": like.device}
        return operation(like.shape, generator=generator, **kind)

    return drawn


def _names(operation: OpOverload[..., Any]) -> list[str]:
    return [a.name for a in operation._schema.arguments if not a.kwarg_only]
