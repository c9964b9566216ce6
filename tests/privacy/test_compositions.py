"""Runs of unlike releases, very many steps, and budgets at the edge of what is supported."""

import json
import math
from dataclasses import replace
from pathlib import Path

import mpmath
import pytest

from skdpfair.privacy import NoisyRelease, calibrate_noise, compute_epsilon
from skdpfair.privacy.accounting import PRV_ERROR, interval, pld_epsilon
from skdpfair.privacy.calibration import MIN_NOISE_MULTIPLIER
from skdpfair.privacy.gdp import gdp_epsilon
from skdpfair.privacy.releases import Run

GOLDEN = Path(__file__).parents[1] / "golden" / "golden_privacy.json"
CASES = {c["id"]: c for c in json.loads(GOLDEN.read_text())["epsilon_cases"]}


def noise_for(rate, steps, target, delta, accountant="pld"):
    (release,) = calibrate_noise(
        [NoisyRelease("steps", rate, (1.0,), steps)], target, delta, accountant
    )
    return release.joint_noise_multiplier


def mixed_runs(key):
    case = CASES[key]
    if key == "partial_fit":
        return [NoisyRelease("steps", q, (s,), t) for q, s, t in case["segments"]]
    if key == "f_group_r0.5":  # a declared cap scales the gradient's part of a group's step
        noise = (case["sigma_grad"] / case["cap_ratio"], case["sigma_count"])
        return [NoisyRelease("steps", case["q"], noise, case["T"])]
    steps = NoisyRelease("steps", case["q"], (case["sigma_eff"],), case["T"])
    if key == "is_group_private_counts":  # one release of the group sizes, on all records
        return [steps, NoisyRelease("steps", 1.0, (case["sigma_group_counts"],), 1)]
    return [steps]  # replace_special has the same dominating pair as zero-out


@pytest.mark.parametrize(
    "key", ["partial_fit", "is_group_private_counts", "f_group_r0.5", "replace_special_adult"]
)
def test_golden_compositions(key):
    case, runs = CASES[key], mixed_runs(key)
    golden = case["epsilon_pld"]
    assert golden - 0.005 <= compute_epsilon(runs, case["delta"]) <= golden + 0.02
    if case["epsilon_rdp"] is not None:
        rdp = compute_epsilon(runs, case["delta"], "rdp")
        assert rdp == pytest.approx(case["epsilon_rdp"], rel=1e-3)


def test_the_prv_accountant_composes_unlike_runs_at_full_sampling_too():
    case = CASES["is_group_private_counts"]
    value = compute_epsilon(mixed_runs("is_group_private_counts"), case["delta"], "prv")
    assert case["epsilon_pld"] - 0.005 <= value <= case["epsilon_pld"] + 0.02


def test_two_stage_composition_bounds_the_exact_value_from_above(steps=1_000_000):
    # sampled so nearly always that the plain Gaussian's closed form is the limit from above
    exact = gdp_epsilon(1.0, 1e-6)
    run = NoisyRelease("steps", 1 - 1e-9, (math.sqrt(steps),), steps)
    assert exact * (1 - 1e-6) <= compute_epsilon([run], 1e-6) <= exact * 1.005


def test_two_stages_agree_with_one():
    runs = (Run(0.01, 3.0, 10_500),)
    split = (Run(0.01, 3.0, 10_000), Run(0.01, 3.0 * (1 + 1e-12), 500))
    assert interval(runs, 1) == pytest.approx(interval(split, 1))
    assert pld_epsilon(runs, 1e-6, 1) == pytest.approx(pld_epsilon(split, 1e-6, 1), rel=1e-4)


def test_the_order_and_the_cutting_of_runs_do_not_matter():
    a, b = NoisyRelease("steps", 0.1, (2.0,), 30), NoisyRelease("steps", 1.0, (20.0,), 1)
    parts = [NoisyRelease("steps", 0.1, (2.0,), 10), b, NoisyRelease("steps", 0.1, (2.0,), 20)]
    assert (
        compute_epsilon([a, b], 1e-5)
        == compute_epsilon([b, a], 1e-5)
        == compute_epsilon(parts, 1e-5)
    )


@pytest.mark.parametrize("target", [1e3, 1e6])
@pytest.mark.parametrize("rate", [1.0, 1 / 16])
def test_a_huge_epsilon_takes_little_noise_and_no_crash(rate, target):
    sigma = noise_for(rate, 354, target, 1e-6)
    assert sigma >= MIN_NOISE_MULTIPLIER
    assert compute_epsilon([NoisyRelease("steps", rate, (sigma,), 354)], 1e-6) <= target


@pytest.mark.parametrize("accountant", ["pld", "rdp", "prv"])
@pytest.mark.parametrize("noise, cost", [(1e-308, math.inf), (1e308, 0.01), (math.inf, 0.0)])
def test_noise_at_the_ends_of_float64_has_a_cost(accountant, noise, cost):
    assert (
        0 <= compute_epsilon([NoisyRelease("steps", 0.1, (noise,), 10)], 1e-5, accountant) <= cost
    )
    if math.isinf(cost):
        assert compute_epsilon([NoisyRelease("steps", 0.1, (noise,), 10)], 1e-5, accountant) == cost


@pytest.mark.parametrize("delta", [1e-13, 1e-5, 0.5, 0.99, 1 - 1e-12])
@pytest.mark.parametrize("rate", [1e-9, 1e-6, 0.5, 1.0])
def test_accountants_agree_at_the_ends_of_what_they_compute(rate, delta):
    for noise, steps in [(1e-4, 1), (1e-3, 5), (0.5, 2), (50.0, 1), (1e6, 1000)]:
        run = NoisyRelease("steps", rate, (noise,), steps)
        pld, prv, rdp = (compute_epsilon([run], delta, name) for name in ("pld", "prv", "rdp"))
        assert 0 <= pld <= 1.001 * rdp + 1e-9 and rdp < math.inf, run
        assert 0 <= prv <= 1.1 * pld + 2 * PRV_ERROR, run
        assert prv >= 0.9 * pld - PRV_ERROR, run
        assert compute_epsilon([replace(run, steps=0)], delta, "prv") == 0.0


@pytest.mark.parametrize("noise", [0.02, 0.01])
def test_prv_never_understates_a_huge_epsilon(noise):
    # a Gaussian release without sampling has a closed form
    exact = gdp_epsilon(1 / noise, 1e-5)
    assert (
        exact
        <= compute_epsilon([NoisyRelease("steps", 1.0, (noise,), 1)], 1e-5, "prv")
        <= 1.02 * exact
    )


def exact_epsilon(mu, delta):
    """Return the epsilon of the plain Gaussian mechanism from its closed form, to 60 digits."""
    with mpmath.workdps(60):
        low, high, mu = mpmath.mpf(0), mpmath.mpf(mu) * (mpmath.mpf(mu) / 2 + 60), mpmath.mpf(mu)
        for _ in range(80):
            middle = (low + high) / 2
            gain = mpmath.ncdf(mu / 2 - middle / mu)
            loss = mpmath.exp(middle) * mpmath.ncdf(-mu / 2 - middle / mu)
            low, high = (middle, high) if gain - loss > delta else (low, middle)
        return float(high)


SMALL = [1e-10, 1e-11, 1e-12, 1e-13, 1e-14, 1e-30, 1e-99]
# a rate next to 1 is composed step by step, and has the plain Gaussian's closed form as its limit
RATES = [1.0, 1 - 1e-9]


@pytest.mark.parametrize("accountant", ["pld", "prv", "rdp"])
@pytest.mark.parametrize(("mu", "steps"), [(0.3, 10_000), (1.0, 1), (3.0, 10_000), (10.0, 300)])
def test_no_accountant_understates_at_a_small_delta(accountant, mu, steps):
    for delta in SMALL:
        exact = exact_epsilon(mu, delta)
        for rate in RATES:
            run = NoisyRelease("steps", rate, (math.sqrt(steps) / mu,), steps)
            assert (
                exact * (1 - 1e-6)
                <= compute_epsilon([run], delta, accountant)
                <= 1.1 * exact + 0.01
            )


@pytest.mark.parametrize(("q", "sigma"), [(0.01, 0.5), (0.3, 1.0)])
def test_one_sampled_step_at_a_small_delta_is_bounded_by_its_closed_form(q, sigma):
    # delta(e) of a mixture against its common part, by the threshold at which their ratio is e^e
    def delta_of(eps):
        ratio = (mpmath.exp(eps) - 1 + mpmath.mpf(q)) / q
        x = mpmath.log(ratio) * sigma**2 + mpmath.mpf(1) / 2
        tail = [mpmath.ncdf(-(x - mean) / sigma) for mean in (0, 1)]
        return (1 - q) * tail[0] + q * tail[1] - mpmath.exp(eps) * tail[0]

    with mpmath.workdps(60):
        for delta in SMALL:
            found = compute_epsilon([NoisyRelease("steps", q, (sigma,), 1)], delta)
            assert delta_of(mpmath.mpf(found)) <= delta * (1 + 1e-6)


@pytest.mark.parametrize("accountant", ["pld", "prv"])
@pytest.mark.parametrize(("rate", "steps"), [(1.0, 1), (RATES[1], 300), (RATES[1], 10_000)])
def test_calibration_keeps_the_target_at_a_small_delta(accountant, rate, steps):
    for delta in SMALL[1:]:
        sigma = noise_for(rate, steps, 8.0, delta, accountant)
        assert 0.9 * 8.0 <= exact_epsilon(math.sqrt(steps) / sigma, delta) <= 8.0 * (1 + 1e-6)


def test_below_the_least_delta_no_epsilon_is_claimed():
    assert compute_epsilon([NoisyRelease("steps", 1.0, (1.0,), 1)], 1e-300, "rdp") == math.inf
