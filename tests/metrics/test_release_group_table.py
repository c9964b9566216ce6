import json
import math
import secrets
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from skdpfair._utils.keystream import Keystream
from skdpfair.metrics import release_group_table
from skdpfair.metrics._group_tables import accuracy_interval
from skdpfair.privacy.one_time_noise import discrete_laplace

SEX = ["F", "F", "F", "M", "M", "M"]
PRIVACY = {"statement", "epsilon", "delta", "adjacency", "mechanism", "sensitivity"}
PRIVACY |= {"noise_scale", "assumptions", "not_accounted"}
TRUE, PRED = [1, 0, 1, 0, 1, 0], [1, 0, 0, 0, 1, 1]


def release(**changes):
    arguments = {
        "y_true": TRUE,
        "y_pred": PRED,
        "sensitive_features": SEX,
        "epsilon": 1.0,
        "levels": ["F", "M"],
    }
    return release_group_table(**(arguments | changes))


def test_almost_without_noise_the_counts_are_exact():
    table = release(epsilon=1e3)
    assert table["correct"].to_dict() == {"[F]": 2, "[M]": 2}
    assert table["incorrect"].to_dict() == {"[F]": 1, "[M]": 1}
    assert table["accuracy"].to_numpy() == pytest.approx(2 / 3)
    wilson = stats.binomtest(2, 3).proportion_ci(method="wilson")
    ends = table[["low", "high"]].to_numpy()
    np.testing.assert_allclose(ends, np.tile([wilson.low, wilson.high], (2, 1)), atol=1e-5)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_the_noise_follows_its_law(epsilon):
    """Chance of a false alarm: 1e-4 for each epsilon, and the seed is fixed."""
    n, below = 20_000, Keystream(b"seed").integers
    noise = np.array([discrete_laplace(Fraction(epsilon), below) for _ in range(n)])
    bins = np.arange(-200, 201)
    expected, seen = (
        n * stats.dlaplace(epsilon).pmf(bins),
        np.array([(noise == k).sum() for k in bins]),
    )
    usable = expected > 5
    expected = np.append(expected[usable], n - expected[usable].sum())
    seen = np.append(seen[usable], n - seen[usable].sum())
    chi2 = ((seen - expected) ** 2 / np.maximum(expected, 1)).sum()
    assert stats.chi2.sf(chi2, usable.sum()) > 1e-4


def scripted(numbers):
    """Return a source of integers that gives these, and checks what it is asked for."""

    def below(n):
        assert isinstance(n, int)  # no rounding on the way
        number = next(numbers)
        assert 0 <= number < n
        return number

    return below


@pytest.mark.parametrize("sign", [1, -1])
def test_no_tail_of_the_noise_is_out_of_reach(sign):
    # accept the rest 0; 200 times "go on" with probability 1/e; stop; the sign
    bits = [0, 0] + [0, 0, 1] * 200 + [0, 1] + [sign < 0]
    assert discrete_laplace(Fraction(1), scripted(iter(bits))) == sign * 200


def test_the_noise_has_a_key_of_the_operating_system_and_takes_few_draws(monkeypatch):
    keys, asked, integers = [], [], Keystream.integers
    monkeypatch.setattr(Keystream, "integers", lambda s, n: asked.append(n) or integers(s, n))
    monkeypatch.setattr(secrets, "token_bytes", lambda n: keys.append(n) or bytes([len(keys)] * n))
    one, other = (release(levels=["F", "M", *range(98)]) for _ in range(2))
    assert keys == [32, 32] and not one["correct"].equals(other["correct"])
    assert 400 <= len(asked) < 400 * 40


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.sampled_from("ab")), min_size=2))
def test_one_record_changes_one_count_by_one(rows):
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
def test_intervals_cover_with_the_noise_in_them(truth, epsilon, n):
    runs, rng = 20_000, np.random.default_rng(7)
    p = -math.expm1(-epsilon)
    noise = rng.geometric(p, (2, runs)) - rng.geometric(p, (2, runs))
    deviation, quantile = stats.dlaplace(epsilon).std(), math.log(20) / math.sqrt(2)
    right = rng.binomial(n, truth, runs)
    _, low, high = accuracy_interval(
        right + noise[0], n - right + noise[1], deviation, 0.95, quantile
    )
    assert (low <= high).all()
    assert np.mean((low <= truth) & (truth <= high)) >= 0.94


@settings(deadline=None, max_examples=100)
@given(*[st.floats(-50, 1e4)] * 2, st.floats(0, 30), st.floats(0.5, 0.999))
def test_intervals_hold_the_accuracy_and_stay_in_the_unit_interval(right, wrong, deviation, level):
    counts = np.array([right]), np.array([wrong])
    accuracy, low, high = (x[0] for x in accuracy_interval(*counts, deviation, level))
    assert 0 <= low <= high <= 1
    assert np.isnan(accuracy) if max(right, wrong) <= 0 else low <= accuracy <= high


def test_an_empty_declared_group_is_released_like_any_other():
    tables = [release(levels=["F", "M", "X"], epsilon=0.5) for _ in range(20)]
    noisy = pd.concat([t.loc[["[X]"]] for t in tables])
    assert noisy[["correct", "incorrect"]].to_numpy().any()  # no zero that tells
    undefined = noisy["accuracy"].isna()
    assert (noisy.loc[undefined, ["low", "high"]] == [0, 1]).all(axis=None)
    assert noisy[["low", "high"]].notna().all(axis=None)


def test_the_statement_says_what_was_spent_and_assumed():
    attributes = release().attrs
    privacy = attributes["privacy"]
    assert set(attributes) == {"privacy"} and set(privacy) == PRIVACY
    assert json.loads(json.dumps(privacy)) == privacy
    assert (privacy["epsilon"], privacy["delta"], privacy["adjacency"]) == (1.0, 0.0, "zero_out")
    assert privacy["sensitivity"] == privacy["noise_scale"] == 1.0
    assert "null record" in privacy["statement"]
    assert not any("groups" in a for a in privacy["assumptions"])
    assumed = release(levels=None).attrs["privacy"]["assumptions"]
    assert any("read from the rows" in text and "F, M" in text for text in assumed)


def test_intersections_are_declared_by_tuples():
    both = pd.DataFrame({"sex": SEX, "race": ["w", "b", "w"] * 2})
    groups = [(s, r) for s in "FM" for r in "wb"]
    table = release(sensitive_features=both, levels=groups, epsilon=1e3)
    assert list(table.index) == ["[F, w]", "[F, b]", "[M, w]", "[M, b]"]
    assert table[["correct", "incorrect"]].sum(axis=1).tolist() == [2, 1, 2, 1]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"epsilon": 0.0}, ValueError, "epsilon must be a number >= 1e-06 and <= 1000, got 0.0"),
        ({"epsilon": math.inf}, ValueError, "epsilon must be a number .* got inf"),
        ({"y_pred": [1]}, ValueError, "y_pred must have one entry for each of the 6"),
        ({"levels": ["F"]}, ValueError, "sensitive_features has values outside levels=.*Declare"),
    ],
)
def test_bad_input_is_named(change, error, message):
    with pytest.raises(error, match=message):
        release(**change)
