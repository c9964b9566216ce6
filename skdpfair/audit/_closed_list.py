"""The closed list: what the files and objects of this package hold; all else is a finding."""

import json
import math
import re
import tomllib
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from skdpfair.attacks import PGD
from skdpfair.audit import _findings as kinds
from skdpfair.audit import _pages
from skdpfair.audit import _public_facts as facts_
from skdpfair.audit._arrays import scalar_of
from skdpfair.audit._containers import Tensors, Text
from skdpfair.audit._contents import ESTIMATOR
from skdpfair.audit._names import is_seed
from skdpfair.audit._pickles import Call, Global, class_of, is_node, state_of
from skdpfair.audit._public_facts import PARAMETERS, passes
from skdpfair.mechanism import METHODS, Method
from skdpfair.preprocessing import TableSchema
from skdpfair.privacy import Ledger, LedgerEntry, PrivacyReport
from skdpfair.release import _facts, _file, statement
from skdpfair.release._encode import NETWORKS, decode

_KNOWN = {*PARAMETERS, *_facts.FITTED}
_FACTS = {"format_version", "sha256", "skdpfair_version", "privacy_statement", "schema"}
_FACTS |= {"parameters", "fitted", "module"}
_MODULE = {"name", "params", "in_shape", "custom", "left_out"}
_SEEN = {"n_features_in_", "feature_names_in_", "_charged", "_sklearn_output_config"}
_LEARNT = {  # what our other estimators keep of a fit
    "BoundedScaler": _SEEN,
    "PublicEncoder": _SEEN,
    "DPQuantileScaler": _SEEN | {"quantiles_", "privacy_"},
    "DPRandomizedSearch": _SEEN | {"best_estimator_", "best_params_", "classes_", "privacy_"},
}
_CARRIERS = ("audit", "networks", "preprocessing")  # rooms whose other objects are just visited


class Unlisted(ValueError):
    """A value of a type that no file of this package holds."""


@dataclass
class Network:
    """The facts of a network that its classifier's attributes must fit.

    Parameters
    ----------
    params : dict
        Keyword arguments of what makes it.
    in_shape : tuple of int
        Shape of a record.
    outputs : set of int
        Numbers of outputs of its layers.
    """

    params: dict
    in_shape: tuple
    outputs: set


def judge_ours(walk, node, place) -> bool:
    """Judge what is of this package by the closed list; tell whether it is.

    Parameters
    ----------
    walk : Walk
    node : object
        Anything that an artefact holds.
    place : Place
    """
    if isinstance(node, Tensors):
        _judge_tensors(walk, node, place)
    elif isinstance(node, Text):
        _judge_text(walk, node.text, place)
    elif isinstance(node, dict):
        keys = {key for key in node if isinstance(key, str)}
        ours = {"epsilon", "delta", "accountant", "adjacency"} <= keys
        return ours and _judge_statement(walk, node, place)
    else:
        cls = class_of(node)
        ours = cls is not None and cls.module.startswith("skdpfair.")
        return ours and _judge_object(walk, cls, node, place)
    return True


def _judge_object(walk, cls, node, place):
    if cls.name == "DPFairClassifier":
        _judge_classifier(walk, state_of(node), place)
    elif cls.name == "InferenceNet" and len(node.args) == 2:
        factory = dict(state_of(node.args[0])) if isinstance(node.args[0], Call) else {}
        parts = [factory.get(name) for name in ("make", "params", "in_shape")]
        _judge_network(walk, parts, node.args[1], place)
    elif cls.name in _LEARNT:
        _judge_estimator(walk, cls, dict(state_of(node)), place)
    elif cls.path in _values():
        why = _why_not_value(walk, node)
        if why is None:
            walk.skip(node)
        else:
            _unlisted(walk, place, why)
        return why is None
    else:
        if cls.module.split(".")[1] not in _CARRIERS:
            _unlisted(walk, place, f"an object of the class {cls.name[:80]}")
        return False
    return True


def _why_not_value(walk, node):
    try:
        value = value_of(node, walk)
    except Unlisted:
        return "an object with values that its class does not take"
    if isinstance(value, Method) and not passes(facts_.is_method, value):
        return "parameters that the method does not take"
    return facts_.why_not_report(value) if isinstance(value, PrivacyReport) else None


def _unlisted(walk, place, what="a value of a form that no release has", value=None):
    walk.add(kinds.UNLISTED, place.path, what)
    if value is not None:  # which tells of what kind it is
        walk.judge(walk.visit(value, place), place)


def _values():
    listed = (PrivacyReport, LedgerEntry, Ledger, PGD, pd.Interval, *METHODS.values())
    return {f"{cls.__module__}.{cls.__qualname__}": cls for cls in listed}


def value_of(node, walk):
    """Return the value that a part of a pickle stands for, if files of this package hold such.

    Raises
    ------
    Unlisted
        If it is of another type, or cannot be made.
    """
    if not is_node(node):
        return node
    if isinstance(node, dict):
        return {value_of(k, walk): value_of(v, walk) for k, v in node.items()}
    if isinstance(node, (list, tuple)):
        return type(node)(value_of(v, walk) for v in node)
    scalar, array = scalar_of(node), walk.array(node)
    if scalar is not None and scalar.values() is not None:
        return scalar.values().item()
    if array is not None and not array.extras:
        if array.content is not None:
            objects = [value_of(v, walk) for v in array.content]
            return np.array([*objects, None], object)[:-1]  # tuples are values here, not axes
        if array.values() is not None:
            return array.values()
    if isinstance(node, Global) and node.module.startswith("torch.optim"):
        return decode({"optimizer": node.name})
    cls = class_of(node)
    listed = None if cls is None else _values().get(cls.path)
    try:
        state = {k: value_of(v, walk) for k, v in state_of(node)} if listed else {}
        if listed is Ledger:
            return _ledger_of(**state)
        if listed is not None:
            return pd.Interval(*node.args) if listed is pd.Interval else listed(**state)
    except (TypeError, ValueError, AttributeError) as error:
        raise Unlisted from error
    raise Unlisted


def _ledger_of(_entries=(), _last=None, _more=0):
    entries = list(_entries)
    if _last is not None:
        e = entries[-1] if entries else None
        if e is None or _last != (e.what, e.sample_rate, e.noise_multipliers, e.group_rates):
            raise Unlisted
    if not facts_.is_whole(_more):
        raise Unlisted
    return Ledger(entries)


def _decoded(walk, value, place):
    try:
        return decode(value)
    except Exception:  # the facts may be anything
        _unlisted(walk, place, "a value that cannot be read")
        return None


# classifiers


def _judge_classifier(walk, pairs, place):
    """Judge the state of a classifier, from a pickle or from memory."""
    state, values, net = dict(pairs), {}, {}
    fitted = _facts.WEIGHTS_KEY in state
    encoded = _facts_in(state.pop(_facts.FACTS_KEY, "{}"))
    if encoded is None:
        _unlisted(walk, place, "facts that cannot be read")
    for name, value in (encoded or {}).items():
        if name in _KNOWN:
            values[name] = _decoded(walk, value, place.attribute(name))
        elif name == _facts.FACTORY_KEY:
            net[name] = _decoded(walk, value, place.attribute(name))
        else:
            state[name] = value
    inner = place.but(within=place.within or fitted, fitted=place.within or fitted)
    for name, node in state.items():
        at = inner.attribute(name)
        if name in (_facts.WEIGHTS_KEY, _facts.FACTORY_KEY):
            net[name] = node
            continue
        if name in _KNOWN:
            try:
                values[name] = value_of(node, walk)
                walk.skip(node)
                continue
            except Unlisted:  # code, mostly: what it carries along is looked at
                pass
        elif name == "reference_":
            walk.noted(kinds.REFERENCE, at)
        elif name != "module_":  # of a classifier in memory: it may hold gradients and hooks
            _unlisted(walk, at, "an attribute that no release has")
        walk.judge(walk.visit(node, at), at)
    network = None
    if fitted:
        factory, weights = net.get(_facts.FACTORY_KEY), net[_facts.WEIGHTS_KEY]
        network = _judge_network(walk, factory, weights, place)
    _judge_values(walk, values, network, inner)


def _facts_in(text):
    try:
        facts = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None
    return facts if isinstance(facts, dict) else None


def _judge_values(walk, values, network, place):
    """Judge parameters and fitted attributes, each against the others."""
    for name, value in values.items():
        at = place.attribute(name)
        if name == "random_state":
            if place.fitted and value is not None:
                walk.add(kinds.SEED, at.path, "a number that seeds a random generator")
        elif name in PARAMETERS:
            for key in filter(is_seed, value if isinstance(value, dict) else ()):
                walk.add(kinds.SEED, at.item(key, 0).path, "a number that seeds a generator")
            if not passes(facts_.is_parameter, name, value, values, network):
                _unlisted(walk, at, "a value that the parameter does not take")
        elif name == "privacy_":
            groups, n_fits = values.get("groups_"), values.get("_n_fits", 1)
            why = facts_.why_not_report(value, groups, n_fits)
            if why is not None:
                _unlisted(walk, at, why)
        elif network is None or not passes(facts_.is_fitted, name, value, values, network):
            _unlisted(walk, at, "a value that no fit leaves")
    privacy = values.get("privacy_")
    if network is None:
        return
    if isinstance(privacy, PrivacyReport) and privacy.is_private and math.isfinite(privacy.epsilon):
        walk.n_private += 1
    else:
        what = "a model without finite epsilon: its weights are a function of the data"
        walk.add(kinds.REFERENCE, place.path, what)


def _judge_network(walk, factory, weights, place) -> Network:
    """Judge the weights of a classifier's network against what makes it."""
    made = factory if isinstance(factory, (list, tuple)) and len(factory) == 3 else [None] * 3
    make, path = made[0], made[0].path if isinstance(made[0], Global) else None
    forms = {n: (n, f, f"{f.__module__}.{f.__name__}") for n, f in NETWORKS.items()}
    name = next((n for n, known in forms.items() if make in known or path in known), None)
    weights = weights if isinstance(weights, dict) else {}
    arrays = {k: walk.array(v) for k, v in weights.items() if is_node(v)}
    arrays = {k: v for k, v in arrays.items() if v is not None and isinstance(k, str)}
    try:
        params, in_shape = value_of(made[1], walk) or {}, tuple(value_of(made[2], walk))
    except (Unlisted, TypeError):
        _unlisted(walk, place.attribute("module_params"), value=made[1])
        params, in_shape = {}, ()
    if name is None:  # the author's own: judged by names and by how sizes fit each other
        walk.weights(list(arrays.items()), place, trusted=True)
        walk.visit(make, place.attribute("module"))
        _judge_values(walk, {"module_params": params}, None, place)
    else:
        expected = _shapes(NETWORKS[name], params)
        for key, array in arrays.items():
            if (array.shape, array.letter, array.width) == (expected.get(key), "f", 4):
                walk.explain(array)
        if not expected or set(arrays) != set(expected):
            _unlisted(walk, place.attribute("weights"), "weights that are not the network's")
    for i, (key, value) in enumerate(weights.items()):
        at = place.attribute("weights").item(key, i)
        walk.judge(walk.visit(value, at), at)
    outputs = {a.shape[0] for a in arrays.values() if a.shape and id(a) in walk.explained}
    return Network(params, in_shape, outputs)


def _shapes(make, params):
    """Return the shapes of a built-in network's weights by name; none for other parameters."""
    try:
        with torch.device("meta"):  # takes no memory, whatever sizes a file may claim
            return {k: tuple(w.shape) for k, w in make(**params).state_dict().items()}
    except Exception:  # the facts may be anything
        return {}


def _judge_estimator(walk, cls, state, place):
    """Judge a scaler, an encoder or a search of this package."""
    fitted = place.within or "n_features_in_" in state or "best_estimator_" in state
    place = place.but(within=fitted, fitted=fitted, scale=ESTIMATOR)
    for name, node in state.items():
        at = place.attribute(name)
        kept = str(name).startswith("_") or str(name).endswith("_")
        if kept and name not in _LEARNT[cls.name]:
            _unlisted(walk, at, "an attribute that no release has")
        if name not in ("bounds", "quantiles_", "categories", "feature_names_in_"):
            walk.of_estimator(name, node, at, state)
        elif passes(_is_public, name, state, walk):
            walk.skip(node)
        else:
            _unlisted(walk, at, "a value that the estimator does not take", node)


def _is_public(name, state, walk):
    value = value_of(state[name], walk)
    n_features = value_of(state.get("n_features_in_"), walk)
    names = state.get("feature_names_in_")
    if name == "feature_names_in_":
        return facts_.are_names(value) and len(value) == n_features
    if name == "categories":
        return all(map(facts_.are_levels, value.values()))
    if name == "quantiles_":
        return np.shape(value) == (n_features, 2)
    return facts_.are_bounds(value, n_features, None if names is None else value_of(names, walk))


# files


def _judge_statement(walk, node, place):
    try:
        ours = passes(facts_.is_statement, value_of(node, walk))
    except Unlisted:
        ours = False
    if ours:
        walk.skip(node)
    else:
        _unlisted(walk, place, "more than a privacy statement says")
    return ours


def _judge_tensors(walk, tensors, place):
    """Judge a safetensors file: a release by its facts, another one as a mapping of weights."""
    metadata = tensors.metadata if isinstance(tensors.metadata, dict) else {"": tensors.metadata}
    facts = _facts_in(metadata.get(_file.METADATA_KEY))
    if facts is None or not isinstance(facts.get("fitted"), dict):
        for part, at in ((tensors.arrays, place), (metadata, place.attribute("__metadata__"))):
            walk.judge(walk.visit(part, at), at)
        return
    for part, known in ((metadata, {_file.METADATA_KEY}), (facts, _FACTS)):
        for key in set(part) - known:
            _unlisted(walk, place.attribute(key), "a fact that no release has", part[key])
    place, values = place.but(within=True), {}
    for part, known in (("parameters", set(PARAMETERS)), ("fitted", set(_facts.FITTED))):
        entries = facts.get(part)
        for name, value in entries.items() if isinstance(entries, dict) else ():
            at = place.attribute(name)
            if name in known:
                values[name] = _decoded(walk, value, at)
            else:
                _unlisted(walk, at, "a fact that no release has", value)
    module = facts.get("module") if isinstance(facts.get("module"), dict) else {}
    pairs = [[k, v] for k, v in module.get("params", {}).items()]
    params = _decoded(walk, {"dict": pairs}, place.attribute("module_params"))
    factory = [module.get("name"), params, module.get("in_shape")]
    _judge_values(walk, values, _judge_network(walk, factory, tensors.arrays, place), place)
    tests = {
        "format_version": facts_.is_whole,
        "sha256": re.compile("[0-9a-f]{64}").fullmatch,
        "skdpfair_version": re.compile(r"[\w.+!-]{1,40}").fullmatch,
        "privacy_statement": lambda v: statement(values["privacy_"]) == v,
        "schema": lambda v: TableSchema.from_dict(tomllib.loads(v)).to_toml() == v,
        "module": lambda v: (
            set(v) <= _MODULE
            and all(map(facts_.is_word, [v.get("custom", ""), *v.get("left_out", [])]))
        ),
    }
    for name, test in tests.items():
        if name in facts and not passes(test, facts[name]):
            _unlisted(walk, place.attribute(name), value=facts[name])


def _judge_text(walk, text, place):
    """Judge a text: a privacy statement, a ledger, or another one, which is not judged."""
    tree = _facts_in(text)
    lines = [_facts_in(line) for line in text.splitlines() if line.strip()]
    if tree is not None and facts_.STATEMENT & set(tree):
        if not _judge_statement(walk, tree, place):
            walk.judge(walk.visit(dict(tree), place), place)
    elif lines and None not in lines and "budget" in lines[0]:
        for i, line in enumerate(lines):
            for key in facts_.unknown_keys(line):
                at = place.item(None, i).item(key, 0)
                _unlisted(walk, at, "an entry that no ledger has", line[key])
            if not passes(facts_.is_line, line):
                _unlisted(walk, place.item(None, i), "a line of a form that no ledger has")
    elif _pages.FIGURES in text:
        walk.add(kinds.FIGURES, place.path, "a page that says so of itself", len(text))
    elif not _pages.is_page(text):
        walk.add(kinds.NOT_JUDGED, place.path, "a text, which is not judged", len(text))
    elif not passes(_pages.is_model_page, text):
        _unlisted(walk, place, "a page that is no model page, or holds more than one")
