"""The facts of a fitted classifier that its pickles and releases hold as JSON, as a graph."""

import json

import numpy as np

from skdpfair.audit._artifacts._graph import Blob, Call, Global, Inline, Map, Seq
from skdpfair.audit._artifacts._ledgers import words_of

_MADE = {
    "report": ("skdpfair.privacy.statement", "PrivacyReport"),
    "entry": ("skdpfair.privacy.ledger", "LedgerEntry"),
    "pgd": ("skdpfair.attacks", "PGD"),
}
_NETWORKS = {"logistic": "logistic", "mlp": "mlp", "cnn": "small_cnn"}
_WORDS = ("NA", "NaT", "timestamp", "optimizer", "device")


def estimator_of(text, weights):
    """Return the classifier that a release's facts describe, or None if they are no release's."""
    facts = _loaded(text)
    if facts is None or not isinstance(facts.get("fitted"), dict):
        return None
    module = facts.pop("module", None)
    state = [(k, node_of(v)) for k, v in facts.pop("fitted").items()]
    for name in ("parameters", *facts):
        entry = facts.pop(name, None)
        pairs = entry.items() if name == "parameters" and isinstance(entry, dict) else ()
        state += [(k, node_of(v)) for k, v in pairs] or [(name, _plain(entry))]
    state += [("_weights", weights), ("_factory", _factory(module))]
    call = Call(Global("skdpfair.estimator", "DPFairClassifier"))
    call.states.append(Map(state))
    return call


def expanded(pairs) -> list:
    """Return a classifier's attributes with those in its JSON among them."""
    out = []
    for name, value in pairs:
        facts = _loaded(value) if name == "_facts" and isinstance(value, str) else None
        if facts is None:
            out.append((name, value))
        else:
            out += [(k, node_of(v)) for k, v in facts.items()]
    return out


def as_tree(text):
    """Return the graph of a text that is JSON, or one JSON object a line; None if it is neither."""
    if text[:1] not in ("{", "["):
        return None
    try:
        return _plain(json.loads(text))
    except (ValueError, RecursionError):
        pass
    try:
        lines = [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return None
    words = words_of(lines)
    return Seq([_plain(line) for line in lines] if words is None else words)


def _loaded(text):
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return facts if isinstance(facts, dict) else None


def _factory(module):
    if not isinstance(module, dict):
        return _plain(module)
    rest = Map([(k, _plain(v)) for k, v in module.items() if k not in ("name", "params")])
    name = module.get("name")
    name = _NETWORKS.get(name) if isinstance(name, str) else None
    make = None if name is None else Global("skdpfair.networks", name)
    params = module.get("params")
    named = params.items() if isinstance(params, dict) else ()
    return Seq(
        [make, Map([(k, node_of(v)) for k, v in named]), _plain(module.get("in_shape")), rest]
    )


def _plain(value):
    if isinstance(value, dict):
        return Map([(k, _plain(v)) for k, v in value.items()])
    return Seq([_plain(v) for v in value]) if isinstance(value, list) else value


def node_of(value):
    """Return the node of an encoded value; what has an unknown tag is a plain dict."""
    if isinstance(value, list):
        return Seq([node_of(v) for v in value])
    if not isinstance(value, dict) or len(value) != 1:
        return _plain(value)
    ((tag, parts),) = value.items()
    try:
        return _tagged(tag, parts)
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError):
        return _plain(value)


def _tagged(tag, parts):
    if tag == "float":
        return float(parts)
    if tag == "bytes":
        return Blob(bytes.fromhex(parts))
    if tag in _WORDS:
        return str(parts)
    if tag == "network":
        return Global("skdpfair.networks", _NETWORKS[parts])
    if tag == "array":
        return _array(*parts)
    nodes = [node_of(part) for part in parts]
    if tag in ("tuple", "interval"):
        return Seq(nodes)
    if tag == "dict":
        return Map([(pair.items[0], pair.items[1]) for pair in nodes])
    if tag == "ledger":
        call = Call(Global("skdpfair.privacy.ledger", "Ledger"))
        call.states.append(Map([("_entries", Seq(nodes))]))
        return call
    if tag == "method":
        call = Call(Global(f"skdpfair.methods.{nodes[0]}", str(nodes[0])))
        call.states.append(nodes[1])
        return call
    call = Call(Global(*_MADE[tag]))
    call.states.append(nodes[0])
    return call


def _array(dtype, shape, values):
    kind = np.dtype(dtype)
    sizes = tuple(int(n) for n in node_of(shape).items)
    listed = node_of(values)
    if kind.kind in "OUS":
        return Inline(None, sizes, "O", listed)
    numbers = np.array([float(v) if kind.kind == "f" else v for v in listed.items], dtype=kind)
    return Inline(None, sizes, kind.str, Blob(numbers.tobytes()))
