"""Judge what calls make: estimators, modules, functions, and objects of unknown classes."""

import math

from skdpfair.audit._artifacts import _facts, _modules, _names, _public
from skdpfair.audit._artifacts._arrays import as_array
from skdpfair.audit._artifacts._graph import (
    Blob,
    Global,
    Map,
    Node,
    Seq,
    arguments,
    bases_of,
    class_of,
    state_of,
)
from skdpfair.audit._artifacts._nets import (
    visit_inference_net,
    visit_module,
    visit_network,
    visit_scripted,
)
from skdpfair.audit._artifacts._parts import facts_of, visit_attributes, visit_parts
from skdpfair.audit._artifacts._tally import Tally

_FITTED = ({"_facts", "_weights"}, {"net_", "privacy_"})
_OURS = Global("skdpfair.estimator", "DPFairClassifier")
_CODE = ("CodeType", "code", "_create_code")
DISTRIBUTION = "a distribution that a search draws from"
_LARGE_CODE = 1 << 16


def visit_object(walker, node, place):
    """Judge an object by its class and its form, and push what it holds."""
    cls, pairs = class_of(node), state_of(node)
    names = [g.path for g in (cls, *bases_of(node)) if g is not None]
    if cls is not None and cls.name == "unpicklable" and _public.is_ours(cls):
        cls = _named(next(iter(arguments(node)), "?"))
        names = [cls.path]
    kind = _names.kind_of_class(names)
    if cls is not None and cls.name in _CODE:
        _code(walker, node, place)
        return
    if cls is not None and cls.path == "numpy.dtype":
        walker.skip(node)
        return
    if kind == _names.GENERATOR and place.inside == DISTRIBUTION:
        walker.skip(node)  # numpy's own of the process, which nothing here draws from
        return
    if kind is not None and kind != place.inside:
        place = walker.noted(kind, place, f"{cls.path}: {_names.IN_WORDS[kind]}")
    if (
        names
        and names[0].startswith("scipy.stats.")
        and ".param_distributions" in f".{place.where}"
    ):
        place = place.but(inside=DISTRIBUTION)
    place = place.but(inside=_names.kind_inside(names) or place.inside)
    if _public.is_ours(cls, "InferenceNet"):
        visit_inference_net(walker, node, place)
    elif _modules.is_module(pairs):
        visit_module(walker, node, cls, pairs, place)
    elif cls is not None and cls.module.startswith("__torch__"):
        visit_scripted(walker, node, cls, pairs, place)
    elif _is_estimator(cls, pairs):
        known = cls if _public.is_ours(cls) or cls.module.startswith("sklearn") else _OURS
        _estimator(walker, known, _facts.expanded(pairs), place)
        visit_parts(walker, node, place)
    else:
        visit_attributes(walker, cls, pairs, place)
        visit_parts(walker, node, place)


def _named(path):
    module, _, name = str(path).rpartition(".")
    return Global(module, name)


def _is_estimator(cls, pairs):
    if cls is None:
        return False
    keys = {k for k, _ in pairs if isinstance(k, str)}
    return cls.module.split(".")[0] in ("sklearn", "skdpfair") or any(f <= keys for f in _FITTED)


def _estimator(walker, cls, pairs, place):
    place = place.but(in_estimator=True, tally=None, depth=0)
    report = next((v for k, v in pairs if k == "privacy_"), None)
    if cls.name == "PrivacyReport":
        _privacy(walker, pairs, place)
    elif report is None and any(k in ("coef_", "coefs_") for k, _ in pairs):
        walker.models.append((place, "a fitted estimator"))
    facts, left = facts_of(pairs), []
    table = {k: v for k, v in pairs if isinstance(k, str)}
    if isinstance(table.get("_weights"), Map) and _public.is_ours(cls):
        inner = place.attribute("net_", owner=cls, facts=None)
        visit_network(walker, table.get("_factory"), table["_weights"], inner)
        pairs = [(k, v) for k, v in pairs if k not in ("_weights", "_factory")]
    for name, value in pairs:
        if isinstance(name, str) and isinstance(value, Node):
            inner = place.attribute(name, owner=cls, facts=facts)
            value = _fitted(walker, cls, name, value, facts, inner)
        if _public.is_search(name) and isinstance(value, Map):  # each by itself
            inner = place.attribute(name, owner=cls, facts=facts)
            for key, tried in value.pairs:
                one = Map([(key, tried)])
                if not _public.is_public(cls, name, one, facts):
                    walker.push(tried, inner.attribute(key))
            walker.seen.add(id(value))
            continue
        left.append((name, value))
    visit_attributes(walker, cls, left, place)


def _fitted(walker, cls, name, value, facts, place):
    """Judge the arrays of an attribute by its name; what else there is stays to be visited."""
    for array in _arrays_in(value, walker.reader):
        if _public.is_public_array(cls, name, array, facts):
            walker.public.add(id(array.node))
            continue
        leaves = _public.plain_leaves(array.content, 200_000) if array.content else None
        if _public.are_names(array, leaves, name, facts):
            walker.public.add(id(array.node))
            walker.skip(array.content)
            continue
        learnt = cls.module.startswith("sklearn") and array.size
        kind = _public.judge_fitted(cls, name, array, facts) if learnt else None
        if kind:
            what = f"{cls.name}.{name}: {_names.IN_WORDS[kind]}"
            walker.reader.add(kind, place.path, what, array.n_bytes, array.shape)
        if kind is not None:
            walker.public.add(id(array.node))
    return value


def _arrays_in(value, reader, depth=2):
    array = as_array(value, reader)
    if array is not None:
        return [array]
    parts = []
    if depth and isinstance(value, Seq):
        parts = value.items[:1000]
    elif depth and isinstance(value, Map):
        parts = [v for _, v in value.pairs[:1000]]
    return [a for part in parts for a in _arrays_in(part, reader, depth - 1)]


def _privacy(walker, pairs, place):
    facts = facts_of(pairs)
    epsilon = facts.get("epsilon")
    finite = isinstance(epsilon, (int, float)) and math.isfinite(epsilon)
    if finite and facts.get("is_private") is True:
        walker.private += 1
    else:
        what = "a model without finite epsilon: its weights are a function of the data"
        walker.reader.add(_names.TWIN, place.path, what)


def _code(walker, node, place):
    """Visit a code object's constants; the rest of it is a program."""
    args = arguments(node)
    constants = next((a for a in args if isinstance(a, Seq)), None)
    for part in args:
        if part is not constants:
            walker.skip(part)
        if isinstance(part, Blob) and len(part.data) > _LARGE_CODE:
            walker.reader.add(_names.BYTES, place.path, "a very large program", len(part.data))
    inner = place.attribute("constants").but(tally=None, depth=0, inside=_names.CLOSURE)
    own = Tally(inner.path, None, _names.CLOSURE, scale=8)
    walker.tallies.append(own)
    for part in constants.items if constants is not None else []:
        walker.push(part, inner if isinstance(part, Node) else inner.but(tally=own))
    walker.push(node.func, place)
