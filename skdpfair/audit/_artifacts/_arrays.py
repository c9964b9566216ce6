"""Recognise arrays and tensors among the calls of a pickle."""

import math
from dataclasses import dataclass, field

import numpy as np

from skdpfair.audit._artifacts import _tensors
from skdpfair.audit._artifacts._dtypes import dtype_of, shape_of
from skdpfair.audit._artifacts._graph import (
    Blob,
    Call,
    Global,
    Inline,
    Map,
    Node,
    Seq,
    Storage,
    arguments,
)

_DTYPES = {"uint16": "u2", "uint32": "u4", "uint64": "u8"}
_KINDS = {"f": "floating", "i": "integer", "u": "integer", "b": "boolean", "c": "complex"}


@dataclass(eq=False)
class Array:
    """What an array is, without its being made.

    Parameters
    ----------
    node : Node
        Where it is made.
    shape : tuple of int
    dtype : str
        Such as "<f8"; "O" for objects.
    data : bytes or None
        Its numbers in the order of memory, for contiguous arrays.
    content : Node or None
        The list of its objects.
    subclass : str
        Name of its class.
    extras : list of (name, node)
        What is attached to it.
    is_parameter : bool
    storage : Storage or None
    fortran : bool
        Whether the first axis runs fastest in ``data``.
    """

    node: Node
    shape: tuple
    dtype: str
    data: bytes | None = None
    content: Node | None = None
    subclass: str = "ndarray"
    extras: list = field(default_factory=list)
    is_parameter: bool = False
    storage: Storage | None = None
    fortran: bool = False

    @property
    def size(self) -> int:
        """Number of items."""
        return math.prod(self.shape)

    @property
    def n_bytes(self) -> int:
        """Number of bytes of its items."""
        return self.size * _tensors.bytes_of(self.dtype)

    @property
    def letter(self) -> str:
        """The kind of its dtype: f, i, u, b, c, U, S, O, V, M, m."""
        return "f" if self.dtype == "bf16" else self.dtype.lstrip("|<>=")[:1]

    @property
    def words(self) -> str:
        """The dtype in words."""
        bits = 8 * _tensors.bytes_of(self.dtype)
        kind = _KINDS.get(self.letter)
        return f"{bits}-bit {kind} numbers" if kind else "values"

    def values(self):
        """Return the numbers, or None where they cannot be read."""
        if self.data is None or self.letter not in "fiubc" or self.dtype == "bf16":
            return None
        try:
            flat = np.frombuffer(self.data, self.dtype, count=self.size)
            return flat.reshape(self.shape, order="F" if self.fortran else "C")
        except (ValueError, TypeError):
            return None


def as_array(node, reader) -> Array | None:
    """Return what array a node makes, or None."""
    if isinstance(node, Inline):
        return _inline(node)
    if not isinstance(node, Call) or not isinstance(node.func, Global):
        return None
    root = node.func.module.split(".")[0]
    if root == "numpy":
        return _from_numpy(node)
    if root in ("torch", "skdpfair"):
        return _from_torch(node, reader)
    if root == "array":
        return _from_array_module(node)
    return None


def is_scalar(node) -> bool:
    """Tell whether a node makes one numpy number."""
    return (
        isinstance(node, Call)
        and isinstance(node.func, Global)
        and node.func.name == "scalar"
        and node.func.module.split(".")[0] == "numpy"
    )


def _inline(node):
    state = node.wrapper.states[0] if node.wrapper is not None else Map()
    subclass = state.get("subclass") if isinstance(state, Map) else None
    name = subclass.name if isinstance(subclass, Global) else "ndarray"
    if node.dtype == "O":
        inner = node.content
        made = _from_numpy(inner) if isinstance(inner, Call) else None
        content = made.content if made is not None else inner
        return Array(node, node.shape, "O", content=content, subclass=name)
    return Array(node, node.shape, node.dtype, data_of(node.content), subclass=name)


def _from_numpy(node):
    args, name = arguments(node), node.func.name if isinstance(node.func, Global) else ""
    if name in ("_reconstruct", "_mareconstruct"):
        state = next((s.items for s in node.states if isinstance(s, Seq)), [])
        if state and isinstance(state[0], Seq):  # a subclass with a state of its own
            extras = list(state[1].pairs) if len(state) > 1 and isinstance(state[1], Map) else []
            state = state[0].items
        else:
            extras = []
        if len(state) < 5:
            return None
        dtype, subclass = dtype_of(state[2]) or "V1", "ndarray"
        named = [a for a in args if isinstance(a, Global)]
        if named:
            subclass = named[0].name
        raw = state[4]
        made = Array(node, shape_of(state[1]), dtype, subclass=subclass, extras=extras)
        if isinstance(raw, Seq):
            made.content = raw
        else:
            made.data, made.fortran = data_of(raw), state[3] is True
        return made
    if name == "_frombuffer" and len(args) >= 3:
        return Array(node, shape_of(args[2]), dtype_of(args[1]) or "V1", data_of(args[0]))
    return None


def data_of(node) -> bytes | None:
    """Return the bytes that a node holds, in any of the ways in which pickles write them."""
    if isinstance(node, Blob):
        return node.data
    if isinstance(node, str):
        return node.encode("latin-1", "ignore")
    if isinstance(node, Call):  # _codecs.encode(text, "latin1"), bytearray(...), PickleBuffer(...)
        first = next(iter(arguments(node)), None)
        return None if first is None or first is node else data_of(first)
    return None


def _from_array_module(node):
    args = arguments(node)
    data = next((a for a in args if isinstance(a, Blob)), None)
    code = next((a for a in args if isinstance(a, str) and len(a) == 1), "d")
    if data is None:
        return None
    dtype = {"f": "f4", "d": "f8"}.get(code, "i8" if code in "qQlL" else "i4")
    dtype = "i1" if code in "bB" else "i2" if code in "hH" else dtype
    return Array(node, (len(data.data) // _tensors.bytes_of(dtype),), dtype, data.data)


def _from_torch(node, reader):
    name, args = node.func.name, arguments(node)
    if name == "remembered" and len(args) == 3:
        return _wrapped(node, _inner(args[0], args[1], reader), args[2])
    if name in ("_rebuild_from_type_v2", "_rebuild_from_type") and len(args) >= 4:
        return _wrapped(node, _inner(args[0], args[2], reader), args[3])
    if name in ("_rebuild_parameter", "_rebuild_parameter_with_state") and args:
        inner = as_array(args[0], reader)
        hooks = [("hooks", args[2])] if len(args) > 2 else []
        state = args[3] if len(args) > 3 else None
        made = _wrapped(node, inner, state, hooks)
        if made is not None:
            made.is_parameter = True
        return made
    if name.startswith("_rebuild_device_tensor") and args:
        return _wrapped(node, as_array(args[0], reader), None)
    if name in ("_rebuild_tensor_v2", "_rebuild_tensor", "_rebuild_tensor_v3", "_rebuild_qtensor"):
        return _view(node, args, reader)
    return None


def _inner(func, args, reader):
    return as_array(Call(func, args), reader)


def _wrapped(node, inner, state, more=()):
    if inner is None:
        return None
    inner.node = node
    for part in state.items if isinstance(state, Seq) else [state]:
        if isinstance(part, Map):
            inner.extras += part.pairs
    inner.extras += more
    return inner


def _view(node, args, reader):
    if len(args) < 4:
        return None
    storage = reader.storage_of(args[0])
    shape = _tensors.size_stated(args[2])
    strides = _tensors.size_stated(args[3])
    offset = args[1] if isinstance(args[1], int) and args[1] >= 0 else 0
    dtype = storage.dtype if storage is not None else "f4"
    if storage and len(args) > 6 and isinstance(args[6], Global) and args[6].name in _DTYPES:
        dtype = _DTYPES[args[6].name]  # bytes that the tensor alone gives a type
        storage.numel, storage.dtype = storage.numel // _tensors.bytes_of(dtype), dtype
    made = Array(node, shape, dtype, subclass="Tensor", storage=storage)
    if len(args) > 5:
        made.extras.append(("hooks", args[5]))
    if storage is None:
        return made
    storage.spans.append((offset, shape, strides))
    if storage.data is not None and _is_contiguous(shape, strides):
        width = _tensors.bytes_of(dtype)
        made.data = storage.data[offset * width : (offset + made.size) * width]
    return made


def _is_contiguous(shape, strides):
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=False):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


def n_hidden(storage) -> int:
    """Return how many numbers of a storage no tensor shows."""
    views = {(o, s, t) for o, s, t in storage.spans}
    shown = sum(math.prod(shape) for _, shape, _ in views)
    spans = []
    for offset, shape, strides in views:
        if math.prod(shape):
            length = 1 + sum((n - 1) * t for n, t in zip(shape, strides, strict=False))
            spans.append((offset, offset + length))
    reached, at = 0, 0
    for start, end in sorted(spans):
        reached += max(0, min(end, storage.numel) - max(at, start))
        at = max(at, end)
    return storage.numel - min(shown, reached)
