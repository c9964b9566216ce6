"""Read pickles without running them: a stack machine whose calls are only written down."""

import io
import math
import pickletools
import struct

from skdpfair.audit._artifacts._dtypes import dtype_of, shape_of, size_of
from skdpfair.audit._artifacts._graph import (
    Blob,
    Call,
    Global,
    Inline,
    Map,
    Node,
    Persistent,
    Roots,
    Seq,
    reachable,
)

_MARK = object()
_PLAIN = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING"),
    *("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
}
_BYTES = {"BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY = {"EMPTY_LIST": Seq, "EMPTY_TUPLE": Seq, "EMPTY_SET": Seq, "EMPTY_DICT": Map}
_ERRORS = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, MemoryError)
_ERRORS += (struct.error, EOFError)
_WRAPPERS = ("NumpyArrayWrapper",)


_SURE = 24  # opcodes in a row that text does not look like


class BrokenPickle(ValueError):
    """A pickle that ends early or is none; ``found`` holds what came before."""

    def __init__(self, why, found, n_operations=_SURE):
        super().__init__(why)
        self.found, self.n_operations = found, n_operations


class Machine:
    """Run one pickle from an open binary file, which is left behind its end.

    Parameters
    ----------
    file : binary file
    budget : Budget
        What may be spent, in opcodes among others.
    persistent : callable, optional
        Makes a node of a persistent id.
    """

    def __init__(self, file, budget, persistent=Persistent):
        self.file, self.budget, self.persistent = file, budget, persistent
        self.stack, self.memo, self.dropped = [], {}, []

    def load(self):
        """Return the node that the pickle stands for.

        Raises
        ------
        BrokenPickle
            If it does not reach its end; all that was read is in ``found``.
        """
        done = 0
        try:
            for op, arg, _ in pickletools.genops(self.file):
                done += 1
                if op.name == "STOP":
                    return self._result(self.stack.pop())
                self.budget.take_operation()
                self._do(op.name, arg)
        except _ERRORS as error:
            why = f"{type(error).__name__} in a pickle"
            raise BrokenPickle(why, self._result(None), done) from None
        raise BrokenPickle("a pickle without an end", self._result(None), done)

    def _result(self, root):
        """Return the root with all that the bytes hold beside it."""
        beside, seen = [], reachable(root)
        for node in (*self.stack, *self.dropped, *reversed(self.memo.values())):
            if isinstance(node, Node) and id(node) not in seen:
                beside.append((" (dropped)", node))
                reachable(node, seen)
        beside += [(" (dropped)", v) for v in self.dropped if isinstance(v, str)]
        return Roots([("", root), *beside]) if beside else root

    def _do(self, name, arg):
        stack = self.stack
        if name in _PLAIN:
            stack.append(arg)
        elif name in _BYTES:
            stack.append(Blob(arg))
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif name.endswith("PUT"):
            self.memo[arg] = stack[-1]
        elif name.endswith("GET"):
            stack.append(self.memo[arg])
        elif name == "MARK":
            stack.append(_MARK)
        else:
            _DEEDS.get(name, _ignore)(self, arg)

    def marked(self):
        """Pop everything above the last mark."""
        for i in range(len(self.stack) - 1, -1, -1):
            if self.stack[i] is _MARK:
                above = self.stack[i + 1 :]
                del self.stack[i:]
                return above
        raise ValueError("no mark")

    def _pairs(self):
        values = self.marked()
        return list(zip(values[::2], values[1::2], strict=True))

    def _append(self, values):
        target = self.stack[-1]
        if not isinstance(target, (Seq, Call, Inline)):
            raise ValueError("append to what is no list")
        into = self.dropped if isinstance(target, Inline) else target.items
        into.extend(values)

    def _set(self, pairs):
        target = self.stack[-1]
        if not isinstance(target, (Map, Call)):
            raise ValueError("an item set of what is no dict")
        target.pairs.extend(pairs)

    def _call(self, func, args=None, kwargs=None):
        self.stack.append(Call(func, args, kwargs))

    def _reduce(self, _):
        args, func = self.stack.pop(), self.stack.pop()
        self._call(func, args)

    def _new_ex(self, _):
        kwargs, args, cls = self.stack.pop(), self.stack.pop(), self.stack.pop()
        self._call(cls, args, kwargs)

    def _obj(self, _):
        cls, *args = self.marked()
        self._call(cls, Seq(args))

    def _inst(self, arg):
        self._call(Global(*arg.split(" ", 1)), Seq(self.marked()))

    def _stack_global(self, _):
        name, module = self.stack.pop(), self.stack.pop()
        self.stack.append(Global(module, name))

    def _build(self, _):
        state, target = self.stack.pop(), self.stack[-1]
        if not isinstance(target, Call):
            self.dropped.append(state)
            return
        target.states.append(state)
        if isinstance(target.func, Global) and target.func.name in _WRAPPERS:
            self.stack[-1] = self._inline(target, state)

    def _inline(self, wrapper, state):
        """Read the array that joblib puts after its wrapper."""
        facts = state if isinstance(state, Map) else Map()
        shape, dtype = shape_of(facts.get("shape")), dtype_of(facts.get("dtype"))
        if dtype is None or dtype == "O":
            machine = Machine(self.file, self.budget, self.persistent)
            return Inline(wrapper, shape, "O", machine.load())
        if isinstance(facts.get("numpy_array_alignment_bytes"), int):
            self.file.read((self.file.read(1) or b"\0")[0])
        wanted = math.prod(shape) * size_of(dtype)
        data = self.file.read(min(wanted, self.budget.left))
        if len(data) < wanted:
            raise ValueError("an array is cut short")
        return Inline(wrapper, shape, dtype, Blob(data))

    def _pop(self, _):
        value = self.stack.pop()
        args = value.args.items if isinstance(value, Call) and isinstance(value.args, Seq) else []
        if len(args) > 1 and isinstance(args[0], Call):  # a function that sets a state
            args[0].states += [value.func, *args[1:]]
        elif isinstance(value, (Node, str)):
            self.dropped.append(value)

    def _pop_mark(self, _):
        self.dropped += [v for v in self.marked() if isinstance(v, (Node, str))]


def _ignore(machine, arg):
    """PROTO, FRAME, READONLY_BUFFER."""


def _pushed(make):
    return lambda m, arg: m.stack.append(make(m, arg))


def _last(m, n):
    values = m.stack[-n:]
    if len(values) < n or any(v is _MARK for v in values):
        raise IndexError("too few values")
    del m.stack[-n:]
    return values


_DEEDS = {
    "LIST": _pushed(lambda m, a: Seq(m.marked())),
    "TUPLE": _pushed(lambda m, a: Seq(m.marked())),
    "FROZENSET": _pushed(lambda m, a: Seq(m.marked())),
    "DICT": _pushed(lambda m, a: Map(m._pairs())),
    "TUPLE1": _pushed(lambda m, a: Seq(_last(m, 1))),
    "TUPLE2": _pushed(lambda m, a: Seq(_last(m, 2))),
    "TUPLE3": _pushed(lambda m, a: Seq(_last(m, 3))),
    "APPEND": lambda m, a: m._append([m.stack.pop()]),
    "APPENDS": lambda m, a: m._append(m.marked()),
    "ADDITEMS": lambda m, a: m._append(m.marked()),
    "SETITEM": lambda m, a: m._set([tuple(_last(m, 2))]),
    "SETITEMS": lambda m, a: m._set(m._pairs()),
    "GLOBAL": _pushed(lambda m, a: Global(*a.split(" ", 1))),
    "STACK_GLOBAL": Machine._stack_global,
    "REDUCE": Machine._reduce,
    "NEWOBJ": Machine._reduce,
    "NEWOBJ_EX": Machine._new_ex,
    "OBJ": Machine._obj,
    "INST": Machine._inst,
    "BUILD": Machine._build,
    "POP": Machine._pop,
    "POP_MARK": Machine._pop_mark,
    "DUP": lambda m, a: m.stack.append(m.stack[-1]),
    "PERSID": _pushed(lambda m, a: m.persistent(a)),
    "BINPERSID": _pushed(lambda m, a: m.persistent(m.stack.pop())),
    "NEXT_BUFFER": _pushed(lambda m, a: Persistent("buffer outside the pickle")),
    **dict.fromkeys(("EXT1", "EXT2", "EXT4"), _pushed(lambda m, a: Global("copyreg", f"ext{a}"))),
}


def read_stream(data, budget, persistent=Persistent):
    """Read pickle after pickle from bytes.

    Returns
    -------
    roots : list of Node
    rest : bytes
        What follows the last of them.
    broken : str or None
        Why the last one could not be read to its end.
    """
    file, roots = io.BytesIO(data), []
    while True:
        start = file.tell()
        if start >= len(data) or not looks_like_pickle(data[start : start + 64]):
            return roots, data[start:], None
        try:
            roots.append(Machine(file, budget, persistent).load())
        except BrokenPickle as error:
            if data[start] != 0x80 and error.n_operations < _SURE:  # text, most likely
                return roots, data[start:], None
            return [*roots, error.found], b"", str(error)


def looks_like_pickle(head: bytes) -> bool:
    """Tell whether bytes may start a pickle; before protocol 2 only reading on can tell."""
    if head[:1] == b"\x80":
        return len(head) > 1 and head[1] <= 5
    return head[:1] in tuple(b"(]})cIFNSVLUXTGJKMi"[i : i + 1] for i in range(19))
