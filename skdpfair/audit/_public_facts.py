"""Public facts: the values that parameters, fitted attributes, statements and ledgers may have."""

import math
import re
from dataclasses import fields
from inspect import signature
from numbers import Real

import numpy as np
import pandas as pd

from skdpfair.attacks import PGD
from skdpfair.estimator import DPFairClassifier
from skdpfair.inputs.groups import group_name
from skdpfair.mechanism import METHODS, Method
from skdpfair.preprocessing import BoundedScaler
from skdpfair.privacy import ACCOUNTANTS, NOT_ACCOUNTED, Ledger, LedgerEntry, PrivacyReport
from skdpfair.privacy import statement as _statement
from skdpfair.privacy.renyi import ORDERS
from skdpfair.release import _facts, statement
from skdpfair.training import parameters

PARAMETERS = DPFairClassifier().get_params(deep=False)
STATEMENT = {"statement", "releasable", *(f.name for f in fields(PrivacyReport))}
_HELD = {_statement.DIAGNOSTICS_HELD, _statement.REFERENCE_HELD}
_NOT_ACCOUNTED = {*NOT_ACCOUNTED, *(_facts.NOTED.format(what) for what in _HELD)}
WHAT = re.compile(
    r"gradient sum( \+ \w{1,40}){0,4}|gradient scale \(warm-up\)|group counts|steps|"
    r"steps planned, not taken|private selection|quantiles of \d{1,9} columns?"
)
_TEXTS = {  # of a report, that depend on the fit
    "stop": re.compile(r"after [a-z]*( ?\d{1,10})( of \d{1,10})?[a-z ,]{0,200}"),
    "proof": re.compile(r"per-record by [a-z ]{1,30}"),
}
_STEPS_BEFORE = re.compile(
    r"what the steps before it learned, if anything \([\w\-', ]{1,200}\): see check_pipeline"
)
_NUMBER = re.compile(r"\s*[-+]?\d*\.\d+(e[-+]?\d+)?\s*", re.IGNORECASE)
_MOST_LEVELS, _MOST_SIZES, _MOST_NOISES, _MOST_ENTRIES, _NAME = 1000, 16, 8, 4, 100
_LINES = (  # of a ledger's file
    {"budget", "id"},
    {"fit", "state", "data", "private", "curve", "what", "reasons", "place", "entries", "around"},
    {"around", "data", "outermost", "reasons", "notes"},
    {"search", "splits", "data", "folds", "public"},
    {"refused", "root"},
    {"torn"},
)


def passes(test, *values) -> bool:
    """Tell whether values pass a test; what breaks it does not."""
    try:
        return bool(test(*values))
    except Exception:  # of a hostile value's own making
        return False


def is_number(value) -> bool:
    """Tell whether a value is one number."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_whole(value) -> bool:
    """Tell whether a value is one whole number >= 0."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def is_word(value) -> bool:
    """Tell whether a value is a text short enough for a name."""
    return isinstance(value, str) and len(value) <= _NAME


def are_names(value) -> bool:
    """Tell whether values may be names of columns: short texts, no numbers, each once."""
    names = list(value)
    words = all(is_word(name) and not _NUMBER.fullmatch(name) for name in names)
    return np.ndim(value) == 1 and words and len(set(names)) == len(names)


def are_levels(values) -> bool:
    """Tell whether values may be a public set, such as groups: few, different, no measurements.

    Parameters
    ----------
    values : sequence
        Texts, whole numbers that lie close together, intervals, or tuples of these that cross.
    """
    values = list(values)
    if len(values) > _MOST_LEVELS or len(set(map(repr, values))) < len(values):
        return False
    rows = [v for v in values if isinstance(v, (tuple, list))]
    if rows:
        return len(rows) == len(values) and _are_crossed(rows)
    if all(isinstance(v, pd.Interval) for v in values):
        return len(values) <= 4 * _MOST_SIZES
    numbers = [v for v in values if is_number(v) and v == v]
    texts = [v for v in values if isinstance(v, str)]
    others = [v for v in values if not isinstance(v, (str, bool, Real, pd.Timestamp))]
    if not all(v is None or v is pd.NA or v is pd.NaT for v in others):
        return False
    if not all(is_word(v) and not _NUMBER.fullmatch(v) for v in texts):
        return False
    if any(v != int(v) for v in numbers):
        return False
    return len(numbers) <= _MOST_SIZES or max(numbers) - min(numbers) <= 4 * len(numbers)


def _are_crossed(rows):
    """Tell whether rows are intersections: a quarter or more of all that there could be.

    Rows of people, who rarely fill a quarter of the ways to combine what they are, are none.
    """
    if len(set(map(len, rows))) > 1 or not 2 <= len(rows[0]) <= 8:
        return False
    sizes = [len(set(map(repr, column))) for column in zip(*rows, strict=True)]
    return max(sizes) <= max(8, len(rows) / 2) and len(rows) >= math.prod(sizes) / 4


def is_method(value) -> bool:
    """Tell whether a value is a method with parameters that it can take."""
    if not isinstance(value, Method):
        return False
    value._validate_params()
    arrays = [v for v in value.get_params(deep=False).values() if np.ndim(v)]
    return all(np.size(v) <= _MOST_LEVELS and np.min(v) >= 0 and np.max(v) <= 1 for v in arrays)


# parameters and fitted attributes of a classifier


def is_parameter(name, value, values, network=None) -> bool:
    """Tell whether a classifier's parameter may have a value.

    Parameters
    ----------
    name : str
    value : object
    values : dict
        All parameters and fitted attributes.
    network : Network or None, default=None
        Of a fitted classifier.
    """
    if value is None:
        return True
    if name == "class_weight":
        classes = values.get("classes_", values.get("classes"))
        known = list(value)[:_MOST_SIZES] if classes is None else np.asarray(classes, object)
        return set(value) <= set(known) and all(map(is_number, value.values()))
    if name in ("module_params", "optimizer_params"):
        return (
            all(map(is_word, value))
            and all(map(_is_setting, value.values()))
            and (name == "module_params" or _are_taken(value, values.get("optimizer", "auto")))
        )
    if name == "hidden_layer_sizes" and network is not None and values.get("module") == "mlp":
        return tuple(value) == tuple(network.params.get(name, value))
    if name == "classes" and network is not None:
        return len(value) in network.outputs
    if name in ("groups", "classes"):
        return are_levels(value)
    if name in ("hidden_layer_sizes", "group_col", "verbose"):
        parts = list(value) if isinstance(value, (list, tuple)) else [value]
        plain = all(is_whole(v) or is_word(v) or isinstance(v, bool) for v in parts)
        return plain and len(parts) <= _MOST_SIZES
    if name == "method":
        return is_word(value) or is_method(value)
    if name in ("device", "module"):
        return is_word(str(value))
    if name in ("callbacks", "validation_data"):
        return False
    parameters.check(PARAMETERS | {"epsilon": None, name: value}, METHODS["dpsgd"]())
    return isinstance(value, (str, bool, Real, PGD, type))


def _are_taken(settings, optimizer):
    if not isinstance(optimizer, (str, type)):
        return True
    return set(settings) <= set(signature(parameters.resolve_optimizer(optimizer)).parameters)


def _is_setting(value):
    """Tell whether a keyword argument is a number, a word, or a few sizes."""
    if isinstance(value, (list, tuple)):
        few = len(value) <= 2 or (len(value) <= _MOST_SIZES and all(map(is_whole, value)))
        return few and all(v is None or isinstance(v, (str, Real)) for v in value)
    return value is None or isinstance(value, (Real, type)) or is_word(value)


def is_fitted(name, value, values, network) -> bool:
    """Tell whether a classifier's fitted attribute may have a value; as :func:`is_parameter`."""
    n_features, hidden = values.get("n_features_in_"), values.get("_group_positions") or []
    if name in ("batch_size_", "n_steps_", "n_iter_", "_n_fits"):
        return is_whole(value)
    if name in ("lr_", "signal_to_noise_"):
        return value is None or is_number(value)
    if name in ("_settled", "_charged"):
        return isinstance(value, bool)
    if name == "classes_":
        labels = value.tolist() if np.ndim(value) == 1 else []
        short = all(is_word(v) or not isinstance(v, str) for v in labels)
        return short and len(set(labels)) == len(value) and len(value) in network.outputs
    if name == "groups_":
        return value is None or (np.ndim(value) == 1 and are_levels(value))
    if name == "feature_names_in_":
        return are_names(value) and len(value) == n_features
    if name == "n_features_in_":
        return is_whole(value) and network.in_shape[:1] == (value - len(hidden),)
    if name == "_group_positions":
        return len(set(value)) == len(value) and set(value) <= set(range(n_features))
    return name == "method_" and is_method(value)


def are_bounds(value, n_features, names) -> bool:
    """Tell whether a value is bounds (low, high) of columns, one pair for each or one for all."""
    scaler = BoundedScaler(value)
    if n_features is None:  # not fitted: as many columns as there are pairs
        pairs = value.values() if isinstance(value, dict) else value
        single = np.ndim(value) == 1 and not isinstance(value, dict)
        n_features = 1 if single else len(list(pairs))
        names = list(value) if isinstance(value, dict) else None
    scaler.n_features_in_ = n_features
    if names is not None:
        scaler.feature_names_in_ = names
    return len(scaler._resolved_bounds()) == n_features


# privacy reports, their statements, and ledgers


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
    whole = (report.steps, report.n_samples or 0)
    flags = (report.is_private, report.seeded)
    plain = all(map(is_number, numbers)) and all(map(is_whole, whole))
    if not plain or not all(isinstance(flag, bool) for flag in flags):
        return "a privacy report with values of other types"
    by_group = report.group_epsilons or {}
    if not are_levels(by_group) or not all(is_number(v) and v >= 0 for v in by_group.values()):
        return "epsilons by group that are none"
    if groups is not None and not set(map(group_name, by_group)) <= set(map(group_name, groups)):
        return "epsilons of groups that the model does not have"
    if not _are_known_texts(report):
        return "a privacy report with texts of its own"
    entries = report.ledger.entries
    if len(entries) > _MOST_ENTRIES * n_fits or not all(map(_is_entry, entries)):
        return "a ledger that holds more than releases"
    return None


def _are_known_texts(report):
    listed = [
        (report.method, {*METHODS, "quantiles", "private selection"}),
        (report.what, {"fitted weights", "quantiles"}),
        (report.accountant, set(ACCOUNTANTS)),
        (report.adjacency, set(_statement.ADJACENCY_IN_WORDS)),
        *((text, _HELD) for text in report.holds),
        *((text, set(_statement.ASSUMPTIONS.values())) for text in report.assumptions),
    ]
    said = [(getattr(report, name), pattern) for name, pattern in _TEXTS.items()]
    known = all(isinstance(text, str) and text in texts for text, texts in listed)
    known = known and all(map(is_not_accounted, report.not_accounted))
    return known and all(text is None or pattern.fullmatch(text) for text, pattern in said)


def is_not_accounted(text) -> bool:
    """Tell whether a text is one of those that say what epsilon does not cover."""
    return text in _NOT_ACCOUNTED or bool(_STEPS_BEFORE.fullmatch(text))


def _is_entry(entry):
    few = len(entry.noise_multipliers) <= _MOST_NOISES
    return few and len(entry.group_rates or ()) <= _MOST_LEVELS and WHAT.fullmatch(entry.what)


def is_statement(given) -> bool:
    """Tell whether a dict is the statement of a privacy report, and no more than that."""
    facts = {k: v for k, v in given.items() if k in STATEMENT - {"statement", "releasable"}}
    facts = {k: float(v) if v in ("inf", "nan") else v for k, v in facts.items()}
    facts |= {k: tuple(facts[k]) for k in ("holds", "assumptions", "not_accounted") if k in facts}
    entries = [
        LedgerEntry(
            e["what"], e["sample_rate"], tuple(map(float, e["noise_multipliers"])), e["steps"]
        )
        for e in given["ledger"]
    ]
    report = PrivacyReport(**facts | {"ledger": Ledger(entries)})
    return statement(report) == given and why_not_report(report, n_fits=_MOST_SIZES) is None


def unknown_keys(line) -> set:
    """Return the keys of a ledger's line that no such line has."""
    return set(line) - max(_LINES, key=lambda keys: len(keys & set(line)))


def is_line(line) -> bool:
    """Tell whether a line of a ledger's file holds what such lines do."""
    entries, curve, place = (line.get(k) for k in ("entries", "curve", "place"))
    for what, rate, noises, steps, once in entries or ():
        if not _is_entry(LedgerEntry(what, rate, tuple(noises), steps, once)):
            return False
    if curve is not None and (set(curve) != {"orders", "rdp"} or len(curve["rdp"]) != len(ORDERS)):
        return False
    texts = [text for key in ("reasons", "notes") for text in line.get(key) or ()]
    nested = ("entries", "curve", "place", "reasons", "notes", "budget")
    rest = {k: v for k, v in line.items() if k not in nested}
    rest |= {**(place or {}), **(line.get("budget") or {})}
    plain = all(v is None or isinstance(v, (str, Real)) for v in rest.values())
    return plain and all(isinstance(text, str) and len(text) <= 4 * _NAME for text in texts)
