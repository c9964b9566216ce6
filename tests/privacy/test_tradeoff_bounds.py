"""Total variation and the bound on generalisation gaps, against closed forms and accountants."""

import math

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from skdpfair.privacy import compute_epsilon
from skdpfair.privacy.tradeoff import trade_off, trade_off_from_epsilon

from .builders import ADULT, run


def total_variation(*releases):
    return trade_off(releases).total_variation


def test_total_variation_of_adult_is_the_golden_one():
    assert total_variation(ADULT) == pytest.approx(0.235, abs=5e-4)
    alone = trade_off_from_epsilon(compute_epsilon([ADULT], 1e-6), 1e-6)
    assert alone.total_variation == pytest.approx(0.914, abs=5e-4)


@settings(deadline=None, max_examples=4)
@given(q=st.floats(0.001, 0.999), sigma=st.floats(0.5, 20))
def test_total_variation_of_one_sampled_step_has_a_closed_form(q, sigma):
    # the common part (1 - q) N(0, sigma^2) cancels
    exact = q * (2 * norm.cdf(1 / (2 * sigma)) - 1)
    assert exact * (1 - 1e-6) <= total_variation(run(q, sigma)) <= exact * 1.02


@pytest.mark.parametrize("rate, steps", [(1.0, 1), (1.0, 37), (1 - 1e-9, 10_001)])
def test_total_variation_and_dg_bound_of_a_gaussian_have_closed_forms(rate, steps):
    """A replaced record moves the sum by twice the clipping bound: N(-mu, 1) against N(mu, 1)."""
    for mu in (0.02, 1.0, 2.0):
        curve = trade_off([run(rate, math.sqrt(steps) / mu, steps=steps)])
        limit = 1 + 1e-9 if rate == 1 else 1.01
        for found, exact in (
            (curve.total_variation, 2 * norm.cdf(mu / 2) - 1),
            (curve.dg_bound, 2 * norm.cdf(mu) - 1),
        ):
            assert exact * (1 - 1e-6) <= found <= exact * limit


def _densities(x, q, sigma):
    plain = norm.pdf(x, 0, sigma)
    return (1 - q) * plain + q * norm.pdf(x, 1, sigma), plain


def test_total_variation_of_unlike_steps_is_that_of_quadrature():
    a, b = (0.3, 1.5), (0.6, 2.5)
    x, y = np.linspace(-14, 15, 2901), np.linspace(-22, 23, 2251)
    (p, r), (s, t) = _densities(x, *a), _densities(y, *b)
    cell = (x[1] - x[0]) * (y[1] - y[0])
    exact = 0.5 * cell * np.abs(np.outer(p, s) - np.outer(r, t)).sum()
    runs = [run(*a), run(*b)]
    value = total_variation(*runs)
    assert exact * (1 - 1e-4) <= value <= exact * 1.01
    assert value == total_variation(*runs[::-1])


@settings(deadline=None)
@given(st.floats(0, 700), st.floats(0, 1, exclude_max=True))
def test_total_variation_from_epsilon_is_proposition_2_6(eps, delta):
    expected = (math.exp(eps) - 1 + 2 * delta) / (math.exp(eps) + 1)
    found = trade_off_from_epsilon(eps, delta).total_variation
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert 0 <= found <= 1 + 1e-12


@pytest.mark.parametrize("eps", [0.0, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.1])
def test_dg_bound_from_epsilon_is_attained(eps, delta):
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


@pytest.mark.parametrize("step", [ADULT, run(0.1, 1.0, steps=3), run(0.01, 0.7, steps=100)])
def test_dg_bound_of_sampled_steps_is_above_the_accountant_of_replaced_records(step):
    curve = trade_off([step])
    accountant = PLDAccountant(dpa.NeighboringRelation.REPLACE_ONE, 1e-3)
    noise = dpa.GaussianDpEvent(step.joint_noise_multiplier)
    accountant.compose(dpa.PoissonSampledDpEvent(step.sample_rate, noise), step.steps)
    direct = accountant.get_delta(0.0)
    assert direct <= curve.dg_bound <= 1.35 * direct
    assert curve.dg_bound <= 2 * curve.total_variation * (1 + 1e-9)
    if step is ADULT:
        assert direct == pytest.approx(0.381, abs=5e-4)


@pytest.mark.parametrize("n", [1, 2, 10, 300])
@pytest.mark.parametrize("sigma", [0.5, 3.0])
def test_dg_bound_is_above_the_exact_gap_of_a_sum(n, sigma):
    """Records are fair signs, the model is their noisy sum, and the score is whether it agrees."""
    others = 2 * np.arange(n) - (n - 1)
    gap = binom.pmf(np.arange(n), n - 1, 0.5) @ norm.cdf((1 + others) / sigma) - 0.5
    bound = trade_off([run(1.0, sigma)]).dg_bound
    assert 0 < gap <= bound
    if n == 1:  # half of all test records differ from the training record
        assert 2 * gap == pytest.approx(bound)
