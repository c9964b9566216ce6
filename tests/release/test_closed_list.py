"""The closed list names each fact that a release may not hold, by its name or by its values."""

import json

import numpy as np
import pytest

from skdpfair.release._closed_list import are_texts_of_levels, unlisted
from skdpfair.release._facts import facts_of, rebuilt

PLANTED = {  # of a fit: where, and values that may be records
    "classes_": np.array(["Ada Lovelace", "0.125"]),
    "levels_": np.linspace(0, 1, 9),
    "feature_names_in_": np.array([f"0.12{i}" for i in range(7)], dtype=object),
    "_variables": ("target", "0.125"),
    "_n_fits": 65,
    "_cut": 0.1,
    "notes": "Ada",
}


@pytest.fixture
def facts(table, fitted):
    facts, weights = facts_of(fitted(table))
    return json.loads(json.dumps(facts | {"skdpfair_version": "0.1"})), weights


def test_unlisted_is_empty_for_a_fit(facts):
    from skdpfair import DPFairClassifier

    assert unlisted(rebuilt(DPFairClassifier, *facts), facts[0]) == []


@pytest.mark.parametrize("name", PLANTED)
def test_unlisted_names_facts_that_may_be_records(name, facts):
    from skdpfair import DPFairClassifier

    estimator = rebuilt(DPFairClassifier, *facts)
    setattr(estimator, name, PLANTED[name])
    facts[0]["fitted"].setdefault(name, None)
    assert name in unlisted(estimator, facts[0])


@pytest.mark.parametrize(
    ("texts", "are_levels"),
    [(["F", "", "1.0", "[18, 65)"], True), (["0.125"], False), (["x" * 101], False)],
)
def test_are_texts_of_levels_refuses_decimals_and_long_texts(texts, are_levels):
    assert are_texts_of_levels(texts) == are_levels
