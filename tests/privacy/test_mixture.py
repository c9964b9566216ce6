"""A person with several records: exact accounting against quadrature, convolution and theorems."""

import math
from dataclasses import replace

import dp_accounting as dpa
import mpmath
import numpy as np
import pytest
from dp_accounting.dp_event import MixtureOfGaussiansDpEvent
from dp_accounting.pld import PLDAccountant
from scipy.stats import binom

from skdpfair.privacy import NoisyRelease, calibrate_noise, compute_epsilon
from skdpfair.privacy.gdp import gdp_epsilon

from .builders import hockey_stick, run

RATE, STEPS, DELTA = 512 / 30_000, 500, 1e-5
GOLDEN = {1: (1.00, 1.66), 2: (2.16, 3.01), 5: (6.18, 7.24), 10: (14.4, 14.3)}


@pytest.mark.parametrize("records", GOLDEN)
def test_epsilon_and_noise_of_a_person_are_the_golden_ones(records):
    cost, noise = GOLDEN[records]
    steps = [run(RATE, 1.0, steps=STEPS)]
    found = compute_epsilon(calibrate_noise(steps, 1.0, DELTA), DELTA, records_per_person=records)
    assert found == pytest.approx(cost, rel=5e-3)
    (person,) = calibrate_noise(steps, 1.0, DELTA, records_per_person=records)
    assert person.joint_noise_multiplier == pytest.approx(noise, rel=5e-3)
    assert 0.999 <= compute_epsilon([person], DELTA, records_per_person=records) <= 1.0


@pytest.mark.parametrize("records", [2, 5])
def test_pld_epsilon_of_a_person_is_the_least(records):
    runs = [run(0.02, 2.0, steps=100), run(1.0, 30.0)]
    tight, *others = (compute_epsilon(runs, DELTA, a, records) for a in ("pld", "prv", "rdp"))
    assert min(others) >= tight


@pytest.mark.parametrize("q, sigma, k", [(0.01, 0.5, 3), (0.3, 3.0, 8), (0.9, 20.0, 20)])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9, 1e-12])
def test_mixture_of_one_step_has_the_delta_of_its_definition(q, sigma, k, delta):
    with mpmath.workdps(60):
        found = mpmath.mpf(compute_epsilon([run(q, sigma)], delta, "pld", k))
        exact = hockey_stick(found, mpmath.mpf(q), mpmath.mpf(sigma), k)
    # below, by the error of float64 that is subtracted from delta
    assert 0.98 * delta <= exact <= delta


@pytest.mark.parametrize("records, steps", [(2, 1), (7, 300), (3, 10_001)])
@pytest.mark.parametrize("delta", [1e-5, 1e-9])
@pytest.mark.parametrize("rate", [1.0, 1 - 1e-9])
def test_mixture_at_a_rate_next_to_one_is_the_plain_gaussian(records, steps, delta, rate):
    own = run(rate, records * math.sqrt(steps), steps=steps)  # together a Gaussian of mu 1
    exact = gdp_epsilon(1.0, delta)
    assert exact * (1 - 1e-6) <= compute_epsilon([own], delta, "pld", records) <= exact * 1.01


def test_releases_on_all_records_count_each_record_of_a_person():
    once = NoisyRelease("counts", 1.0, (24.0,), is_one_time=True)
    thrice = replace(once, noise_multipliers=(8.0,))
    assert compute_epsilon([once], DELTA, "pld", 3) == compute_epsilon([thrice], DELTA)
    steps = run(0.05, 2.0, steps=50)
    assert compute_epsilon([once, steps], DELTA, "pld", 3) > compute_epsilon(
        [steps], DELTA, "pld", 3
    )


def test_mixture_agrees_with_the_event_of_dp_accounting():
    step = MixtureOfGaussiansDpEvent(2.0, np.arange(3), binom.pmf(np.arange(3), 2, 0.1))
    accountant = PLDAccountant(value_discretization_interval=2e-3)
    accountant.compose(step, 20).compose(dpa.GaussianDpEvent(20.0), 4)
    found = compute_epsilon([run(0.1, 2.0, steps=20), run(1.0, 40.0, steps=4)], DELTA, "pld", 2)
    assert found == pytest.approx(accountant.get_epsilon(DELTA), rel=5e-3)
