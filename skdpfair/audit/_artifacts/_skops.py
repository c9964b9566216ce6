"""The schema of a skops file, as a graph."""

import json

from skdpfair.audit._artifacts._graph import Blob, Call, Global, Map, Seq
from skdpfair.audit._artifacts._tensors import read_npy

_VERSIONS = ("protocol", "_skops_version", "key_types")


def schema_nodes(members, budget):
    """Return the graph of a skops archive and the names of the members that it uses."""
    try:
        schema = json.loads(members["schema.json"])
    except (ValueError, RecursionError) as error:
        raise ValueError("a broken skops schema") from error
    reader = _Schema(members, budget)
    return reader.node(schema), reader.used | {"schema.json"}


class _Schema:
    def __init__(self, members, budget):
        self.members, self.budget, self.used, self.known = members, budget, set(), {}

    def node(self, entry):
        """Return the node of a part of the schema."""
        self.budget.take_operation()
        if isinstance(entry, list):
            return Seq([self.node(v) for v in entry])
        if not isinstance(entry, dict):
            return entry
        kind, key = entry.get("__loader__"), entry.get("__id__")
        if kind is None:
            return Map([(k, self.node(v)) for k, v in entry.items()])
        if kind == "CachedNode":
            return self.known.get(key)
        node = self._made(kind, entry)
        self.known[key] = node
        return node

    def _made(self, kind, entry):
        if isinstance(entry.get("file"), str):
            return self._file(entry)
        content = entry.get("content")
        if kind == "JsonNode":
            return _loaded(content)
        if kind in ("ListNode", "TupleNode", "SetNode"):
            return self.node(content)
        if kind in ("DictNode", "DefaultDictNode", "OrderedDictNode"):
            return Map([(k, self.node(v)) for k, v in dict(content or {}).items()])
        named = Global(entry.get("__module__"), entry.get("__class__"))
        if kind in ("TypeNode", "FunctionNode"):
            return named
        call = Call(named)
        rest = {k: v for k, v in entry.items() if not k.startswith("__") and k not in _VERSIONS}
        if isinstance(content, dict) and set(rest) <= {"content"}:
            call.states.append(self.node(content))
        else:
            call.args = Seq([self.node(v) for v in rest.values()])
        return call

    def _file(self, entry):
        name = entry["file"]
        content = self.members.get(name, b"")
        self.used.add(name)
        return read_npy(content, self.budget)[0] if content[:6] == b"\x93NUMPY" else Blob(content)


def _loaded(content):
    try:
        return json.loads(content)
    except (TypeError, ValueError, RecursionError):
        return str(content)
