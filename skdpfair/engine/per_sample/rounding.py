"""Where rounding decides: operations that are not continuous, on numbers that were rounded before.

Products of matrices take other kernels for batches of other sizes and for rows in other places, so
that the last bits of a record's numbers may depend on how many records there are.  Where all that
follows is continuous, they stay the last bits; a comparison makes other numbers of them.
"""

from __future__ import annotations

import operator

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves, tree_map_only

_TO = torch.ops.aten._to_copy.default
# from floats to floats; others that decide give integers or bools, such as comparisons, sorting
# and conversions
_DECIDING = {
    *("angle", "atan2", "ceil", "copysign", "floor", "floor_divide", "fmod", "frac"),
    *("grid_sampler_2d", "grid_sampler_3d", "hardshrink", "heaviside", "nan_to_num", "nextafter"),
    *("remainder", "round", "sgn", "sign", "threshold", "trunc"),
}
# they only move or choose numbers, as views do
_MOVING = {
    *("_to_copy", "amax", "amin", "cat", "clone", "constant_pad_nd", "copy", "detach", "flip"),
    *("full_like", "max_pool2d_with_indices", "max_pool3d_with_indices"),
    *("gather", "index", "index_select", "lift_fresh_copy", "new_empty", "new_full", "new_ones"),
    *("new_zeros", "ones_like", "repeat", "roll", "scatter", "select_scatter", "slice_scatter"),
    *("stack", "zeros_like"),
}
# they round as IEEE 754 says, whatever stands beside a number; others have another version for the
# last numbers of an array, such as exponentials
_EXACT = {
    *("abs", "add", "clamp", "clamp_max", "clamp_min", "div", "fmax", "fmin", "hardtanh"),
    *("leaky_relu", "masked_fill", "maximum", "minimum", "mul", "nan_to_num", "neg", "relu"),
    *("reciprocal", "rsub", "sqrt", "square", "sub", "where"),
}
_PRODUCTS = {"addbmm", "addmm", "addmv", "baddbmm", "bmm", "dot", "mm", "mv", "vdot"}


def steady(operations: GraphModule, n_shared: int) -> bool:
    """Return whether no rounded number of a record enters an operation that is not continuous.

    Where some does, the products that lead there are computed in float64: rounding to float32 then
    hides in which order a kernel adds up.  The first ``n_shared`` inputs are the same for all
    records.
    """
    inputs = [n for n in operations.graph.nodes if n.op == "placeholder"]
    of_record, rounded, deciding = set(inputs[n_shared:]), set[Node](), list[Node]()
    for node in operations.graph.nodes:
        sources = set(node.all_input_nodes)
        if node.op == "output" or sources.isdisjoint(of_record):
            continue
        of_record.add(node)
        if not sources.isdisjoint(rounded):
            rounded.add(node)
            if _decides(node):
                deciding.append(node)
        elif not _is_exact(node):
            rounded.add(node)
    is_steady, leading = not deciding, set[Node]()
    while deciding:
        node = deciding.pop()
        if node not in leading:
            leading.add(node)
            deciding += [source for source in node.all_input_nodes if source in rounded]
    for node in leading:
        if _name(node) in _PRODUCTS and node.meta["val"].dtype == torch.float32:
            _in_float64(node)
    operations.recompile()
    return is_steady


def _in_float64(node: Node) -> None:
    graph = node.graph

    def wide(source: Node) -> Node:
        with graph.inserting_before(node):
            return graph.call_function(_TO, (source,), {"dtype": torch.float64})

    node.args = tree_map_only(Node, wide, node.args)
    with graph.inserting_after(node):
        rounded = graph.call_function(_TO, (node,), {"dtype": torch.float32})
    node.replace_all_uses_with(rounded, delete_user_cb=lambda user: user is not rounded)


def _is_exact(node: Node) -> bool:
    """Tell whether an operation gives a record the same numbers in every batch."""
    schema = getattr(node.target, "_schema", None)
    exact = _decides(node) and _name(node) not in ("angle", "atan2")
    if exact or node.target is operator.getitem or _name(node) in _EXACT | _MOVING:
        return True
    return schema is not None and any(result.alias_info for result in schema.returns)


def _decides(node: Node) -> bool:
    # the places of the largest are for the derivative, which decides as that of relu does
    if node.target is operator.getitem or "max_pool" in _name(node):
        return False
    if _name(node) == "div":
        return node.kwargs.get("rounding_mode") is not None
    outputs = [t for t in tree_leaves(node.meta.get("val")) if isinstance(t, Tensor)]
    continuous = all(t.is_floating_point() or t.is_complex() for t in outputs)
    return _name(node) in _DECIDING or not continuous


def _name(node: Node) -> str:
    return getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
