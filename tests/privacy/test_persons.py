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
from skdpfair.privacy.statement import rounded_up

from .reports import report

RATE, STEPS, DELTA = 512 / 30_000, 500, 1e-5
GOLDEN = {1: (1.00, 1.66), 2: (2.16, 3.01), 5: (6.18, 7.24), 10: (14.4, 14.3)}


@pytest.mark.parametrize("records", GOLDEN)
def test_epsilon_and_noise_of_a_person_are_the_golden_ones(records):
    cost, noise = GOLDEN[records]
    steps = [NoisyRelease("steps", RATE, (1.0,), STEPS)]
    found = compute_epsilon(calibrate_noise(steps, 1.0, DELTA), DELTA, records_per_person=records)
    assert found == pytest.approx(cost, rel=5e-3)
    (person,) = calibrate_noise(steps, 1.0, DELTA, records_per_person=records)
    assert person.joint_noise_multiplier == pytest.approx(noise, rel=5e-3)
    assert 0.999 <= compute_epsilon([person], DELTA, records_per_person=records) <= 1.0


@pytest.mark.parametrize("accountant", ["prv", "rdp"])
def test_no_accountant_is_below_pld(accountant):
    runs = [NoisyRelease("steps", 0.02, (2.0,), 100), NoisyRelease("counts", 1.0, (30.0,))]
    for records in (2, 5):
        loose, tight = (compute_epsilon(runs, DELTA, name, records) for name in (accountant, "pld"))
        assert loose >= tight


def hockey_stick(eps, q, sigma, k):
    """Return delta of one step at ``eps`` to 60 digits, the larger of both directions."""
    shares = [mpmath.binomial(k, j) * q**j * (1 - q) ** (k - j) for j in range(k + 1)]
    terms = [(j, p * mpmath.exp(-(j**2) / (2 * sigma**2))) for j, p in enumerate(shares)]

    def threshold(ratio):
        low, high = mpmath.mpf(-1e6), mpmath.mpf(1e6)
        for _ in range(160):
            x = (low + high) / 2
            below = sum(c * mpmath.exp(j * x / sigma**2) for j, c in terms) < ratio
            low, high = (x, high) if below else (low, x)
        return high

    x = threshold(mpmath.exp(eps))
    above = sum(p * mpmath.ncdf((j - x) / sigma) for j, p in enumerate(shares))
    removed = above - mpmath.exp(eps) * mpmath.ncdf(-x / sigma)
    if mpmath.exp(-eps) <= shares[0]:
        return removed
    x = threshold(mpmath.exp(-eps))
    below = sum(p * mpmath.ncdf((x - j) / sigma) for j, p in enumerate(shares))
    return max(removed, mpmath.ncdf(x / sigma) - mpmath.exp(eps) * below)


@pytest.mark.parametrize("q, sigma, k", [(0.01, 0.5, 3), (0.3, 3.0, 8), (0.9, 20.0, 20)])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9, 1e-12])
def test_one_step_has_the_delta_of_the_mixture(q, sigma, k, delta):
    with mpmath.workdps(60):
        found = mpmath.mpf(compute_epsilon([NoisyRelease("step", q, (sigma,))], delta, "pld", k))
        exact = hockey_stick(found, mpmath.mpf(q), mpmath.mpf(sigma), k)
    # below, by the error of float64 that is subtracted from delta
    assert 0.98 * delta <= exact <= delta


@pytest.mark.parametrize("records, steps", [(2, 1), (7, 300), (3, 10_001)])
@pytest.mark.parametrize("delta", [1e-5, 1e-9])
def test_a_rate_next_to_one_has_the_plain_gaussian_as_its_limit(records, steps, delta):
    noise = records * math.sqrt(steps)  # together a Gaussian of mu 1
    exact = gdp_epsilon(1.0, delta)
    for rate in (1.0, 1 - 1e-9):
        found = compute_epsilon(
            [NoisyRelease("steps", rate, (noise,), steps)], delta, "pld", records
        )
        assert exact * (1 - 1e-6) <= found <= exact * 1.01


def test_releases_on_all_records_count_each_record_of_a_person():
    once = NoisyRelease("counts", 1.0, (24.0,), is_one_time=True)
    thrice = replace(once, noise_multipliers=(8.0,))
    assert compute_epsilon([once], DELTA, "pld", 3) == compute_epsilon([thrice], DELTA)
    both = [once, NoisyRelease("gradient", 0.05, (2.0,), 50)]
    assert compute_epsilon(both, DELTA, records_per_person=3) == compute_epsilon(
        both, DELTA, "pld", 3
    )
    assert compute_epsilon(both, DELTA, "pld", 3) > compute_epsilon(both[1:], DELTA, "pld", 3)


def test_the_event_of_a_person_agrees_with_the_librarys_accountant():
    step = MixtureOfGaussiansDpEvent(2.0, np.arange(3), binom.pmf(np.arange(3), 2, 0.1))
    accountant = PLDAccountant(value_discretization_interval=2e-3)
    accountant.compose(step, 20).compose(dpa.GaussianDpEvent(20.0), 4)
    runs = [NoisyRelease("steps", 0.1, (2.0,), 20), NoisyRelease("counts", 1.0, (40.0,), 4)]
    found = compute_epsilon(runs, DELTA, records_per_person=2)
    assert found == pytest.approx(accountant.get_epsilon(DELTA), rel=5e-3)


@pytest.mark.parametrize(
    "accountant, rate, once",
    [("pld", 0.05, (30.0,)), ("pld", 1.0, ()), ("rdp", 0.05, (30.0,)), ("prv", 0.05, ())],
)
def test_every_accountant_calibrates_to_a_person(accountant, rate, once):
    runs = [
        *(NoisyRelease("once", 1.0, (s,)) for s in once),
        NoisyRelease("steps", rate, (1.0,), 20),
    ]
    runs = calibrate_noise(runs, 2.0, DELTA, accountant, records_per_person=4)
    assert 1.99 <= compute_epsilon(runs, DELTA, accountant, 4) <= 2.0


def test_a_report_tells_what_a_person_is_guaranteed():
    found = report()
    assert found.epsilon_for(1) == found.epsilon
    assert found.epsilon_for(4) == compute_epsilon(found.releases, DELTA, records_per_person=4)
    assert "person" not in found.statement
    assert replace(found, records_per_person=1).statement == found.statement
    declared = replace(found, records_per_person=4)
    told = f"person with at most 4 records, all of which are replaced, they are ({{}}, {DELTA:g})-"
    assert told.format(rounded_up(found.epsilon_for(4))) in declared.statement
    assert declared.facts()["records_per_person"] == 4


def test_reports_of_persons_without_a_guarantee_and_without_a_ledger():
    assert report(is_private=False, epsilon=math.inf).epsilon_for(3) == math.inf
    assert report(adjacency="zero_out_person").epsilon_for(3) == report().epsilon
    search = report(None, epsilon=1.0)
    assert search.epsilon_for(1) == search.epsilon
