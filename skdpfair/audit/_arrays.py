"""Arrays and tensors among the calls of a pickle."""

import math
from dataclasses import dataclass, field

import numpy as np

from skdpfair.audit._read_pickles import Call, Global, class_of, dtype_of, is_node, shape_of


@dataclass(eq=False)
class Array:
    """An array that a pickle or a safetensors file holds, without its being made."""

    shape: tuple
    dtype: np.dtype | None = None  # for torch tensors, whose numbers are not read
    data: bytes | None = None  # its numbers in the order of memory
    content: list | None = None  # its objects
    extras: list = field(default_factory=list)  # (name, value) of what is attached to it
    fortran: bool = False  # whether the first axis runs fastest

    @property
    def size(self) -> int:
        """Number of items."""
        return math.prod(self.shape)

    @property
    def n_bytes(self) -> int | None:
        """Number of bytes of its items."""
        return None if self.dtype is None else self.size * self.dtype.itemsize

    def values(self):
        """Return the numbers or texts as an array, or None where they cannot be read."""
        try:
            flat = np.frombuffer(self.data, self.dtype, count=self.size)  # type: ignore[arg-type]  # None: TypeError
            return flat.reshape(self.shape, order="F" if self.fortran else "C")
        except (ValueError, TypeError):
            return None


def as_array(node) -> Array | None:
    """Return the array that a call makes, or None."""
    if isinstance(node, Array):
        return node
    if not isinstance(node, Call) or not isinstance(node.func, Global):
        return None
    made = _made_by(class_of(node), node)
    if made is not None:
        made.extras += [("state", v) for v in (*node.states[1:], *node.items[1:], *node.pairs)]
    return made


def _made_by(cls, node):
    if cls.name == "NumpyArrayWrapper" and node.items:
        return _of_joblib(dict(node.states[0]), node.items[0])
    if cls.path.startswith("torch.") and cls.name.startswith("_rebuild"):
        return _of_torch(node)
    if cls.name in ("_reconstruct", "_mareconstruct", "_frombuffer"):
        return _of_numpy(node)
    if cls.path == "skdpfair.audit._artifact.live_tensor":
        made = as_array(node.args[0]) or Array(shape_of(node.args[2]))
        made.extras += node.args[1].items()
        return made
    return None


def scalar_of(node) -> Array | None:
    """Return a numpy scalar as an array without axes, or None."""
    cls = class_of(node)
    if cls is None or cls.name != "scalar" or cls.module.split(".")[0] != "numpy":
        return None
    dtype, data = (*node.args, None, None)[:2]
    return Array((), dtype_of(dtype) or np.dtype("V1"), data_of(data))


def data_of(node) -> bytes | None:
    """Return the bytes that a value holds, in any of the ways in which pickles write them."""
    if isinstance(node, (bytes, bytearray)):
        return bytes(node)
    if isinstance(node, str):
        return node.encode("latin-1", "ignore")
    if isinstance(node, Call) and node.args:  # _codecs.encode(text, "latin1"), bytearray(...)
        return None if node.args[0] is node else data_of(node.args[0])
    return None


def _made(shape, dtype, **facts):
    """Return an array; what its dtype carries beside order and size is attached to it."""
    states = dtype.states if isinstance(dtype, Call) else []
    parts = [v for state in states for v in (state[2:] if isinstance(state, tuple) else [state])]
    array = Array(shape_of(shape), dtype_of(dtype) or np.dtype("V1"), **facts)
    array.extras += [("dtype", v) for v in parts if is_node(v)]
    return array


def _of_joblib(facts, content):
    array = _made(facts.get("shape"), facts.get("dtype"), fortran=facts.get("order") == "F")
    if isinstance(content, bytes):
        array.data = content
    else:
        inner = as_array(content)
        array.content = [content] if inner is None else inner.content
    return array


def _of_numpy(node):
    args = node.args
    if node.func.name == "_frombuffer":
        return _made(args[2], args[1], data=data_of(args[0]), fortran=args[3:4] == ("F",))
    state, extras = next((s for s in node.states if isinstance(s, tuple)), ()), []
    if state and isinstance(state[0], tuple):  # a subclass with a state of its own
        extras, state = [("state", v) for v in state[1:]], state[0]
    if len(state) < 5:
        return None
    made = _made(state[1], state[2], fortran=state[3] is True)
    made.extras += [*extras, *(("state", v) for v in state[5:])]
    if isinstance(state[4], list):
        made.content = state[4]
    else:
        made.data = data_of(state[4])
    return made


def _of_torch(node):
    """Return a tensor: a view of a storage, or another tensor with what is attached to it."""
    args, name = node.args, node.func.name
    if name.startswith("_rebuild_from_type"):
        made, more = as_array(Call(args[0], args[2])), args[3:]
    elif name.startswith("_rebuild_tensor"):
        made, more = Array(shape_of(args[2])), args[5:6]
    else:
        made, more = as_array(args[0]), args[1:]
    inner = made or Array(())  # of what is no tensor: it stays unexplained
    for part in [p for state in more for p in (state if isinstance(state, tuple) else [state])]:
        if isinstance(part, Call) and part.pairs:
            inner.extras.append(("hooks", part))
        elif isinstance(part, dict):
            inner.extras += list(part.items())
    return inner
