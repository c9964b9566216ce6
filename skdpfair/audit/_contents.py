"""Contents of an artefact that is not of this package: what nothing explains, by kind."""

import re
from collections import Counter

from skdpfair.audit import _findings as kinds
from skdpfair.audit._arrays import Array, Storage, as_array, n_hidden, scalar_of
from skdpfair.audit._containers import Reader
from skdpfair.audit._names import is_seed, kind_inside, kind_of_class, kind_of_name, runs_things
from skdpfair.audit._pickles import (
    Call,
    Global,
    Persistent,
    Roots,
    bases_of,
    class_of,
    is_node,
    is_slots,
    reachable,
    state_of,
)
from skdpfair.audit._place import SHOWN, Place
from skdpfair.audit._weights import (
    belongs,
    is_constant,
    is_module,
    judge_weights,
    modules_of,
    shapes_of_layer,
    tied,
)

FEW = 4  # items of an array
_FEW_FLOATS, _FEW_INTEGERS, _FEW_FLAGS, _FEW_TEXTS = 4, 8, 24, 24
_FEW_BYTES, _LONG, _FEW_DIGITS, _DEEPEST = 24, 40, 5, 100
_OBJECT, ESTIMATOR = 8, 16  # how many times more numbers an object, an estimator may have
_KNOWN = {"skdpfair", "sklearn", "torch", "skorch", "scipy"}
_PATH = re.compile(r"([A-Za-z]:)?(~|\.\.?)?[\\/].+|[a-z]\w*://.+|.+\.(npy|npz|csv|parquet|pkl|pt)")
_DOTTED = re.compile(r"[\w.<>]+")
_WEIGHTS = {"coef_", "intercept_", "coefs_", "intercepts_"}
_LEARNT_NAMES = {"feature_names_in_", "classes_", "categories_"}
_MOST_CLASSES = 32  # an encoder with more may have learned the names of people
_CODE = ("CodeType", "code", "_create_code")
_INSIDE_FIRST = (kinds.CLOSURE, kinds.CALLBACK, kinds.HOOK)
_BROKEN = (AttributeError, ArithmeticError, LookupError, TypeError, ValueError)
_DRAWS = "a distribution"  # of scipy, which carries the process's generator along


class Walk:
    """Visit all values of an artefact once, and note what nothing explains.

    Parameters
    ----------
    reader : Reader
        Holds the limits, and the findings.
    closed_list : callable
        ``closed_list(walk, value, place)`` judges what is of this package, and tells whether the
        value is.
    """

    def __init__(self, reader: Reader, closed_list):
        self.reader, self.closed_list = reader, closed_list
        self.add = reader.add
        self.seen, self.made, self.explained = {}, {}, set()
        self.arrays, self.storages, self.networks, self.unsure = [], {}, [], []
        self.outputs, self.shapes, self.n_private = set(), set(), 0

    def walk(self, places):
        """Visit all that lies at some places, then judge the arrays."""
        for where, value in places:
            place = Place(f"{where}\0" if where else "")
            self.judge(self.visit(value, place), place)
            for node in reachable(value).values():
                if isinstance(node, Global) and runs_things(node.path):
                    what = f"unpickling imports {node.path[:80]}, which can run or read things"
                    self.add(kinds.EXECUTABLE, where, what)
        for array in tied(self.unsure, self.outputs):
            self.explained.add(id(array))
        for array, place in self.arrays:
            self._judge_array(array, place)
        for storage, place in self.storages.values():
            if n_hidden(storage) > FEW:
                what = "numbers of a tensor's memory that no tensor shows"
                self.add(kinds.ARRAY, place.path, what, shape=(n_hidden(storage),))
        self._find_references()

    def visit(self, node, place) -> Counter:
        """Note what nothing explains in a value; return the plain values left to be judged."""
        if not is_node(node):
            return self.plain(node, place)
        scalar = scalar_of(node)
        if scalar is not None:  # counts each time that it is referred to
            return self._scalar(scalar, place)
        if id(node) in self.seen:
            return Counter()
        self.seen[id(node)] = node
        self.reader.limits.take_operation()
        if place.depth > _DEEPEST:
            self.add(kinds.UNREADABLE, place.path, "nested too deeply to be looked at")
            return Counter()
        try:
            ours = self.closed_list(self, node, place)
            return Counter() if ours else self._visit(node, place)
        except _BROKEN as error:
            what = f"a part that is not what it claims to be: {type(error).__name__}"
            self.add(kinds.UNREADABLE, place.path, what)
            return Counter()

    def _visit(self, node, place):
        if isinstance(node, dict):
            return self._dict(node.items(), place)
        if isinstance(node, (list, tuple, set, frozenset)):
            return self.items(node, place)
        if isinstance(node, (bytes, bytearray)):
            return self._bytes(node, place)
        if isinstance(node, Roots):
            counts = self.visit(node.root, place)
            dropped = place.but(where=f"{place.path} (dropped)\0")
            counts += self.items(node.dropped, dropped)
            return counts
        if isinstance(node, Storage):
            self.storages.setdefault(id(node), (node, place))
        elif isinstance(node, Persistent):
            return self.visit(node.pid, place)
        elif isinstance(node, Global):
            self._text(node.path, place, longest=200)
        elif isinstance(node, (Call, Array)):
            array = self.array(node)
            return self._object(node, place) if array is None else self._array(array, place)
        return Counter()

    def array(self, node) -> Array | None:
        """Return the array that a value makes, the same each time."""
        if id(node) not in self.made:
            self.made[id(node)] = (as_array(node, self.reader), node)
        return self.made[id(node)][0]

    def items(self, items, place) -> Counter:
        """Visit what a list holds."""
        counts = Counter()
        for i, item in enumerate(items):
            if isinstance(item, (int, float)):  # most items are: they get no place of their own
                counts.update(self.plain(item, place))
            else:
                counts.update(self.visit(item, place.item(None, i, listed=True)))
        return counts

    def judge(self, counts, place) -> Counter:
        """Note plain values if they are too many; return those that were not noted."""
        kind = (
            place.inside if place.scale == ESTIMATOR else kind_of_name(place.name) or place.inside
        )
        scale, left = place.scale, Counter(counts)
        few = 1 if kind in (kinds.LOSSES, kinds.INDICES) else _FEW_FLOATS * scale
        n = counts["floats"] + counts["integers"]
        if counts["floats"] > few or n > (few if few == 1 else _FEW_INTEGERS * scale):
            what = "numbers in lists, dicts or attributes"
            self.add(kind or kinds.NUMBERS, place.path, what, shape=(n,))
            left["floats"] = left["integers"] = 0
        if counts["flags"] > _FEW_FLAGS * scale:
            what = "yes or no, many times in lists, dicts or attributes"
            self.add(kind or kinds.NUMBERS, place.path, what, shape=(counts["flags"],))
            left["flags"] = 0
        if counts["texts"] > _FEW_TEXTS * scale:
            what = "many texts, as in a column of a table"
            self.add(kind or kinds.TEXT, place.path, what, shape=(counts["texts"],))
            left["texts"] = 0
        return left

    def skip(self, node):
        """Take a value, and all that it holds, for explained."""
        self.seen |= reachable(node)

    def noted(self, kind, place, what=None) -> Place:
        """Note what a thing is, and that all in it is part of that."""
        self.add(kind, place.path, what or kinds.IN_WORDS[kind])
        return place.but(inside=kind)

    def plain(self, value, place) -> Counter:
        """Note a plain value that tells by itself, such as a seed or a path; count the others."""
        if isinstance(value, str):
            if place.fitted and is_seed(place.name) and value.strip().isdigit():
                self.add(kinds.SEED, place.path, "the digits of a seed")
            return Counter(texts=self._text(value, place))
        if value is None or isinstance(value, bool):
            return Counter(flags=int(value is not None))
        if place.inside == kinds.GENERATOR:  # noted as one thing
            return Counter()
        if place.fitted and is_seed(place.name):
            self.add(kinds.SEED, place.path, "a number that seeds a random generator")
        elif isinstance(value, int) and value.bit_length() > 64:
            what = f"an integer of {value.bit_length()} bits, as seeds are"
            self.add(kinds.SEED, place.path, what)
        elif not isinstance(value, int) and kind_of_name(place.name) == kinds.LOSSES:
            self.add(kinds.LOSSES, place.path, "a loss on the data")
        if isinstance(value, int):
            return Counter(integers=1)
        return Counter(floats=1)

    def _text(self, text, place, longest=_LONG):
        """Note a text that is more than a word or two; return 1 for one that is not noted."""
        if place.name in ("__file__", "__path__", "co_filename") and text.endswith(".py"):
            return 0
        digits = sum(map(str.isdigit, text))
        if _PATH.fullmatch(text):
            self.add(kinds.FILE, place.path, "text that names a file")
        elif place.scale != ESTIMATOR and (
            len(text) > (100 if _DOTTED.fullmatch(text) else longest) or digits > _FEW_DIGITS
        ):
            self.add(kinds.TEXT, place.path, "text that is more than a word", len(text))
        else:
            return 1
        return 0

    def _bytes(self, data, place):
        if len(data) <= _FEW_BYTES:
            return Counter(floats=int(len(data) > 0))
        kind = kind_of_name(place.name) or place.inside or kinds.BYTES
        self.add(kind, place.path, "bytes that may hold anything", len(data))
        return Counter()

    def _scalar(self, scalar, place):
        if scalar.letter in "US":
            data = scalar.data or b""
            text = data.decode("utf-32" if scalar.letter == "U" else "latin-1", "ignore")
            return self.plain(text, place)
        if scalar.letter not in "biuf" or scalar.values() is None:
            return self._bytes(scalar.data or b"", place)
        return self.plain(scalar.values().item(), place)

    def _dict(self, pairs, place, modules=None):
        """Visit a dict: a network's weights are explained, each entry is judged by itself."""
        pairs = list(pairs)
        keys = {k for k, _ in pairs if isinstance(k, str)}
        arrays = [(k, self.array(v)) for k, v in pairs if isinstance(k, str) and is_node(v)]
        self.weights([(k, a) for k, a in arrays if a is not None], place, modules)
        if {"param_groups", "state"} <= keys:
            place = self.noted(kinds.OPTIMIZER, place)
        if "bit_generator" in keys:
            place = self.noted(kinds.GENERATOR, place)
        counts = Counter()
        for i, (key, value) in enumerate(pairs):
            inner = place.item(key, i)
            found = self.visit(value, inner)
            counts += self.judge(found, inner) if len(pairs) <= 64 else found
            if not (isinstance(key, str) and SHOWN.fullmatch(key)):
                counts += self.visit(key, place.item(None, i).but(name=None))
        return counts

    def weights(self, named, place, modules=None, trusted=False):
        """Explain what is a network's weights among the arrays of a mapping."""
        if not named or place.attached:
            return
        known, unsure = judge_weights(named, modules, trusted)
        self.unsure += unsure
        for _, array in known:
            self.explain(array)
        if known and not trusted:
            self.networks.append((place, "weights"))

    def explain(self, array):
        """Take an array for a weight."""
        self.explained.add(id(array))
        if array.size > 1:
            self.shapes.add(array.shape)
            self.outputs |= set(array.shape[:1])

    def _array(self, array, place):
        """Visit what is attached to an array, which is judged when all weights are known."""
        if array.storage is not None:
            self.storages.setdefault(id(array.storage), (array.storage, place))
        for name, value in array.extras:
            inner = place.attribute(name).but(inside=kind_of_name(name) or place.inside)
            if "hooks" in str(name):
                self._hooks(value, inner)
            else:
                self.judge(self.visit(value, inner.but(attached=True)), inner)
        if array.content is not None and array.subclass == "ndarray":
            return self.items(array.content, place)
        small = array.size <= FEW and array.letter in "fiub"
        telling = kind_of_name(place.name) in (kinds.GRADIENTS, kinds.GRADIENT, kinds.LOSSES)
        if not small or telling or is_seed(place.name):
            self.arrays.append((array, place))
            return Counter()
        if id(array) in self.explained:
            return Counter()
        if array.letter == "b":
            return Counter(flags=array.size)
        return Counter(**{"floats" if array.letter == "f" else "integers": array.size})

    def _judge_array(self, array, place):
        if id(array) in self.explained or not array.size or place.inside == kinds.GENERATOR:
            return
        named = kind_of_name(place.name)
        kind = place.inside or kinds.ARRAY
        if place.inside not in _INSIDE_FIRST:
            if named is not None or is_seed(place.name):
                kind = named or kinds.SEED
            elif array.subclass == "memmap":
                kind = kinds.FILE
            elif array.shape[1:] in self.shapes and (len(array.shape) > 2 or array.shape[0] > 1):
                kind = kinds.GRADIENTS
            elif array.letter == "u" and array.n_bytes in (16, 5056):  # of torch's generators
                kind = kinds.GENERATOR
        what = f"{array.words}: {kinds.IN_WORDS.get(kind, kind)}"
        self.add(kind, place.path, what, array.n_bytes, array.shape)

    def _hooks(self, value, place):
        """Note hooks, if there are any."""
        counted = value.pairs + value.items if isinstance(value, Call) else value
        if counted:
            self.visit(value, self.noted(kinds.HOOK, place))

    def _object(self, node, place):
        """Visit what a call makes, by its class and its form."""
        cls, pairs = class_of(node), state_of(node)
        names = [g.path for g in (cls, *bases_of(node)) if g is not None]
        if cls is not None and cls.name == "unpicklable":  # what a live object holds
            module, _, name = str(next(iter(node.args), "?")).rpartition(".")
            cls, names = Global(module, name), [f"{module}.{name}"]
        if cls is not None and cls.name in _CODE:
            return self._code(node, place)
        kind = kind_of_class(names)
        if kind == kinds.GENERATOR and place.inside == _DRAWS:
            self.seen |= reachable(node)
            return Counter()
        if kind is not None and kind != place.inside:
            place = self.noted(kind, place, f"{cls.path[:80]}: {kinds.IN_WORDS[kind]}")
        if names and names[0].startswith("scipy.stats."):
            place = place.but(inside=_DRAWS)
        place = place.but(inside=kind_inside(names) or place.inside, scale=1)
        counts = self._parts(node, cls, place)
        if is_module(pairs):
            self._module(cls, pairs, place)
            return Counter()
        counts += self.attributes(cls, pairs, place)
        if place.listed:
            return counts
        known = cls is not None and cls.module.split(".")[0] in _KNOWN
        return self.judge(counts, place.but(scale=ESTIMATOR if known else _OBJECT))

    def _parts(self, node, cls, place):
        """Visit what a call is made of, besides its attributes."""
        counts = self._dict(node.pairs, place, modules_of(node)) if node.pairs else Counter()
        for part in (node.items, node.args, node.kwargs):
            if part:
                counts += self.visit(part, place)
        for state in node.states:
            if not isinstance(state, dict) and not is_slots(state):
                counts += self.visit(state, place)
        self.visit(node.func, place)
        return counts

    def attributes(self, cls, pairs, place) -> Counter:
        """Visit the attributes of an object; of an estimator's, what it has learned is noted."""
        root = cls.module.split(".")[0] if cls is not None else ""
        names = [k for k, _ in pairs if isinstance(k, str)]
        learned = any(k.endswith("_") and not k.startswith("_") for k in names)
        estimator = root in ("sklearn", "skdpfair")
        fitted = not estimator or learned or place.within
        scale = ESTIMATOR if estimator else 2 if root == "torch" else 1
        inner = place.but(fitted=fitted, within=place.within or learned, scale=scale)
        counts = Counter()
        for name, value in pairs:
            at = inner.attribute(name)
            if not (isinstance(name, str) and SHOWN.fullmatch(name)):
                counts += self.visit(name, at.but(name=None))
                at = at.but(name=None)
            if cls is not None and cls.path == "collections.OrderedDict" and name == "_metadata":
                self.visit(value, at)  # versions of layers
            elif estimator:
                self.of_estimator(name, value, at, dict(pairs))
            else:
                counts += self.judge(self.visit(value, at), at)
        return counts

    def of_estimator(self, name, value, place, facts):
        """Visit an attribute of an estimator: a parameter is the user's, the rest is learned."""
        arrays = [] if not isinstance(name, str) else self._arrays_in(value)
        if not str(name).endswith("_") or str(name).startswith("__"):
            counts = self.visit(value, place)
            self.judge(_without_texts(counts), place)
            return
        given = name != "categories_" or facts.get("categories", "auto") != "auto"
        for array in arrays:
            texts = array.letter in "OUS" or array.letter in "iub"
            is_name = name in _LEARNT_NAMES and given and texts and len(array.shape) == 1
            if name == "classes_":
                is_name = is_name and array.size <= _MOST_CLASSES
            if name in _WEIGHTS or is_name or (name == "n_iter_" and array.size <= 64):
                self.explained.add(id(array))
                self.seen |= reachable(array.content)
            else:
                self.explained.add(id(array))
                named = kind_of_name(name)
                kind = named if named in (kinds.RECORDS, kinds.LABELS) else kinds.STATISTICS
                what = f"{array.words}: {kinds.IN_WORDS[kind]}"
                self.add(kind, place.path, what, array.n_bytes, array.shape)
        counts = self.visit(value, place.but(inside=place.inside or kinds.STATISTICS))
        self.judge(_without_texts(counts) if given else counts, place)

    def _arrays_in(self, value, depth=2):
        array = self.array(value) if is_node(value) else None
        if array is not None:
            return [array]
        parts = value.values() if isinstance(value, dict) else value
        if not depth or not isinstance(value, (dict, list, tuple)):
            return []
        return [a for part in parts for a in self._arrays_in(part, depth - 1)]

    def _module(self, cls, pairs, place):
        """Visit a torch module: weights are explained by their layer."""
        if not place.in_module or place.attached:
            self.networks.append((place, "a module"))
        place, others = place.but(in_module=True, attached=False), []
        expected = shapes_of_layer(cls, dict(pairs))
        for name, value in pairs:
            held = value.pairs if isinstance(value, Call) else getattr(value, "items", list)()
            if name in ("_parameters", "_buffers"):
                self._weights_of(expected, list(held), place, name == "_buffers")
            elif name == "_modules":
                for key, inner in held:
                    self.visit(inner, place.attribute(key))
            elif isinstance(name, str) and "hook" in name:
                self._hooks(value, place.attribute(name))
            else:
                others.append((name, value))
        known = cls or Global("torch.nn", "?")
        self.judge(self.attributes(known, others, place), place.but(scale=_OBJECT))

    def _weights_of(self, expected, pairs, place, buffers):
        """Explain what belongs to a layer, and visit it."""
        unknown = []
        for name, value in pairs:
            array = self.array(value) if isinstance(name, str) and is_node(value) else None
            verdict = None if array is None else belongs(expected, name, array)
            if verdict or (buffers and array is not None and is_constant(array)):
                self.explain(array)
            elif verdict is None and array is not None and not buffers:
                unknown.append((name, array))
        self.weights(unknown, place, trusted=True)
        for name, value in pairs:
            at = place.attribute(name)
            self.judge(self.visit(value, at), at)

    def _code(self, node, place):
        """Visit a code object's constants; the rest of it is a program."""
        constants = next((a for a in node.args if isinstance(a, tuple)), ())
        inner = place.attribute("constants", inside=kinds.CLOSURE, scale=_OBJECT)
        return self.judge(self.items(constants, inner), inner)

    def _find_references(self):
        """Note networks beside a private classifier that are not the classifier's own."""
        weights = [(p.path, a) for a, p in self.arrays if id(a) in self.explained]
        places = [place.path for place, _ in self.networks]
        own = {
            (a.shape, a.data) for path, a in weights if not any(_is_under(path, p) for p in places)
        }
        for place, what in self.networks:
            inside = [a for path, a in weights if _is_under(path, place.path)]
            copied = bool(inside) and all((a.shape, a.data) in own for a in inside)
            named = kind_of_name(place.name) == kinds.REFERENCE
            if (self.n_private and not copied) or named or place.attached:
                what = f"{what}: {kinds.IN_WORDS[kinds.REFERENCE]}"
                self.add(kinds.REFERENCE, place.path, what)


def _without_texts(counts):
    return Counter({kind: n for kind, n in counts.items() if kind != "texts"})


def _is_under(path, network):
    return not network or (path.startswith(network) and path[len(network) :][:1] in (*".[!", ""))
