"""Arrays and tensors among the calls of a pickle."""

import math
from dataclasses import dataclass, field

import numpy as np

from skdpfair.audit._pickles import Call, Global, class_of, dtype_of, is_node, shape_of

_TYPED = ("uint16", "uint32", "uint64")  # tensors that torch keeps as bytes
_WORDS = {"f": "floating", "i": "integer", "u": "integer", "b": "boolean", "c": "complex"}


@dataclass(eq=False)
class Storage:
    """The numbers of torch tensors, which are views of it.

    Parameters
    ----------
    dtype : str
    numel : int
    data : bytes or None
    spans : set of (offset, shape, strides)
        The views.
    """

    dtype: str
    numel: int
    data: bytes | None = None
    spans: set = field(default_factory=set)


@dataclass(eq=False)
class Array:
    """An array that a pickle or a safetensors file holds, without its being made.

    Parameters
    ----------
    shape : tuple of int
    dtype : str
        Such as "<f8"; "|O" for objects; "bf16".
    data : bytes or None
        Its numbers in the order of memory, for contiguous arrays.
    content : list or None
        Its objects.
    subclass : str
        Name of its class.
    extras : list of (name, value)
        What is attached to it.
    storage : Storage or None
    fortran : bool
        Whether the first axis runs fastest in ``data``.
    """

    shape: tuple
    dtype: str
    data: bytes | None = None
    content: list | None = None
    subclass: str = "ndarray"
    extras: list = field(default_factory=list)
    storage: Storage | None = None
    fortran: bool = False

    @property
    def size(self) -> int:
        """Number of items."""
        return math.prod(self.shape)

    @property
    def width(self) -> int:
        """Number of bytes of an item."""
        return size_of(self.dtype)

    @property
    def n_bytes(self) -> int:
        """Number of bytes of its items."""
        return self.size * self.width

    @property
    def letter(self) -> str:
        """The kind of its dtype: f, i, u, b, c, U, S, O, V, M, m."""
        return "f" if self.dtype == "bf16" else np.dtype(self.dtype).kind

    @property
    def words(self) -> str:
        """The dtype in words."""
        kind = _WORDS.get(self.letter)
        return f"{8 * self.width}-bit {kind} numbers" if kind else "values"

    def values(self):
        """Return the numbers or texts as an array, or None where they cannot be read."""
        if self.data is None or self.dtype == "bf16":
            return None
        try:
            flat = np.frombuffer(self.data, self.dtype, count=self.size)
            return flat.reshape(self.shape, order="F" if self.fortran else "C")
        except (ValueError, TypeError):
            return None


def size_of(dtype: str) -> int:
    """Return the bytes of one item of a tensor."""
    return 2 if dtype == "bf16" else np.dtype(dtype).itemsize


def as_array(node, reader) -> Array | None:
    """Return the array that a call makes, or None."""
    if isinstance(node, Array):
        return node
    if not isinstance(node, Call) or not isinstance(node.func, Global):
        return None
    root = node.func.module.split(".")[0]
    if root == "joblib" and node.func.name == "NumpyArrayWrapper" and node.items:
        return _of_joblib(node.states[0], node.items[0])
    if root == "numpy":
        return _of_numpy(node)
    return _of_torch(node, reader) if root in ("torch", "skdpfair") else None


def scalar_of(node) -> Array | None:
    """Return the numpy number or text that a call makes, as an array without axes, or None."""
    cls = class_of(node)
    if cls is None or cls.name != "scalar" or cls.module.split(".")[0] != "numpy":
        return None
    dtype, data = (*node.args, None, None)[:2]
    return Array((), (dtype_of(dtype) or np.dtype("V1")).str, data_of(data) or b"")


def data_of(node) -> bytes | None:
    """Return the bytes that a value holds, in any of the ways in which pickles write them."""
    if isinstance(node, (bytes, bytearray)):
        return bytes(node)
    if isinstance(node, str):
        return node.encode("latin-1", "ignore")
    if isinstance(node, Call) and node.args:  # _codecs.encode(text, "latin1"), bytearray(...)
        return None if node.args[0] is node else data_of(node.args[0])
    return None


def _of_joblib(facts, content):
    subclass = facts.get("subclass")
    name = subclass.name if isinstance(subclass, Global) else "ndarray"
    shape, extras = shape_of(facts.get("shape")), _metadata_of(facts.get("dtype"))
    if isinstance(content, bytes):
        dtype = dtype_of(facts["dtype"]).str
        fortran = facts.get("order") == "F"
        return Array(shape, dtype, content, None, name, extras, fortran=fortran)
    made = _of_numpy(content) if isinstance(content, Call) else None
    objects = made.content if made is not None else [content]
    return Array(shape, "|O", None, objects, name, extras)


def _metadata_of(dtype):
    """Return what a dtype carries beside its order and size: fields, and metadata."""
    states = dtype.states if isinstance(dtype, Call) else []
    parts = [v for state in states for v in (state[2:] if isinstance(state, tuple) else [state])]
    return [("dtype", v) for v in parts if is_node(v)]


def _of_numpy(node):
    args, name = node.args, node.func.name if isinstance(node.func, Global) else ""
    if name in ("_reconstruct", "_mareconstruct"):
        state, extras = next((s for s in node.states if isinstance(s, tuple)), ()), []
        if state and isinstance(state[0], tuple):  # a subclass with a state of its own
            extras = list(state[1].items()) if isinstance(state[1], dict) else []
            state = state[0]
        if len(state) < 5:
            return None
        made = Array(shape_of(state[1]), (dtype_of(state[2]) or np.dtype("V1")).str)
        made.subclass = next((a.name for a in args if isinstance(a, Global)), "ndarray")
        made.extras = [*extras, *_metadata_of(state[2]), *(("state", v) for v in state[5:])]
        if isinstance(state[4], list):
            made.content = state[4]
        else:
            made.data, made.fortran = data_of(state[4]), state[3] is True
        return made
    if name == "_frombuffer" and len(args) >= 3:
        dtype, extras = dtype_of(args[1]) or np.dtype("V1"), _metadata_of(args[1])
        fortran = args[3:4] == ("F",)
        return Array(shape_of(args[2]), dtype.str, data_of(args[0]), extras=extras, fortran=fortran)
    return None


def _of_torch(node, reader):
    name, args = node.func.name, node.args
    if name == "remembered" and len(args) == 3:
        return _wrapped(Call(args[0], args[1]), reader, args[2])
    if name in ("_rebuild_from_type_v2", "_rebuild_from_type") and len(args) >= 4:
        return _wrapped(Call(args[0], args[2]), reader, args[3])
    if name in ("_rebuild_parameter", "_rebuild_parameter_with_state") and args:
        hooks = [("hooks", args[2])] if len(args) > 2 else []
        return _wrapped(args[0], reader, args[3] if len(args) > 3 else None, hooks)
    if name.startswith("_rebuild_device_tensor") and args:
        return _wrapped(args[0], reader, None)
    if name in ("_rebuild_tensor_v2", "_rebuild_tensor", "_rebuild_tensor_v3", "_rebuild_qtensor"):
        return _view(args, reader) if len(args) >= 4 else None
    return None


def _wrapped(call, reader, state, more=()):
    """Return a tensor with its attributes, which are a dict, or one and a dict of slots."""
    inner = as_array(call, reader)
    if inner is not None:
        for part in state if isinstance(state, tuple) else [state]:
            inner.extras += part.items() if isinstance(part, dict) else []
        inner.extras += more
    return inner


def _view(args, reader):
    storage = reader.storage_of(args[0])
    shape, strides = shape_of(args[2]), shape_of(args[3])
    offset = args[1] if isinstance(args[1], int) and args[1] >= 0 else 0
    dtype = storage.dtype if storage is not None else "f4"
    if storage and len(args) > 6 and isinstance(args[6], Global) and args[6].name in _TYPED:
        dtype = np.dtype(args[6].name).str
        storage.numel, storage.dtype = storage.numel // size_of(dtype), dtype
    made = Array(shape, dtype, subclass="Tensor", storage=storage)
    made.extras += [("hooks", args[5])] if len(args) > 5 else []
    if storage is None:
        return made
    storage.spans.add((offset, shape, strides))
    if storage.data is not None and _is_contiguous(shape, strides):
        made.data = storage.data[offset * made.width : (offset + made.size) * made.width]
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
    shown = sum(math.prod(shape) for _, shape, _ in storage.spans)
    spans = []
    for offset, shape, strides in storage.spans:
        if math.prod(shape):
            length = 1 + sum((n - 1) * t for n, t in zip(shape, strides, strict=False))
            spans.append((offset, offset + length))
    reached, at = 0, 0
    for start, end in sorted(spans):
        reached += max(0, min(end, storage.numel) - max(at, start))
        at = max(at, end)
    return storage.numel - min(shown, reached)
