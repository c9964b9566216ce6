"""Facts of one fit are those of its report, rounded up, with the names of its variables."""

import re
from copy import copy
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pytest

from skdpfair.privacy.privacy_report import SEVERAL_RECORDS, rounded_up
from skdpfair.report._model_facts import attacker_chart, model_facts


def changed(clf, **changes):
    """Return facts of a classifier whose report has other fields."""
    other = copy(clf)
    other.privacy_ = replace(clf.privacy_, **changes)
    return model_facts(other.privacy_, other)


def test_facts_round_bounds_up(fitted):
    privacy = fitted[0].privacy_
    facts = model_facts(privacy)
    for name in ("epsilon", "delta", "mu", "mu_from"):
        exact = getattr(privacy, name)
        assert exact <= float(facts[name]) <= 1.03 * exact, name
    report = replace(privacy, epsilon=1.23401, delta=1.0001e-5)
    assert [model_facts(report)[name] for name in ("epsilon", "delta")] == ["1.235", "1.01e-05"]
    names = ("version", "day", "all_fits")
    assert [facts[name] for name in names] == [None, None, None]
    facts, today = model_facts(privacy, fitted[0]), datetime.now(UTC).date()
    assert date.fromisoformat(facts["day"]) in (today, today - timedelta(1))


def test_facts_without_privacy_hold_no_bound(fitted):
    facts = changed(fitted[0], epsilon=np.inf, is_private=False, releases=())
    names = ("mu", "mu_from", "epsilon", "releases")
    assert [facts[name] for name in names] == [None, None, "inf", []]


def test_ledger_of_facts_lists_the_releases(fitted):
    clf = fitted[0]
    rows = model_facts(clf.privacy_, clf)["releases"]
    assert [(what, steps, noise) for what, steps, _, noise in rows] == [
        (e.what, f"{e.steps:,}", f"{e.noise_multipliers[0]:.4g}") for e in clf.privacy_.releases
    ]
    sums = replace(clf.privacy_.releases[0], what="gradient sum + above_z")
    (row,) = changed(clf, releases=(sums,))["releases"]
    assert row[0].startswith("gradient sum + count of ")


def test_facts_of_records_state_what_a_person_is_guaranteed(fitted):
    clf = fitted[0]
    facts, plain = changed(clf, records_per_person=12), changed(clf)
    assert facts["of_person"] == (rounded_up(clf.privacy_.epsilon_for(12)), "12")
    assert SEVERAL_RECORDS not in facts["privacy"].not_accounted
    assert not plain["of_person"] and SEVERAL_RECORDS in plain["privacy"].not_accounted


def test_facts_of_groups_and_searches(fitted):
    clf = fitted[0]
    facts = changed(clf, group_epsilons={1: 0.12341, "1": 1.7})
    assert facts["group_epsilons"] == {"1": "0.1235", "'1'": "1.7"}
    chosen = changed(clf, method="private selection", releases=())
    numbers = f"{clf.privacy_.steps:,} steps"
    assert numbers in chosen["selection"] and facts["selection"] is None
    assert chosen["method"].startswith("dpsgd, ") and facts["method"] == "dpsgd"


def test_attacker_chart_is_the_exact_curve_rounded_up(fitted):
    privacy = fitted[0].privacy_
    marks = attacker_chart(privacy)["series"][0]["marks"]
    found = [re.findall(r"[\d.]+(?= %)", text) for _, _, text, *_ in marks]
    rates, shown = np.array(found, dtype=float).T / 100
    exact = 1 - privacy.false_negative_rate(rates)
    assert np.all(shown >= exact - 1e-12)
    assert shown == pytest.approx(exact, rel=1e-2, abs=1e-9)
