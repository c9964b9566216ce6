"""Walk the graph of an artefact and judge what lies where."""

from skdpfair.audit._artifacts import _modules, _names, _public
from skdpfair.audit._artifacts._arrays import as_array, data_of, is_scalar, n_hidden
from skdpfair.audit._artifacts._containers import Reader
from skdpfair.audit._artifacts._dtypes import dtype_of
from skdpfair.audit._artifacts._facts import as_tree
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
    Storage,
    Weights,
    arguments,
    globals_in,
    reachable,
)
from skdpfair.audit._artifacts._objects import visit_object
from skdpfair.audit._artifacts._packed import format_of
from skdpfair.audit._artifacts._pickles import looks_like_pickle
from skdpfair.audit._artifacts._place import SHOWN, Place
from skdpfair.audit._artifacts._public import is_statement
from skdpfair.audit._artifacts._tally import Tally, is_source, judge_value
from skdpfair.audit._artifacts._text import as_text, judge_text

FEW = 4  # items of an array
_FEW_BYTES, _LONG = 24, 1000
_BROKEN = (AttributeError, ArithmeticError, LookupError, TypeError, ValueError)


class Walker:
    """Visit all nodes once; what is explained on the way is not reported at the end."""

    def __init__(self, reader: Reader):
        self.reader, self.seen, self.todo = reader, set(), []
        self.arrays, self.tallies, self.models, self.unsure = [], [], [], []
        self.explained, self.storages, self.keep, self.public = {}, {}, [], set()
        self.dangers = set()
        self.shapes, self.dims, self.widths, self.private = set(), set(), set(), 0

    def walk(self, places):
        """Visit all that can be reached from graphs at paths."""
        for where, node in places:
            self.push(node, Place(f"{where}\0" if where else ""))
            while self.todo:
                self.reader.budget.take_operation()
                node, at = self.todo.pop()
                try:
                    self.visit(node, at)
                except _BROKEN as error:
                    what = f"a part that is not what it claims to be: {type(error).__name__}"
                    self.reader.add(_names.UNREADABLE, at.path, what)
        for where, node in places:
            for name in globals_in(node):
                if name.path not in self.dangers:
                    self._global(name, Place(where))

    def push(self, node, place):
        """Visit a node later; it comes before what was pushed earlier."""
        self.todo.append((node, place))

    def push_all(self, pairs):
        """Visit nodes later, in this order."""
        self.todo += reversed(list(pairs))

    def skip(self, *nodes):
        """Mark nodes as judged."""
        for node in nodes:
            reachable(node, self.seen)

    def visit(self, node, place):
        """Judge one node and push what it holds."""
        if not isinstance(node, Node):
            self._value(node, place)
            return
        if is_scalar(node):
            self._scalar(node, place)
            return
        if id(node) in self.seen:
            return
        self.seen.add(id(node))
        self.keep.append(node)
        if isinstance(node, Roots):
            self.push_all((n, place.but(where=_suffixed(place.where, s))) for s, n in node.members)
        elif isinstance(node, Storage):
            self.storages.setdefault(id(node), (node, place))
        elif isinstance(node, Blob):
            self._blob(node, place)
        elif isinstance(node, Global):
            self._global(node, place)
        elif isinstance(node, Weights):
            self._trusted(node, place)
        elif isinstance(node, Seq):
            self.items(node.items, place)
        elif isinstance(node, Map):
            self.map(node, place)
        elif isinstance(node, Persistent):
            self.push(node.pid, place)
        else:
            self._made(node, place)

    def _trusted(self, node, place):
        for i, item in enumerate(node.items):
            array = as_array(item, self.reader)
            if array is not None:
                self.explain(array)
                self.push(item, place.item(None, i, tally=None))

    def _global(self, node, place):
        if judge_text(node.path)[0] is not None or len(node.path) > 400:
            self.reader.add(_names.TEXT, place.path, "a name that is too long for one")
        elif _names.runs_things(node.path):
            what = f"unpickling imports {node.path}, which can run or read things"
            self.reader.add(_names.EXECUTABLE, place.path, what)
            self.dangers.add(node.path)

    def _value(self, value, place):
        if place.inside == _names.GENERATOR or is_source(place.name, value):
            return
        place = self._tallied(place)
        place.tally.add(value)
        if isinstance(value, str) and len(value) > _LONG:
            self.reader.budget.take_operation(len(value) // _LONG)
            if id(value) in self.seen:  # the same text again
                return
            self.seen.add(id(value))
            self.keep.append(value)
        tree = as_tree(value) if isinstance(value, str) else None
        if tree is not None:
            self.push(tree, place.but(tally=None))
        inner = judge_value(value, place.path, place.name, place.fitted, self.reader)
        if inner is not None:
            self._open(inner, place)

    def _scalar(self, node, place):
        """Judge a number of numpy's, each time that it is referred to."""
        args = arguments(node)
        kind = (dtype_of(args[0]) or "V").lstrip("|<>=")[:1] if args else "V"
        data = data_of(args[1]) or b"" if len(args) > 1 else b""
        if kind in "V" and len(data) > _FEW_BYTES:
            self._blob(Blob(data), place)
        elif kind in "US":
            self._value(data.decode("utf-32" if kind == "U" else "latin-1", "ignore"), place)
        else:
            self._value({"b": True, "i": 1, "u": 1}.get(kind, 0.0), place)

    def _tallied(self, place, scale=1):
        if place.tally is None:
            place = place.but(tally=Tally(place.path, place.name, place.inside, scale))
        if place.tally not in self.tallies[-1:]:
            self.tallies.append(place.tally)
        return place

    def items(self, items, place):
        """Push what a list holds."""
        place = self._tallied(place).but(depth=place.depth + 1)
        self.push_all((n, place.item(None, i)) for i, n in enumerate(items))

    def map(self, node, place, metadata=None):
        """Judge a dict, and push what it holds."""
        arrays = [(k, as_array(v, self.reader)) for k, v in node.pairs if isinstance(k, str)]
        named = [(k, a) for k, a in arrays if a is not None]
        if named and not place.in_estimator:
            self.weights(named, place, metadata)
        keys = {k for k, _ in node.pairs if isinstance(k, str)}
        if {"epsilon", "delta", "accountant", "adjacency"} <= keys and is_statement(node):
            self.skip(node)
            return
        if {"param_groups", "state"} <= keys:
            place = self.noted(_names.OPTIMIZER, place)
        if "bit_generator" in keys:
            place = self.noted(_names.GENERATOR, place)
        place = self._tallied(place).but(depth=place.depth + 1)
        few = len(node.pairs) <= 64
        pairs = list(enumerate(node.pairs))
        self.push_all((v, self._entry(v, place.item(k, i, few), few)) for i, (k, v) in pairs)
        self.push_all((k, place.but(name=None)) for _, (k, _) in pairs if not _is_plain_key(k))

    def _entry(self, node, place, named):
        """Count what a list under a name holds by itself."""
        if not named or not isinstance(node, (Seq, Map)) or id(node) in self.seen:
            return place
        tally = Tally(place.path, place.name, place.inside, outer=place.tally)
        self.tallies.append(tally)
        return place.but(tally=tally)

    def weights(self, named, place, metadata=None, trusted=False):
        """Explain what is a network's weights among the arrays of a mapping."""
        known, unsure = _modules.judge_weights(named, metadata, trusted)
        for _, array in known:
            self.explain(array)
        self.unsure += unsure
        if known and not trusted:
            self.models.append((place, "weights"))

    def explain(self, array):
        """Take an array for a weight."""
        self.explained[id(array.node)] = array
        if array.size > 1:
            self.shapes.add(array.shape)
            self.dims |= set(array.shape)
        if array.letter == "f":
            self.widths.add(array.dtype.lstrip("<>=|"))

    def noted(self, kind, place, what=None):
        """Note what a thing is, and that all in it is part of that."""
        self.reader.add(kind, place.path, what or _names.IN_WORDS[kind])
        return place.but(inside=kind)

    def _blob(self, node, place):
        data = node.data
        if len(data) <= _FEW_BYTES:
            self._value(float(len(data)) if data else None, place)
            return
        if format_of(data) or looks_like_pickle(data[:2]):
            self._open(data, place)
            return
        text = as_text(data)
        if text is not None:
            self._value(text, place)
        if text is not None and judge_text(text)[0] is None and len(data) < 1000:
            return
        kind = _names.kind_of_name(place.name) or place.inside or _names.BYTES
        self.reader.add(kind, place.path, "bytes that may hold anything", len(data))

    def _open(self, data, place):
        """Open bytes in a pickle as if they were a file."""
        found = self.reader.open(data, place.path, place.packed + 1)
        for where, node in found:
            self.push(node, Place(f"{where}\0", packed=place.packed + 1, inside=place.inside))

    def _made(self, node, place):
        """Judge what a call makes."""
        array = as_array(node, self.reader)
        if array is not None:
            self.array(array, place)
        elif not isinstance(node, Inline):
            visit_object(self, node, place)

    def array(self, array, place):
        """Judge an array later, when all weights are known; visit what is attached now."""
        node, extras, place = array.node, array.extras, self._tallied(place)
        stop = {id(n) for n in (array.content, *(n for _, n in extras))}
        inside = _below(node, stop)
        self.seen |= set(map(id, inside))
        self.keep += inside
        if array.storage is not None:
            self.storages.setdefault(id(array.storage), (array.storage, place))
        if array.content is None or self._is_named(array, place):
            self.arrays.append((array, place))
            self.skip(array.content)
        else:
            self.push(array.content, place)
        for name, value in extras:
            kind = _names.kind_of_name(name)
            inner = place.attribute(name, tally=None, owner=None, inside=kind or place.inside)
            if "hooks" in str(name):
                self.hooks(value, inner)
            else:
                self.push(value, inner.but(in_estimator=True, in_module=False, attached=True))

    def _is_named(self, array, place):
        leaves = _public.plain_leaves(array.content, 200_000)
        return leaves is not None and _public.are_names(
            array, leaves, place.name, place.facts or {}
        )

    def hooks(self, node, place):
        """Note hooks, if there are any."""
        if _n_inside(node):
            self.push(node, self.noted(_names.HOOK, place))

    def hidden(self):
        """Return the storages of which numbers are not shown by any tensor."""
        found = [(s, place, n_hidden(s)) for s, place in self.storages.values()]
        return [(s, place, n) for s, place, n in found if n > FEW]


def _suffixed(where, suffix):
    return f"{where.rstrip(chr(0))}{suffix}\0" if suffix else where


def _is_plain_key(key):
    return isinstance(key, str) and bool(SHOWN.fullmatch(key))


def _n_inside(node):
    if isinstance(node, Call):
        return len(node.pairs) + len(node.items) + sum(map(_n_inside, arguments(node)))
    return len(getattr(node, "pairs", ())) + len(getattr(node, "items", ()))


def _below(node, stop):
    """Return an array's own nodes, which describe it."""
    if isinstance(node, Inline):
        return [
            n for n in (node, node.wrapper, node.content) if n is not None and id(n) not in stop
        ]
    found, todo = [], [node]
    while todo:
        value = todo.pop()
        if id(value) in stop or not isinstance(value, (Call, Seq, Blob, Global)):
            continue
        found.append(value)
        if isinstance(value, Call):
            todo += [value.func, value.args, *value.states]
        elif isinstance(value, Seq):
            todo += value.items
    return found
