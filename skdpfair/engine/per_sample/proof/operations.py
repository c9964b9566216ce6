"""The closed list of torch's operations that a traced function of one record may consist of.

Under vmap each of them acts on every record alone.  None reads how numbers lie in memory
(``as_strided``, views as another type), returns values to Python, has a result whose shape depends
on values, or runs code that cannot be looked into.  Any other operation is refused by its name.
"""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.fx import Node

from skdpfair._utils.torch_internals import OpOverload, python_definitions, python_kernels


class TraceError(Exception):
    """A function cannot be traced, or is not known to act on each record alone."""


CLOSED_LIST = frozenset(Path(__file__).with_suffix(".txt").read_text().split())
PLAIN_TENSORS = (nn.Parameter, torch.Tensor, getattr(nn, "Buffer", None))  # else code of their own

_BY_VALUES = (
    "values of a record enter Python (a branch, item(), lengths of packed sequences): use "
    "torch.where, a mask over padded sequences, or validate_args=False of torch.distributions"
)
_REMEDIES = {  # of what is asked for most; all else has the last one
    "as_strided": "use indexing, reshape or unfold, which do not depend on the layout of memory",
    "view": "use to(dtype), or torch.complex of two real parts",
    "_cdist_backward": "write distances by differences, squares and sums",
    "_pack_padded_sequence": "use a mask over padded sequences",
    "": "write it by indexing, reshape, torch.where and the like",
}
_EXPLAINED = {  # parts of torch's errors while it traces
    "value out of a tracing tensor": _BY_VALUES,
    "support dynamic shape": "a mask decides how many numbers there are: use torch.where or "
    "masked_fill",
    "dynamo-optimized": "compiled code cannot be traced: leave torch.compile out",
    "used with Jitted modules": "a scripted module cannot be traced: pass the module that was "
    "scripted, or put this one into nn.Sequential",
}


def explained(error: Exception) -> Exception:
    """Return the error in words of a module's author, where torch speaks of its tracer."""
    known = (ours for theirs, ours in _EXPLAINED.items() if theirs in str(error))
    return next(map(TraceError, known), error)


def reason_to_refuse(node: Node) -> str | None:
    """Return why a node of a trace is not an operation of the closed list, or None."""
    target = node.target
    if node.op in ("placeholder", "get_attr", "output") or target is operator.getitem:
        return None
    if not isinstance(target, OpOverload) or target.namespace != "aten" or _has_user_kernel(target):
        return f"it calls {target}, which runs code of its own: use operations of torch"
    name = target.overloadpacket.__name__
    # in place on constants of the trace, see `InPlaceCheck`
    listed = name.removesuffix("_"), str(target).removeprefix("aten.")
    if CLOSED_LIST.isdisjoint(listed) or "out" in target._overloadname:
        remedy = _REMEDIES.get(name, _REMEDIES[""])
        return f"{target} is not known to act on each record alone: {remedy}"
    return None


def _has_user_kernel(operation: OpOverload[..., Any]) -> bool:
    """Tell whether Python code defines an operation, or one of its kernels, in torch's name."""
    name = operation.name()
    keys = (key for key in python_kernels - _KERNELS_OF_TORCH if not key.endswith("/Meta"))
    kernels = {key.rpartition("/")[0] for key in keys}
    return name in python_definitions or name.replace("::", "/") in kernels


# those that torch brings along
_KERNELS_OF_TORCH = frozenset(python_kernels)
