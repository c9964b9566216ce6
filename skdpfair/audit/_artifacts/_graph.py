"""What a pickle would build, as a graph of nodes that nobody builds."""


class Node:
    """A thing that unpickling would make."""

    __slots__ = ()


class Global(Node):
    """A name that unpickling would import."""

    __slots__ = ("module", "name")

    def __init__(self, module, name):
        self.module, self.name = str(module), str(name)

    @property
    def path(self) -> str:
        """Module and name."""
        return f"{self.module}.{self.name}"


class Call(Node):
    """The result of calling ``func``, and what is done to it afterwards."""

    __slots__ = ("args", "func", "items", "kwargs", "pairs", "states")

    def __init__(self, func, args=None, kwargs=None):
        self.func, self.args, self.kwargs = func, args, kwargs
        self.states, self.items, self.pairs = [], [], []


class Seq(Node):
    """A list, tuple, set or frozenset."""

    __slots__ = ("items",)

    def __init__(self, items=()):
        self.items = list(items)


class Map(Node):
    """A dict, as pairs in order, overwritten ones included."""

    __slots__ = ("pairs",)

    def __init__(self, pairs=()):
        self.pairs = list(pairs)

    def get(self, key, default=None):
        """Return the last value under a text key."""
        for k, v in reversed(self.pairs):
            if isinstance(k, str) and k == key:
                return v
        return default

    def __contains__(self, key):
        return any(isinstance(k, str) and k == key for k, _ in self.pairs)


class Weights(Seq):
    """Arrays that a format says are the weights of a network."""

    __slots__ = ()


class Blob(Node):
    """Bytes."""

    __slots__ = ("data",)

    def __init__(self, data):
        self.data = bytes(data)


class Inline(Node):
    """An array that joblib writes between the opcodes: its description, then its bytes."""

    __slots__ = ("content", "dtype", "shape", "wrapper")

    def __init__(self, wrapper, shape, dtype, content):
        self.wrapper, self.shape, self.dtype, self.content = wrapper, shape, dtype, content


class Storage(Node):
    """The numbers of torch tensors, which are views of it."""

    __slots__ = ("data", "dtype", "key", "numel", "pid", "spans")

    def __init__(self, key, dtype, numel, data=None, pid=None):
        self.pid = pid
        self.key, self.dtype, self.numel, self.data = key, dtype, numel, data
        self.spans = []


class Persistent(Node):
    """A reference to something outside the pickle."""

    __slots__ = ("pid",)

    def __init__(self, pid):
        self.pid = pid


class Roots(Node):
    """Things that lie side by side: a stream's pickles, an archive's members, what was dropped."""

    __slots__ = ("members",)

    def __init__(self, members=()):
        self.members = list(members)  # (path suffix, node)


def arguments(call) -> list:
    """Return the positional arguments of a call."""
    args = getattr(call, "args", None)
    return args.items if isinstance(args, Seq) else []


def class_of(node) -> Global | None:
    """Return the class, or the function, that a call names, if it names one.

    A class that is pickled by value has the module "__by_value__".
    """
    if not isinstance(node, Call):
        return None
    func = node.func
    if isinstance(func, Call):
        maker = func.func.name if isinstance(func.func, Global) else ""
        name = next((a for a in arguments(func) if isinstance(a, str)), "?")
        if maker == "_builtin_type":
            return Global("types", name)
        return Global("__by_value__", name) if "class" in maker else None
    if not isinstance(func, Global):
        return None
    if func.path in _NEWOBJ:
        first = next(iter(arguments(node)), None)
        return first if isinstance(first, Global) else class_of(Call(first))
    return func


_NEWOBJ = {
    f"{module}.{name}"
    for module in ("copyreg", "copy_reg")
    for name in ("_reconstructor", "__newobj__", "__newobj_ex__")
}


def bases_of(node) -> list[Global]:
    """Return the named bases of a class that is pickled by value."""
    if isinstance(node, Call) and isinstance(node.func, Call):
        parts = [a for a in arguments(node.func) if isinstance(a, Seq)]
        return [b for part in parts for b in part.items if isinstance(b, Global)]
    return []


def state_of(call) -> list:
    """Return the pairs (attribute, value) that a call's state sets."""
    pairs = []
    for state in call.states:
        parts = [state]
        if isinstance(state, Seq) and len(state.items) == 2:  # (dict, slots)
            kinds = [isinstance(p, Map) or p is None for p in state.items]
            parts = state.items if all(kinds) else [state]
        for part in parts:
            if isinstance(part, Map):
                pairs += part.pairs
    return pairs


def children(node) -> list:
    """Return the nodes and values that a node refers to."""
    if isinstance(node, Call):
        pairs = [v for pair in node.pairs for v in pair]
        return [node.func, node.args, node.kwargs, *node.states, *node.items, *pairs]
    if isinstance(node, Seq):
        return node.items
    if isinstance(node, Map):
        return [v for pair in node.pairs for v in pair]
    if isinstance(node, Inline):
        return [node.wrapper, node.content]
    if isinstance(node, Roots):
        return [member for _, member in node.members]
    return [node.pid] if isinstance(node, (Persistent, Storage)) else []


def globals_in(root) -> list[Global]:
    """Return all names that can be reached."""
    seen, todo, found = set(), [root], []
    while todo:
        node = todo.pop()
        if isinstance(node, Node) and id(node) not in seen:
            seen.add(id(node))
            found += [node] if isinstance(node, Global) else []
            todo += children(node)
    return found


def reachable(root, seen=None) -> set[int]:
    """Return the ids of all nodes that can be reached, put into ``seen`` if that is given."""
    seen, todo = set() if seen is None else seen, [root]
    while todo:
        node = todo.pop()
        if isinstance(node, Node) and id(node) not in seen:
            seen.add(id(node))
            todo += children(node)
    return seen
