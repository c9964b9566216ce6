"""Bounds on gaps: their formulas in float64, and gaps that they must exceed."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from skdpfair.metrics import (
    calibration_bound,
    calibration_gap,
    dg_bound,
    dg_bound_from_epsilon,
    strong_dg_bound,
    tv_bound,
)
from skdpfair.privacy import Ledger, PrivacyReport, Release

ADULT = Release("steps", 1 / 92, (1.0,), 1840)


def report(**changes):
    ledger = Ledger()
    ledger.record(Release("gradient", 1 / 92, (1.0,), 1840))
    values = {
        "method": "dpsgd",
        "epsilon": 3.104,
        "delta": 1e-6,
        "accountant": "pld",
        "noise_multiplier": 1.0,
        "sample_rate": 1 / 92,
        "steps": 1840,
        "expected_batch_size": 256.0,
        "is_private": True,
        "seeded": False,
        "ledger": ledger,
    }
    return PrivacyReport(**(values | changes))


@pytest.mark.parametrize("privacy", [report(), report().ledger, ADULT])
def test_bounds_of_a_report_a_ledger_and_a_plan(privacy):
    assert tv_bound(privacy) == pytest.approx(0.235, abs=5e-4)
    assert tv_bound(privacy, adjacency=report().adjacency) == tv_bound(privacy)
    assert tv_bound(privacy, adjacency="replace_one") == pytest.approx(0.381, abs=5e-4)
    assert dg_bound(privacy) == tv_bound(privacy, adjacency="replace_one")
    assert dg_bound(privacy, adjacency="add_remove") == 2 * tv_bound(privacy)


def test_bounds_without_privacy_and_without_releases():
    assert tv_bound(report(is_private=False, epsilon=math.inf)) == 1
    assert dg_bound(report(is_private=False, epsilon=math.inf), adjacency="add_remove") == 1
    assert tv_bound(report(steps=0, epsilon=0.0, ledger=Ledger())) == 0
    with pytest.raises(ValueError, match="an empty one, as a fit without privacy also has"):
        tv_bound(Ledger())


def test_bounds_name_bad_input():
    with pytest.raises(TypeError, match=r"privacy must be a PrivacyReport.*got float.*privacy_"):
        tv_bound(3.0)
    with pytest.raises(ValueError, match=r"privacy.ledger must hold all of the 1840 steps"):
        tv_bound(report(ledger=Ledger()))
    with pytest.raises(ValueError, match="adjacency must be one of"):
        dg_bound(ADULT, adjacency="add")


def full_batches(sigma, steps):
    """Return a plan, and the total variation of its replace-one neighbours in closed form."""
    plan = Release("steps", 1.0, (sigma,), steps)
    return plan, 2 * norm.cdf(math.sqrt(steps) / sigma) - 1


@pytest.mark.parametrize(
    ("sigma", "n_samples", "delta"),
    [(200.0, 10**8, None), (200.0, 10**4, math.sqrt(2 / 10**4)), (2.0, 10**4, None), (99.0, 1, 1)],
)
def test_lemma_c3_proposition_c2_and_theorem_c8(sigma, n_samples, delta):
    plan, tv = full_batches(sigma, 4)
    delta = tv if delta is None else delta
    assert n_samples >= 2 / delta**2 or delta == 1  # the lemma's condition, or an empty bound
    mean = strong_dg_bound(plan, n_samples=n_samples)
    assert mean == pytest.approx(min(1, 4 * delta), rel=0.01)
    for p in (0.9, 0.05):
        single = strong_dg_bound(plan, n_samples=n_samples, failure_probability=p)
        assert single == pytest.approx(min(1, 4 * delta / p), rel=0.01)
    for n_bins in (1, 10):
        bound = calibration_bound(plan, n_samples=n_samples, tau=1 / n_bins)
        assert bound == pytest.approx(min(1, 4 * delta * (n_bins + 1)), rel=0.01)
    twice = strong_dg_bound(plan, n_samples=n_samples, adjacency="add_remove")
    assert twice == min(1, 4 * max(dg_bound(plan, adjacency="add_remove"), (2 / n_samples) ** 0.5))


@pytest.mark.parametrize("n", [10, 100, 1000])
def test_a_model_without_data_still_has_a_gap(n):
    """The mean of n fair coins is off by what the lemma's condition on n accounts for."""
    nothing = report(steps=0, epsilon=0.0, ledger=Ledger())
    heads = np.arange(n + 1)
    gap, chance = np.abs(heads / n - 0.5), binom.pmf(heads, n, 0.5)
    assert dg_bound(nothing) == 0
    assert gap @ chance <= strong_dg_bound(nothing, n_samples=n)
    single = strong_dg_bound(nothing, n_samples=n, failure_probability=0.5)
    assert chance[gap > single].sum() < 0.5
    assert strong_dg_bound(report(is_private=False, epsilon=math.inf), n_samples=n) == 1


def test_the_calibration_gap_is_a_sum_of_one_test_function_more_than_bins():
    """Each of probabilities in the last bin and of exactly 1 adds its own distance."""
    train, test = (calibration_gap(y, [0.75, 1.0], tau=0.5) for y in ([0, 1], [0, 0]))
    assert (train, test) == (0.25, 0.75)


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
    with pytest.raises(ValueError, match="bound must be one of"):
        dg_bound_from_epsilon(1.0, bound="old")
    with pytest.raises(ValueError, match="epsilon must be a number >= 0"):
        dg_bound_from_epsilon(-1.0, bound="additive")
    for n_samples, error in ((0, ValueError), (2.5, TypeError)):
        with pytest.raises(error, match="n_samples must be an integer >= 1"):
            strong_dg_bound(ADULT, n_samples=n_samples)
    for p in (0, 1, 1.5):
        with pytest.raises(ValueError, match="failure_probability must be a number > 0 and < 1"):
            strong_dg_bound(ADULT, n_samples=9, failure_probability=p)
    with pytest.raises(ValueError, match=r"tau must divide 1, got 0.3. Use tau=1/3"):
        calibration_bound(ADULT, n_samples=9, tau=0.3)
    with pytest.raises(TypeError, match="privacy must be a PrivacyReport"):
        calibration_bound(0.1, n_samples=9)
