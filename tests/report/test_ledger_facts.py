"""Facts of a ledger beside one model: its total, whether it holds the model, and no names."""

from dataclasses import replace

import numpy as np
import pytest

from skdpfair import DPFairClassifier
from skdpfair._utils.cards import typeset
from skdpfair.budget import PrivacyLedger
from skdpfair.budget.spending import SCORES, UNKNOWN
from skdpfair.datasets import make_two_groups
from skdpfair.model_selection import DPRandomizedSearch, DPThresholdClassifier
from skdpfair.privacy.privacy_report import rounded_up
from skdpfair.report import export_statement, model_card, model_page
from skdpfair.report._ledger_facts import (
    _DELTAS,
    _NO_ALARM,
    _OTHER_DATA,
    _OTHER_REASON,
    _TRUST,
    ledger_facts,
)

NOTES = {_DELTAS, _NO_ALARM, _OTHER_DATA, _TRUST}


@pytest.fixture(scope="module")
def data():
    return make_two_groups(3000, random_state=0)


def small(**params):
    settings = {"epsilon": 1.0, "module": "logistic", "max_steps": 2}
    return DPFairClassifier("dpsgd", **settings | params)


@pytest.fixture
def ledger(tmp_path):
    return PrivacyLedger(tmp_path / "ledger.jsonl", epsilon=9.0, delta=1e-6, data="b")


def facts_of(ledger, clf):
    """Return what a ledger holds of a model, the number of all fits, and notes without numbers."""
    facts = ledger_facts(ledger, clf.privacy_, clf._ledger_fits)
    return facts["holds_this_model"], facts["n_fits"], NOTES & {*facts["sentences"]}


def test_ledger_facts_state_the_total_and_the_model(ledger, data):
    clf = ledger.fit(small(epsilon=2.0), data.data, data.target)
    assert facts_of(ledger, clf) == ("all", 1, {_DELTAS, _NO_ALARM})
    facts = ledger_facts(ledger, clf.privacy_, clf._ledger_fits)
    assert facts["epsilon"] == ledger.report().epsilon > clf.privacy_.epsilon
    assert (facts["budget"], facts["epsilon_total"]) == (9.0, "inf")
    text = " ".join(facts["sentences"])
    assert f" {rounded_up(facts['epsilon'])} of a budget of 9 at δ = 1e-06." in text
    assert UNKNOWN[1:] in text
    other = small().fit(data.data, data.target)
    cost = f"ε = {rounded_up(other.privacy_.epsilon)} at δ = 1e-05."
    for fits, holds in (([None], "none"), (None, "unknown")):  # as in files of before
        facts = ledger_facts(ledger, other.privacy_, fits)
        assert facts["holds_this_model"] == holds
        assert sum(cost in text for text in facts["sentences"]) == 1  # it comes in addition
    assert cost not in text and ledger_facts(None, other.privacy_, None) is None
    with pytest.raises(TypeError, match=r"^ledger .*'ledger\.jsonl'"):
        ledger_facts("ledger.jsonl", clf.privacy_, None)


def test_fits_without_privacy_make_the_total_infinite(tmp_path, data):
    ledger = PrivacyLedger(tmp_path / "ledger.jsonl", delta=1e-6)
    clf = ledger.fit(small(), data.data, data.target)
    ledger.fit(small(epsilon=None).set_params(method="sgd"), data.data, data.target)
    assert facts_of(ledger, clf) == ("all", 2, {_DELTAS, _NO_ALARM})
    facts = ledger_facts(ledger, clf.privacy_, clf._ledger_fits)
    assert facts["epsilon_total"] == "inf"
    for write in (model_page, model_card, lambda *a, **k: export_statement(*a, "nist", **k)):
        text = write(clf, ledger=ledger)
        for sentence in facts["sentences"]:
            assert sentence in text or typeset(sentence) in text


def test_ledger_holds_some_fits_of_a_model_that_was_trained_twice(ledger, data, tmp_path):
    clf = small(warm_start=True)
    ledger.fit(clf, data.data, data.target)
    elsewhere = PrivacyLedger(tmp_path / "ledger.jsonl", data="a")
    assert facts_of(elsewhere, clf) == ("none", 0, {_DELTAS, _OTHER_DATA})
    with pytest.warns(match="not counted"):
        clf.fit(data.data, data.target)
    assert facts_of(ledger, clf)[:2] == ("some", 1)


def test_ledger_holds_searches_and_thresholds(tmp_path, data):
    clf = small(accountant="rdp", classes=[0, 1], epsilon=3.0)
    search = DPRandomizedSearch(clf, {"lr": [0.1]}, mean_trials=2.0, trials="geometric")
    for i, model in enumerate([search, DPThresholdClassifier(clf)]):
        ledger = PrivacyLedger(tmp_path / f"{i}.jsonl", delta=1e-6)
        with ledger:
            model.fit(data.data, data.target)
        inner = getattr(model, "best_estimator_", getattr(model, "estimator_", None))
        assert facts_of(ledger, inner)[:2] == ("all", 1)


def test_reasons_of_a_ledger_are_stated_without_names(ledger, data, monkeypatch):
    clf = ledger.fit(small(), data.data, data.target)
    reasons = SCORES, "<b>\nand Bob", "Alice's own"
    spent = replace(ledger.report(), epsilon_total=np.inf, reasons=reasons, notes=("Alice",))
    monkeypatch.setattr(PrivacyLedger, "report", lambda *_: spent)
    sentences = ledger_facts(ledger, clf.privacy_, clf._ledger_fits)["sentences"]
    text = " ".join(sentences)
    assert "Alice" not in text and "Bob" not in text
    assert SCORES[1:] in text and text.count(_OTHER_REASON[1:]) == 1 and _TRUST in sentences
