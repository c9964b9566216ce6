"""Total variation against closed forms, quadrature and the library's accountant."""

import math

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from skdpfair.privacy import Release, epsilon
from skdpfair.privacy.accounting import total_variation, tv_from_epsilon
from skdpfair.privacy.ledger import Ledger

ADULT = Release("steps", 1 / 92, (1.0,), 1840)
SHIFT = {"add_remove": 1.0, "replace_one": 2.0}  # largest change of the mean


def test_golden_numbers_of_adult():
    assert total_variation([ADULT], "add_remove") == pytest.approx(0.235, abs=5e-4)
    assert total_variation([ADULT], "replace_one") == pytest.approx(0.381, abs=5e-4)
    assert tv_from_epsilon(epsilon([ADULT], 1e-6), 1e-6) == pytest.approx(0.914, abs=5e-4)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@settings(deadline=None, max_examples=4)
@given(sigma=st.floats(0.5, 50), steps=st.integers(1, 50))
def test_full_sampling_has_a_closed_form(adjacency, sigma, steps):
    exact = 2 * norm.cdf(SHIFT[adjacency] * math.sqrt(steps) / (2 * sigma)) - 1
    value = total_variation([Release("steps", 1.0, (sigma,), steps)], adjacency)
    assert exact * (1 - 1e-6) <= value <= exact * 1.01


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@settings(deadline=None, max_examples=4)
@given(q=st.floats(0.001, 0.999), sigma=st.floats(0.5, 20))
def test_one_sampled_step_has_a_closed_form(adjacency, q, sigma):
    # the common part (1 - q) N(0, sigma^2) cancels
    exact = q * (2 * norm.cdf(SHIFT[adjacency] / (2 * sigma)) - 1)
    value = total_variation([Release("steps", q, (sigma,), 1)], adjacency)
    assert exact * (1 - 1e-6) <= value <= exact * 1.02


def _densities(x, q, sigma, adjacency):
    plain = norm.pdf(x, 0, sigma)
    first = (1 - q) * plain + q * norm.pdf(x, 1, sigma)
    if adjacency == "replace_one":
        return first, (1 - q) * plain + q * norm.pdf(x, -1, sigma)
    return first, plain


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_unlike_steps_compose_as_by_quadrature(adjacency):
    a, b = (0.3, 1.5), (0.6, 2.5)
    x, y = np.linspace(-14, 15, 2901), np.linspace(-22, 23, 2251)
    (p, r), (s, t) = _densities(x, *a, adjacency), _densities(y, *b, adjacency)
    cell = (x[1] - x[0]) * (y[1] - y[0])
    exact = 0.5 * cell * np.abs(np.outer(p, s) - np.outer(r, t)).sum()
    runs = [Release("step", rate, (noise,)) for rate, noise in (a, b)]
    value = total_variation(runs, adjacency)
    assert exact * (1 - 1e-4) <= value <= exact * 1.01
    assert value == total_variation(runs[::-1], adjacency)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_a_ledger_of_several_entries_agrees_with_the_librarys_accountant(adjacency):
    ledger = Ledger()
    ledger.record(Release("counts", 1.0, (20.0,), is_one_time=True))
    ledger.record(Release("gradient", 0.02, (1.2, 10.0), 200))
    ledger.record(Release("gradient", 0.05, (2.0,), 100))
    relation = {
        "add_remove": dpa.NeighboringRelation.ADD_OR_REMOVE_ONE,
        "replace_one": dpa.NeighboringRelation.REPLACE_ONE,
    }[adjacency]
    accountant = PLDAccountant(relation, 3e-4)
    accountant.compose(dpa.GaussianDpEvent(20.0))
    for q, sigma, steps in ((0.02, (1.2**-2 + 10.0**-2) ** -0.5, 200), (0.05, 2.0, 100)):
        accountant.compose(dpa.PoissonSampledDpEvent(q, dpa.GaussianDpEvent(sigma)), steps)
    found = total_variation(ledger.entries, adjacency)
    assert found == pytest.approx(accountant.get_delta(0.0), rel=5e-3)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_very_many_steps_are_composed_in_two_stages(adjacency):
    exact = 2 * norm.cdf(SHIFT[adjacency] / 2) - 1
    run = Release("steps", 1 - 1e-9, (math.sqrt(10_001),), 10_001)
    assert exact * (1 - 1e-6) <= total_variation([run], adjacency) <= exact * 1.01


def test_replacing_is_at_most_adding_and_removing():
    once = total_variation([ADULT], "add_remove")
    assert once < total_variation([ADULT], "replace_one") < 2 * once
    assert total_variation([ADULT], "zero_out") == once


def test_total_variation_of_no_release_is_0_and_of_no_noise_1():
    assert total_variation([]) == 0
    assert total_variation([Release("steps", 0.1, (1.0,), 0)]) == 0
    assert total_variation([ADULT, Release("steps", 0.1, (0.0,), 1)]) == 1


@settings(deadline=None)
@given(st.floats(0, 700), st.floats(0, 1))
def test_proposition_2_6(eps, delta):
    expected = (math.exp(eps) - 1 + 2 * delta) / (math.exp(eps) + 1)
    assert tv_from_epsilon(eps, delta) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert 0 <= tv_from_epsilon(eps, delta) <= 1 + 1e-12


def test_an_infinite_epsilon_bounds_nothing():
    assert tv_from_epsilon(math.inf, 0.0) == 1
    assert tv_from_epsilon(1e5, 1e-6) == 1
