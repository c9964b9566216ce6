"""The closed list of a release: the facts that it holds, and the values that these may have.

Writers of releases use the names, and verification uses the tests, because a value of the right
name and type can still be records.
"""

import math
import re
import tomllib
from collections.abc import Callable
from inspect import signature
from itertools import pairwise, product
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from skdpfair._networks import CNN, MLP, Curves, Factory
from skdpfair._utils.group_names import group_names, is_name, is_word, read_from_rows
from skdpfair.engine.losses import REGRESSION
from skdpfair.engine.mechanism import Method
from skdpfair.engine.per_sample import ClosedForm, Strategy
from skdpfair.features import Scattering2D
from skdpfair.inputs.columns import names_of_features
from skdpfair.inputs.groups import MAX_READ, Groups
from skdpfair.inputs.target import range_of
from skdpfair.preprocessing import TableSchema
from skdpfair.preprocessing._piecewise_linear import amounts_among, column_name, pair_name
from skdpfair.privacy import privacy_report as words
from skdpfair.release._objects import CLASSES, NETWORKS
from skdpfair.release._read_statement import are_ledger_fits, check_report, is_day
from skdpfair.training.column_counts import SIGNIFICANT
from skdpfair.training.defaults import network_for
from skdpfair.training.interactions import MAX_PAIRS, MIN_INTERACTION
from skdpfair.training.plan import COLUMN_COUNTS, GROUP_COUNTS, SCORE_COUNTS
from skdpfair.training.spec import optimizer_of
from skdpfair.training.train import stop_in_words

REMOVED_PART = "{}: not in this copy, but whoever fitted could look at it"
MAX_LEVELS = 1000
_MAX_FITS, _MAX_SIZES, _MAX_ENTRIES = 64, 16, 6  # fits of a warm start
_MAX_STRATA, _MAX_VARIABLES = 8, 9
_REAL: Any = Real  # numbers of this type cannot be compared, as mypy sees it

# the texts of a report: those that every fit may leave, and those with numbers and names of a fit
_HELD = {words.DIAGNOSTICS_PART, words.REFERENCE_PART}
_NOT_ACCOUNTED = {*words.NOT_ACCOUNTED, words.DEVICE_NOISE, words.WEIGHTS_FROM_OTHERS}
_NOT_ACCOUNTED |= {*map(REMOVED_PART.format, _HELD), *words.in_words_of(_NOT_ACCOUNTED, "person")}
_TEXTS: dict[str, set[str | None]] = {
    "what": {"fitted weights", "fitted weights and thresholds"},
    "proof": {None, Strategy.proof, ClosedForm.proof},
    "stop": {None},
    "features": {None},
    "holds": {*_HELD},
    "assumptions": {
        t for u in words.PROTECTED for t in words.in_words_of(words.ASSUMPTIONS.values(), u)
    },
    "not_accounted": {*_NOT_ACCOUNTED},
}
_NUMBER, _SHA256, _NAME = r"[\d,]{1,15}", "[0-9a-f]{16}", r"[^\W\d]\w{0,40}"


def _pattern(template, *fields):
    parts = map(re.escape, re.split("{.*?}", template))
    return "".join(part + field for part, field in zip(parts, (*fields, ""), strict=True))


_STOPS = {stop_in_words(0, *flags) for flags in product((0, 1), (False, True), (False, True))}
_PATTERNS = {  # of which each fit leaves at most one text
    "assumptions": _pattern(words.FROZEN, _NUMBER, _SHA256),
    "stop": "|".join(re.sub(r"\d", r"\\d{1,10}", re.escape(text)) for text in _STOPS),
    "method": rf"private selection|{_NAME}",
    "features": r"Scattering2D\([\w=, '()]{0,120}\), which learns nothing"
    rf"|FrozenFeatures\([\w. -]{{1,80}}\), sha256 {_SHA256}, public by declaration",
}
_RELEASES = re.compile(  # of steps, with the queries of a method of one's own; and on all records
    rf"gradient sum( \+ {_NAME}){{0,8}}|gradient scale \(warm-up\)|steps planned, not taken"
    f"|{GROUP_COUNTS}|{COLUMN_COUNTS}|{SCORE_COUNTS}"
)
_VERSION = re.compile(r"[\w.+!-]{1,40}")


def passes(test, *values) -> bool:
    """Return whether values pass a test; values that raise an error do not."""
    try:
        return bool(test(*values))
    except Exception:  # of a hostile value's own making
        return False


def _is_whole(value, estimator=None) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _is_scalar(value, estimator=None) -> bool:
    """Return whether a value is None, a number, a word or a class."""
    plain = value is None or isinstance(value, (float, type)) or is_word(value)
    return plain or (isinstance(value, _REAL) and abs(value) < 2**53)


def _is_setting(value, estimator=None) -> bool:
    """Return whether a value is a scalar, a few sizes or words, or an object of settings."""
    value = value.tolist() if isinstance(value, np.ndarray) else value
    if isinstance(value, (list, tuple)):
        few = len(value) <= 2 or not any(isinstance(v, float) for v in value)
        return few and len(value) <= _MAX_SIZES and all(map(_is_scalar, value))
    if type(value) in (*CLASSES.values(), Scattering2D):
        return all(map(_is_setting, value.get_params(deep=False).values()))
    return _is_scalar(value)


def _is_level(value) -> bool:
    """Return whether a value may be one of a public set."""
    if isinstance(value, str):
        return is_name(value)
    if isinstance(value, _REAL):
        return value != value or (value == int(value) and abs(value) < 2**53)
    return isinstance(value, (pd.Interval, pd.Timestamp)) or value in (None, pd.NA, pd.NaT)


def _are_levels(values) -> bool:
    """Return whether values may be a public set, such as groups: different, no measurements."""
    flat, values = np.ndim(values) < 2 or not isinstance(values, np.ndarray), list(values)
    if not flat or len(values) > MAX_LEVELS or len(set(map(repr, values))) < len(values):
        return False
    spread = [v for v in values if isinstance(v, _REAL) and v == v]
    if len(spread) > _MAX_SIZES and max(spread) - min(spread) > 4 * len(spread):
        return False  # numbers of records, say
    if any(isinstance(v, (tuple, list)) for v in values):
        # intersections, which fill a quarter of a grid
        columns = list(zip(*values, strict=True))
        sizes = [len(set(map(repr, column))) for column in columns]
        crossed = max(sizes) <= max(8, len(values) / 2) and 4 * len(values) >= np.prod(sizes)
        each = all(_is_level(v) for column in columns for v in column)
        return 2 <= len(sizes) <= 8 and bool(crossed) and each
    intervals = [v for v in values if isinstance(v, pd.Interval)]
    return all(map(_is_level, values)) and len(intervals) <= 4 * _MAX_SIZES


def are_texts_of_levels(texts) -> bool:
    """Return whether texts may be those of values of a public set; 1.0 is a whole number."""
    return all(_is_level(text.removesuffix(".0")) for text in texts)


def is_report(report, groups, n_fits=1) -> bool:
    check_report(report)
    by_group, entries = report.group_epsilons or {}, report.releases
    numbers = (*vars(report).values(), *(report.selection_curve or ()))
    return (
        _are_levels(by_group)
        # a whole number of any size has room for records
        and all(_is_scalar(number) for number in numbers if isinstance(number, int))
        and (not by_group or {*group_names(by_group)} <= {*group_names(groups)})
        # as Renyi divergences do
        and all(low <= high for low, high in pairwise(report.selection_curve or ()))
        and all(_are_texts(name, getattr(report, name), n_fits) for name in {**_TEXTS, **_PATTERNS})
        and len(entries) <= _MAX_ENTRIES * n_fits
        and all(_is_entry(entry, groups) for entry in entries)
    )


def _are_texts(name, value, n_fits) -> bool:
    """Return whether a field of a report has texts that fits write, or None."""
    is_many = name in ("holds", "assumptions", "not_accounted")
    texts = list(value) if is_many else [value]
    own = [text for text in texts if text not in _TEXTS.get(name, ())]
    return (
        (_is_list(value) or not is_many)
        and len(set(texts)) == len(texts)  # texts that come again could be counted
        and len(own) <= n_fits
        and all(re.fullmatch(_PATTERNS.get(name, "(?!)"), text) for text in own)
    )


def _are_read(columns, estimator) -> bool:
    """Return whether values that fits read from rows are short, and classes or groups of these."""
    known = read_from_rows(("",), getattr(estimator, "classes_", None), estimator.levels_)
    own = {v for _, texts in known for v in texts}
    return len(columns) <= _MAX_VARIABLES * estimator._n_fits and all(
        is_name(name)
        and {*texts} <= own
        and len({*texts}) == len(texts) <= MAX_READ
        and are_texts_of_levels(texts)
        for name, texts in columns
    )


def _are_choices(choices, estimator) -> bool:
    """Return whether choices are of fine curves, the pairs of the network and thresholds.

    Each has a number, and that from where on it is taken.
    """
    factory, names = estimator.net_.module, names_of_features(estimator, estimator._group_positions)
    # of an array, positions are all that is known
    amounts = range(factory.in_shape[0]) if names is None else amounts_among(names) or ()
    least = {f"fine curve of {column_name(names, i, 1)}": SIGNIFICANT for i in amounts}
    least |= {pair_name(names, p): MIN_INTERACTION for p in factory.params.get("pairs", ())}
    least |= dict([words.AT_LIMIT])
    least |= {"threshold of all": 1.0}  # of a `DPThresholdClassifier`; a file holds no other
    return (
        _is_list(choices)
        and all(type(choice) is tuple and len(choice) == 3 for choice in choices)
        and len({what for what, *_ in choices}) == len(choices)
        and all(least[what] == bound for what, _, bound in choices)
        and all(isinstance(number, float) and math.isfinite(number) for _, number, _ in choices)
    )


def _is_entry(entry, groups) -> bool:
    n_rates, n_groups = len(entry.group_rates or ()), 0 if groups is None else len(groups)
    is_small = len(entry.noise_multipliers) <= 8 and n_rates in (0, n_groups)
    is_small = is_small and len(entry.strata or ()) <= _MAX_STRATA
    return is_small and bool(_RELEASES.fullmatch(entry.what))


def _is_list(value) -> bool:
    """Return whether a value is no dict that hides its values."""
    return type(value) in (list, tuple, np.ndarray)


def _is_method(value, estimator) -> bool:
    if not isinstance(value, Method):
        return False
    value._validate_params()
    arrays = [v for v in value.get_params(deep=False).values() if not _is_setting(v)]
    return all(np.size(v) <= MAX_LEVELS and np.min(v) >= 0 and np.max(v) <= 1 for v in arrays)


def _are_network_params(params) -> bool:
    """Return whether the arguments of a built-in network are settings, and a number for a class."""
    logits, n_classes = params.get("initial_logits") or (), params.get("n_classes")
    is_logits = len(logits) in (0, n_classes) and all(isinstance(v, float) for v in logits)
    fine, pairs = params.get("fine", ()), params.get("pairs", ())  # columns of `Curves`
    are_columns = list(fine) == sorted({*fine} & {*range(params["in_shape"][0])})
    are_columns &= _is_list(pairs) and len(set(map(tuple, pairs))) == len(pairs) <= MAX_PAIRS
    are_columns &= all(_is_pair(pair, params["in_shape"]) for pair in pairs)
    settings = [v for k, v in params.items() if k not in ("initial_logits", "fine", "pairs")]
    return is_logits and are_columns and all(map(_is_setting, settings))


def _is_pair(pair, in_shape) -> bool:
    """Return whether a pair names two columns that follow each other: first position and width."""
    i, m, j, n = pair
    return all(map(_is_whole, pair)) and m > 0 < n and i + m <= j and j + n <= in_shape[0]


def _is_module(value, estimator) -> bool:
    params = estimator.net_.module.params
    if isinstance(value, Curves):
        names = names_of_features(estimator, estimator._group_positions)
        if names is None:  # of an array: its amounts are a choice of the user's, like any setting
            is_known = value.positions <= {*range(params["in_shape"][0])}
            is_known &= len(value.limits) in (0, len(value.amounts))
            is_known &= all(len(pair) == 2 and math.isfinite(sum(pair)) for pair in value.limits)
        else:
            known = network_for(names)
            is_known = {*value.amounts} <= {*known.amounts} and {*value.columns} <= {*known.columns}
            is_known &= {*value.limits} <= {*known.limits}
        is_chosen = value.pairs in ((), params.get("pairs", ()))
        return is_known and is_chosen and (value.fine is None or value.fine == params["fine"])
    if isinstance(value, (MLP, CNN)):
        settings = value.get_params().items()
        return _is_setting(value) and all(np.array_equal(v, params.get(k, ())) for k, v in settings)
    return value in NETWORKS.values() or _is_setting(value)


def _is_optimizer(value, estimator) -> bool:
    if not isinstance(value, Factory):
        return _is_scalar(value)
    is_known = set(value.params) <= set(signature(optimizer_of(value).make).parameters)
    return is_known and _is_scalar(value.make) and all(map(_is_setting, value.params.values()))


def _are_groups(value, estimator) -> bool:
    if not isinstance(value, Groups):
        return _is_setting(value)
    levels = value.levels is None or (_is_list(value.levels) and _are_levels(value.levels))
    return levels and _is_setting(value.columns) and _is_scalar(value.as_feature)


def _are_class_weights(value, estimator) -> bool:
    known = set(value) <= set(np.asarray(estimator.classes_, object))
    return known and all(isinstance(v, _REAL) for v in value.values())


def _are_classes(value, estimator) -> bool:
    """Return whether values are the classes of the fit, which are as many as the outputs."""
    values, classes = (np.asarray(v, object).tolist() for v in (value, estimator.classes_))
    is_set = _is_list(value) and len(values) == len(set(values))
    return is_set and set(values) == set(classes) and all(map(_is_level, values))


def _are_names(value, estimator) -> bool:
    """Return whether values name the features: short texts, no numbers, each once."""
    names, n_features = list(value), estimator.n_features_in_
    is_set = np.ndim(value) == 1 and len(set(names)) == len(names) == n_features
    return is_set and all(map(is_name, names))


def _is_schema(value, estimator=None) -> bool:
    return TableSchema.from_dict(tomllib.loads(value)).to_toml() == value


def _is_cut(value) -> bool:
    """Return whether a value is one of the logits at which noisy counts allow a threshold."""
    return type(value) is float and (math.isinf(value) or (abs(value) < 8 and 8 * value % 1 == 0))


# of the parameters that are more than a setting, and of all fitted attributes of a release: whether
# an estimator that was loaded may have a value; None passes
PARAMETERS: dict[str, Callable[[Any, Any], bool]] = {
    "method": lambda v, e: is_word(v) or _is_method(v, e),
    "module": _is_module,
    "optimizer": _is_optimizer,
    "group_col": _are_groups,
    "classes": _are_classes,
    "pos_label": lambda v, e: _are_classes([*{*e.classes_.tolist(), v}], e),
    "class_weight": _are_class_weights,
    "y_range": lambda v, e: range_of(v) == e.y_range_,
    "loss": lambda v, e: v in REGRESSION,
    "device": lambda v, e: is_word(str(v)),
}
FITTED: dict[str, Callable[[Any, Any], bool]] = {
    "classes_": _are_classes,
    "y_range_": lambda v, e: v == range_of(v),
    "levels_": lambda v, e: _is_list(v) and _are_levels(v),
    "n_features_in_": _is_whole,
    "feature_names_in_": _are_names,
    "method_": _is_method,
    "privacy_": lambda v, e: (
        is_report(v, e.levels_, e._n_fits)
        and _are_read(v.read_from_rows, e)
        and _are_choices(v.choices, e)
    ),
    "features_": lambda v, e: type(v) is Scattering2D and all(map(_is_setting, vars(v).values())),
    **dict.fromkeys(("lr_", "batch_size_", "n_steps_", "n_iter_", "logit_scale_"), _is_scalar),
    **dict.fromkeys(("signal_to_noise_", "_has_scale", "_charged"), _is_scalar),
    "_n_fits": lambda v, e: _is_whole(v) and v <= _MAX_FITS,
    "_scale": lambda v, e: v in ("bytes", "integers", "floats"),
    "_group_positions": lambda v, e: len(set(v)) == len(v) and all(map(_is_whole, v)),
    "_ledger_fits": lambda v, e: are_ledger_fits(v),
    "_day": lambda v, e: is_day(v),
    "_persons": _is_scalar,
    "_variables": lambda v, e: len(v) <= _MAX_VARIABLES and all(map(is_name, v)),
    "_schema": _is_schema,
    "_cut": lambda v, e: len(e.classes_) == 2 and _is_cut(v),
}


def unlisted(estimator, facts) -> list[str]:
    """Return the names of the facts, of which an estimator was rebuilt, that no release has."""
    tests = {name: PARAMETERS.get(name, _is_setting) for name in facts["parameters"]}
    tests |= {name: FITTED.get(name) for name in facts["fitted"]}
    wrong = [name for name, test in tests.items() if not _is_listed(name, test, estimator)]
    is_own = facts["module"]["name"] is None  # of which only its code tells
    if not is_own and not passes(_are_network_params, estimator.net_.module.params):
        wrong.append("module")
    if not _VERSION.fullmatch(str(facts.get("skdpfair_version"))):
        wrong.append("skdpfair_version")
    if "schema" in facts and not passes(_is_schema, facts["schema"]):
        wrong.append("schema")
    return wrong


def _is_listed(name, test, estimator) -> bool:
    value = getattr(estimator, name, None)
    return test is not None and (value is None or passes(test, value, estimator))


# what only some estimators have
OPTIONAL = {"feature_names_in_", "_charged", "classes_", "logit_scale_", "y_range_"}
OPTIONAL |= {"_persons", "_schema", "_cut", "_scale"}
