"""The privacy statement of a release, read without torch."""

import json
import math
import re

import numpy as np

from skdpfair._utils.validate import flag, integer, number, one_of
from skdpfair.privacy import compute_epsilon
from skdpfair.privacy.accounting import ACCOUNTANTS, check_work, group_epsilons
from skdpfair.privacy.privacy_report import PROTECTS, PrivacyReport
from skdpfair.privacy.releases import all_releases, count_steps, merged
from skdpfair.privacy.renyi import ORDERS, curve_epsilon
from skdpfair.release import _file

# files without the name of a class are of classifiers
CLASSIFIER, REGRESSOR = "DPFairClassifier", "DPFairRegressor"
_DAY, _NAME_OF_FIT = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}"), re.compile("[0-9a-f]{32}")
_STATED = ("epsilon", "delta", "adjacency", "is_private", "seeded")
_ROUNDING = 1e-3  # relative, of the accountants of another version or machine
_TEXTS = {"method", "what", "stop", "proof", "features", "holds", "assumptions", "not_accounted"}
_NUMBERS = "epsilon", "noise_multiplier", "expected_batch_size", "max_grad_norm"
_COUNTS = "n_samples", "max_records", "records_per_person"


def statement(privacy) -> dict:
    """Return the fields of a privacy report in plain JSON types; infinity is the text "inf"."""
    return json.loads(json.dumps(privacy.facts(), default=_file.encode))


def read_statement(path):
    """Return the privacy statement of a release file, and its facts on the file, as plain types."""
    privacy, content = read_report(path)
    facts, weights = content[:2]
    day, fits = origin_of(facts)
    return statement(privacy) | {
        "release": {
            "estimator": facts.get("estimator", CLASSIFIER),
            "n_weights": sum(w.size for w in weights.values()),
            "skdpfair_version": facts.get("skdpfair_version"),
            "format_version": _file.FORMAT_VERSION,
            "sha256": _file.digest(facts, weights),
            "file_sha256": content.sha256,
            "n_bytes": content.n_bytes,
            "trained": day,
            "ledger_fits": fits,
        }
    }


def read_report(path):
    """Return the privacy report of a release file, and its content."""
    content = _file.opened(path)
    facts = content.facts
    try:
        privacy = _file.decode(facts["fitted"]["privacy_"])
        check_statement(facts, privacy)
        origin_of(facts)
    except Exception as error:  # facts may be anything
        raise ValueError(
            f"{path} holds no privacy statement that can be read: {type(error).__name__}: "
            f"{str(error)[:300]}"
        ) from None
    return privacy, content


def origin_of(facts):
    """Return the day of the last fit, and the names of the fits in a ledger, else ValueError."""
    day, fits = (_file.decode(facts["fitted"][name]) for name in ("_day", "_ledger_fits"))
    if not is_day(day):
        raise ValueError("a day of training that is no date")
    if not are_ledger_fits(fits):
        raise ValueError("names of fits that no ledger gives")
    return day, list(fits)


def is_day(value) -> bool:
    """Return whether a value is a day, such as 2026-11-25."""
    return isinstance(value, str) and _DAY.fullmatch(value) is not None


def are_ledger_fits(values) -> bool:
    """Return whether values are names of fits in a ledger, or None for fits that are in none."""
    return type(values) in (list, tuple) and all(
        v is None or _NAME_OF_FIT.fullmatch(v) is not None for v in values
    )


def check_report(report) -> None:
    """Raise a ValueError or TypeError unless a report holds facts of fits, and their cost.

    The cost is that of its releases, or of the curve of its search, by its own accountant.
    """
    if not isinstance(report, PrivacyReport) or type(report.releases) is not tuple:
        raise TypeError(f"a {type(report).__name__} in place of a privacy report")
    all_releases(report.releases)
    values = {name: value for name, value in vars(report).items() if value is not None}
    delta = number("delta", report.delta, low=0, high=1, low_open=True, high_open=True)
    for name in (*_NUMBERS, "max_sample_weight"):
        number(name, values.get(name, 0), low=0)
    number("sample_rate", report.sample_rate, low=0, high=1)
    integer("steps", report.steps, low=0)
    for name in _COUNTS:
        integer(name, values.get(name, 1))
    for name in ("is_private", "seeded"):
        flag(name, values.get(name))
    accountant = one_of("accountant", report.accountant, ACCOUNTANTS)
    one_of("adjacency", report.adjacency, PROTECTS)
    for name in _TEXTS & values.keys():
        "".join(values[name])
    for what, *numbers in report.choices:
        of_choice = what.strip(), *(number("choices", value) for value in numbers)
        _check_same("choices", len(of_choice), 3)
    by_group, entries = report.group_epsilons or {}, report.releases
    for epsilon in by_group.values():
        number("group_epsilons", epsilon, low=0)
    _check_same("is_private", report.is_private, report.epsilon < math.inf)
    bounds = ["max_records" in values, "records_per_person" in values]
    _check_same("protects", [report.protects == "person", False], [bounds[0], all(bounds)])
    if not report.is_private:
        return
    steps = [e for e in entries if not e.is_one_time]
    if report.selection_curve is not None:
        curve = [number("selection_curve", v, low=0) for v in report.selection_curve]
        _check_same("selection_curve", [len(curve), len(entries)], [len(ORDERS), 0])
        _check_same("epsilon", report.epsilon, curve_epsilon(np.array(curve), delta))
        return
    for n_records in {1, report.records_per_person or 1}:
        check_work(merged(entries, n_records), accountant)
    _check_same("steps", report.steps, count_steps(report.releases))
    if steps:
        all_of_rate = report.sample_rate * values.get("n_samples", math.inf) * (1 + _ROUNDING)
        _check_same("expected_batch_size", report.expected_batch_size <= all_of_rate, True)
        _check_same("sample_rate", report.sample_rate, max(e.sample_rate for e in steps))
        noises = [e.noise_multipliers[0] for e in steps]
        _check_same("noise_multiplier", report.noise_multiplier in noises, True)
    of_groups = [max(e.group_rates or (0,)) <= e.sample_rate for e in entries]
    _check_same("rates of groups", all(of_groups), True)
    _check_same("epsilon", report.epsilon, compute_epsilon(entries, delta, accountant))
    epsilons = group_epsilons(entries, len(by_group), delta, accountant)
    _check_same("group_epsilons", list(by_group.values()), epsilons or [])


def _check_same(name, stated, exact):
    if not np.shape(stated) == np.shape(exact) or not np.allclose(stated, exact, _ROUNDING, 0):
        raise ValueError(f"its {name} is {stated!r}, but {exact!r} follows from the rest of it")


def check_statement(facts, privacy) -> None:
    """Raise a ValueError if a statement is not that of its privacy report, or this is none."""
    check_report(privacy)
    stated, expected = facts["privacy_statement"], statement(privacy)
    # texts may be those of another version
    numbers = ({*vars(privacy)} - _TEXTS) & stated.keys() | {*_STATED}
    for name in sorted(numbers):
        if stated.get(name) != expected.get(name):
            raise ValueError(
                f"its statement says {name}={stated.get(name)!r}, its facts {expected[name]!r}"
            )
    _check_same("mu", float(stated.get("mu", expected["mu"])), float(expected["mu"]))
