"""Bounds on gaps: their formulas in float64, and gaps that they must exceed."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm
from sklearn.calibration import calibration_curve

from benchmarks.papers.bounds import (
    calibration_bound,
    calibration_gap,
    dg_bound_from_epsilon,
    pair_bounds,
    strong_dg_bound,
)
from skdpfair.analysis._step_risk import step_terms
from skdpfair.metrics import dg_gap
from skdpfair.privacy import NoisyRelease
from tests.analysis.problems import case, mechanism, risk_of


@pytest.mark.parametrize(
    ("sigma", "n_samples", "delta"),
    [(200.0, 10**8, None), (200.0, 10**4, math.sqrt(2 / 10**4)), (2.0, 10**4, None), (99.0, 1, 1)],
)
def test_strong_dg_bound_and_calibration_bound_of_full_batches(sigma, n_samples, delta):
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
def test_strong_dg_bound_of_a_model_without_data(n):
    """The mean of n fair coins is off by what the lemma's condition on n accounts for."""
    heads = np.arange(n + 1)
    gap, chance = np.abs(heads / n - 0.5), binom.pmf(heads, n, 0.5)
    assert gap @ chance <= strong_dg_bound([], n_samples=n)
    single = strong_dg_bound([], n_samples=n, failure_probability=0.5)
    assert chance[gap > single].sum() < 0.5


@settings(deadline=None)
@given(st.floats(0, 30), st.floats(0, 1))
def test_dg_bound_from_epsilon_has_the_bounds_of_figure_2(epsilon, delta):
    tight = dg_bound_from_epsilon(epsilon, delta)
    additive = dg_bound_from_epsilon(epsilon, delta, bound="additive")
    assert tight == pytest.approx(1 - 2 * (1 - delta) / (1 + math.exp(epsilon)), abs=1e-12)
    assert additive == pytest.approx(math.exp(epsilon) - 1 + delta, rel=1e-12, abs=1e-12)
    information = dg_bound_from_epsilon(epsilon, bound="mutual_information")
    # the root of 2 / n times n epsilon^2 / 2, at any n
    assert information == pytest.approx(math.sqrt(2 / 500 * (500 / 2 * epsilon**2)))
    assert dg_bound_from_epsilon(epsilon) <= information * (1 + 1e-12)
    assert tight <= additive * (1 + 1e-12)


def test_dg_bound_from_epsilon_refuses_what_no_theorem_covers():
    assert dg_bound_from_epsilon(1e4, bound="additive") == math.inf
    with pytest.raises(ValueError, match=r"^delta must be 0 .*'mutual_information'"):
        dg_bound_from_epsilon(1.0, 1e-6, bound="mutual_information")
    with pytest.raises(ValueError, match=r"^epsilon .*>= 0"):
        dg_bound_from_epsilon(-1.0, bound="additive")


def by_definition(y_true, y_prob, m):
    """Definition C.7, bin by bin, on probabilities that lie in no bin's ends."""
    total = 0.0
    for p in np.arange(m + 1) / m:
        total += abs(np.mean(((p < y_prob) & (y_prob < p + 1 / m)) * (y_true - p)))
    return total


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 1), st.floats(0, 1)), min_size=1), st.integers(1, 20))
def test_calibration_gap_is_its_definition(rows, m):
    y_true, y_prob = map(np.array, zip(*rows, strict=True))
    value = calibration_gap(y_true, y_prob, n_bins=m)
    assert 0 <= value <= 1 + 1e-12
    if not np.isclose(y_prob * m, np.round(y_prob * m)).any():
        assert value == pytest.approx(by_definition(y_true, y_prob, m))


def test_calibration_gap_at_the_ends_of_bins():
    ends = np.arange(11) / 10
    assert calibration_gap(np.ones(11), ends) == pytest.approx(np.mean(1 - ends))
    assert calibration_gap([0, 1], [1.0, 1.0]) == 0.5
    assert calibration_gap([0, 1], [0.3, 0.3]) == pytest.approx(0.2)
    train, test = (calibration_gap(y, [0.75, 1.0], n_bins=2) for y in ([0, 1], [0, 0]))
    assert (train, test) == (0.25, 0.75)
    given = {"is_train": [True, True, False, False], "metric": calibration_gap}
    assert dg_gap([0, 1, 0, 1], [0.25, 0.8] * 2, **given) == 0


def test_calibration_gap_of_narrow_bins_is_the_expected_calibration_error():
    rng = np.random.default_rng(0)
    y_prob = rng.choice([0.125, 0.375, 0.75], 3000)
    y_true = (rng.random(3000) < y_prob**2).astype(int)
    share, mean = calibration_curve(y_true, y_prob, n_bins=8)
    sizes = pd.Series(y_prob).value_counts(normalize=True).sort_index().to_numpy()
    assert calibration_gap(y_true, y_prob, n_bins=8) == pytest.approx(sizes @ np.abs(share - mean))


def made_risk(lengths, sizes, largest, plain, clipped, sensitivity, rows, lr):
    """Return the parts of a step risk from which bounds follow; a batch is 1.5 times full."""
    groups = {"group_gradient_norm": lengths, "n_samples": sizes, "lambda_max": largest}
    batches = {"gradient_norm": plain, "clipped_gradient_norm": clipped, "size": 15}
    return SimpleNamespace(
        groups=pd.DataFrame(groups, index=["a", "b"]),
        batches=pd.DataFrame(batches | {"sensitivity": sensitivity}),
        by_batch=rows,
        expected_batch_size=10,
        lr=lr,
    )


def test_pair_bounds_attain_proposition_3_star_whose_print_is_no_bound():
    """If H_a lies along g_B, H_b across it and lr = 1 / lambda_max, the bound is attained."""
    g, clipped = torch.tensor([2.0, 0.0]), torch.tensor([0.0, 1.0])
    hessians = torch.diag(torch.tensor([1.0, 0.0])), torch.diag(torch.tensor([0.0, 1.0]))
    own = torch.tensor([[0.0, -1.0], [0.0, -2.0]])  # gradients of a and b
    bent = torch.stack([torch.stack([h @ g, h @ clipped]) for h in hessians])
    rows = step_terms(own, g[None], clipped[None], bent, lr=1.0)
    rows |= {"cosine": np.zeros((2, 1)), "clipped_cosine": np.array([[-1.0], [-1.0]])}
    own = own.norm(dim=1).numpy()
    pair = pair_bounds(made_risk(own, [1, 1], [1.0, 1.0], [2.0], [1.0], [1.0], rows, 1.0)).iloc[0]
    assert pair["condition"]
    assert pair["prop3_star_bound"] == pair["direction_star_difference"] == 2.0 - 4.0 - 4.0
    printed = pair["prop3_star_bound"] + 2.0**2 - 2.0
    assert printed > pair["direction_star_difference"]


@pytest.mark.parametrize("lr", [0.01, 0.1])
def test_pair_bounds_are_below_their_gaps_where_the_condition_holds(lr):
    """Softmax regression is convex: Proposition 3 and the bound of Tran et al., 60 problems."""
    n_held = 0
    for seed in range(60):
        own = mechanism(("dpsgd", "global", "dpsgd_f")[seed % 3], rate=0.3)
        pairs = pair_bounds(risk_of(*case(seed), own, lr, seed=seed, n_batches=3))
        pairs = pairs[pairs["condition"]]
        n_held += len(pairs) > 0
        assert (pairs["prop3_bound"] <= pairs["direction_difference"] + 1e-12).all()
        assert (pairs["tran_bound"] <= pairs["clip_difference"] + 1e-12).all()
        assert (pairs["prop3_star_bound"] <= pairs["direction_star_difference"] + 1e-12).all()
        direction = pairs["direction_difference"].to_numpy()
        assert (direction == -direction[::-1]).all()
    assert n_held >= 50


def test_pair_bounds_take_their_condition_from_the_largest_eigenvalue():
    data = *case(), mechanism("dpsgd")
    limit = 1 / risk_of(*data).groups["lambda_max"].max()
    for lr, holds in ((0.99 * limit, True), (1.01 * limit, False)):
        assert (pair_bounds(risk_of(*data, lr))["condition"] == holds).all()


def risk_of_two_groups(largest):
    """Two groups, two batches: lengths of gradients and cosines, all by hand."""
    rows = {
        "cosine": np.array([[0.9, 0.8], [0.2, 0.1]]),
        "clipped_cosine": np.array([[0.5, 0.6], [0.4, 0.3]]),
        "clip": np.zeros((2, 2)),
        "direction": np.array([[1.0, 2.0], [0.5, 0.25]]),
        "direction_star": np.array([[3.0, 2.0], [1.0, 0.5]]),
    }
    batches = [2.0, 4.0], [1.0, 3.0], [0.4, 0.5]  # |g_B|, |gbar|, C
    return made_risk([5.0, 2.0], [30, 10], largest, *batches, rows, 0.1)


def test_pair_bounds_by_hand():
    """Prop. 3, Prop. 3* and the bound of Tran et al., from the numbers above."""
    table = pair_bounds(risk_of_two_groups([2.0, 4.0])).set_index("group_a")
    # a: 5 (1 * .4 + 3 * .2) / 2 = 2.5; b: 2 (1 * -.2 + 3 * -.2) / 2 = -.8; E|gbar|^2 = 5
    # with |g_B|: a: 5 (2 * .4 + 4 * .2) / 2 = 4; b: 2 (2 * -.2 + 4 * -.2) / 2 = -1.2; E|g_B|^2 = 10
    expected = {
        "linear_direction_difference": (0.1 * 3.3, -0.1 * 3.3),
        "direction_difference": (1.5 - 0.375, 0.375 - 1.5),
        "direction_star_difference": (2.5 - 0.75, 0.75 - 2.5),
        "prop3_bound": (0.1 * (2.5 + 0.8 - 5.0), 0.1 * (-0.8 - 2.5 - 5.0)),
        "prop3_star_bound": (0.1 * (4.0 + 1.2 - 10.0), 0.1 * (-1.2 - 4.0 - 10.0)),
    }
    for name, values in expected.items():
        assert table.loc[["a", "b"], name].tolist() == pytest.approx(values), name
    # G = .75 * 5 + .25 * 2 = 4.25; C = .5 * 1.5 = .75; E|g_B|^2 = 10
    for a, b, p in ((5.0, 2.0, 0.75), (2.0, 5.0, 0.25)):
        first = a * (2 * p * a - 4.25) - b * 4.25 - 7.0 * 0.75
        expected = 0.1 * first - 0.05 * (10.0 + 0.75**2)
        assert table.loc["a" if a == 5.0 else "b", "tran_bound"] == pytest.approx(expected)
    assert table["condition"].all()
    assert not pair_bounds(risk_of_two_groups([2.0, 11.0]))["condition"].any()
