"""Contents of an artefact: what is not of this package, by kind of class or array."""

import builtins
import re

from skdpfair.audit import _findings as kinds
from skdpfair.audit._arrays import Array, as_array, scalar_of
from skdpfair.audit._read_files import Reader
from skdpfair.audit._read_pickles import (
    Call,
    Global,
    children,
    class_of,
    is_node,
    more_of,
    reachable,
    state_of,
)

_FEW = 16  # plain values under one name
_LONG_TEXT, _LONG_NAME, _MANY_BYTES, _MANY_BITS = 40, 200, 24, 64
_SHOWN = re.compile(r"[A-Za-z_][\w.\-]{0,60}|\d{1,3}|(\d{1,3}\.)+[A-Za-z_]\w{0,60}")
_LONGEST = 400  # of a path; a hostile one would go on
_OF_MODULES = ("_parameters", "_buffers", "_modules")  # whose names are attributes of the module
_BY_CLASS = {  # the module of a class, or the class itself
    kinds.DATA: "torch.utils.data pandas scipy.sparse pyarrow polars xarray dask datasets",
    kinds.OPTIMIZER: "torch.optim opacus.optimizers",
    kinds.GENERATOR: "numpy.random random torch.Generator torch._C.Generator",
    kinds.TRAINING: "skorch opacus",
    kinds.CODE: "cloudpickle joblib.externals.cloudpickle dill functools types",
    kinds.FILE: "pathlib mmap numpy.memmap",
}
_KIND_OF = {name: kind for kind, names in _BY_CLASS.items() for name in names.split()}
_RUN_THINGS = """os posix nt subprocess sys shutil socket pty importlib runpy ctypes code io _io
    pickle _pickle marshal shelve webbrowser pip pdb timeit asyncio multiprocessing signal tempfile
    urllib requests http ftplib smtplib sqlite3 tarfile zipfile pydoc operator ext"""
_VERBS = ("load", "read", "open", "eval", "exec", "run", "fromfile", "FileIO", "Unpickler")
_BROKEN = (AttributeError, ArithmeticError, LookupError, TypeError, ValueError)


def attribute(where, name) -> str:
    """Return the path of an attribute; a name that may hold values is not shown."""
    shown = name if isinstance(name, str) and _SHOWN.fullmatch(name) else "(attribute)"
    return where[:_LONGEST] + (shown if not where or where.endswith("!") else f".{shown}")


def item(where, key, index) -> str:
    """Return the path of an item, a dict's if it has a key."""
    shown = isinstance(key, str) and _SHOWN.fullmatch(key)
    return where[:_LONGEST] + (f"[{key!r}]" if shown else f"[{index}]")


def kind_of(cls) -> str | None:
    """Return the kind of objects of a class, by the package or module that defines it."""
    parts = cls.path.split(".") if cls is not None else []
    names = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((_KIND_OF[name] for name in names if name in _KIND_OF), None)


def runs_things(path) -> bool:
    """Tell whether a pickle that imports this could run commands or read other files."""
    *modules, name = path.split(".")
    if modules == ["builtins"]:
        return not isinstance(getattr(builtins, name, None), type)
    return not set(_RUN_THINGS.split()).isdisjoint(modules) or name.startswith(_VERBS)


class Walk:
    """Visit all values of an artefact once, and note what nothing explains.

    ``closed_list(walk, value, where)`` judges what is of this package, and tells whether it is.
    """

    def __init__(self, reader: Reader, closed_list):
        self.reader, self.closed_list, self.add = reader, closed_list, reader.add
        self.seen, self.arrays, self.seeds = {}, [], []
        self.weights, self.classes = set(), set()  # of the classifiers that were judged
        self.fitted = False  # whether anything has learned from data

    def walk(self, places):
        """Visit all that lies at some places."""
        for where, root in places:
            start = f"{where}!" if where else ""
            try:
                self.judge(self.visit(root, start), start)
            except RecursionError:
                self.add(kinds.UNREADABLE, where, "nested too deeply to be looked at")
            for node in reachable(root):
                if isinstance(node, Global) and runs_things(node.path):
                    what = f"unpickling imports {node.path[:80]}, which can run or read things"
                    self.add(kinds.EXECUTABLE, where, what)

    def finish(self):
        """Judge arrays and seeds, now that all weights are known."""
        for array, where, kind in self.arrays:
            if (array.shape, array.data) not in self.weights:  # of a classifier: they are judged
                what = f"{array.dtype or 'tensor'}: {kinds.IN_WORDS[kind]}"
                self.add(kind, where, what, array.n_bytes, array.shape)
        for where in self.seeds if self.fitted else ():
            self.add(kinds.SEED, where, "a number that seeds a random generator")

    def visit(self, node, where) -> int:
        """Note what nothing explains in a value; return how many plain values are left."""
        node = _without_numpy(node)  # counts each time that it is referred to
        if not is_node(node):
            return self._plain(node, where)
        if id(node) in self.seen:
            return 0
        self.seen[id(node)] = node
        self.reader.limits.take_operation()
        try:
            return 0 if self.closed_list(self, node, where) else self._visit(node, where)
        except _BROKEN as error:
            what = f"a part that is not what it claims to be: {type(error).__name__}"
            self.add(kinds.UNREADABLE, where, what)
            return 0

    def judge(self, n, where) -> int:
        """Note plain values if they are too many; return how many were not noted."""
        if n <= _FEW:
            return n
        self.add(kinds.VALUES, where, f"{n} numbers or words: {kinds.IN_WORDS[kinds.VALUES]}")
        return 0

    def skip(self, node):
        """Take a value, and all that it holds, for explained or noted."""
        reachable(node, self.seen)

    def note(self, kind, node, where, what=None):
        """Note what a thing is; what it holds is part of that."""
        shape = getattr(as_array(node), "shape", None)
        self.add(kind, where, what or kinds.IN_WORDS[kind], shape=shape)
        self.skip(node)

    def _plain(self, value, where):
        if isinstance(value, str) and len(value) > _LONG_TEXT:
            self.add(kinds.TEXT, where, kinds.IN_WORDS[kinds.TEXT], len(value))
        elif isinstance(value, int) and value.bit_length() > _MANY_BITS:
            self.add(kinds.BYTES, where, f"an integer of {value.bit_length()} bits")
        else:
            return int(value is not None)
        return 0

    def _visit(self, node, where):
        if isinstance(node, dict):
            return self._dict(node.items(), where)
        if isinstance(node, (bytes, bytearray)):
            if len(node) <= _MANY_BYTES:
                return int(len(node) > 0)
            self.add(kinds.BYTES, where, kinds.IN_WORDS[kinds.BYTES], len(node))
        elif isinstance(node, Global):
            return 0 if len(node.path) <= _LONG_NAME else self._plain(node.path, where)
        elif isinstance(node, (Call, Array)):
            array = as_array(node)
            return self._object(node, where) if array is None else self._array(array, where)
        else:
            return self._items(children(node), where) or 1
        return 0

    def _items(self, items, where):
        return sum(self.visit(value, item(where, None, i)) for i, value in enumerate(items))

    def _dict(self, pairs, where):
        n = 0
        for i, (key, value) in enumerate(pairs):
            at = item(where, key, i)
            n += self.judge(self.visit(value, at), at)
            if not (isinstance(key, str) and _SHOWN.fullmatch(key)):
                n += self.visit(key, item(where, None, i))
        return n

    def _array(self, array, where):
        """Keep an array, which is judged when all weights are known; note what it carries."""
        for name, value in array.extras:
            self.note(kinds.ATTACHED, value, attribute(where, name))
        if array.size:
            self.arrays.append([array, where, kinds.ARRAY])
        return 0

    def _object(self, node, where):
        """Visit what a call makes, by its class and its attributes; it counts as one value."""
        cls = class_of(node)
        if cls is not None and (kind := kind_of(cls)) is not None:
            self.note(kind, node, where, f"{cls.path[:80]}: {kinds.IN_WORDS[kind]}")
            return 1
        self.judge(self.parts(node, where), where)
        for name, value in state_of(node):
            held = value.pairs if isinstance(value, Call) else getattr(value, "items", list)()
            for key, part in held if name in _OF_MODULES else [(name, value)]:
                self._attribute(key, part, where)
        return 1

    def parts(self, node, where) -> int:
        """Visit what a call is made of, besides its attributes."""
        more = more_of(node)[len(node.pairs) :]
        n = self._dict(node.pairs, where) + self.visit(node.func, where)
        return n + self._items([*node.args, *more], where)

    def _attribute(self, name, value, where):
        before, at = len(self.arrays), attribute(where, name)
        n = self.visit(value, at)
        if at.endswith("(attribute)"):
            n += self.visit(name, at)
        self.judge(n, at)
        if isinstance(name, str) and name.endswith("_") and not name.startswith("_"):
            self.fitted = True
            if isinstance(_without_numpy(value), float):  # of whole numbers, most are counts
                self.add(kinds.FITTED, at, f"a number: {kinds.IN_WORDS[kinds.FITTED]}")
            for found in self.arrays[before:]:
                found[2] = kinds.FITTED


def _without_numpy(node):
    """Return a scalar of numpy as the value that it holds, all else as it is."""
    scalar = scalar_of(node)
    if scalar is None:
        return node
    values = scalar.values()
    return scalar.data if values is None or values.dtype.kind == "V" else values.item()
