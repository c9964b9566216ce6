"""The closed list: what the files and objects of this package hold; all else is a finding."""

import json
import math
import re
from collections import namedtuple
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
import torch

from skdpfair.audit import _findings as kinds
from skdpfair.audit import _public_facts as public
from skdpfair.audit._arrays import as_array, scalar_of
from skdpfair.audit._judge_others import attribute, item
from skdpfair.audit._read_files import Tensors, Text
from skdpfair.audit._read_pickles import Global, class_of, is_node, more_of, state_of
from skdpfair.mechanism import METHODS
from skdpfair.networks import Factory
from skdpfair.preprocessing._piecewise_linear import are_columns
from skdpfair.privacy import Ledger, PrivacyReport, Release
from skdpfair.release import _facts, _file, statement
from skdpfair.release._encode import decode
from skdpfair.release._objects import CLASSES, NETWORKS
from skdpfair.release._read_statement import CLASSIFIER, REGRESSOR

# classes whose objects are values: rebuilt, and judged as such
_VALUES: dict[str, Callable[..., Any]] = {
    f"{cls.__module__}.{cls.__qualname__}": cls
    for cls in (PrivacyReport, Release, Ledger, *CLASSES.values(), *METHODS.values())
}
_VALUES[f"{Factory.__module__}.Factory"] = lambda make, params: Factory(make, **params)
_MODULE = {"name", "params", "in_shape", "custom", "left_out"}
_OF_SKLEARN = {  # what public_preprocessor makes
    "sklearn.compose._column_transformer.ColumnTransformer",
    "sklearn.preprocessing._function_transformer.FunctionTransformer",
}
_OF_COLUMNS = {f"_{name}" for name in ("columns", "remainder", "transformer_to_input_indices")}
_OF_COLUMNS |= {"output_indices_", "_transformers_feature_names_out"}
_STEPS = {"transformers_", "sparse_output_", "_name_to_fitted_passthrough"}
_SEEN = {"n_features_in_", "feature_names_in_"}
_SEEN |= {"_charged", "_sklearn_output_config", "_sklearn_version"}
_SPENT = _SEEN | {"classes_", "privacy_"}
_LEARNED = {  # what estimators other than the classifier keep of a fit
    **dict.fromkeys(("BoundedScaler", "PublicEncoder", "FunctionTransformer"), _SEEN),
    "ColumnTransformer": _SEEN | _OF_COLUMNS | _STEPS,
    "DPQuantileScaler": _SPENT - {"classes_"} | {"quantiles_"},
    "PiecewiseLinearEncoder": _SEEN | {"n_intervals_"},
    "DPRandomizedSearch": _SPENT | {"best_estimator_", "best_params_"},
    "DPThresholdClassifier": _SPENT | {"estimator_", "thresholds_", "calibration_"},
}


# what a classifier's attributes must fit; n_outputs is None for an author's own network
Network = namedtuple("Network", "params in_shape n_outputs")


def judge_ours(walk, node, where) -> bool:
    """Judge what is of this package by the closed list; tell whether it is."""
    if isinstance(node, Tensors):
        _judge_tensors(walk, node, where)
    elif isinstance(node, Text):
        _judge_text(walk, node.text, where)
    elif isinstance(node, dict):
        if not {"epsilon", "delta", "accountant", "adjacency"} <= set(node):
            return False
        if not public.passes(lambda: public.is_statement(value_of(node))):
            walk.add(kinds.UNLISTED, where, "more than a privacy statement says")
        walk.skip(node)
    else:
        cls = class_of(node)
        ours = cls is not None and re.match(r"skdpfair\.(?!audit\._artifact)", cls.path)
        if not ours and (cls is None or cls.path not in _OF_SKLEARN):
            return False
        _judge_object(walk, cls, node, where)
    return True


def _judge_object(walk, cls, node, where):
    pairs = state_of(node)
    if cls.path in _VALUES:
        if not public.passes(lambda: public.is_value(value_of(node))):
            walk.add(kinds.UNLISTED, where, "an object with values that its class does not take")
        return walk.skip(node)
    walk.judge(walk.parts(node, where), where)
    if len(dict(pairs)) < len(pairs):
        walk.add(kinds.UNLISTED, where, "attributes that are set twice")
    if cls.name in (CLASSIFIER, REGRESSOR):
        _judge_classifier(walk, dict(pairs), where)
    elif cls.name in _LEARNED:
        _judge_estimator(walk, _LEARNED[cls.name], dict(pairs), where)
    else:
        walk.note(kinds.UNLISTED, node, where, f"an object of the class {cls.name[:80]}")


def value_of(node):
    """Return the value that a part of a pickle stands for; raise ValueError for others."""
    if not is_node(node):
        return node
    if isinstance(node, Global):
        return decode({"optimizer": node.name}) if node.module.startswith("torch.optim") else node
    if isinstance(node, dict):
        return {value_of(k): value_of(v) for k, v in node.items()}
    if isinstance(node, (list, tuple)):
        return type(node)(value_of(v) for v in node)
    array, cls = scalar_of(node) or as_array(node), class_of(node)
    if array is not None and not array.extras:
        if array.content is not None:
            objects = [value_of(v) for v in array.content]
            return np.array([*objects, None], object)[:-1]  # tuples are values here, not axes
        values = array.values()
        if values is not None and values.dtype.kind in "biufSU":
            return values if values.ndim else values.item()
    path = "" if cls is None else cls.path
    if path in ("builtins.slice", f"{pd.Interval.__module__}.Interval"):
        return list(node.args) if path == "builtins.slice" else pd.Interval(*node.args)
    pairs, args = state_of(node) if path in _VALUES else [], getattr(node, "args", ())
    plain = all(v is None or isinstance(v, Global) for v in args)
    if path not in _VALUES or not plain or more_of(node) or len(dict(pairs)) < len(pairs):
        raise ValueError("no release has this")
    state = {k: value_of(v) for k, v in pairs}
    return _ledger_of(**state) if path.endswith(".Ledger") else _VALUES[path](**state)


def _ledger_of(_releases=()):
    return Ledger(_releases)


def _judge_classifier(walk, state, where):
    """Judge the state of a classifier, from a pickle or from memory."""
    values, weights = {}, state.pop(_facts.WEIGHTS_KEY, None)
    facts = _facts_in(state.pop(_facts.FACTS_KEY, "{}"))
    if facts is None:
        walk.add(kinds.UNLISTED, where, "facts that cannot be read")
    for name, value in (facts or {}).items():
        _take(walk, values, name, decode, value, where)
    for name, node in state.items():
        if name == "reference_":
            walk.note(kinds.REFERENCE, node, attribute(where, name))
        elif name == "module_":  # of a classifier in memory: it may hold gradients and hooks
            at = attribute(where, name)
            walk.judge(walk.visit(node, at), at)
        else:
            _take(walk, values, name, value_of, node, where)
    factory = values.pop(_facts.FACTORY_KEY, None)
    network = None if weights is None else _judge_network(walk, factory, weights, where)
    _judge_values(walk, values, network, where)


def _take(walk, values, name, read, node, where):
    """Keep the value of a parameter or a fitted attribute; note all others."""
    try:
        if name not in {*public.PARAMETERS, *_facts.FITTED, _facts.FACTORY_KEY}:
            raise ValueError("no release has this")
        values[name] = read(node)
        walk.skip(node)
    except Exception:  # the facts may be anything
        what = "an attribute or a value that no release has"
        walk.note(kinds.UNLISTED, node, attribute(where, name), what)


def _facts_in(text):
    with suppress(ValueError, TypeError, RecursionError):
        facts = json.loads(text)
        return facts if isinstance(facts, dict) else None


def _judge_values(walk, values, network, where):
    """Judge parameters and fitted attributes, each against the others."""
    for name, value in values.items():
        at = attribute(where, name)
        if not public.passes(public.is_listed, name, value, values, network):
            walk.add(kinds.UNLISTED, at, "a value that no fit takes or leaves")
        if name == "random_state" and value is not None:
            walk.seeds.append(at)
    if network is not None:
        walk.fitted = True
        walk.classes.add(repr(list(values.get("classes_", ()))))
        privacy = values.get("privacy_")
        private = isinstance(privacy, PrivacyReport) and privacy.is_private
        if not (private and math.isfinite(privacy.epsilon)):
            what = "a model without finite epsilon: its weights are a function of the data"
            walk.add(kinds.REFERENCE, where, what)


def _judge_network(walk, factory, weights, where) -> Network:
    """Judge the weights of a classifier's network against what makes it."""
    made = factory if isinstance(factory, (list, tuple)) and len(factory) == 3 else (None, {}, ())
    make, params, in_shape = made[0], made[1] or {}, tuple(made[2])
    path, at = make.path if isinstance(make, Global) else make, attribute(where, "weights")
    forms = {n: (n, f, f"{f.__module__}.{f.__name__}") for n, f in NETWORKS.items()}
    name = next((n for n, known in forms.items() if path in known), None)
    arrays = {k: as_array(v) for k, v in weights.items()}
    if name is None:
        what = "the weights of a network of the author's own, of which only its code can tell"
        walk.note(kinds.NOT_JUDGED, weights, at, what)
        walk.weights |= {(a.shape, a.data) for a in arrays.values() if a}
        return Network(params, in_shape, None)
    expected = _shapes(NETWORKS[name], params)
    good = [a for k, a in arrays.items() if a and (a.shape, a.dtype) == (expected.get(k), "<f4")]
    walk.weights |= {(a.shape, a.data) for a in good}
    if not expected or set(arrays) != set(expected) or len(good) < len(arrays):
        walk.add(kinds.UNLISTED, at, "weights that are not the network's")
    walk.judge(walk.visit(weights, at), at)
    return Network(params, in_shape, next(reversed(expected.values()), (0,))[0])


def _shapes(make, params):
    """Return the shapes of a built-in network's weights by name; none for other parameters."""
    try:
        with torch.device("meta"):  # takes no memory, whatever sizes a file may claim
            return {k: tuple(w.shape) for k, w in make(**params).state_dict().items()}
    except Exception:  # the facts may be anything
        return {}


def _judge_estimator(walk, learned, state, where):
    """Judge a scaler, an encoder, a search, or what public_preprocessor makes of these."""
    walk.fitted |= "n_features_in_" in state
    for name in sorted(state, key="classes_".__eq__):  # after the estimator that has them too
        node, at = state[name], attribute(where, name)
        if (name.startswith("_") or name.endswith("_")) and name not in learned:
            walk.note(kinds.UNLISTED, node, at, "an attribute that no release has")
        elif name == "random_state" and node is not None:
            walk.seeds.append(at)
        elif name not in _TESTS:
            walk.judge(walk.visit(node, at), at)
        elif not public.passes(_TESTS[name], node, state, walk):
            walk.note(kinds.UNLISTED, node, at, "a value that the estimator does not take")
        elif name.startswith("transformers"):
            walk.visit(node, at)
        else:
            walk.skip(node)


def _width(state):
    return value_of(state.get("n_features_in_"))


def _are_bounds(node, state, walk):
    names = value_of(state.get("feature_names_in_"))
    return public.are_bounds(value_of(node), _width(state), names)


def _are_columns(node, state, walk):
    return are_columns(value_of(node), value_of(state.get("bounds")), _width(state))


def _are_choices(node, state, walk):
    choices = value_of(node)
    named = all(public.is_choice(name) for name in choices)
    return named and all(map(public.is_chosen, [v for each in choices.values() for v in each]))


_REMAINDER = "sklearn.compose._column_transformer._RemainderColsList"  # scikit-learn 1.6
_WARNINGS = "warning_was_emitted", "warning_enabled"


def _are_of_columns(node, state=None, walk=None):
    cls = class_of(node)
    if cls is not None and cls.path == _REMAINDER and not more_of(node):
        found = dict(state_of(node))
        others = [found.pop(name, None) for name in ("future_dtype", *_WARNINGS)]
        node = [*found.items(), *(other for other in others if not isinstance(other, bool))]
    if not isinstance(node, (dict, list, tuple, np.ndarray)):
        node = value_of(node)
    if isinstance(node, (dict, list, tuple, np.ndarray)):
        return all(map(_are_of_columns, [*node, *getattr(node, "values", list)()]))
    return node is None or public.are_names([node], 1) or public.is_whole(node)


_TESTS = {  # of (node, state, walk)
    **dict.fromkeys(_OF_COLUMNS, _are_of_columns),
    **dict.fromkeys(
        ("transformers", "transformers_"), lambda node, *_: _are_of_columns([s[::2] for s in node])
    ),
    "bounds": _are_bounds,
    "calibration_": lambda node, *_: public.is_setting(value_of(node)),
    "categories": lambda node, *_: all(map(public.are_levels, value_of(node).values())),
    **dict.fromkeys(("log_columns", "missing"), _are_columns),
    "classes_": lambda node, state, walk: repr(list(value_of(node))) in walk.classes,
    "feature_names_in_": lambda node, state, _: public.are_names(value_of(node), _width(state)),
    "param_distributions": _are_choices,
    "thresholds_": lambda node, *_: public.are_thresholds(value_of(node)),
    "quantiles_": lambda node, state, _: np.shape(value_of(node)) == (_width(state), 2),
}


def _judge_tensors(walk, tensors, where):
    """Judge a safetensors file: a release by its facts, another one as a mapping of arrays."""
    metadata = tensors.metadata if isinstance(tensors.metadata, dict) else {"": tensors.metadata}
    facts = _facts_in(metadata.get(_file.METADATA_KEY))
    if facts is None or not isinstance(facts.get("fitted"), dict):
        for part, at in ((tensors.arrays, where), (metadata, attribute(where, "__metadata__"))):
            walk.judge(walk.visit(part, at), at)
        return
    values, module = {}, facts.get("module", {})
    for name, value in [*facts.pop("parameters", {}).items(), *facts.pop("fitted").items()]:
        _take(walk, values, name, decode, value, where)
    params = {key: decode(value) for key, value in module.get("params", {}).items()}
    factory = [module.get("name"), params, module.get("in_shape")]
    _judge_values(walk, values, _judge_network(walk, factory, tensors.arrays, where), where)
    words = module.get("custom", ""), *module.get("left_out", [])
    tests = {
        "estimator": REGRESSOR.__eq__,
        "format_version": public.is_whole,
        "sha256": re.compile("[0-9a-f]{64}").fullmatch,
        "skdpfair_version": re.compile(r"[\w.+!-]{1,40}").fullmatch,
        "privacy_statement": lambda v: statement(values["privacy_"]) == v,
        "schema": lambda v: public.is_listed("_schema", v, values, None),
        "module": lambda v: set(v) <= _MODULE and all(map(public.is_word, words)),
    }
    facts |= {k: v for k, v in metadata.items() if k != _file.METADATA_KEY}
    for name, value in facts.items():
        if not public.passes(tests.get(name), value):
            walk.note(kinds.UNLISTED, value, attribute(where, name), "a fact that no release has")


def _judge_text(walk, text, where):
    """Judge a text: a privacy statement, a ledger, or another one, which is not judged."""
    tree = _facts_in(text)
    lines = [_facts_in(line) for line in text.splitlines() if line.strip()]
    if tree is not None and public.STATEMENT & set(tree):
        if not public.passes(public.is_statement, tree):
            walk.add(kinds.UNLISTED, where, "more than a privacy statement says")
    elif lines and None not in lines and "budget" in lines[0]:
        for i, line in enumerate(lines):
            if not public.passes(public.is_line, line):
                walk.add(kinds.UNLISTED, item(where, None, i), "a line that no ledger has")
    elif "<strong>This page contains non-private figures" in text:
        walk.add(kinds.FIGURES, where, "a page that says so of itself", len(text))
    elif not public.passes(public.is_model_page, text):
        walk.add(kinds.NOT_JUDGED, where, "a text, which is not judged", len(text))
