"""Private quantiles: what one record moves, what is paid, and how far off they are."""

import json
import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats
from scipy.optimize import brentq
from sklearn.utils.estimator_checks import parametrize_with_checks

from skdpfair.budget import PrivacyLedger
from skdpfair.exceptions import BudgetExceededError, InsecureSeedWarning
from skdpfair.preprocessing import DPQuantileScaler
from skdpfair.preprocessing._quantile_scaler import (
    consistent_leaves,
    quantiles_of,
    tree_counts,
    tree_sensitivity,
)
from skdpfair.privacy import NoisyRelease


@parametrize_with_checks([DPQuantileScaler()])
def test_dp_quantile_scaler_passes_the_checks_of_scikit_learn(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InsecureSeedWarning)  # fixed seeds are the checks' choice
        check(estimator)


POSITIONS = arrays.arrays(
    np.float64,
    st.tuples(st.integers(1, 8), st.integers(1, 4)),
    elements=st.one_of(st.floats(0, 1), st.just(np.nan), st.sampled_from([0.0, 0.25, 0.5, 1.0])),
)


@given(positions=POSITIONS, depth=st.integers(1, 7), data=st.data())
def test_tree_sensitivity_bounds_what_a_record_moves(positions, depth, data):
    row = data.draw(st.integers(0, len(positions) - 1))
    zeroed = positions.copy()
    zeroed[row] = np.nan  # the null record, which counts nowhere
    bound = tree_sensitivity(positions.shape[1], depth)
    exact = math.sqrt(np.isfinite(positions[row]).sum() * depth)
    for other in (zeroed, np.delete(positions, row, axis=0)):
        moved = np.linalg.norm(tree_counts(positions, depth) - tree_counts(other, depth))
        assert moved == pytest.approx(exact) and moved <= bound * (1 + 1e-12)


@given(positions=POSITIONS, depth=st.integers(1, 4))
def test_tree_counts_are_those_of_a_naive_loop(positions, depth):
    nodes = [(k, 2**level) for level in range(1, depth + 1) for k in range(2**level)]

    def is_in(v, k, n):
        return k / n <= v < (k + 1) / n or (v == 1 and k == n - 1)

    expected = [[sum(is_in(v, *node) for v in column) for node in nodes] for column in positions.T]
    assert tree_counts(positions, depth).tolist() == expected


def exact(bounds, **params):
    return DPQuantileScaler(bounds, noise_multiplier=1e-3, epsilon=None, **params)


@pytest.mark.parametrize("value", [-1e9, 1e9])
def test_values_beyond_the_bounds_count_at_the_bound(value):
    found = exact((0, 8), depth=3).fit(np.full((1000, 1), value)).quantiles_
    np.testing.assert_allclose(found, [[0, 1]] if value < 0 else [[7, 8]], atol=0.05)


def test_random_state_alone_makes_two_fits_share_noise():
    rows, fits = np.random.default_rng(0).uniform(-1, 1, (300, 2)), []
    for seed in (None, None, 1, 1, 2):
        if seed is None:
            fits.append(DPQuantileScaler().fit(rows))
            continue
        with pytest.warns(InsecureSeedWarning, match=f"random_state={seed}"):
            fits.append(DPQuantileScaler(random_state=seed).fit(rows))
    assert [fit.privacy_.seeded for fit in fits] == [False, False, True, True, True]
    drawn = [fit.quantiles_.tobytes() for fit in fits]
    assert drawn[2] == drawn[3] and len(set(drawn)) == 4
    assert pickle.loads(pickle.dumps(fits[2])).random_state is None


def gaussian_epsilon(noise_multiplier, delta):
    """Balle and Wang (2018), theorem 8, in the form of a difference of normal tails."""
    mu = 1 / noise_multiplier

    def excess(epsilon):
        tail = stats.norm.cdf(mu / 2 - epsilon / mu)
        return tail - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu) - delta

    return brentq(excess, 0, 50)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-6), (1.0, 1e-5), (4.0, 1e-4)])
def test_epsilon_is_spent_on_one_gaussian(epsilon, delta):
    rows = np.random.default_rng(0).uniform(-1, 1, (200, 5))
    privacy = DPQuantileScaler(epsilon=epsilon, delta=delta).fit(rows).privacy_
    exact = gaussian_epsilon(privacy.noise_multiplier, delta)
    assert exact <= privacy.epsilon <= epsilon
    assert exact == pytest.approx(epsilon, rel=5e-3)
    noise = (privacy.noise_multiplier,)
    entry = NoisyRelease("quantiles of 5 columns", 1.0, noise, is_one_time=True)
    assert privacy.releases == (entry,) and privacy.is_private
    json.dumps(privacy.facts())


def test_noise_multiplier_in_place_of_epsilon():
    privacy = DPQuantileScaler(noise_multiplier=3.0, epsilon=None).fit(np.zeros((100, 1))).privacy_
    assert (privacy.noise_multiplier, privacy.delta) == (3.0, 1e-3)
    assert privacy.epsilon == pytest.approx(gaussian_epsilon(3.0, 1e-3), rel=5e-3)


def test_open_ledger_is_charged_before_tree_counts(tmp_path, monkeypatch):
    rows = np.random.default_rng(0).uniform(-1, 1, (100, 2))
    with PrivacyLedger(tmp_path / "a.jsonl", epsilon=1.4, delta=1e-5, accountant="rdp") as ledger:
        DPQuantileScaler(delta=1e-5).fit(rows)
        assert ledger.frame().what.tolist() == ["quantiles of 2 columns"]
        assert 0.9 < ledger.epsilon() < 1.4
        counted, refused = [], DPQuantileScaler(delta=1e-5)
        name = "skdpfair.preprocessing._quantile_scaler.tree_counts"
        monkeypatch.setattr(name, lambda *args: counted.append(args))
        with pytest.raises(BudgetExceededError):
            refused.fit(rows)
        assert not hasattr(refused, "quantiles_") and not counted
        assert len(ledger.frame()) == 1


@given(depth=st.integers(1, 4), seed=st.integers(0, 99))
@settings(max_examples=20)
def test_consistent_leaves_are_least_squares(depth, seed):
    counts = np.random.default_rng(seed).normal(size=(2, 2 ** (depth + 1) - 2))
    leaves = np.eye(2**depth)
    levels = [leaves.reshape(2**level, -1, 2**depth).sum(1) for level in range(1, depth + 1)]
    nodes = np.concatenate(levels)
    wanted = np.linalg.lstsq(nodes, counts.T, rcond=None)[0].T
    np.testing.assert_allclose(consistent_leaves(counts), wanted, atol=1e-12)


@given(
    arrays.arrays(np.float64, (2, 16), elements=st.floats(-50, 50)),
    st.lists(st.floats(0.01, 0.99), min_size=2, max_size=2, unique=True).map(sorted),
)
def test_quantiles_of_are_ordered_within_the_range_and_apart(leaves, shares):
    found = quantiles_of(leaves, shares)
    assert (found >= 0).all() and (found <= 1).all()
    assert (np.diff(found) >= 1 / 16 - 1e-12).all()


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning")
@pytest.mark.parametrize("shares", [(0.01, 0.99), (0.25, 0.75)])
def test_quantiles_at_epsilon_1_are_close_to_those_of_numpy(shares):
    """Six columns, 10,000 records: 0.02 of the rows lie between the two, or one leaf does.

    7 of 400 fits without a seed leave that range: only the maximum lies above share 0.99.
    """
    rng, n = np.random.default_rng(0), 10_000
    drawn = {
        "normal": (rng.normal(size=n), (-10, 10)),
        "exponential": (rng.exponential(size=n), (0, 20)),
        "uniform": (rng.uniform(-1, 1, n), (-1, 1)),
        "student": (rng.standard_t(2, n), (-100, 100)),
        "lognormal": (rng.lognormal(size=n), (0, 1000)),
        "bimodal": (rng.normal(size=n) + 6 * rng.integers(0, 2, n), (-20, 20)),
    }
    rows = pd.DataFrame({name: values for name, (values, _) in drawn.items()})
    bounds = {name: pair for name, (_, pair) in drawn.items()}
    found = DPQuantileScaler(bounds, quantiles=shares, random_state=0).fit(rows).quantiles_
    for (name, column), pair in zip(rows.items(), found, strict=True):
        leaf = np.ptp(bounds[name]) / 2**10
        for share, estimate in zip(shares, pair, strict=True):
            low, high = np.quantile(column, np.clip([share - 0.02, share + 0.02], 0, 1))
            assert low - leaf <= estimate <= high + leaf, name


def test_transform_moves_quantiles_to_the_ends_of_the_range():
    rows = np.arange(1024)[:, None] + 0.5
    scaler = exact((0, 1024), quantiles=(0.25, 0.75)).fit(rows)
    np.testing.assert_allclose(scaler.quantiles_, [[256, 768]], atol=0.05)
    out = scaler.transform([[256.0], [512.0], [768.0], [1000.0], [np.nan]])
    np.testing.assert_allclose(out.ravel(), [-1, 0, 1, 1, np.nan], atol=1e-3)


def test_fitted_scaler_holds_quantiles_and_privacy_only():
    scaler = exact((0, 1), depth=3).fit(np.linspace(0, 1, 50)[:, None])
    kept = set(vars(scaler)) - set(scaler.get_params())
    assert kept == {"quantiles_", "privacy_", "n_features_in_"}


def test_quantiles_of_no_number_and_of_a_single_value_are_apart():
    rows = np.column_stack([np.full(100, np.nan), np.full(100, 3.0)])
    scaler = exact((0, 8), depth=3).fit(rows)
    assert (np.diff(scaler.quantiles_) >= 1 - 1e-9).all()
    assert np.isfinite(scaler.transform(rows)[:, 1]).all()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"epsilon": None}, "exactly one .*neither"),
        ({"noise_multiplier": 2.0}, "Set epsilon=None"),
        ({"epsilon": -1.0}, "^epsilon must be"),
        *(({"epsilon": None, "noise_multiplier": s}, "^noise_multiplier ") for s in (0.0, 1e308)),
        ({"delta": 0.5}, "^delta .*1/n_samples"),
        ({"delta": "none"}, "^delta must be a number"),
        *(({"depth": depth}, "^depth must be an integer") for depth in (17, 0)),
        *(({"quantiles": q}, "^quantiles must be a pair") for q in ((0.5, 0.5), ("a", "b"), 0.5)),
        ({"noise_sampler": "loud"}, "^noise_sampler must be one of"),
        ({"random_state": -1}, "^random_state must be"),
        ({"bounds": (1, 0)}, "^bounds must be"),
    ],
)
def test_dp_quantile_scaler_refuses_parameters_by_name(params, message):
    with pytest.raises((ValueError, TypeError), match=message):
        DPQuantileScaler(**params).fit(np.zeros((10, 2)))


@pytest.mark.parametrize("wrong", [{"n_samples": 0}, {"n_features": "a"}, {"n_samples": None}])
def test_planned_refuses_numbers_by_name(wrong):
    with pytest.raises((ValueError, TypeError), match=f"^{next(iter(wrong))} must be an integer"):
        DPQuantileScaler().planned(**{"n_samples": 100} | wrong)
