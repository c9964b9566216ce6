"""Pickles read without running them: what they would import and call is only written down."""

# mypy: disable-error-code="attr-defined"
# (attributes of pickle._Unpickler are not in its stubs)

import _compat_pickle
import io
import pickle
import struct
from dataclasses import dataclass, field

import numpy as np

_FIRST = tuple(bytes([c]) for c in b"(]})cIFNSVLUXTGJKMi")  # opcodes that begin a pickle
_ERRORS: tuple[type[Exception], ...] = (ValueError, TypeError, AttributeError, LookupError)
_ERRORS += (ArithmeticError, MemoryError, struct.error, EOFError, pickle.UnpicklingError)


@dataclass(eq=False, slots=True)
class Global:
    """A name that unpickling would import."""

    module: str
    name: str

    @property
    def path(self) -> str:
        """Module and name."""
        return f"{self.module}.{self.name}"


@dataclass(eq=False, slots=True)
class Call:
    """The result of calling ``func``, and what is done to it afterwards.

    Without a function it stands for what lies outside the pickle, under the name in ``args``.
    """

    func: object
    args: tuple = ()
    kwargs: dict | None = None
    states: list = field(default_factory=list)
    items: list = field(default_factory=list)
    pairs: list = field(default_factory=list)

    def append(self, item):
        """Note an item that unpickling would append."""
        self.items.append(item)

    add = append

    def extend(self, items):
        """Note items that unpickling would append."""
        self.items.extend(items)

    def __setitem__(self, key, value):
        self.pairs.append((key, value))


class Recorder(pickle._Unpickler):
    """Read one pickle from an open binary file, which is left behind its end.

    Lists, dicts, texts and numbers become those of Python; all that would have to be imported or
    called becomes a `Call`.  What was made on the way is kept in ``made``.
    """

    def __init__(self, file, limits):
        super().__init__(file, encoding="latin-1")
        self.file, self.limits, self.made, self.stack = file, limits, {}, []

    def find_class(self, module, name):
        """Return the name itself, as Python 3 spells it; nothing is imported."""
        if self.proto < 3:
            module, name = _compat_pickle.NAME_MAPPING.get((module, name), (module, name))
            module = _compat_pickle.IMPORT_MAPPING.get(module, module)
        return Global(str(module), str(name))

    def persistent_load(self, pid):
        """Return what stands for a persistent id."""
        return Call(None, (pid,))

    def get_extension(self, code):
        """Note a name of copyreg's registry."""
        self.append(Global("copyreg.ext", str(code)))

    def _instantiate(self, klass, args):
        self.append(Call(klass, tuple(args)))

    def _call(self, n_parts):
        *rest, args, func = [self.stack.pop() for _ in range(n_parts)]
        self.append(Call(func, tuple(args), *rest))

    def _build(self):
        """Note the state of an object; read the array that joblib puts after its wrapper."""
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, Call):
            target.states.append(state)
            if isinstance(target.func, Global) and target.func.name == "NumpyArrayWrapper":
                target.items.append(self._joblib_array(state))

    def _joblib_array(self, facts):
        dtype = dtype_of(facts["dtype"])
        if dtype is None or dtype.hasobject:
            inner = Recorder(self.file, self.limits)
            inner.made = self.made
            return inner.load()
        if isinstance(facts.get("numpy_array_alignment_bytes"), int):
            self.file.read((self.file.read(1) or b"\0")[0])
        wanted = int(np.prod(shape_of(facts["shape"]), dtype=object)) * dtype.itemsize
        data = self.file.read(min(wanted, self.limits.left))
        if len(data) < wanted:
            raise ValueError("an array is cut short")
        return data

    def _pop(self):
        """Keep the call of a function that sets the state of what it is given."""
        top = self.stack[-1] if self.stack else None
        if isinstance(top, Call) and len(top.args) > 1 and isinstance(top.args[0], Call):
            top.args[0].states.append(top)
        self.load_pop()


_OWN = {
    pickle.FRAME: lambda self: self.read(8),  # what follows is read opcode by opcode
    pickle.BYTEARRAY8: lambda self: self.append(  # makes no room for more than there is
        bytes(self.read(int.from_bytes(self.read(8), "little")))
    ),
    pickle.REDUCE: lambda self: self._call(2),
    pickle.NEWOBJ: lambda self: self._call(2),
    pickle.NEWOBJ_EX: lambda self: self._call(3),
    pickle.BUILD: Recorder._build,
    pickle.POP: Recorder._pop,
    pickle.NEXT_BUFFER: lambda self: self.append(Call(None, ("buffer",))),
    pickle.READONLY_BUFFER: lambda self: None,
}


def _counted(operation):
    def run(self):
        self.limits.take_operation()
        operation(self)
        top = self.stack[-1] if self.stack else None
        if is_node(top) or isinstance(top, str):
            self.made[id(top)] = top

    return run


_ALL = pickle._Unpickler.dispatch | {code[0]: operation for code, operation in _OWN.items()}
Recorder.dispatch = {code: _counted(operation) for code, operation in _ALL.items()}
Recorder.dispatch[pickle.STOP[0]] = pickle._Unpickler.load_stop


def read_stream(data, limits):
    """Read pickle after pickle from bytes.

    Return their objects, what their bytes hold besides, the bytes that follow the last of them,
    and, if that could not be read to its end, why.
    """
    file, roots, made, broken = io.BytesIO(data), [], {}, None
    while broken is None:
        start = file.tell()
        head = data[start : start + 2]
        binary = head[:1] == b"\x80" and head[1:] <= b"\x05"
        if not binary and head[:1] not in _FIRST:  # before protocol 2 only reading on can tell
            break
        recorder = Recorder(file, limits)
        try:
            roots.append(recorder.load())
        except _ERRORS as error:
            if not binary:  # text, most likely
                break
            start, broken = len(data), f"{type(error).__name__} in a pickle"
            roots.append(None)
        made |= recorder.made
    return roots, _dropped(roots, made), data[start:], broken


def _dropped(roots, made):
    """Return what was made, but does not belong to the objects that the pickles stand for."""
    seen, dropped = {}, []
    for value in [roots, *reversed(made.values())]:
        if is_node(value) and id(value) not in seen:
            dropped.append(value)
            reachable(value, seen)
    texts = {v for node in seen.values() for v in children(node) if isinstance(v, str)}
    return dropped[1:] + [v for v in made.values() if isinstance(v, str) and v not in texts]


def is_node(value) -> bool:
    """Tell whether a value holds others, or bytes."""
    plain = value is None or isinstance(value, (str, int, float, complex))
    return not plain and not (isinstance(value, (tuple, frozenset)) and not value)


def children(node) -> list:
    """Return the values that a value refers to."""
    if isinstance(node, Call):
        pairs = [v for pair in node.pairs for v in pair]
        return [node.func, node.args, node.kwargs, *node.states, *node.items, *pairs]
    if isinstance(node, dict):
        return [*node.keys(), *node.values()]
    if isinstance(node, (list, tuple, set, frozenset)):
        return list(node)
    return [node.module, node.name] if isinstance(node, Global) else []


def reachable(root, seen=None) -> list:
    """Return all values that hold others, except those in ``seen`` (by id), to which it adds."""
    seen, found, todo = {} if seen is None else seen, [], [root]
    while todo:
        node = todo.pop()
        if is_node(node) and id(node) not in seen:
            seen[id(node)] = node
            found.append(node)
            todo += children(node)
    return found


def class_of(node) -> Global | None:
    """Return the class, or the function, that a call names, if it names one."""
    func = node.func if isinstance(node, Call) else None
    if isinstance(func, Call):  # a class that is pickled by value: what makes it
        func = func.func
    if not isinstance(func, Global):
        return None
    if func.module == "copyreg" and func.name.startswith(("__newobj", "_recon")):
        return class_of(Call(node.args[0])) if node.args else None
    return func


def state_of(call) -> list:
    """Return the pairs (attribute, value) that a call's states set, in order."""
    parts = [part for state in call.states for part in (state if _is_slots(state) else [state])]
    return [pair for part in parts if isinstance(part, dict) for pair in part.items()]


def more_of(call) -> list:
    """Return what is done to the result of a call, besides the setting of attributes."""
    states = [s for s in call.states if not isinstance(s, dict) and not _is_slots(s)]
    return [*call.pairs, *call.items, *states, *([call.kwargs] if call.kwargs else [])]


def _is_slots(state) -> bool:
    pair = isinstance(state, tuple) and len(state) == 2
    return pair and all(part is None or isinstance(part, dict) for part in state)


def shape_of(node) -> tuple[int, ...]:
    """Return a shape that a pickle states; sizes that are none count as 0."""
    if isinstance(node, Call) and node.args:  # torch.Size
        node = node.args[0]
    items = node if isinstance(node, (tuple, list)) else [node]
    return tuple(v if isinstance(v, int) and v >= 0 else 0 for v in items)


def dtype_of(node) -> np.dtype | None:
    """Return a dtype that a pickle states; None if it is none, or has fields."""
    if not isinstance(node, Call) or not node.args or not isinstance(node.args[0], str):
        return None
    try:
        dtype = np.dtype(node.args[0])
    except TypeError:
        return None
    state = node.states[0] if node.states and isinstance(node.states[0], tuple) else ()
    if dtype.kind == "V":
        return None
    return dtype.newbyteorder(state[1]) if state[1:2] in [("<",), (">",)] else dtype
