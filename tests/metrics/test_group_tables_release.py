"""Private counts by group: their noise, sensitivity, intervals and statement."""

import json
import math
import secrets

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from skdpfair._utils.keystream import Keystream
from skdpfair.metrics import release_group_table
from skdpfair.metrics._group_tables import accuracy_interval

SEX = ["F", "F", "F", "M", "M", "M"]
PRIVACY = {"statement", "epsilon", "delta", "adjacency", "mechanism", "sensitivity"}
PRIVACY |= {"noise_scale", "assumptions", "not_accounted"}
TRUE, PRED = [1, 0, 1, 0, 1, 0], [1, 0, 0, 0, 1, 1]


def release(**changes):
    given = {"sensitive_features": SEX, "epsilon": 1.0, "levels": ["F", "M"]} | changes
    return release_group_table(**{"y_true": TRUE, "y_pred": PRED} | given)


def test_release_group_table_almost_without_noise_is_exact():
    table = release(epsilon=1e3)
    assert table[["correct", "incorrect"]].to_numpy().tolist() == [[2, 1], [2, 1]]
    wilson = stats.binomtest(2, 3).proportion_ci(method="wilson")
    ends = table[["accuracy", "low", "high"]].to_numpy()
    np.testing.assert_allclose(ends, np.tile([2 / 3, wilson.low, wilson.high], (2, 1)), atol=1e-5)


def test_release_group_table_draws_from_a_key_of_the_operating_system(monkeypatch):
    keys, asked, integers = [], [], Keystream.integers
    monkeypatch.setattr(Keystream, "integers", lambda s, n: asked.append(n) or integers(s, n))
    monkeypatch.setattr(secrets, "token_bytes", lambda n: keys.append(n) or bytes([len(keys)] * n))
    one, other = (release(levels=["F", "M", *range(98)]) for _ in range(2))
    assert keys == [32, 32] and not one["correct"].equals(other["correct"])
    assert 400 <= len(asked) < 400 * 40


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.sampled_from("ab")), min_size=2))
def test_release_group_table_changes_one_count_by_one_for_a_record(rows):
    y_true, y_pred, groups = map(list, zip(*rows, strict=True))
    extra = {"epsilon": 1e3, "levels": ["a", "b"]}
    tables = [
        release_group_table(y_true[i:], y_pred[i:], sensitive_features=groups[i:], **extra)
        for i in (0, 1)
    ]
    with_it, without = (t[["correct", "incorrect"]].to_numpy() for t in tables)
    assert np.abs(with_it - without).sum() == 1


@pytest.mark.parametrize("n", [30, 300, 10_000])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("truth", [0.5, 0.85, 0.98])
def test_accuracy_interval_covers_with_the_noise(truth, epsilon, n):
    runs, rng, p = 20_000, np.random.default_rng(7), -math.expm1(-epsilon)
    noise = rng.geometric(p, (2, runs)) - rng.geometric(p, (2, runs))
    right = rng.binomial(n, truth, runs)
    counts, quantile = (right + noise[0], n - right + noise[1]), math.log(20) / math.sqrt(2)
    _, low, high = accuracy_interval(*counts, stats.dlaplace(epsilon).std(), 0.95, quantile)
    assert (low <= high).all()
    assert np.mean((low <= truth) & (truth <= high)) >= 0.94


@settings(deadline=None, max_examples=100)
@given(*[st.floats(-50, 1e4)] * 2, st.floats(0, 30), st.floats(0.5, 0.999))
def test_accuracy_interval_holds_the_accuracy(right, wrong, deviation, level):
    counts = np.array([right]), np.array([wrong])
    accuracy, low, high = (x[0] for x in accuracy_interval(*counts, deviation, level))
    assert 0 <= low <= high <= 1
    assert np.isnan(accuracy) if max(right, wrong) <= 0 else low <= accuracy <= high


def test_release_group_table_of_an_empty_group_has_noise():
    tables = [release(levels=["F", "M", "X"], epsilon=0.5) for _ in range(20)]
    noisy = pd.concat([t.loc[["[X]"]] for t in tables])
    assert noisy[["correct", "incorrect"]].to_numpy().any()  # no zero that tells
    undefined = noisy["accuracy"].isna()
    assert (noisy.loc[undefined, ["low", "high"]] == [0, 1]).all(axis=None)
    assert noisy[["low", "high"]].notna().all(axis=None)


def test_release_group_table_states_what_it_spends_and_assumes():
    attributes = release().attrs
    privacy = attributes["privacy"]
    assert set(attributes) == {"privacy"} and set(privacy) == PRIVACY
    assert json.loads(json.dumps(privacy)) == privacy
    facts = {"epsilon": 1.0, "delta": 0.0, "adjacency": "zero_out"}
    assert privacy | facts | {"sensitivity": 1.0, "noise_scale": 1.0} == privacy
    assert "null record" in privacy["statement"]
    assert not any("groups" in a for a in privacy["assumptions"])
    assumed = release(levels=None).attrs["privacy"]["assumptions"]
    assert any("read from the rows" in text and "F, M" in text for text in assumed)


def test_release_group_table_of_intersections():
    both = pd.DataFrame({"sex": SEX, "race": ["w", "b", "w"] * 2})
    groups = [(s, r) for s in "FM" for r in "wb"]
    table = release(sensitive_features=both, levels=groups, epsilon=1e3)
    assert list(table.index) == ["[F, w]", "[F, b]", "[M, w]", "[M, b]"]
    assert table[["correct", "incorrect"]].sum(axis=1).tolist() == [2, 1, 2, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0.0}, "^epsilon .*1e-06 .*1000, got 0.0"),
        ({"epsilon": math.inf}, "^epsilon .*got inf"),
        ({"y_pred": [1]}, "^y_pred .*6"),
        ({"levels": ["F"]}, "^sensitive_features .*levels=.*Declare"),
    ],
)
def test_release_group_table_refuses_arguments_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        release(**change)
