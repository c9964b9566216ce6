"""Public facts: the values that parameters, fitted attributes, statements and ledgers may have."""

import re
import tomllib
from dataclasses import fields
from inspect import signature
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from skdpfair._validate import ParameterObject
from skdpfair.attacks import PGD
from skdpfair.augmentations import FlipAndShift, Views
from skdpfair.budget.journal import LINES
from skdpfair.engine.losses import REGRESSION
from skdpfair.estimator import DPFairClassifier
from skdpfair.features import Scattering2D
from skdpfair.inputs.groups import Groups, group_names
from skdpfair.inputs.persons import Persons
from skdpfair.inputs.targets import range_of
from skdpfair.mechanism import Method
from skdpfair.networks import CNN, MLP, Factory
from skdpfair.preprocessing import TableSchema
from skdpfair.preprocessing._bounded_scaler import BoundedScaler, bounds_of
from skdpfair.privacy import ACCOUNTANTS, NOT_ACCOUNTED, Ledger, PrivacyReport, Release
from skdpfair.privacy import statement as words
from skdpfair.privacy.renyi import ORDERS
from skdpfair.regressor import DPFairRegressor
from skdpfair.release import _facts, statement
from skdpfair.release._read_statement import are_ledger_fits, is_day
from skdpfair.training.privacy_report import STEPS_BEFORE
from skdpfair.training.spec import optimizer_of

PARAMETERS = DPFairClassifier().get_params(deep=False)
PARAMETERS |= DPFairRegressor().get_params(deep=False)
_FIELDS = {f.name for f in fields(PrivacyReport)}
STATEMENT = {"statement", "releasable", *_FIELDS}
_REAL: Any = Real  # numbers of this type cannot be compared, as mypy sees it
_HELD = {words.DIAGNOSTICS_HELD, words.REFERENCE_HELD}
_ASSUMPTIONS = {t for u in words.PROTECTED for t in words.in_unit(words.ASSUMPTIONS.values(), u)}
_NOT_ACCOUNTED = {*NOT_ACCOUNTED, words.WEIGHTS_FROM_OTHERS, *map(_facts.NOTED.format, _HELD)}
_NOT_ACCOUNTED |= {*words.in_unit(_NOT_ACCOUNTED, "person")}
_PARTS = map(re.escape, re.split(r"{.*?}", words.FROZEN))
_FROZEN = re.compile(r"{}[\d,]{{1,15}}{}[0-9a-f]{{16}}{}".format(*_PARTS))
_PHRASE = re.compile(r"[a-zA-Z_ ,+()-]*(\d{1,10}[a-zA-Z_ ,+()-]+){0,3}\d{0,10}")
_FEATURES = re.compile(
    r"Scattering2D\([\w=, '()]{0,120}\), which learns nothing"
    r"|FrozenFeatures\([\w. -]{1,80}\), sha256 [0-9a-f]{16}, public by declaration"
)
_AMOUNTS = re.compile(r"(?:[0-9.,e+-]{1,12}|inf)?(?:, [0-9.e+-]{1,12}){0,7}")
_NUMBER = re.compile(r"\s*[-+]?\d*\.\d+(e[-+]?\d+)?\s*", re.IGNORECASE)
_MOST_FITS, _MOST_ITEMS = 64, 200  # of a warm start; of a page
_MOST_LEVELS, _MOST_SIZES, _MOST_ENTRIES, _NAME = 1000, 16, 4, 100


def passes(test, *values) -> bool:
    """Tell whether values pass a test; what breaks it does not."""
    try:
        return bool(test(*values))
    except Exception:  # of a hostile value's own making
        return False


def is_whole(value) -> bool:
    """Tell whether a value is one whole number >= 0."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def is_word(value) -> bool:
    """Tell whether a value is a text short enough for a name."""
    return isinstance(value, str) and len(value) <= _NAME


def is_phrase(value) -> bool:
    """Tell whether a value is words, with a few whole numbers among them."""
    return value is None or (len(value) <= 3 * _NAME and bool(_PHRASE.fullmatch(value)))


def are_names(value, n_features) -> bool:
    """Tell whether values may be names of columns: short texts, no numbers, each once."""
    names = list(value)
    short = all(is_word(name) and not _NUMBER.fullmatch(name) for name in names)
    return np.ndim(value) == 1 and short and len(set(names)) == len(names) == n_features


def are_levels(values) -> bool:
    """Tell whether values may be a public set, such as groups: different, no measurements."""
    flat, values = np.ndim(values) < 2 or not isinstance(values, np.ndarray), list(values)
    if not flat or len(values) > _MOST_LEVELS or len(set(map(repr, values))) < len(values):
        return False
    spread = [v for v in values if isinstance(v, _REAL) and v == v]
    if len(spread) > _MOST_SIZES and max(spread) - min(spread) > 4 * len(spread):
        return False  # numbers of records, say
    if any(isinstance(v, (tuple, list)) for v in values):
        columns = list(zip(*values, strict=True))  # intersections, which fill a quarter of a grid
        sizes = [len(set(map(repr, column))) for column in columns]
        crossed = max(sizes) <= max(8, len(values) / 2) and 4 * len(values) >= np.prod(sizes)
        each = all(is_level(v) for column in columns for v in column)
        return 2 <= len(sizes) <= 8 and bool(crossed) and each
    intervals = [v for v in values if isinstance(v, pd.Interval)]
    return all(map(is_level, values)) and len(intervals) <= 4 * _MOST_SIZES


def is_list(value) -> bool:
    """Tell whether a value is a list, a tuple or an array, not a dict that hides its values."""
    return type(value) in (list, tuple, np.ndarray)


def is_level(value):
    """Tell whether a value may be one of a public set."""
    if isinstance(value, str):
        return is_word(value) and not _NUMBER.fullmatch(value)
    if isinstance(value, _REAL):
        return value != value or (value == int(value) and abs(value) < 2**53)
    return isinstance(value, (pd.Interval, pd.Timestamp)) or value in (None, pd.NA, pd.NaT)


def are_thresholds(value) -> bool:
    """Tell whether a value is pairs of a threshold and its probability, a few for each group."""
    pairs = [pair for listed in value.values() for pair in listed]
    rates = all(isinstance(v, _REAL) and 0 <= v <= 1 for pair in pairs for v in pair)
    return are_levels(value) and rates and len(pairs) <= _MOST_ENTRIES * len(value)


def is_method(value) -> bool:
    """Tell whether a value is a method with parameters that it can take."""
    if not isinstance(value, Method):
        return False
    value._validate_params()
    arrays = [v for v in value.get_params(deep=False).values() if np.ndim(v)]
    return all(np.size(v) <= _MOST_LEVELS and np.min(v) >= 0 and np.max(v) <= 1 for v in arrays)


def is_setting(value) -> bool:
    """Tell whether a value is a scalar, or a few sizes or words."""
    if isinstance(value, (list, tuple)):
        few = len(value) <= 2 or not any(isinstance(v, float) for v in value)
        return few and len(value) <= _MOST_SIZES and all(map(is_scalar, value))
    return is_scalar(value)


def is_scalar(value) -> bool:
    """Tell whether a value is None, a number, a word or a class."""
    plain = value is None or isinstance(value, (float, type)) or is_word(value)
    return plain or (isinstance(value, _REAL) and abs(value) < 2**53)


def is_listed(name, value, values, network) -> bool:
    """Tell whether a classifier's parameter or fitted attribute may have a value, beside others."""
    n_outputs, n_features = getattr(network, "n_outputs", None), values.get("n_features_in_")
    if value is None or name == "random_state":  # which is noted as a seed
        return True
    if name == "class_weight":
        known = values.get("classes_", values.get("classes"))
        known = list(value)[:_MOST_SIZES] if known is None else np.asarray(known, object)
        return set(value) <= set(known) and all(isinstance(v, _REAL) for v in value.values())
    if isinstance(value, Factory):
        taken = signature(optimizer_of(value).make).parameters if name == "optimizer" else {}
        known = set(value.params) <= set(taken) and all(map(is_setting, value.params.values()))
        return known and is_listed(name, value.make, values, network)
    if name == "module" and isinstance(value, (MLP, CNN)):
        own = value.get_params()
        known = own if network is None else network.params
        same = all(np.array_equal(v, known.get(k, ())) for k, v in own.items())
        return same and all(map(is_setting, own.values()))
    if name == "module" and type(value) is Scattering2D:
        return all(map(is_setting, value.get_params().values()))
    if isinstance(value, Groups):
        levels = value.levels is None or (is_list(value.levels) and are_levels(value.levels))
        return levels and is_setting(value.columns) and is_scalar(value.as_feature)
    if isinstance(value, (Persons, Views, PGD, FlipAndShift)):
        own = value.get_params(deep=False)
        return all(v is None or is_listed("augment", v, {}, None) for v in own.values())
    if name in ("groups_", "classes", "classes_") and not is_list(value):
        return False
    if name == "groups_":
        return are_levels(value)
    if name in ("classes", "classes_"):
        of_outputs = n_outputs == len(set(value)) == len(value) and all(map(is_level, value))
        return of_outputs or (n_outputs is None and are_levels(value))
    if name == "loss":
        return value in REGRESSION
    if name in ("y_range", "y_range_"):
        is_range = range_of(value) is not None if value is not None else name == "y_range"
        return is_range and n_outputs in (None, 1)
    if name in ("method", "method_"):
        return is_method(value) or (name == "method" and is_word(value))
    if name in ("module", "device"):
        return is_word(str(value))
    if name == "feature_names_in_":
        return are_names(value, n_features)
    if name == "n_features_in_":
        n_hidden = len(values.get("_group_positions") or ())
        features = values.get("features_")
        shape = network.in_shape if features is None else features.in_shape_
        return is_whole(value) and shape[:1] == (value - n_hidden,)
    if name == "features_":
        return type(value) is Scattering2D and all(map(is_setting, vars(value).values()))
    if name == "_group_positions":
        return len(set(value)) == len(value) and set(value) <= set(range(n_features))
    if name == "privacy_":
        return is_report(value, values.get("groups_"), values.get("_n_fits", 1))
    if name == "_schema":
        return TableSchema.from_dict(tomllib.loads(value)).to_toml() == value
    if name == "_day":
        return is_day(value)
    if name == "_variables":
        return len(value) <= 9 and all(is_word(n) and not _NUMBER.fullmatch(n) for n in value)
    if name == "_n_fits":
        return is_whole(value) and value <= _MOST_FITS
    if name == "_ledger_fits":
        return len(value) == values.get("_n_fits", 1) and are_ledger_fits(value)
    if name in ("attack", "augment", "group_col"):
        return is_setting(value)
    return is_scalar(value) and name not in ("callbacks", "validation_data")


def are_bounds(value, n_features, names) -> bool:
    """Tell whether a value is bounds (low, high) of columns, one pair for each or one for all."""
    if n_features is None:  # not fitted: as many columns as there are pairs
        names = list(value) if isinstance(value, dict) else None
        n_features = 1 if names is None and np.ndim(value) == 1 else len(value)
    scaler = BoundedScaler(value)
    facts = {"n_features_in_": n_features, "feature_names_in_": names}
    scaler.__dict__.update({k: v for k, v in facts.items() if v is not None})
    return len(bounds_of(scaler)) == n_features


def is_report(report, groups=None, n_fits=1) -> bool:
    """Tell whether a report, of so many fits with these groups, holds what reports do."""
    numbers = [report.epsilon, report.delta, report.noise_multiplier, report.sample_rate]
    numbers += [
        report.expected_batch_size,
        report.max_grad_norm or 0,
        report.max_sample_weight or 0,
        *(report.selection_curve or ()),
    ]
    whole = [report.steps, report.n_samples or 0, report.records_per_person or 0]
    whole.append(report.max_records_per_unit or 0)
    flags = (report.is_private, report.seeded)
    by_group, entries = report.group_epsilons or {}, report.ledger.entries
    return (
        isinstance(report, PrivacyReport)
        and all(isinstance(v, _REAL) and not v < 0 for v in (*numbers, *by_group.values()))
        and all(map(is_whole, whole))
        and all(isinstance(v, bool) for v in flags)
        and are_levels(by_group)
        and (groups is None or set(group_names(by_group)) <= set(group_names(groups)))
        and all(map(is_phrase, (report.method, report.what, report.stop, report.proof)))
        and are_features(report.features)
        and report.accountant in ACCOUNTANTS
        and report.adjacency in words.ADJACENCY_IN_WORDS
        and set(report.holds) <= _HELD
        and are_assumptions(report.assumptions, n_fits)
        and all(map(is_not_accounted, report.not_accounted))
        and len(entries) <= _MOST_ENTRIES * n_fits
        and all(map(is_entry, entries))
    )


def are_features(text) -> bool:
    """Tell whether a text says what computed public features; None says nothing."""
    return text is None or bool(_FEATURES.fullmatch(text))


def is_value(value) -> bool:
    """Tell whether a method or a report, found by itself, holds what such objects do."""
    if isinstance(value, PrivacyReport):
        return is_report(value, n_fits=_MOST_SIZES)
    if isinstance(value, Method):
        return is_method(value)
    return isinstance(value, (Ledger, Release)) or is_listed("module", value, {}, None)


def is_choice(name) -> bool:
    """Tell whether a text names a parameter, of a step or of its own, that a search varies."""
    return is_word(name) and not PARAMETERS.keys().isdisjoint(name.split("__"))


def is_chosen(value) -> bool:
    """Tell whether a value is a choice of a search: a setting, or an object of settings."""
    return is_value(value) if isinstance(value, ParameterObject) else is_setting(value)


def are_assumptions(texts, n_fits) -> bool:
    """Tell whether texts are assumptions of a report, at most one of each fit on frozen numbers."""
    others = set(texts) - _ASSUMPTIONS
    return is_list(texts) and len(others) <= n_fits and all(map(_FROZEN.fullmatch, others))


def is_not_accounted(text) -> bool:
    """Tell whether a text is one of those that say what epsilon does not cover."""
    start, end = STEPS_BEFORE.split("{}")
    named = text.startswith(start) and text.endswith(end) and len(text) <= 4 * _NAME
    return text in _NOT_ACCOUNTED or named


def is_entry(entry) -> bool:
    """Tell whether an entry of a ledger holds no more than releases do."""
    few = len(entry.noise_multipliers) <= 8 and len(entry.group_rates or ()) <= _MOST_LEVELS
    return few and is_phrase(entry.what)


def is_statement(given) -> bool:
    """Tell whether a dict is the statement of a privacy report, and no more than that."""
    facts = {k: v for k, v in given.items() if k in _FIELDS}
    facts = {k: float(v) if v in ("inf", "nan") else v for k, v in facts.items()}
    facts |= {k: tuple(facts[k]) for k in ("holds", "assumptions", "not_accounted") if k in facts}
    ledger = Ledger([Release(**release) for release in given["ledger"]])
    report = PrivacyReport(**facts | {"ledger": ledger})
    return is_report(report, n_fits=_MOST_SIZES) and statement(report) == given


def is_line(line) -> bool:
    """Tell whether a line of a ledger's file holds what such lines do."""
    rest = {k: v for k, v in line.items() if k not in ("entries", "curve", "reasons", "notes")}
    nested = [rest.pop(key, None) or {} for key in ("place", "budget")]
    entries = [Release(**release) for release in line.get("entries") or ()]
    texts = [text for key in ("reasons", "notes") for text in line.get(key) or ()]
    curve = line.get("curve") or {"orders": None, "rdp": ORDERS}
    return (
        any(set(line) <= keys for keys in LINES)
        and all(map(is_entry, entries))
        and set(curve) == {"orders", "rdp"}
        and len(curve["rdp"]) == len(ORDERS)
        and all(is_scalar(v) for part in (rest, *nested) for v in part.values())
        and all(isinstance(text, str) and len(text) <= 4 * _NAME for text in texts)
    )


def is_model_page(text) -> bool:
    """Tell whether a text is a model page without figures on records, and no more than that."""
    # they need jinja2
    from skdpfair.report import _page_facts as page
    from skdpfair.report._rendering import render

    context = page.context_of(text)
    facts, privacy, pipeline = dict(context["facts"]), context["privacy"], context["findings"]
    features = facts.pop(page.FEATURES, None)
    sets = [v for name in ("classes", "groups") for v in re.split("[,;] ", facts.pop(name, ""))]
    amounts = [v for row in context["ledger"] for v in row[1:]]
    amounts += [context["epsilon"], context["delta"], *context["group_epsilons"].values()]
    amounts += context["of_person"] or []
    lists = [context["ledger"], context["group_epsilons"], privacy.not_accounted]
    return (
        are_features(features)
        and page.are_facts(context["facts"])
        and page.is_spent_before(context["before"])
        and all(map(is_word, [context["title"], context["version"], *facts.values()]))
        and all(map(is_phrase, [*facts, *(row[0] for row in context["ledger"])]))
        and all(_AMOUNTS.fullmatch(v) for v in amounts)
        and all(len(items) <= _MOST_ITEMS for items in lists)
        and len(set(privacy.not_accounted)) == len(privacy.not_accounted)
        and privacy.accountant in {"", *ACCOUNTANTS}
        and are_levels(context["group_epsilons"])
        and len(sets) <= _MOST_LEVELS
        and all(map(is_level, sets))
        and are_assumptions(privacy.assumptions, _MOST_SIZES)
        and all(map(is_not_accounted, privacy.not_accounted))
        and (pipeline is None or not pipeline.notes)
        and page.are_curves(context["learned"])
        and (
            page.is_guarantee(context)
            if privacy.is_private
            else privacy.statement.startswith("This fit is NOT differentially")
        )
        and len(privacy.statement) <= 4 * _NAME
        and render("model.html", context) == text
    )
