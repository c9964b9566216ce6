"""The bound on generalisation gaps against closed forms, another accountant and exact gaps."""

import math

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy.stats import binom, norm

from skdpfair import DPFairClassifier
from skdpfair.privacy import NoisyRelease
from skdpfair.privacy.tradeoff import trade_off, trade_off_from_epsilon

from .reports import report

ADULT = NoisyRelease("steps", 1 / 92, (1.0,), 1840)


@pytest.mark.parametrize(("sigma", "steps"), [(10.0, 4), (3.0, 1), (0.5, 9)])
def test_full_batches_have_a_closed_form(sigma, steps):
    """A replaced record moves the sum by twice the clipping bound: N(-mu, 1) against N(mu, 1)."""
    mu = math.sqrt(steps) / sigma
    found = trade_off([NoisyRelease("steps", 1.0, (sigma,), steps)]).dg_bound
    assert found == pytest.approx(2 * norm.cdf(mu) - 1, rel=1e-9)
    assert found >= 2 * norm.cdf(mu) - 1 - 1e-12


@pytest.mark.parametrize("eps", [0.0, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.1])
def test_epsilon_and_delta_have_a_closed_form(eps, delta):
    """Three laws on four points, each pair of neighbours exactly (eps, delta)-private, attain it.

    The null record's law gives each of two halves 1/2; each record moves mass from one to the
    other until epsilon stops it, and delta of it to a point that the null record never reaches.
    """
    low = math.exp(-eps) * (0.5 - delta)
    null = np.array([0.5 - delta, 0.5 - delta, delta, delta])
    one = np.array([1 - low - 2 * delta, low, 2 * delta, 0.0])
    other = one[[1, 0, 3, 2]]
    for record in (one, other):
        for p, q in ((record, null), (null, record)):
            assert np.maximum(p - math.exp(eps) * q, 0).sum() <= delta + 1e-12
    exact = np.abs(one - other).sum() / 2
    assert trade_off_from_epsilon(eps, delta).dg_bound == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize(
    "step", [ADULT, NoisyRelease("steps", 0.1, (1.0,), 3), NoisyRelease("steps", 0.01, (0.7,), 100)]
)
def test_sampled_steps_lie_above_the_accountant_of_replaced_records(step):
    curve = trade_off([step])
    accountant = PLDAccountant(dpa.NeighboringRelation.REPLACE_ONE, 1e-3)
    event = dpa.PoissonSampledDpEvent(
        step.sample_rate, dpa.GaussianDpEvent(step.joint_noise_multiplier)
    )
    accountant.compose(event, step.steps)
    direct = accountant.get_delta(0.0)
    assert direct <= curve.dg_bound <= 1.35 * direct
    assert curve.dg_bound <= 2 * curve.total_variation * (1 + 1e-9)
    if step is ADULT:
        assert direct == pytest.approx(0.381, abs=5e-4)


def test_nothing_released_and_nothing_private():
    assert trade_off([]).dg_bound == 0
    assert trade_off([NoisyRelease("steps", 0.1, (0.0,))]).dg_bound == 1
    assert report(None, is_private=False, epsilon=math.inf).dg_bound() == 1
    clf = DPFairClassifier("sgd", epsilon=None, module="logistic", max_steps=3)
    assert clf.fit([[0.0], [1.0]] * 20, [0, 1] * 20).privacy_.dg_bound() == 1


@pytest.mark.parametrize("adjacency", ["zero_out", "zero_out_person"])
def test_a_report_bounds_the_gap_of_its_releases(adjacency):
    privacy = report(ADULT, adjacency=adjacency)
    assert privacy.dg_bound() == trade_off([ADULT]).dg_bound
    search = report(None, epsilon=3.1, delta=1e-6, adjacency=adjacency)
    assert search.dg_bound() == trade_off_from_epsilon(3.1, 1e-6).dg_bound


@pytest.mark.parametrize("n", [1, 2, 10, 300])
@pytest.mark.parametrize("sigma", [0.5, 3.0])
def test_exact_gaps_of_a_sum_lie_below(n, sigma):
    """Records are fair signs, the model is their noisy sum, and the score is whether it agrees."""
    heads = np.arange(n)
    others = 2 * heads - (n - 1)
    gap = binom.pmf(heads, n - 1, 0.5) @ norm.cdf((1 + others) / sigma) - 0.5
    bound = trade_off([NoisyRelease("sum", 1.0, (sigma,))]).dg_bound
    assert 0 < gap <= bound
    if n == 1:  # half of all test records differ from the training record
        assert 2 * gap == pytest.approx(bound)
