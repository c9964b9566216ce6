"""The closed list of what the files and objects of this package hold; all else is a finding."""

import json
import math
import re
import tomllib
from dataclasses import fields
from inspect import signature
from numbers import Real

import numpy as np
import pandas as pd

from skdpfair.attacks import PGD
from skdpfair.audit import _findings as kinds
from skdpfair.audit._arrays import scalar_of
from skdpfair.audit._containers import Tensors, Text
from skdpfair.audit._names import is_seed
from skdpfair.audit._pickles import Call, Global, class_of, is_node, reachable, state_of
from skdpfair.estimator import DPFairClassifier
from skdpfair.inputs.groups import group_name
from skdpfair.mechanism import METHODS, Method
from skdpfair.preprocessing import BoundedScaler, TableSchema
from skdpfair.privacy import ACCOUNTANTS, NOT_ACCOUNTED, Ledger, LedgerEntry, PrivacyReport
from skdpfair.privacy import statement as _statement
from skdpfair.privacy.renyi import ORDERS
from skdpfair.release import _facts, _file, statement
from skdpfair.release._encode import NETWORKS, decode
from skdpfair.training import building, parameters

_PARAMETERS = DPFairClassifier().get_params(deep=False)
_HELD = (_statement.DIAGNOSTICS_HELD, _statement.TWIN_HELD)
_NOT_ACCOUNTED = {*NOT_ACCOUNTED, *(_facts.NOTED.format(what) for what in _HELD)}
_RELEASED = {"quantiles", "private selection"}  # beside the names of methods
_WHAT = re.compile(
    r"gradient sum( \+ \w{1,40}){0,4}|gradient scale \(warm-up\)|group counts|steps|"
    r"steps planned, not taken|"
    r"private selection|quantiles of \d{1,9} columns?"
)
_STOP = re.compile(r"after [a-z]*( ?\d{1,10})( of \d{1,10})?[a-z ,]{0,200}")
_PROOF = re.compile(r"per-record by [a-z ]{1,30}")
_STEPS_BEFORE = re.compile(
    r"what the steps before it learned, if anything \([\w\-', ]{1,200}\): see check_pipeline"
)
_VERSION = re.compile(r"[\w.+!-]{1,40}")
_WORD = re.compile(r"[\w.<>]{1,100}")
_STATEMENT = {"statement", "releasable", *(f.name for f in fields(PrivacyReport))}
_FACTS = {"parameters", "fitted", "module", "privacy_statement", "skdpfair_version", "schema"}
_MODULE = {"name", "params", "in_shape", "custom", "left_out"}
_MOST_LEVELS, _MOST_SIZES, _MOST_NOISES, _NAME = 1000, 16, 8, 100
_SEEN = {"n_features_in_", "feature_names_in_", "_charged", "_sklearn_output_config"}
_LEARNT = {  # what our other estimators keep of a fit
    "BoundedScaler": _SEEN,
    "PublicEncoder": _SEEN,
    "DPQuantileScaler": _SEEN | {"quantiles_", "privacy_"},
    "DPRandomizedSearch": _SEEN | {"best_estimator_", "best_params_", "classes_", "privacy_"},
}
_LINES = (  # of a ledger's file
    {"budget", "id"},
    {"fit", "state", "data", "private", "curve", "what", "reasons", "place", "entries", "around"},
    {"around", "data", "outermost", "reasons", "notes"},
    {"search", "splits", "data", "folds", "public"},
    {"refused", "root"},
    {"torn"},
)


class Unlisted(ValueError):
    """A value of a type that no file of this package holds."""


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
        if not {"epsilon", "delta", "accountant", "adjacency"} <= keys:
            return False
        return _judge_statement(walk, node, place)
    else:
        cls = class_of(node)
        if cls is None or not cls.module.startswith("skdpfair."):
            return False
        return _judge_object(walk, cls, node, place)
    return True


def _judge_object(walk, cls, node, place):
    pairs = state_of(node)
    if cls.name == "DPFairClassifier":
        _judge_classifier(walk, pairs, place)
    elif cls.name == "InferenceNet" and len(node.args) == 2:
        factory = node.args[0]
        parts = dict(state_of(factory)) if isinstance(factory, Call) else {}
        _judge_network(
            walk, [parts.get(k) for k in ("make", "params", "in_shape")], *node.args[1:], place
        )
    elif cls.name in _LEARNT:
        _judge_estimator(walk, cls, pairs, place)
    elif cls.path in _values():
        try:
            value = value_of(node, walk)
        except Unlisted:
            _unlisted(walk, place, f"{cls.name} with values that it cannot take")
            return False
        why = why_not_report(value) if isinstance(value, PrivacyReport) else None
        if isinstance(value, Method):
            why = None if _is_method(value) else "parameters that the method cannot take"
        if why is not None:
            _unlisted(walk, place, why)
            return False
        walk.seen |= reachable(node)
    else:
        if cls.module.split(".")[1] not in ("audit", "networks", "preprocessing", "training"):
            _unlisted(walk, place, f"an object of the class {cls.name}")
        return False
    return True


def _unlisted(walk, place, what):
    walk.add(kinds.UNLISTED, place.path, what)


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
    scalar = scalar_of(node)
    if scalar is not None and scalar.values() is not None:
        return scalar.values().item()
    array = walk.array(node)
    if array is not None and array.content is not None:
        return np.array([*(value_of(v, walk) for v in array.content), None], object)[:-1]
    if array is not None and array.values() is not None and not array.extras:
        return array.values()
    cls = class_of(node)
    listed = None if cls is None else _values().get(cls.path)
    if isinstance(node, Global) and node.module.startswith("torch.optim"):
        return decode({"optimizer": node.name})
    if listed is None:
        raise Unlisted
    state = {k: value_of(v, walk) for k, v in state_of(node)}
    try:
        if listed is Ledger:
            return _ledger_of(state)
        if listed is pd.Interval:
            return pd.Interval(*node.args)
        return listed(**state)
    except (TypeError, ValueError, AttributeError) as error:
        raise Unlisted from error


def _ledger_of(state):
    ledger = Ledger(state.get("_entries", ()))
    last = ledger.entries[-1] if ledger.entries else None
    ends = {None} if last is None else {None, _key(last)}
    if set(state) - {"_entries", "_last", "_more"} or state.get("_last") not in ends:
        raise Unlisted
    if not isinstance(state.get("_more", 0), int):
        raise Unlisted
    return ledger


def _key(entry):
    return entry.what, entry.sample_rate, entry.noise_multipliers, entry.group_rates


# classifiers


def _judge_classifier(walk, pairs, place):
    """Judge the state of a pickled classifier, or of one in memory."""
    state, values = dict(pairs), {}
    fitted = _facts.WEIGHTS_KEY in state
    encoded = state.pop(_facts.FACTS_KEY, "{}")
    try:
        encoded = json.loads(encoded)
        raw = {k: state.pop(k, None) for k in (_facts.WEIGHTS_KEY, _facts.FACTORY_KEY)}
        for name, value in encoded.items():
            if name in _PARAMETERS or name in _facts.FITTED:
                values[name] = _decoded(walk, value, place.attribute(name))
            elif name == _facts.FACTORY_KEY:
                raw[name] = _decoded(walk, value, place.attribute(name))
            else:
                state[name] = value
    except (ValueError, TypeError, AttributeError, RecursionError):
        _unlisted(walk, place, "facts that cannot be read")
    inner = place.but(within=place.within or fitted, fitted=place.within or fitted)
    for name, node in state.items():
        at = inner.attribute(name)
        known = name in _PARAMETERS or name in _facts.FITTED
        if known:
            try:
                values[name] = value_of(node, walk)
                walk.seen |= reachable(node)
                continue
            except Unlisted:
                pass
        elif name == "reference_":
            walk.noted(kinds.REFERENCE, at)
        elif name != "module_":  # of a classifier in memory: looked at for gradients and hooks
            _unlisted(walk, at, "an attribute that no release has")
        walk.judge(walk.visit(node, at), at)
    if fitted:
        factory, weights = raw[_facts.FACTORY_KEY], raw[_facts.WEIGHTS_KEY]
        sizes = _judge_network(walk, factory, weights, place)
        _judge_values(walk, values, sizes, place)
    else:
        _judge_parameters(walk, values, None, inner)


def _decoded(walk, value, place):
    try:
        return decode(value)
    except Exception:  # the facts may be anything
        _unlisted(walk, place, "a value that no release holds")
        return None


def _judge_network(walk, factory, weights, place):
    """Judge the weights of a network; return its parameters, record's shape and output sizes."""
    make, params, in_shape = (
        factory if isinstance(factory, list) and len(factory) == 3 else [None] * 3
    )
    path = make.path if isinstance(make, Global) else None
    made = {n: (n, f, f"{f.__module__}.{f.__name__}") for n, f in NETWORKS.items()}
    name = next((n for n, forms in made.items() if make in forms or path in forms), None)
    weights = weights if isinstance(weights, dict) else {}
    arrays = {k: walk.array(v) for k, v in weights.items() if is_node(v)}
    arrays = {k: v for k, v in arrays.items() if v is not None and isinstance(k, str)}
    try:
        params = value_of(params, walk) or {}
        in_shape = tuple(value_of(in_shape, walk))
    except (Unlisted, TypeError):
        at = place.attribute("module_params")
        walk.judge(walk.visit(params, at), at)
        params, in_shape = {}, ()
    if name is None:
        walk.weights(list(arrays.items()), place, trusted=True)
        walk.visit(make, place.attribute("module"))
        _judge_settings(walk, "module_params", params, None, place)
    else:
        expected = _shapes(NETWORKS[name], params, in_shape)
        for key, array in arrays.items():
            if expected.get(key) == array.shape and array.letter == "f" and array.width == 4:
                walk.explain(array)
        if not expected or set(arrays) != set(expected):
            _unlisted(walk, place.attribute("weights"), "weights that are not the network's")
    for i, (key, value) in enumerate(weights.items()):
        at = place.attribute("weights").item(key, i)
        walk.judge(walk.visit(value, at), at)
    outputs = {a.shape[0] for a in arrays.values() if a.shape and id(a) in walk.explained}
    return name, params, in_shape, outputs


def _shapes(make, params, in_shape):
    """Return the shapes of a built-in network's weights by name; none for other parameters."""
    import torch

    try:
        with torch.device("meta"):
            return {k: tuple(w.shape) for k, w in make(**params).state_dict().items()}
    except Exception:  # the facts may be anything
        return {}


def _judge_values(walk, values, network, place):
    """Judge the parameters and fitted attributes of a classifier, each against the others."""
    _, _, in_shape, outputs = network
    _judge_parameters(walk, values, network, place)
    tests = _fitted_tests(values, in_shape, outputs)
    for attribute, value in values.items():
        if attribute == "privacy_":
            why = why_not_report(value, values.get("groups_"), values.get("_n_fits", 1))
            if why is not None:
                _unlisted(walk, place.attribute(attribute), why)
        elif attribute in tests and not _passes(tests[attribute], value):
            what = "a value of a form that no fit leaves"
            _unlisted(walk, place.attribute(attribute), what)
    privacy = values.get("privacy_")
    if isinstance(privacy, PrivacyReport) and privacy.is_private and math.isfinite(privacy.epsilon):
        walk.n_private += 1
    else:
        what = "a model without finite epsilon: its weights are a function of the data"
        walk.add(kinds.REFERENCE, place.path, what)


def _passes(test, value):
    try:
        return bool(test(value))
    except Exception:  # of a hostile value's own making
        return False


def _fitted_tests(values, in_shape, outputs):
    """Return what each fitted attribute must be, given the others."""
    n_features, groups = values.get("n_features_in_"), values.get("groups_")
    hidden = values.get("_group_positions") or []

    def levels(value):
        return value is None or (np.ndim(value) == 1 and are_levels(list(value)))

    def names(value):
        return are_names(value) and len(value) == n_features

    def classes(value):
        distinct = np.ndim(value) == 1 and len(set(value.tolist())) == len(value)
        return distinct and len(value) in outputs and all(map(_is_short, value.tolist()))

    def columns(value):
        return _whole(n_features) and in_shape[:1] == (n_features - len(hidden),)

    return {
        **dict.fromkeys(("lr_", "signal_"), lambda v: v is None or _is_number(v)),
        **dict.fromkeys(("batch_size_", "n_steps_", "n_iter_", "_n_fits"), _whole),
        **dict.fromkeys(("_settled", "_charged"), lambda v: isinstance(v, bool)),
        "classes_": classes,
        "groups_": levels,
        "feature_names_in_": names,
        "n_features_in_": columns,
        "_group_positions": lambda v: len(set(v)) == len(v) and set(v) <= set(range(n_features)),
        "method_": _is_method,
        "privacy_": lambda v: why_not_report(v, groups, values.get("_n_fits", 1)) is None,
    }


def _is_number(value):
    return isinstance(value, Real) and not isinstance(value, bool)


def _whole(value):
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _is_short(value):
    return not isinstance(value, str) or len(value) <= _NAME


def _is_method(value):
    if not isinstance(value, Method):
        return False
    arrays = [v for v in value.get_params(deep=False).values() if np.ndim(v)]
    building._check_fields(value)
    return all(np.size(v) <= _MOST_LEVELS and np.min(v) >= 0 and np.max(v) <= 1 for v in arrays)


def are_names(value) -> bool:
    """Tell whether values may be names of columns: texts that are no numbers, each once."""
    names = list(value)
    texts = all(isinstance(name, str) and len(name) <= _NAME for name in names)
    return (
        np.ndim(value) == 1
        and texts
        and len(set(names)) == len(names)
        and not any(map(_float, names))
    )


def _float(text):
    return bool(re.fullmatch(r"[-+]?\d*\.\d+(e[-+]?\d+)?", text.strip(), re.IGNORECASE))


def are_levels(values) -> bool:
    """Tell whether values may be a public set, such as groups: few, different, no measurements.

    Parameters
    ----------
    values : list
        Texts, whole numbers that lie close together, intervals, or tuples of these that cross.
    """
    if len(values) > _MOST_LEVELS or len({repr(v) for v in values}) < len(values):
        return False
    rows = [v for v in values if isinstance(v, (tuple, list))]
    if rows:
        return len(rows) == len(values) and _are_crossed(rows)
    if all(isinstance(v, pd.Interval) for v in values):
        return len(values) <= 64
    numbers = [v for v in values if _is_number(v) and v == v]
    others = [v for v in values if not _is_number(v)]
    plain = all(v is None or isinstance(v, (str, bool, pd.Timestamp)) or v is pd.NA for v in others)
    texts = [v for v in others if isinstance(v, str)]
    if (
        not plain
        or any(v != int(v) for v in numbers)
        or any(len(v) > _NAME or _float(v) for v in texts)
    ):
        return False
    return len(numbers) <= 16 or max(numbers) - min(numbers) <= 4 * len(numbers)


def _are_crossed(rows):
    """Tell whether rows are intersections: a quarter or more of all that there could be.

    Rows of people, who rarely fill a quarter of the ways to combine what they are, are none.
    """
    if len({len(row) for row in rows}) > 1 or not 2 <= len(rows[0]) <= 8:
        return False
    sizes = [len({repr(v) for v in column}) for column in zip(*rows, strict=True)]
    return max(sizes) <= max(8, len(rows) / 2) and len(rows) >= math.prod(sizes) / 4


# parameters


def _judge_parameters(walk, values, network, place):
    """Judge the parameters of a classifier; ``network`` is None where it is not fitted."""
    method = values.get("method", "global_adapt")
    for name in set(values) & set(_PARAMETERS):
        at, value = place.attribute(name), values[name]
        if name == "random_state" and place.fitted and value is not None:
            walk.add(kinds.SEED, at.path, "a number that seeds a random generator")
        elif name in ("module_params", "optimizer_params", "class_weight"):
            _judge_settings(walk, name, value, values, place)
        elif name in ("hidden_layer_sizes", "groups", "classes", "group_col", "verbose"):
            test = {"groups": are_levels, "classes": are_levels}.get(name, _are_sizes)
            declared = network is not None and name == "classes"
            used = (
                network is not None
                and name == "hidden_layer_sizes"
                and values.get("module") == "mlp"
            )
            ok = value is None or (name == "classes" and declared) or _passes(test, value)
            if used:
                ok = tuple(value) == tuple(network[1].get("hidden_layer_sizes", value))
            if declared and value is not None:
                ok = len(value) in network[3]
            if not ok:
                _unlisted(walk, at, "a value of a form that the parameter does not take")
        elif not _is_parameter(name, value, method):
            _unlisted(walk, at, "a value that the parameter cannot take")


def _are_sizes(value):
    parts = list(value) if isinstance(value, (list, tuple)) else [value]
    plain = all(_whole(v) or (isinstance(v, str) and _is_short(v)) for v in parts)
    return len(parts) <= _MOST_SIZES and (plain or isinstance(value, bool))


def _is_parameter(name, value, method):
    """Tell whether fit takes a value, all other parameters being as they are by default."""
    if value is None or name in ("device", "module", "method"):
        return isinstance(value, Method) is False or _passes(_is_method, value)
    if name in ("callbacks", "validation_data"):
        return False
    try:
        found = METHODS[method] if isinstance(method, str) else type(method)
        params = _PARAMETERS | {"epsilon": None, name: value}
        parameters.check(params, found() if name == "epsilon" else METHODS["dpsgd"]())
    except Exception:
        return False
    return isinstance(value, (str, bool, Real, PGD, type))


def _judge_settings(walk, name, value, values, place):
    """Judge a dict of keyword arguments, or of weights by class."""
    at = place.attribute(name)
    if value is None:
        return
    keys = set(value) if isinstance(value, dict) else set()
    if name == "class_weight":
        known = values.get("classes_", values.get("classes"))
        listed = keys if known is None else set(np.asarray(known, object).tolist())
        most = _MOST_SIZES if known is None else len(listed)
        ok = keys <= listed and len(keys) <= most and all(map(_is_number, value.values()))
    else:
        seeds = [key for key in keys if is_seed(key)]
        for key in seeds:
            walk.add(kinds.SEED, at.item(key, 0).path, "a number that seeds a random generator")
        optimizer = (values or {}).get("optimizer", "auto")
        if name == "optimizer_params" and (isinstance(optimizer, (str, type))):
            takes = signature(building.resolve_optimizer(optimizer)).parameters
        else:
            takes = {key: None for key in keys if isinstance(key, str) and _WORD.fullmatch(key)}
        ok = (
            isinstance(value, dict) and keys <= set(takes) and all(map(_is_setting, value.values()))
        )
    if not ok:
        _unlisted(walk, at, "a value of a form that the parameter does not take")


def _is_setting(value):
    """Tell whether a keyword argument is a number, a word, or a few sizes."""
    if isinstance(value, (list, tuple)):
        few = len(value) <= 2 or (len(value) <= _MOST_SIZES and all(map(_whole, value)))
        return few and all(v is None or isinstance(v, (str, Real)) for v in value)
    return (
        value is None
        or isinstance(value, (Real, type))
        or (isinstance(value, str) and _is_short(value))
    )


# privacy statements


def why_not_report(report, groups=None, n_fits=1) -> str | None:
    """Return why a report holds more than privacy reports do, in words, or None.

    Parameters
    ----------
    report : PrivacyReport
    groups : ndarray of shape (n_groups,) or None, default=None
        Of the classifier, where that is known.
    n_fits : int, default=1
        How many fits it composes.
    """
    if not isinstance(report, PrivacyReport):
        return "a privacy report that is none"
    numbers = [report.epsilon, report.delta, report.noise_multiplier, report.sample_rate]
    numbers += [report.expected_batch_size, report.max_grad_norm or 0.0]
    if not all(map(_is_number, numbers)) or not all(
        map(_whole, (report.steps, report.n_samples or 0))
    ):
        return "a privacy report with values that are no numbers"
    if not isinstance(report.is_private, bool) or not isinstance(report.seeded, bool):
        return "a privacy report with values that are no numbers"
    by_group = report.group_epsilons or {}
    if (
        not isinstance(by_group, dict)
        or not are_levels(list(by_group))
        or not all(_is_number(v) and v >= 0 for v in by_group.values())
    ):
        return "epsilons by group that are none"
    if groups is not None and not set(map(group_name, by_group)) <= set(
        map(group_name, list(groups))
    ):
        return "epsilons of groups that the model does not have"
    listed = [
        (report.method, {*METHODS, *_RELEASED}),
        (report.what, {"fitted weights", "quantiles"}),
        (report.accountant, set(ACCOUNTANTS)),
        (report.adjacency, set(_statement.ADJACENCY_IN_WORDS)),
        *((text, set(_HELD)) for text in report.holds),
        *((text, set(_statement.ASSUMPTIONS.values())) for text in report.assumptions),
        *((t, _NOT_ACCOUNTED) for t in report.not_accounted if not _STEPS_BEFORE.fullmatch(t)),
    ]
    if not all(isinstance(text, str) and text in texts for text, texts in listed):
        return "a privacy report with texts of its own"
    patterns = ((report.stop, _STOP), (report.proof, _PROOF))
    if not all(text is None or pattern.fullmatch(text) for text, pattern in patterns):
        return "a privacy report with texts of its own"
    entries = report.ledger.entries
    if len(entries) > 4 * n_fits or not all(map(_is_entry, entries)):
        return "a ledger that holds more than releases"
    return None


def _is_entry(entry):
    few = len(entry.noise_multipliers) <= _MOST_NOISES
    rates = entry.group_rates or ()
    return few and len(rates) <= _MOST_LEVELS and bool(_WHAT.fullmatch(entry.what))


def _judge_statement(walk, node, place):
    """Judge a dict with the keys of a privacy statement by making it again."""
    try:
        given = value_of(node, walk)
        report = _report_of(given)
        alike = statement(report) == json.loads(json.dumps(given, default=str))
    except Exception:  # the dict may be anything
        report, alike = None, False
    why = "more than a privacy statement says" if not alike else why_not_report(report, None, 16)
    if why is not None:
        _unlisted(walk, place, why)
        return False
    walk.seen |= reachable(node)
    return True


def _report_of(given):
    """Return the report of which a dict is the statement."""
    facts = {k: v for k, v in given.items() if k in _STATEMENT - {"statement", "releasable"}}
    facts = {k: float(v) if v in ("inf", "nan") else v for k, v in facts.items()} | {
        k: tuple(facts[k]) for k in ("holds", "assumptions", "not_accounted") if k in facts
    }
    entries = [
        e | {"noise_multipliers": tuple(map(float, e["noise_multipliers"]))}
        for e in given["ledger"]
    ]
    return PrivacyReport(**facts | {"ledger": Ledger([LedgerEntry(**e) for e in entries])})


# our other estimators


def _judge_estimator(walk, cls, pairs, place):
    state = dict(pairs)
    fitted = any(name in state for name in ("n_features_in_", "best_estimator_"))
    place = place.but(within=place.within or fitted, fitted=place.within or fitted, scale=16)
    for name, node in pairs:
        at = place.attribute(name)
        kept = str(name).startswith("_") or str(name).endswith("_")
        if kept and name not in _LEARNT[cls.name]:
            _unlisted(walk, at, "an attribute that no release has")
        if name in ("bounds", "quantiles_", "categories", "feature_names_in_"):
            if _is_public(cls, name, state, walk):
                walk.seen |= reachable(node)
                array = walk.array(node) if is_node(node) else None
                walk.explained.add(id(array))
                continue
            _unlisted(walk, at, "a value of a form that the estimator does not take")
        walk._of_estimator(name, node, at, state, place)


def _is_public(cls, name, state, walk):
    try:
        value = value_of(state[name], walk)
        n_features = value_of(state.get("n_features_in_"), walk)
        if name == "feature_names_in_":
            return are_names(value) and len(value) == n_features
        if name == "categories":
            columns = value.values() if isinstance(value, dict) else value
            return all(are_levels(list(c)) or all(isinstance(v, str) for v in c) for c in columns)
        if name == "quantiles_":
            return np.shape(value) == (n_features, 2)
        scaler = BoundedScaler(value)
        if n_features is None:
            scaler.n_features_in_ = np.size(np.asarray(list(value), object)) // 2 or 1
            return np.ndim(value) != 2 or len(value) <= _MOST_SIZES * 16
        scaler.n_features_in_ = n_features
        if "feature_names_in_" in state:
            scaler.feature_names_in_ = value_of(state["feature_names_in_"], walk)
        return len(scaler._resolved_bounds()) == n_features
    except Exception:  # the state may be anything
        return False


# files


def _judge_tensors(walk, tensors, place):
    """Judge a safetensors file: a release by its facts, another one as a mapping of weights."""
    metadata = tensors.metadata if isinstance(tensors.metadata, dict) else {"": tensors.metadata}
    facts = None
    if _file.METADATA_KEY in metadata:
        try:
            facts = json.loads(metadata[_file.METADATA_KEY])
        except (ValueError, TypeError, RecursionError):
            facts = None
    if not isinstance(facts, dict) or not isinstance(facts.get("fitted"), dict):
        walk.judge(walk._dict(tensors.arrays.items(), place), place)
        at = place.attribute("__metadata__")
        walk.judge(walk.visit(metadata, at), at)
        return
    for key in set(metadata) - {_file.METADATA_KEY}:
        _unlisted(walk, place.attribute("__metadata__"), "metadata beside those of a release")
        walk.visit(metadata[key], place.attribute(key))
    for key in set(facts) - _FACTS - {"format_version", "sha256"}:
        _unlisted(walk, place.attribute(key), "a fact that no release has")
        walk.visit(facts[key], place.attribute(key))
    for key in ("parameters", "fitted", "module"):
        facts[key] = facts.get(key) if isinstance(facts.get(key), dict) else {}
    values = {k: _decoded(walk, v, place.attribute(k)) for k, v in facts["fitted"].items()}
    for name in set(values) - set(_facts.FITTED):
        _unlisted(walk, place.attribute(name), "an attribute that no release has")
    for name, value in facts["parameters"].items():
        if name in _PARAMETERS:
            values[name] = _decoded(walk, value, place.attribute(name))
        else:
            _unlisted(walk, place.attribute(name), "a parameter that no classifier has")
    place = place.but(within=True)
    _judge_values(walk, values, _judge_module(walk, facts["module"], tensors, place), place)
    _judge_header(walk, facts, values.get("privacy_"), place)


def _judge_module(walk, module, tensors, place):
    named, custom = module.get("name"), module.get("custom", "")
    left_out = module.get("left_out", [])
    words = isinstance(left_out, list) and all(
        isinstance(w, str) and _WORD.fullmatch(w) for w in left_out
    )
    if set(module) - _MODULE or not isinstance(custom, str) or not (words and len(custom) <= _NAME):
        _unlisted(walk, place.attribute("module"), "facts of a module that no release has")
    params = _decoded(walk, {"dict": [[k, v] for k, v in module.get("params", {}).items()]}, place)
    shape = module.get("in_shape")
    return _judge_network(walk, [named, params, shape], tensors.arrays, place)


def _judge_header(walk, facts, privacy, place):
    tests = {
        "format_version": _whole,
        "sha256": re.compile("[0-9a-f]{64}").fullmatch,
        "skdpfair_version": _VERSION.fullmatch,
        "privacy_statement": lambda v: statement(privacy) == v,
        "schema": lambda v: TableSchema.from_dict(tomllib.loads(v)).to_toml() == v,
    }
    for name, test in tests.items():
        if name in facts and not _passes(test, facts[name]):
            _unlisted(walk, place.attribute(name), "a fact of a form that no release has")
            walk.visit(facts[name], place.attribute(name))


def _judge_text(walk, text, place):
    """Judge a text: a privacy statement, a ledger or a page of this package, or another one."""
    try:
        tree = json.loads(text)
        lines = [tree]
    except (ValueError, RecursionError):
        tree, lines = None, _lines(text)
    if isinstance(tree, dict) and _STATEMENT & set(tree):
        if not _judge_statement(walk, tree, place):
            walk.judge(walk.visit(dict(tree), place), place)
    elif lines and all(isinstance(line, dict) for line in lines) and "budget" in lines[0]:
        for i, line in enumerate(lines):
            _judge_line(walk, line, place.item(None, i))
    elif "<strong>This page contains non-private figures" in text:
        walk.add(kinds.FIGURES, place.path, "a page that says so of itself", len(text))
    else:
        walk.add(kinds.NOT_JUDGED, place.path, "a text, which is not judged", len(text))


def _lines(text):
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return []


def _judge_line(walk, line, place):
    """Judge a line of a ledger's file."""
    known = max(_LINES, key=lambda keys: len(keys & set(line)))
    for key in set(line) - known:
        at = place.item(key, 0)
        _unlisted(walk, at, "an entry that no ledger has")
        walk.judge(walk.visit(line[key], at), at)
    if not _passes(_is_line, line):
        _unlisted(walk, place, "a line of a form that no ledger has")


def _is_line(line):
    entries, curve, place = (line.get(k) for k in ("entries", "curve", "place"))
    for what, rate, noises, steps, once in entries or ():
        if not _is_entry(LedgerEntry(what, rate, tuple(noises), steps, once)):
            return False
    if curve is not None and (set(curve) != {"orders", "rdp"} or len(curve["rdp"]) != len(ORDERS)):
        return False
    texts = [t for key in ("reasons", "notes") for t in line.get(key) or ()]
    rest = {
        k: v
        for k, v in line.items()
        if k not in ("entries", "curve", "place", "reasons", "notes", "budget")
    }
    rest |= {**(place or {}), **(line.get("budget") or {})}
    plain = all(v is None or isinstance(v, (str, Real)) for v in rest.values())
    return plain and len(rest) <= 24 and all(isinstance(t, str) and len(t) <= 400 for t in texts)
