"""Changes of traced graphs that leave their results as they are."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from skdpfair._utils.torch_internals import OpOverload
from skdpfair.engine.per_sample.proof.operations import TraceError

_ATEN = torch.ops.aten
SIZES = (5, 7)  # of the batches that are compared: no multiples of each other, and none is special
_LIKE: Any = {  # vmap would draw for one record after the other
    _ATEN.rand_like.default: _ATEN.rand.generator,
    _ATEN.randn_like.default: _ATEN.randn.generator,
}
_COPIES = {_ATEN.clone.default, _ATEN.alias.default}


def simplify(traced: GraphModule) -> None:
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


def guard_divisions(traced: GraphModule) -> None:
    """Let nothing divide integers by -1: the quotient may not fit, which ends the process."""
    graph = traced.graph
    for node in list(graph.nodes):
        packet = getattr(node.target, "overloadpacket", None)
        if packet not in _DIVISIONS or node.meta["val"].dtype.is_floating_point:
            continue
        a, b = node.args[:2]
        if not isinstance(a, Node) or not (isinstance(b, Node) or b == -1):
            continue
        with graph.inserting_before(node):
            factor = -1 if packet in (_ATEN.div, _ATEN.floor_divide) else 0
            result = graph.call_function(_ATEN.mul.Tensor, (a, factor))
            if isinstance(b, Node):
                is_minus_1 = graph.call_function(_ATEN.eq.Scalar, (b, -1))
                safe = graph.call_function(_ATEN.where.ScalarSelf, (is_minus_1, 1, b))
                args = a, safe, *node.args[2:]
                others = graph.call_function(node.target, args, node.kwargs)
                result = graph.call_function(_ATEN.where.self, (is_minus_1, result, others))
        node.replace_all_uses_with(result)
        graph.erase_node(node)
    traced.recompile()


_DIVISIONS = {_ATEN.div, _ATEN.floor_divide, _ATEN.remainder, _ATEN.fmod}


def of_any_size(small: GraphModule, large: GraphModule) -> Graph:
    """Return the graph of a batch of any size, from those of batches of ``SIZES``.

    Numbers in which they differ are the size of the batch, which is the first input, or multiples.
    """
    pairs = list(zip(small.graph.nodes, large.graph.nodes, strict=False))
    if len(small.graph.nodes) != len(large.graph.nodes):
        raise TraceError(_OTHERWISE)
    others = dict(pairs)
    size = first_input(small.graph, "n")
    multiples: dict[int, Node] = {1: size}

    def merged(a: Any, b: Any) -> Any:
        if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
            return type(a)(map(merged, a, b))
        if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
            return {key: merged(value, b[key]) for key, value in a.items()}
        if others.get(a) is b if isinstance(a, Node) else repr(a) == repr(b):  # NaN is NaN
            return a
        k, remainder = divmod(a, SIZES[0]) if type(a) is type(b) is int else (0, 1)
        if remainder or k * SIZES[1] != b:
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


def n_numbers(graph: Graph) -> int:
    """Return how many numbers the operations make, views left out; at least 1."""
    total = 1
    for node in graph.nodes:
        schema, result = getattr(node.target, "_schema", None), node.meta.get("val")
        is_view = schema is not None and any(r.alias_info for r in schema.returns)
        if node.op == "call_function" and isinstance(result, Tensor) and not is_view:
            total += result.numel()
    return total


def first_input(graph: Graph, name: str) -> Node:
    """Return a new first input."""
    with graph.inserting_before(next(iter(graph.nodes))):
        return graph.placeholder(name)


def output_gradient_as_input(graph: Graph) -> None:
    """Let a function of the first result, the outputs, take the place of the last input."""
    gradient = [node for node in graph.nodes if node.op == "placeholder"][-1]
    results: Any = graph.output_node().args[0]
    outputs = results[0]
    with graph.inserting_after(outputs):
        call = graph.call_function(operator.call, (gradient, outputs))
    call.meta = dict(gradient.meta)
    gradient.replace_all_uses_with(call, delete_user_cb=lambda user: user is not call)


def take_generator(graph: Graph) -> bool:
    """Let random operations draw from an input, and tell whether there are any."""
    generator = first_input(graph, "generator")
    draws = False
    for node in graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            node.target, draws = _drawing(node.target), True
            node.kwargs = {**node.kwargs, "generator": generator}
        elif "empty" in getattr(getattr(node.target, "overloadpacket", None), "__name__", ""):
            # memory that nobody wrote may hold anything
            node.target = _zeroed(node.target)
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
