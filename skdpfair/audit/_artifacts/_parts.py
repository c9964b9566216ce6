"""Visit what any object holds."""

from skdpfair.audit._artifacts import _modules, _names, _public
from skdpfair.audit._artifacts._facts import as_tree
from skdpfair.audit._artifacts._graph import Blob, Map, Node, Seq
from skdpfair.audit._artifacts._place import SHOWN
from skdpfair.audit._artifacts._tally import Tally, is_source, judge_value

_KNOWN = {"skdpfair", "sklearn", "torch", "skorch", "opacus", "scipy"}


def facts_of(pairs):
    """Return the plain attributes and lists, which say what the others have to be."""
    facts = {k: v for k, v in pairs if isinstance(k, str) and not isinstance(v, Node)}
    return facts | {k: v for k, v in pairs if isinstance(k, str) and isinstance(v, Seq)}


def visit_parts(walker, node, place):
    """Push what a call is made of, besides its attributes."""
    if node.pairs:
        walker.map(Map(node.pairs), place, _modules.metadata_of(node))
    if node.items:
        walker.items(node.items, place)
    for state in node.states:
        if not isinstance(state, Map) and not _is_slots(state):
            walker.push(state, place)
    walker.push(node.kwargs, place)
    walker.push(node.args, place)
    walker.push(node.func, place)


def _is_slots(state):
    """Tell whether a state is a dict and one of slots."""
    parts = state.items if isinstance(state, Seq) else []
    return len(parts) == 2 and all(isinstance(p, Map) or p is None for p in parts)


def visit_attributes(walker, cls, pairs, place):
    """Judge the attributes of any object; those of unknown classes in lists count together."""
    known = cls is not None and cls.module.split(".")[0] in _KNOWN
    joined = place.tally if not known and place.depth else None
    facts, learnt = facts_of(pairs), _has_learnt(pairs)
    # what an unfitted estimator inside a fitted one is seeded with has seeded the fits
    fitted = learnt or place.within or not _is_estimator(cls, pairs)
    own = joined or Tally(place.path, place.name, place.inside, scale=8)
    if not known and not joined:
        walker.tallies.append(own)
    later = []
    for name, value in pairs:
        if not (isinstance(name, str) and SHOWN.fullmatch(name)):
            later.append((name, place.but(name=None)))
        inner = place.attribute(name, owner=cls, facts=facts, fitted=fitted, tally=joined)
        inner = inner.but(within=place.within or learnt)
        inner = inner if joined else inner.but(depth=0)
        if isinstance(value, Node):
            if _public.is_public(cls, name, value, facts):
                walker.skip(value)
            else:
                later.append((value, inner))
        elif not is_source(name, value) and place.inside != _names.GENERATOR:
            tree = as_tree(value) if isinstance(value, str) else None
            if tree is not None:
                later.append((tree, inner.but(tally=None)))
            judged = judge_value(value, inner.path, name, fitted, walker.reader)
            if judged is not None:
                walker.push(Blob(judged), inner)
            if not known:
                own.add(value)
    walker.push_all(later)


def _has_learnt(pairs):
    """Tell whether attributes are those of a fitted estimator."""
    names = [k for k, _ in pairs if isinstance(k, str)]
    return any(k.endswith("_") and not k.startswith("_") for k in names)


def _is_estimator(cls, pairs):
    """Tell whether it is an estimator, whose seed does not matter until it is fitted."""
    ours = {"method", "epsilon", "delta"} <= {k for k, _ in pairs if isinstance(k, str)}
    return ours or (cls is not None and cls.module.split(".")[0] in ("sklearn", "skdpfair"))
