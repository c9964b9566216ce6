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
from torch.nn.functional import pad

from skdpfair._utils.torch_internals import tree_leaves

# from floats to floats; others that decide give integers or bools, such as comparisons, sorting
# and conversions
_DECIDING = {
    *("angle", "atan2", "ceil", "copysign", "floor", "floor_divide", "fmod", "frac"),
    *("grid_sampler_2d", "grid_sampler_3d", "hardshrink", "heaviside", "nan_to_num", "nextafter"),
    *("remainder", "round", "sgn", "sign", "threshold", "trunc"),
    # NaN or an error beyond an edge, which leaves the record out, or a choice by NaN
    *("acos", "acosh", "asin", "atanh", "bernoulli", "binary_cross_entropy", "erfinv"),
    *("fmax", "fmin", "nansum"),
    # no vectors of their own where values are equal
    *("linalg_eig", "_linalg_eigh", "_linalg_svd"),
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
_PRODUCTS = {"addmm", "addmv", "baddbmm", "bmm", "dot", "mm", "mv"}


def steady(operations: GraphModule, n_shared: int) -> bool:
    """Return whether no rounded number of a record enters an operation that is not continuous.

    Where some does, the products that lead there are computed for each record alone.  The first
    ``n_shared`` inputs are the same for all records.
    """
    inputs = [n for n in operations.graph.nodes if n.op == "placeholder"]
    of_record, rounded, deciding = set(inputs[n_shared:]), set[Node](), list[Node]()
    for node in operations.graph.nodes:
        sources = set(node.all_input_nodes)
        if node.op == "output" or sources.isdisjoint(of_record):
            continue
        of_record.add(node)
        is_rounded = not sources.isdisjoint(rounded)
        if is_rounded and _decides(node):
            deciding.append(node)
        if is_rounded or not _is_exact(node):
            rounded.add(node)
    is_steady, leading = not deciding, set[Node]()
    while deciding:
        node = deciding.pop()
        if node not in leading:
            leading.add(node)
            deciding += [source for source in node.all_input_nodes if source in rounded]
    for node in leading:
        if _name(node) in _PRODUCTS:
            node.target, node.args = _of_one, ([*node.meta["val"].shape], *node.args)
    operations.recompile()
    return is_steady


def _of_one(shape: list[int], *args: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return a product that vmap carries out for each record, on memory that is aligned alike.

    The order in which a kernel adds up depends on the sizes of matrices and on where they start.
    """
    *added, a, b = args
    if b.dim() == 1:
        a, b = b[None], a.reshape(-1, len(b)).mT
    k, n = b.shape[-2:]
    a, b = pad(a, (0, -k % 16)), pad(b, (0, -n % 16, 0, -k % 16))
    # vmap makes one product of two matrices for all records
    product = torch.bmm(*(m if m.dim() == 3 else m[None] for m in (a, b)))[..., :n]
    product = alpha * product.reshape(shape)
    return product + beta * added[0] if added else product


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
