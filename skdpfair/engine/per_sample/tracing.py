"""Traces of functions of one record: the proof that the records of a batch do not meet.

A function of ONE record is traced once, on a made-up record, into operations of torch, each of
which must stand in a closed list.  Under `torch.func.vmap` these act on every record alone.  No
line of the function's code sees a record of the data, the number of records or another record.
"""

from __future__ import annotations

import operator
import pickle
import random
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeAlias, cast

import torch
from sklearn.utils import check_random_state
from torch import Tensor
from torch._guards import TracingContext, tracing
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.func import vmap
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_map

from skdpfair.engine.per_sample.apart import Apart
from skdpfair.engine.per_sample.closed_list import (
    PLAIN_TENSORS,
    TraceError,
    explained,
    reason_to_refuse,
)
from skdpfair.engine.per_sample.decompositions import DECOMPOSED

_OWN = Path(__file__).parents[2]
_TORCH = Path(torch.__file__).parent
_TRACING = threading.Lock()  # torch's tracer keeps a state of the whole process
_ATEN = torch.ops.aten
N_ROWS = 32  # of batches where operations depend on the size
_SIZES = (5, 7)  # of the batches that are compared: no multiples of each other, and none is special
_LIKE: Any = {  # vmap would draw for one record after the other
    _ATEN.rand_like.default: _ATEN.rand.generator,
    _ATEN.randn_like.default: _ATEN.randn.generator,
}

Slope: TypeAlias = Callable[[Tensor, slice], Tensor]


class RecordTrace:
    """The operations of a function of one record, carried out on each record of a batch.

    Parameters
    ----------
    function : callable
        ``function(*shared, *record)`` returns a tensor, or a tuple of tensors and lists of them.
    shared : sequence of Tensor
        What all records share, such as parameters; only shapes and types are used.
    record : sequence of Tensor
        What each record has of its own, without an axis for the batch, made up.
    any_size : bool, default=False
        Whether operations on a batch may depend on its size by sizes of tensors only.  By default,
        others are carried out on 32 records at a time.
    slope : bool, default=False
        Whether the last tensor of a record is made of the first result, see `__call__`.

    Attributes
    ----------
    draws : bool
        Whether the operations draw random numbers.

    Raises
    ------
    TraceError
        If the operations are not known to act on each record alone.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        shared: Sequence[Tensor],
        record: Sequence[Tensor],
        *,
        any_size: bool = False,
        slope: bool = False,
    ) -> None:
        self.one = trace(function, (*shared, *record))
        Apart(self.one, len(shared)).check(*shared, *record)
        _simplify(self.one)
        axes = (*[None] * len(shared), *[0] * len(record))
        self._n_rows: int | None = None  # of which the operations are; None for any
        try:
            batched, other = (_batched(self.one, axes, shared, record, n) for n in _SIZES)
            graph = _of_any_size(batched, other)
        except TraceError:
            if any_size:
                raise
            self._n_rows = N_ROWS
            batched = _batched(self.one, axes, shared, record, N_ROWS)
            graph = batched.graph
            _first_input(graph, "n")
        if slope:
            _take_slope(graph)
        self.draws = _take_generator(graph)
        self._run = GraphModule(batched, graph)

    def __call__(
        self,
        generator: torch.Generator | None,
        shared: Sequence[Tensor],
        *columns: Tensor,
        slope: Slope | None = None,
    ) -> Any:
        """Return the results of a batch, each with a row per record.

        Parameters
        ----------
        generator : torch.Generator or None
            Random numbers come from here.
        shared : sequence of Tensor
            What all records share.
        *columns : Tensor of shape (batch, ...)
            What each record has of its own.
        slope : callable, optional
            ``slope(outputs, rows)`` makes the last column of some rows, a slice, of the first
            result.
        """
        n, size = len(columns[0]), self._n_rows
        columns = tuple(column.contiguous() for column in columns)  # as those that were traced
        if size is None:
            made = [] if slope is None else [partial(_rows_of, slope, slice(0, n), n)]
            return self._run(generator, n, *shared, *columns, *made)
        parts = []
        for start in range(0, n, size):
            rows = slice(start, min(start + size, n))
            filled = [_filled(column[rows], size) for column in columns]
            made = [] if slope is None else [partial(_rows_of, slope, rows, size)]
            results = self._run(generator, size, *shared, *filled, *made)
            parts.append(tree_map(itemgetter(slice(rows.stop - start)), results))
        return parts[0] if len(parts) == 1 else tree_map(lambda *t: torch.cat(t), *parts)


def _rows_of(slope: Slope, rows: slice, size: int, outputs: Tensor) -> Tensor:
    return _filled(slope(outputs[: rows.stop - rows.start], rows), size).contiguous()


def _filled(column: Tensor, size: int) -> Tensor:
    """Return a column of as many rows as were traced."""
    missing = size - len(column)
    return (
        torch.cat([column, column.new_zeros((missing, *column.shape[1:]))]) if missing else column
    )


def trace(function: Callable[..., Any], args: Sequence[Tensor]) -> GraphModule:
    """Return the operations that a function carries out on tensors, none of them in place.

    Its Python runs once, on copies of ``args``.

    Parameters
    ----------
    function : callable
        Takes tensors.
    args : sequence of Tensor
        Its arguments, made up.

    Returns
    -------
    torch.fx.GraphModule
        The operations, called with arguments of the same shapes.

    Raises
    ------
    TraceError
        If an operation is not in the closed list, or the function decides by values, by Python's
        or numpy's random numbers, changes its arguments or reads parameters from elsewhere; with
        the line.
    """

    def run(*args: Tensor) -> Any:
        results = function(*args)
        mutated: Any = torch._functionalize_has_data_mutation  # type: ignore[attr-defined]
        if any(mutated(a.elem) for a in args):  # type: ignore[attr-defined]
            raise TraceError("it changes its input or its parameters in place")
        return results

    copies = [a.clone() for a in args]
    draws = shared_draws()
    with _tracing([a.device for a in args if a.is_cuda]):
        try:
            traced = make_fx(dispatch_functionalize(run), DECOMPOSED)(*copies)
        except Exception as error:
            raise with_place(explained(error), error) from None
        if shared_draws() != draws:
            raise TraceError("it draws random numbers that all records of a batch share")
        for node in traced.graph.nodes:
            if reason := reason_to_refuse(node):
                raise TraceError(reason)
            if node.kwargs.get("generator") is not None:
                raise TraceError("it draws random numbers from a generator of its own")
        constants = [getattr(traced, n.target) for n in traced.graph.nodes if n.op == "get_attr"]
        if any(type(t) not in PLAIN_TENSORS or t.requires_grad for t in constants):
            raise TraceError("it reads a parameter that is not its own, as a patched method may")
        versions = [t._version for t in constants]
        traced(*copies)
        if versions != [t._version for t in constants]:
            raise TraceError("it changes a tensor that is kept from call to call")
    return traced


@contextmanager
def _tracing(devices: Sequence[torch.device]) -> Iterator[None]:
    """Let torch trace: global generators stay as they are, and operations are such as vmap knows.

    It knows neither mkldnn's and cuDNN's recurrences nor fused attention.
    """
    with (
        warnings.catch_warnings(action="ignore"),  # of operations that vmap takes one by one
        _TRACING,
        torch.random.fork_rng(set(devices)),
        torch.enable_grad(),
        torch.backends.mkldnn.flags(enabled=False),
        _without_cudnn(),
        sdpa_kernel(SDPBackend.MATH),
        _noted(),
    ):
        yield


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


_COPIES = {_ATEN.clone.default, _ATEN.alias.default}


def _simplify(traced: GraphModule) -> None:
    """Drop what is unused, and copies, where no operation changes anything in place.

    Copies of constants are all that may be changed in place, see `trace`.
    """
    schemas = (getattr(node.target, "_schema", None) for node in traced.graph.nodes)
    in_place = any(schema is not None and schema.is_mutable for schema in schemas)
    for node in traced.graph.nodes:
        if node.target in _COPIES and not (in_place or node.kwargs.get("memory_format")):
            node.replace_all_uses_with(node.args[0])
    traced.graph.eliminate_dead_code()
    traced.recompile()


def _batched(
    one: GraphModule,
    axes: tuple[int | None, ...],
    shared: Sequence[Tensor],
    record: Sequence[Tensor],
    n: int,
) -> GraphModule:
    """Return the operations by which vmap carries out those of one record on ``n`` records."""
    rows = [column.expand(n, *column.shape).clone() for column in record]
    with _tracing([column.device for column in record if column.is_cuda]):
        try:
            each = dispatch_functionalize(vmap(one, axes, randomness="different"))
            batched = make_fx(each, DECOMPOSED)(*shared, *rows)
        except Exception as error:
            raise TraceError(str(error).strip().partition("\n")[0]) from None
    _simplify(batched)
    return batched


def _of_any_size(small: GraphModule, large: GraphModule) -> Graph:
    """Return the graph of a batch of any size, from those of batches of ``_SIZES``.

    Numbers in which they differ are the size of the batch, which is the first input, or multiples.
    """
    pairs = list(zip(small.graph.nodes, large.graph.nodes, strict=False))
    if len(small.graph.nodes) != len(large.graph.nodes):
        raise TraceError(_OTHERWISE)
    others = dict(pairs)
    size = _first_input(small.graph, "n")
    multiples: dict[int, Node] = {1: size}

    def merged(a: Any, b: Any) -> Any:
        if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
            return type(a)(map(merged, a, b))
        if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
            return {key: merged(value, b[key]) for key, value in a.items()}
        if a is b or (others.get(a) is b if isinstance(a, Node) else type(a) is type(b) and a == b):
            return a
        k, rest = divmod(a, _SIZES[0]) if type(a) is type(b) is int else (0, 1)
        if rest or k * _SIZES[1] != b:
            raise TraceError(_OTHERWISE)
        if k not in multiples:
            with small.graph.inserting_after(size):
                multiples[k] = small.graph.call_function(operator.mul, (size, k))
        return multiples[k]

    for a, b in pairs:
        same = (a.op, str(a.target)) == (b.op, str(b.target))
        if same and a.op == "get_attr":
            same = torch.equal(getattr(small, a.target), getattr(large, b.target))
        if not same:
            raise TraceError(_OTHERWISE)
        a.args, a.kwargs = merged(a.args, b.args), merged(dict(a.kwargs), dict(b.kwargs))
    return small.graph


_OTHERWISE = "its operations on a batch depend on the number of records"


def _first_input(graph: Graph, name: str) -> Node:
    with graph.inserting_before(next(iter(graph.nodes))):
        return graph.placeholder(name)


def _take_slope(graph: Graph) -> None:
    """Let a function of the first result take the place of the last input."""
    slope = [node for node in graph.nodes if node.op == "placeholder"][-1]
    results: Any = graph.output_node().args[0]
    first = results[0]
    with graph.inserting_after(first):
        made = graph.call_function(operator.call, (slope, first))
    slope.replace_all_uses_with(made, delete_user_cb=lambda user: user is not made)


def _take_generator(graph: Graph) -> bool:
    """Let random operations draw from an input, and tell whether there are any."""
    generator = _first_input(graph, "generator")
    draws = False
    for node in graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            node.target, draws = _drawing(node.target), True
            node.kwargs = {**node.kwargs, "generator": generator}
        elif "empty" in getattr(getattr(node.target, "overloadpacket", None), "__name__", ""):
            node.target = _zeroed(node.target)  # memory that nobody wrote may hold anything
    return draws


def _drawing(operation: OpOverload[..., Any]) -> Callable[..., Any]:
    """Return a random operation as one that takes a generator."""
    if operation in _LIKE:
        return _like(_LIKE[operation])
    packet = operation.overloadpacket
    for overload in (operation, *(getattr(packet, name) for name in packet.overloads())):
        takes = [a.name for a in overload._schema.arguments]
        if "generator" in takes and takes[: len(_names(operation))] == _names(operation):
            return cast("Callable[..., Any]", overload)
    raise TraceError(f"it draws random numbers by {operation}, which takes no generator")


def _like(operation: OpOverload[..., Any]) -> Callable[..., Any]:
    def drawn(like: Tensor, *, generator: object, dtype: Any = None, **_: Any) -> Any:
        kind = {"dtype": dtype or like.dtype, "device": like.device}
        return operation(like.shape, generator=generator, **kind)

    return drawn


def _zeroed(operation: OpOverload[..., Any]) -> Callable[..., Any]:
    def zeros(*args: Any, **kwargs: Any) -> Any:
        return operation(*args, **kwargs).zero_()

    return zeros


def _names(operation: OpOverload[..., Any]) -> list[str]:
    return [a.name for a in operation._schema.arguments if not a.kwarg_only]


def shared_draws() -> tuple[object, ...]:
    """Return the states of Python's and numpy's global generators."""
    return random.getstate(), pickle.dumps(check_random_state(None).get_state(legacy=False))


@contextmanager
def fixed_draws(device: torch.device, seed: int = 0) -> Iterator[None]:
    """Let torch's global generators of the device start anew, and leave them as they were."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


def with_place(refusal: Exception, error: Exception) -> TraceError:
    """Return the refusal with the last line of the module's own code that led to ``error``."""
    reason = str(refusal).strip().partition("\n")[0]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(_TORCH) or path.is_relative_to(_OWN):
            continue
        line = f": {frame.line}" if frame.line else ""
        return TraceError(f"{reason} (in {path.name}, line {frame.lineno}{line})")
    return TraceError(reason)
