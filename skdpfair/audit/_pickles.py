"""Pickles read without running them: what they would import and call is only written down."""

import io
import pickle
import struct
from dataclasses import dataclass, field

import numpy as np

_SURE = 24  # opcodes in a row that text does not look like
_ERRORS = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, MemoryError)
_ERRORS += (struct.error, EOFError, pickle.UnpicklingError)


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
    """The result of calling ``func``, and what is done to it afterwards."""

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


@dataclass(eq=False, slots=True)
class Persistent:
    """A reference to something outside the pickle."""

    pid: object


@dataclass(eq=False, slots=True)
class Roots:
    """The object that a pickle makes, and what its bytes hold besides."""

    root: object
    dropped: list


class BrokenPickle(ValueError):
    """A pickle that ends early or is none; ``found`` holds what came before."""

    def __init__(self, why, found, n_operations=_SURE):
        super().__init__(why)
        self.found, self.n_operations = found, n_operations


class Recorder(pickle._Unpickler):
    """Read one pickle from an open binary file, which is left behind its end.

    Lists, dicts, texts and numbers become those of Python; all that would have to be imported or
    called becomes a `Call`.

    Parameters
    ----------
    file : binary file
    limits : Limits
        What may be spent, in opcodes among others.
    persistent : callable, default=Persistent
        Stands for a persistent id.
    """

    def __init__(self, file, limits, persistent=Persistent):
        super().__init__(file, encoding="latin-1")
        self.file, self.limits, self.persistent = file, limits, persistent
        self.dropped, self.read_ids, self.n_operations = [], [], 0

    def record(self):
        """Return the object that the pickle stands for.

        Raises
        ------
        BrokenPickle
            If it does not reach its end; all that was read is in ``found``.
        """
        try:
            return self._with_dropped(self.load())
        except _ERRORS as error:
            why, found = f"{type(error).__name__} in a pickle", self._with_dropped(None)
            raise BrokenPickle(why, found, self.n_operations) from None

    def _with_dropped(self, root):
        seen = reachable([root, self.read_ids])
        dropped = [v for v in self.dropped if isinstance(v, str)]
        above = [v for part in getattr(self, "metastack", ()) for v in part]
        left = [*above, *getattr(self, "stack", ()), *self.dropped]
        for value in (*left, *reversed(getattr(self, "memo", {}).values())):
            if is_node(value) and id(value) not in seen:
                dropped.append(value)
                reachable(value, seen)
        return Roots(root, dropped) if dropped else root

    def find_class(self, module, name):
        """Return the name itself; nothing is imported."""
        return Global(str(module), str(name))

    def persistent_load(self, pid):
        """Return what a persistent id stands for."""
        made = self.persistent(pid)
        if not isinstance(made, Persistent):
            self.read_ids.append(pid)
        return made

    def get_extension(self, code):
        """Note a name of copyreg's registry."""
        self.append(Global("copyreg", f"ext{code}"))

    def _instantiate(self, klass, args):
        self.append(Call(klass, tuple(args)))

    def load_frame(self):
        """Pass over a frame's length: what follows is read opcode by opcode."""
        self.read(8)

    def load_bytearray8(self):
        """Read a bytearray without making room for more than there is."""
        self.append(bytes(self.read(int.from_bytes(self.read(8), "little"))))

    def load_reduce(self):
        """Note a call."""
        args, func = self.stack.pop(), self.stack.pop()
        self.append(Call(func, tuple(args)))

    def load_newobj_ex(self):
        """Note the making of an object."""
        kwargs, args, cls = self.stack.pop(), self.stack.pop(), self.stack.pop()
        self.append(Call(cls, tuple(args), kwargs))

    def load_build(self):
        """Note the state of an object; read the array that joblib puts after its wrapper."""
        state, target = self.stack.pop(), self.stack[-1]
        if not isinstance(target, Call):
            self.dropped.append(state)
            return
        target.states.append(state)
        if isinstance(target.func, Global) and target.func.name == "NumpyArrayWrapper":
            target.items.append(self._joblib_array(state))

    def _joblib_array(self, facts):
        dtype = dtype_of(facts["dtype"])
        if dtype is None or dtype.hasobject:
            return Recorder(self.file, self.limits, self.persistent).record()
        if isinstance(facts.get("numpy_array_alignment_bytes"), int):
            self.file.read((self.file.read(1) or b"\0")[0])
        shape = shape_of(facts["shape"])
        wanted = int(np.prod(shape, dtype=object)) * dtype.itemsize
        data = self.file.read(min(wanted, self.limits.left))
        if len(data) < wanted:
            raise ValueError("an array is cut short")
        return data

    def load_setitem(self):
        """Set an item, and note what it replaces."""
        value, key = self.stack.pop(), self.stack.pop()
        self._set([key, value])

    def load_setitems(self):
        """Set items, and note what they replace."""
        self._set(self.pop_mark())

    def load_dict(self):
        """Make a dict, and note what is replaced in it."""
        items = self.pop_mark()
        self.append({})
        self._set(items)

    def _set(self, items):
        target = self.stack[-1]
        for key, value in zip(items[::2], items[1::2], strict=True):
            if isinstance(target, dict) and key in target:
                self.dropped.append(target[key])
            target[key] = value

    def load_pop(self):
        """Note what is thrown away."""
        if not self.stack:
            self.load_pop_mark()
            return
        value = self.stack.pop()
        args = value.args if isinstance(value, Call) else ()
        if len(args) > 1 and isinstance(args[0], Call):  # a function that sets a state
            args[0].states += [value.func, *args[1:]]
        else:
            self.dropped.append(value)

    def load_pop_mark(self):
        """Note what is thrown away, up to a mark."""
        self.dropped += self.pop_mark()

    def load_next_buffer(self):
        """Note bytes outside the pickle."""
        self.append(Persistent("buffer outside the pickle"))

    def load_readonly_buffer(self):
        """Leave a buffer as it is."""


def _counted(operation):
    def run(self):
        self.n_operations += 1
        self.limits.take_operation()
        operation(self)

    return run


_OWN = {
    **{pickle.FRAME: "load_frame", pickle.BYTEARRAY8: "load_bytearray8"},
    **{pickle.REDUCE: "load_reduce", pickle.NEWOBJ: "load_reduce"},
    **{pickle.NEWOBJ_EX: "load_newobj_ex", pickle.BUILD: "load_build", pickle.POP: "load_pop"},
    **{pickle.POP_MARK: "load_pop_mark", pickle.NEXT_BUFFER: "load_next_buffer"},
    **{pickle.READONLY_BUFFER: "load_readonly_buffer", pickle.SETITEM: "load_setitem"},
    **{pickle.SETITEMS: "load_setitems", pickle.DICT: "load_dict"},
}
Recorder.dispatch = pickle._Unpickler.dispatch | {
    code[0]: getattr(Recorder, name) for code, name in _OWN.items()
}
Recorder.dispatch = {
    code: operation if code == pickle.STOP[0] else _counted(operation)
    for code, operation in Recorder.dispatch.items()
}


def read_stream(data, limits, persistent=Persistent):
    """Read pickle after pickle from bytes.

    Returns
    -------
    roots : list
    rest : bytes
        What follows the last of them.
    broken : str or None
        Why the last one could not be read to its end.
    """
    file, roots = io.BytesIO(data), []
    while True:
        start = file.tell()
        if not looks_like_pickle(data[start : start + 64]):
            return roots, data[start:], None
        try:
            roots.append(Recorder(file, limits, persistent).record())
        except BrokenPickle as error:
            if data[start] != 0x80 and error.n_operations < _SURE:  # text, most likely
                return roots, data[start:], None
            return [*roots, error.found], b"", str(error)


def looks_like_pickle(head: bytes) -> bool:
    """Tell whether bytes may start a pickle; before protocol 2 only reading on can tell."""
    if head[:1] == b"\x80":
        return len(head) > 1 and head[1] <= 5
    return bool(head) and head[0] in b"(]})cIFNSVLUXTGJKMi"


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
    if isinstance(node, Roots):
        return [node.root, *node.dropped]
    return [node.pid] if isinstance(node, Persistent) else []


def reachable(root, seen=None) -> dict:
    """Return all values that hold others, by id; they are put into ``seen`` if it is given."""
    seen, todo = {} if seen is None else seen, [root]
    while todo:
        node = todo.pop()
        if is_node(node) and id(node) not in seen:
            seen[id(node)] = node
            todo += children(node)
    return seen


def class_of(node) -> Global | None:
    """Return the class, or the function, that a call names, if it names one.

    A class that is pickled by value has the module "__by_value__".
    """
    if not isinstance(node, Call):
        return None
    func = node.func
    if isinstance(func, Call):
        maker = func.func.name if isinstance(func.func, Global) else ""
        name = next((a for a in func.args if isinstance(a, str)), "?")
        if maker == "_builtin_type":
            return Global("types", name)
        return Global("__by_value__", name) if "class" in maker else None
    if not isinstance(func, Global):
        return None
    if func.module in ("copyreg", "copy_reg") and func.name.startswith(("__newobj", "_recon")):
        return class_of(Call(node.args[0])) if node.args else None
    return func


def bases_of(node) -> list[Global]:
    """Return the named bases of a class that is pickled by value."""
    func = getattr(node, "func", None)
    parts = [a for a in func.args if isinstance(a, tuple)] if isinstance(func, Call) else []
    return [base for part in parts for base in part if isinstance(base, Global)]


def state_of(call) -> list:
    """Return the pairs (attribute, value) that a call's states set, in order."""
    parts = [part for state in call.states for part in (state if is_slots(state) else [state])]
    return [pair for part in parts if isinstance(part, dict) for pair in part.items()]


def is_slots(state) -> bool:
    """Tell whether a state is a dict and one of slots."""
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
    order = state[1] if len(state) > 1 and state[1] in ("<", ">") else "="
    return None if dtype.kind == "V" else dtype.newbyteorder(order)
