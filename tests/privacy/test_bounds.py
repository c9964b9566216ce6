"""Total variation against closed forms, quadrature and the library's accountant."""

import math

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from skdpfair.privacy import NoisyRelease, compute_epsilon
from skdpfair.privacy.tradeoff import trade_off, trade_off_from_epsilon

ADULT = NoisyRelease("steps", 1 / 92, (1.0,), 1840)


def total_variation(*releases):
    return trade_off(releases).total_variation


def test_golden_numbers_of_adult():
    assert total_variation(ADULT) == pytest.approx(0.235, abs=5e-4)
    alone = trade_off_from_epsilon(compute_epsilon([ADULT], 1e-6), 1e-6)
    assert alone.total_variation == pytest.approx(0.914, abs=5e-4)


@settings(deadline=None, max_examples=4)
@given(sigma=st.floats(0.5, 50), steps=st.integers(1, 50))
def test_full_sampling_has_a_closed_form(sigma, steps):
    exact = 2 * norm.cdf(math.sqrt(steps) / (2 * sigma)) - 1
    value = total_variation(NoisyRelease("steps", 1.0, (sigma,), steps))
    assert exact * (1 - 1e-6) <= value <= exact * 1.01


@settings(deadline=None, max_examples=4)
@given(q=st.floats(0.001, 0.999), sigma=st.floats(0.5, 20))
def test_one_sampled_step_has_a_closed_form(q, sigma):
    # the common part (1 - q) N(0, sigma^2) cancels
    exact = q * (2 * norm.cdf(1 / (2 * sigma)) - 1)
    value = total_variation(NoisyRelease("steps", q, (sigma,), 1))
    assert exact * (1 - 1e-6) <= value <= exact * 1.02


def _densities(x, q, sigma):
    plain = norm.pdf(x, 0, sigma)
    return (1 - q) * plain + q * norm.pdf(x, 1, sigma), plain


def test_unlike_steps_compose_as_by_quadrature():
    a, b = (0.3, 1.5), (0.6, 2.5)
    x, y = np.linspace(-14, 15, 2901), np.linspace(-22, 23, 2251)
    (p, r), (s, t) = _densities(x, *a), _densities(y, *b)
    cell = (x[1] - x[0]) * (y[1] - y[0])
    exact = 0.5 * cell * np.abs(np.outer(p, s) - np.outer(r, t)).sum()
    runs = [NoisyRelease("step", rate, (noise,)) for rate, noise in (a, b)]
    value = total_variation(*runs)
    assert exact * (1 - 1e-4) <= value <= exact * 1.01
    assert value == total_variation(*runs[::-1])


def test_several_releases_agree_with_the_librarys_accountant():
    releases = [
        NoisyRelease("counts", 1.0, (20.0,), is_one_time=True),
        NoisyRelease("gradient", 0.02, (1.2, 10.0), 200),
        NoisyRelease("gradient", 0.05, (2.0,), 100),
    ]
    accountant = PLDAccountant(value_discretization_interval=3e-4)
    accountant.compose(dpa.GaussianDpEvent(20.0))
    for q, sigma, steps in ((0.02, (1.2**-2 + 10.0**-2) ** -0.5, 200), (0.05, 2.0, 100)):
        accountant.compose(dpa.PoissonSampledDpEvent(q, dpa.GaussianDpEvent(sigma)), steps)
    assert total_variation(*releases) == pytest.approx(accountant.get_delta(0.0), rel=5e-3)


def test_very_many_steps_are_composed_in_two_stages():
    exact = 2 * norm.cdf(0.5) - 1
    run = NoisyRelease("steps", 1 - 1e-9, (math.sqrt(10_001),), 10_001)
    assert exact * (1 - 1e-6) <= total_variation(run) <= exact * 1.01


@settings(deadline=None)
@given(st.floats(0, 700), st.floats(0, 1, exclude_max=True))
def test_proposition_2_6(eps, delta):
    expected = (math.exp(eps) - 1 + 2 * delta) / (math.exp(eps) + 1)
    found = trade_off_from_epsilon(eps, delta).total_variation
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert 0 <= found <= 1 + 1e-12


def test_an_infinite_epsilon_bounds_nothing():
    assert trade_off_from_epsilon(math.inf, 0.0).total_variation == 1
    assert trade_off_from_epsilon(1e5, 1e-6).total_variation == 1
