"""What the gradients of one record are made of, as the operations of their trace show.

Mostly, the last operation is a product of short factors, such as inputs and output gradients of a
layer.  Norms and weighted sums follow from these, and no product is made for a record.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from skdpfair._utils.torch_internals import OpOverload, tree_map_only
from skdpfair.engine.per_sample.samplers import (
    GradSampler,
    LookupGradSampler,
    ProductGradSampler,
    RowsGradSampler,
    VectorGradSampler,
)

_ATEN = torch.ops.aten
_PRODUCTS = {_ATEN.mm.default, _ATEN.bmm.default}
# and which of its inputs is added to some rows of the first
_LOOKUPS: dict[Any, int] = {_ATEN.scatter_add.default: 3, _ATEN.index_add.default: 3}
_LOOKUPS |= {_ATEN.index_put.default: 2}
_ZEROS = {_ATEN.zeros.default, _ATEN.zeros_like.default, _ATEN.new_zeros.default}
# each number of the result is one of an input, or zero
_VIEWS = {_ATEN.view, _ATEN._unsafe_view, _ATEN.reshape}
_MOVES = _VIEWS | {_ATEN.t, _ATEN.transpose, _ATEN.permute, _ATEN.unsqueeze, _ATEN.squeeze}
_MOVES |= {_ATEN.detach, _ATEN.clone, _ATEN.cat, _ATEN.slice_backward, _ATEN.select_backward}
_MAX_TERMS = 2**12  # of a gradient: more are not worth a search
Moves: TypeAlias = tuple[tuple[Node, Node], ...]  # operations, each with the input to follow


@dataclass(frozen=True)
class Term:
    """A part of the gradient in the parameter number ``parameter``.

    ``factors`` of one record are inputs (positions, n) and output gradients (positions, m) of a
    product, the rows (positions,) that a lookup takes from a table and gradients (positions, n) in
    them, or the gradient itself.  ``places`` are those in the parameter of the m n numbers of a
    product, if they are not all, in order.
    """

    parameter: int
    factors: tuple[Node, ...]
    places: Tensor | None = None

    @property
    def n_made(self) -> int:
        """Number of gradients that are made for each record."""
        return _shape(self.factors[0]).numel() if len(self.factors) == 1 else 0

    def sampler(self, parameter: Tensor, factors: Sequence[Tensor]) -> GradSampler:
        """Return the grad sampler of a batch's factors."""
        if len(factors) == 1:
            return RowsGradSampler(factors[0], parameter)
        a, b = factors
        if a.dim() < b.dim():
            return LookupGradSampler(a, b, parameter)
        if a.shape[1] == 1:
            return VectorGradSampler(a[:, 0], b[:, 0], parameter, places=self.places)
        return ProductGradSampler(a, b, parameter, places=self.places)


def terms_of(one: GraphModule) -> tuple[GraphModule, list[Term]]:
    """Return operations of one record that return outputs and factors, and the terms of these.

    ``one`` returns the outputs and the list of the gradients.
    """
    one = GraphModule(one, copy.deepcopy(one.graph))
    for node in [n for n in one.graph.nodes if n.target is _ATEN.sum.dim_IntList]:
        before, after = node.args[0].meta["val"], node.meta["val"]
        if (before.numel(), before.dtype) == (after.numel(), after.dtype):  # of one number
            with one.graph.inserting_before(node):
                view = _call(one.graph, _ATEN.reshape.default, node.args[0], [*after.shape])
            node.replace_all_uses_with(view)
    last = one.graph.output_node()
    ((outputs, gradients),) = cast("Any", last.args)
    with one.graph.inserting_before(last):
        terms = [term for i, g in enumerate(gradients) for term in _terms(one.graph, i, g)]
    last.args = ((outputs, [factor for term in terms for factor in term.factors]),)
    one.graph.eliminate_dead_code()
    return one, terms


def _terms(graph: Graph, parameter: int, gradient: Node) -> list[Term]:
    """Return the terms of a gradient; it is itself the only one where they are not known."""
    whole = Term(parameter, (gradient,))
    by_place = defaultdict[Any, list[Term]](list)
    n_taken, taken = 0, torch.zeros(_shape(gradient).numel(), dtype=torch.bool)
    for n, (leaf, moves) in enumerate(_leaves(gradient)):
        places = _places(leaf, moves, len(taken)) if n < _MAX_TERMS else None
        term = None if places is None else _term(graph, parameter, leaf, places, len(taken))
        if places is None or term is None:
            return [whole]
        key = None if term.places is None else tuple(term.places.tolist())
        same = by_place[key, *(_shape(factor)[1:] for factor in term.factors)]
        same.append(term)
        if len(same) == 1:
            n_taken, taken[places] = n_taken + len(places), True
    # norms of sums follow from those of parts where no two parts share a number
    is_apart = n_taken == taken.sum()
    return [_merged(graph, same) for same in by_place.values()] if is_apart else [whole]


def _leaves(gradient: Node) -> Iterator[tuple[Node, Moves]]:
    """Yield what a gradient is the sum of, each with the moves from the gradient to it."""
    parts: list[tuple[Node, Moves]] = [(gradient, ())]
    while parts:
        node, moves = parts.pop()
        sources = node.all_input_nodes
        is_sum = node.target is _ATEN.add.Tensor and len(sources) == 2 and not node.kwargs
        if is_sum and all(_shape(source) == _shape(node) for source in sources):
            parts += [(source, moves) for source in sources]
        elif getattr(node.target, "overloadpacket", None) in _MOVES:
            parts += [(source, (*moves, (node, source))) for source in sources]
        elif node.target not in _ZEROS:
            yield node, moves


def _places(leaf: Node, moves: Moves, size: int) -> Tensor | None:
    """Return where in the gradient each number of a part is; None if one is there twice."""
    shape = _shape(leaf)
    number = torch.arange(1, shape.numel() + 1).view(shape)
    for node, source in reversed(moves):
        values = {n: torch.zeros(_shape(n), dtype=torch.int64) for n in node.all_input_nodes}
        values[source] = number
        args = tree_map_only(Node, values.__getitem__, node.args)
        packet = cast("OpOverload[..., Any]", node.target).overloadpacket
        number = (_ATEN.reshape if packet in _VIEWS else packet)(*args, **node.kwargs)
    order = number.flatten().argsort(stable=True)[size - shape.numel() :]
    are_unique = torch.equal(number.flatten()[order], torch.arange(1, shape.numel() + 1))
    return order if are_unique else None


def _term(graph: Graph, parameter: int, leaf: Node, places: Tensor, size: int) -> Term | None:
    """Return the term of a product or a lookup, None for other operations."""
    in_order, is_lookup = torch.arange(size), leaf.target in _LOOKUPS
    factors = _lookup(graph, leaf) if is_lookup else _product(graph, leaf)
    if factors is None or torch.equal(places, in_order):
        return factors and Term(parameter, factors)
    if is_lookup:
        return None
    a, b = factors
    is_turned = torch.equal(places.view(_shape(b)[1], -1).t().flatten(), in_order)
    places = places.to(leaf.meta["val"].device)
    return Term(parameter, (b, a)) if is_turned else Term(parameter, (a, b), places)


def _product(graph: Graph, leaf: Node) -> tuple[Node, Node] | None:
    """Return a (positions, n) and b (positions, m) of which a result is the product b^T a.

    There is None where two matrices of (positions, positions), for the norms, are larger than it.
    """
    product, n_shared = leaf, 1
    # the sum over a batch that shares the parameter
    if leaf.target is _ATEN.sum.dim_IntList and leaf.args[1] == [0] and not leaf.kwargs:
        product = leaf.all_input_nodes[0]
        n_shared = _shape(product)[0]
    if product.target not in _PRODUCTS or _shape(product)[:-2].numel() != n_shared:
        return None
    args: Any = product.args
    b, a = args[:2]
    if 2 * _shape(a)[:-1].numel() ** 2 > _shape(product)[-2:].numel():
        return None
    if product.target is _ATEN.mm.default:
        return a, _call(graph, _ATEN.t.default, b)
    b = _call(graph, _ATEN.permute.default, b, [0, 2, 1])
    a, b = (_call(graph, _ATEN.reshape.default, f, [-1, _shape(f)[-1]]) for f in (a, b))
    return a, b


def _lookup(graph: Graph, leaf: Node) -> tuple[Node, Node] | None:
    """Return rows (positions,) of a table and gradients (positions, n) that are added to them."""
    if leaf.kwargs:
        return None
    args: Any = leaf.args
    table, gradients = args[0], args[_LOOKUPS[leaf.target]]
    if leaf.target is _ATEN.index_put.default:
        rows, is_by_rows = args[1][0], len(args[1]) == 1 and args[3:] == (True,)
    else:
        rows, is_by_rows = args[2], args[1] == 0
    if not (is_by_rows and isinstance(rows, Node) and table.target in _ZEROS):
        return None
    if leaf.target is _ATEN.scatter_add.default:
        rows = rows.all_input_nodes[0] if rows.target is _ATEN.expand.default else rows
        if _shape(rows) != (*_shape(gradients)[:1], *[1] * (len(_shape(gradients)) - 1)):
            return None  # each number has a row of its own
    n, width = _shape(leaf)[0], _shape(leaf)[1:].numel()
    is_index = rows.meta["val"].dtype == torch.int64
    if not (is_index and n * width and _shape(gradients).numel() == _shape(rows).numel() * width):
        return None
    gradients = _call(graph, _ATEN.reshape.default, gradients, [-1, width])
    if leaf.target is _ATEN.index_put.default:
        # the last rows have negative numbers, too
        rows = _call(graph, _ATEN.remainder.Scalar, rows, n)
    rows = _call(graph, _ATEN.reshape.default, rows, [-1])
    # where the operation would have failed, nothing counts
    if leaf.target is not _ATEN.index_put.default and not _is_clamped(rows, n):
        places = _call(graph, _ATEN.clamp.default, rows, 0, n - 1)
        is_outside = _call(graph, _ATEN.ne.Tensor, rows, places)
        is_outside = _call(graph, _ATEN.unsqueeze.default, is_outside, 1)
        gradients = _call(graph, _ATEN.masked_fill.Scalar, gradients, is_outside, torch.nan)
        rows = places
    return rows, gradients


def _is_clamped(rows: Node, n: int) -> bool:
    """Return whether numbers were made to be from 0 to ``n`` - 1."""
    while getattr(rows.target, "overloadpacket", None) in _VIEWS:
        rows = rows.all_input_nodes[0]
    return rows.target is _ATEN.clamp.default and rows.args[1:] == (0, n - 1)


def _merged(graph: Graph, same: Sequence[Term]) -> Term:
    """Return terms whose products are added up as one, their positions one after the other."""
    if len(same) == 1:
        return same[0]
    columns = zip(*(term.factors for term in same), strict=True)
    factors = tuple(_call(graph, _ATEN.cat.default, [*column]) for column in columns)
    return replace(same[0], factors=factors)


def _call(graph: Graph, operation: OpOverload[..., Any], *args: Any) -> Node:
    """Add an operation to a graph, with what is known of its result."""
    node = graph.call_function(operation, args)
    node.meta["val"] = operation(*tree_map_only(Node, lambda n: n.meta["val"], args))
    return node


def _shape(node: Node) -> torch.Size:
    return cast("torch.Size", node.meta["val"].shape)
