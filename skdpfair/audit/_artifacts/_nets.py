"""Visit networks: torch modules, scripted ones, and what our classifiers keep of theirs."""

from skdpfair.audit._artifacts import _modules, _names
from skdpfair.audit._artifacts._arrays import as_array
from skdpfair.audit._artifacts._graph import Call, Global, Map, arguments
from skdpfair.audit._artifacts._parts import facts_of, visit_attributes, visit_parts

_FACTORY = Global("skdpfair.networks", "Factory")


def visit_inference_net(walker, node, place):
    """Visit what is left of a net in a pickle."""
    if place.name not in ("net_", None):
        walker.noted(_names.TWIN, place)
    parts = [*arguments(node), *node.states]
    if len(parts) == 1 and isinstance(parts[0], Map):
        parts = [parts[0].get("module"), parts[0].get("weights")]
    factory, weights, *rest = [*parts, None, None]
    inner = place.but(in_estimator=True, tally=None, depth=0, facts=None)
    visit_network(walker, factory, weights, inner)
    walker.push_all([*((r, inner) for r in rest), (node.func, inner)])


def visit_network(walker, factory, weights, place):
    """Explain the weights of one of our nets by its factory, and visit both."""
    pairs = weights.pairs if isinstance(weights, Map) else []
    arrays = [(k, as_array(v, walker.reader)) for k, v in pairs if isinstance(k, str)]
    named = [(k, a) for k, a in arrays if a is not None]
    expected = _modules.expected_shapes(factory)
    found = {name: array.shape for name, array in named}
    if expected is not None and found == expected:
        walker.skip(*_modules.sizes_of(factory))
    if expected is None:
        walker.weights(named, place, trusted=True)
        walker.dims |= set(_modules.inputs_of(factory))
    else:
        for name, array in named:
            if expected.get(name) == array.shape:
                walker.explain(array)
    at_factory = place.attribute("module", fitted=False, owner=_FACTORY)
    walker.push_all([(weights, place.attribute("weights")), (factory, at_factory)])


def visit_module(walker, node, cls, pairs, place):
    """Visit a torch module: weights are explained by their layer."""
    if not place.in_module:
        walker.models.append((place, "a module"))
    place = place.but(in_module=True, tally=None, depth=0)
    facts, others = facts_of(pairs), []
    for name, value in pairs:
        if name in ("_parameters", "_buffers"):
            _weights_of(walker, cls, facts, _pairs_of(value), place, name == "_buffers")
        elif name == "_modules":
            walker.push_all((v, place.attribute(k)) for k, v in _pairs_of(value))
        elif isinstance(name, str) and "hook" in name:
            walker.hooks(value, place.attribute(name))
        else:
            others.append((name, value))
    visit_attributes(walker, cls or Global("torch.nn", "?"), others, place)
    walker.push(node.args, place)
    walker.push(node.func, place)


def visit_scripted(walker, node, cls, pairs, place):
    """Judge a module that torch.jit has saved: weights are plain attributes there."""
    if not place.in_module:
        walker.models.append((place, "a scripted module"))
    place = place.but(in_module=True, tally=None, depth=0)
    _weights_of(walker, cls, {}, [(k, v) for k, v in pairs if as_array(v, walker.reader)], place)
    visit_attributes(walker, cls, pairs, place)
    visit_parts(walker, node, place)


def _pairs_of(node):
    """Return the items of a dict."""
    return node.pairs if isinstance(node, (Map, Call)) else []


def _weights_of(walker, cls, facts, pairs, place, buffers=False):
    """Explain what belongs to a layer, and visit it."""
    arrays = [(k, as_array(v, walker.reader)) for k, v in pairs if isinstance(k, str)]
    unknown = []
    for name, array in arrays:
        verdict = None if array is None else _modules.belongs(cls, facts, name, array)
        if verdict:
            walker.explain(array)
        elif verdict is None and array is not None:
            unknown.append((name, array))
    if buffers:
        walker.unsure += unknown
    else:
        walker.weights(unknown, place, trusted=True)
    walker.push_all((v, place.attribute(k)) for k, v in pairs)
