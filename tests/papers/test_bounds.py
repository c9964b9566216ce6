"""Bounds on gaps: their formulas in float64, and gaps that they must exceed."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm
from sklearn.calibration import calibration_curve

from benchmarks.papers.bounds import (
    calibration_bound,
    calibration_gap,
    dg_bound_from_epsilon,
    strong_dg_bound,
)
from skdpfair.metrics import dg_gap
from skdpfair.privacy import NoisyRelease


@pytest.mark.parametrize(
    ("sigma", "n_samples", "delta"),
    [(200.0, 10**8, None), (200.0, 10**4, math.sqrt(2 / 10**4)), (2.0, 10**4, None), (99.0, 1, 1)],
)
def test_lemma_c3_proposition_c2_and_theorem_c8(sigma, n_samples, delta):
    plan = [NoisyRelease("steps", 1.0, (sigma,), 4)]  # of full batches, with replace-one neighbours
    delta = 2 * norm.cdf(math.sqrt(4) / sigma) - 1 if delta is None else delta
    assert n_samples >= 2 / delta**2 or delta == 1  # the lemma's condition, or an empty bound
    mean = strong_dg_bound(plan, n_samples=n_samples)
    assert mean == pytest.approx(min(1, 4 * delta), rel=0.01)
    for p in (0.9, 0.05):
        single = strong_dg_bound(plan, n_samples=n_samples, failure_probability=p)
        assert single == pytest.approx(min(1, 4 * delta / p), rel=0.01)
    for n_bins in (1, 10):
        bound = calibration_bound(plan, n_samples=n_samples, n_bins=n_bins)
        assert bound == pytest.approx(min(1, 4 * delta * (n_bins + 1)), rel=0.01)


@pytest.mark.parametrize("n", [10, 100, 1000])
def test_a_model_without_data_still_has_a_gap(n):
    """The mean of n fair coins is off by what the lemma's condition on n accounts for."""
    heads = np.arange(n + 1)
    gap, chance = np.abs(heads / n - 0.5), binom.pmf(heads, n, 0.5)
    assert gap @ chance <= strong_dg_bound([], n_samples=n)
    single = strong_dg_bound([], n_samples=n, failure_probability=0.5)
    assert chance[gap > single].sum() < 0.5


@settings(deadline=None)
@given(st.floats(0, 30), st.floats(0, 1))
def test_the_bounds_of_figure_2(epsilon, delta):
    tight = dg_bound_from_epsilon(epsilon, delta)
    additive = dg_bound_from_epsilon(epsilon, delta, bound="additive")
    assert tight == pytest.approx(1 - 2 * (1 - delta) / (1 + math.exp(epsilon)), abs=1e-12)
    assert additive == pytest.approx(math.exp(epsilon) - 1 + delta, rel=1e-12, abs=1e-12)
    information = dg_bound_from_epsilon(epsilon, bound="mutual_information")
    # the root of 2 / n times n epsilon^2 / 2, at any n
    assert information == pytest.approx(math.sqrt(2 / 500 * (500 / 2 * epsilon**2)))
    assert dg_bound_from_epsilon(epsilon) <= information * (1 + 1e-12)
    assert tight <= additive * (1 + 1e-12)


def test_what_the_theorems_do_not_cover_is_refused():
    assert dg_bound_from_epsilon(1e4, bound="additive") == math.inf
    with pytest.raises(ValueError, match=r"delta must be 0 with bound='mutual_information'"):
        dg_bound_from_epsilon(1.0, 1e-6, bound="mutual_information")
    with pytest.raises(ValueError, match="epsilon must be a number >= 0"):
        dg_bound_from_epsilon(-1.0, bound="additive")


def by_definition(y_true, y_prob, m):
    """Definition C.7, bin by bin, on probabilities that lie in no bin's ends."""
    total = 0.0
    for p in np.arange(m + 1) / m:
        total += abs(np.mean(((p < y_prob) & (y_prob < p + 1 / m)) * (y_true - p)))
    return total


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 1), st.floats(0, 1)), min_size=1), st.integers(1, 20))
def test_the_calibration_gap_is_its_definition(rows, m):
    y_true, y_prob = map(np.array, zip(*rows, strict=True))
    value = calibration_gap(y_true, y_prob, n_bins=m)
    assert 0 <= value <= 1 + 1e-12
    if not np.isclose(y_prob * m, np.round(y_prob * m)).any():
        assert value == pytest.approx(by_definition(y_true, y_prob, m))


def test_the_lower_end_belongs_to_its_bin_and_one_has_a_bin_of_its_own():
    ends = np.arange(11) / 10
    assert calibration_gap(np.ones(11), ends) == pytest.approx(np.mean(1 - ends))
    assert calibration_gap([0, 1], [1.0, 1.0]) == 0.5
    assert calibration_gap([0, 1], [0.3, 0.3]) == pytest.approx(0.2)
    train, test = (calibration_gap(y, [0.75, 1.0], n_bins=2) for y in ([0, 1], [0, 0]))
    assert (train, test) == (0.25, 0.75)
    given = {"is_train": [True, True, False, False], "metric": calibration_gap}
    assert dg_gap([0, 1, 0, 1], [0.25, 0.8] * 2, **given) == 0


def test_narrow_bins_give_the_expected_calibration_error():
    rng = np.random.default_rng(0)
    y_prob = rng.choice([0.125, 0.375, 0.75], 3000)
    y_true = (rng.random(3000) < y_prob**2).astype(int)
    share, mean = calibration_curve(y_true, y_prob, n_bins=8)
    sizes = pd.Series(y_prob).value_counts(normalize=True).sort_index().to_numpy()
    assert calibration_gap(y_true, y_prob, n_bins=8) == pytest.approx(sizes @ np.abs(share - mean))
