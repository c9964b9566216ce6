"""Runs of unlike releases, very many steps, and budgets at the edge of what is supported."""

import json
import math
from dataclasses import replace
from pathlib import Path

import mpmath
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant

from skdpfair.privacy import compute_epsilon
from skdpfair.privacy.accounting import PRV_ERROR
from skdpfair.privacy.gdp import gdp_epsilon

from .builders import exact_epsilon, hockey_stick, run

GOLDEN = Path(__file__).parents[1] / "golden" / "golden_privacy.json"
CASES = {c["id"]: c for c in json.loads(GOLDEN.read_text())["epsilon_cases"]}
SMALL_DELTAS = [1e-10, 1e-11, 1e-12, 1e-13, 1e-14, 1e-30, 1e-99]
# a rate next to 1 is composed step by step, and has the plain Gaussian's closed form as its limit
RATES = [1.0, 1 - 1e-9]


def mixed_runs(key):
    case = CASES[key]
    if key == "partial_fit":
        return [run(q, s, steps=t) for q, s, t in case["segments"]]
    if key == "f_group_r0.5":  # a declared cap scales the gradient's part of a group's step
        noise = case["sigma_grad"] / case["cap_ratio"], case["sigma_count"]
        return [run(case["q"], *noise, steps=case["T"])]
    # replace_special has the same dominating pair as zero-out
    steps = run(case["q"], case["sigma_eff"], steps=case["T"])
    counts = case.get("sigma_group_counts")  # one release of the group sizes, on all records
    return [steps, run(1.0, counts)] if counts else [steps]


PLD = ["partial_fit", "is_group_private_counts", "f_group_r0.5", "replace_special_adult"]


@pytest.mark.parametrize(
    "key, accountant", [*((key, "pld") for key in PLD), ("is_group_private_counts", "prv")]
)
def test_compute_epsilon_of_golden_compositions(key, accountant):
    case, runs = CASES[key], mixed_runs(key)
    golden = case["epsilon_pld"]
    assert golden - 0.005 <= compute_epsilon(runs, case["delta"], accountant) <= golden + 0.02
    if case["epsilon_rdp"] is not None:
        rdp = compute_epsilon(runs, case["delta"], "rdp")
        assert rdp == pytest.approx(case["epsilon_rdp"], rel=1e-3)


def test_compute_epsilon_of_a_million_steps_bounds_the_limit_from_above():
    exact = gdp_epsilon(1.0, 1e-6)
    found = compute_epsilon([run(RATES[1], 1e3, steps=1_000_000)], 1e-6)
    assert exact * (1 - 1e-6) <= found <= exact * 1.005


def test_compute_epsilon_ignores_the_order_and_the_cutting_of_runs():
    a, b = run(0.1, 2.0, steps=30), run(1.0, 20.0)
    parts = [replace(a, steps=10), b, replace(a, steps=20)]
    assert len({compute_epsilon(runs, 1e-5) for runs in ([a, b], [b, a], parts)}) == 1


def test_compute_epsilon_of_growing_runs_is_that_of_their_sum():
    kinds = [run(0.004 + 0.001 * i, 1.0 + 0.1 * i, steps=60) for i in range(7)] + [run(1.0, 20.0)]
    delta = 1e-6
    forth = [compute_epsilon(kinds[: i + 1], delta) for i in range(len(kinds))]
    longer = compute_epsilon([*kinds, *kinds[2:]], delta)
    again = math.nextafter(delta, 1)  # nothing of it was computed before
    back = [compute_epsilon(kinds[-i - 1 :], again) for i in range(len(kinds))]
    assert forth == sorted(forth)
    assert back[-1] == pytest.approx(forth[-1], rel=1e-9)
    for total, runs in [(forth[-1], kinds), (longer, [*kinds, *kinds[2:]])]:
        library = PLDAccountant(value_discretization_interval=3e-4)
        for r in runs:
            step = GaussianDpEvent(r.joint_noise_multiplier)
            library.compose(PoissonSampledDpEvent(r.sample_rate, step), r.steps)
        assert total == pytest.approx(library.get_epsilon(delta), rel=0.003)


def test_compute_epsilon_of_nothing_and_without_noise():
    runs = [], [run(0.1, 1.0, steps=0)], [run(0.1, 0.0)]
    assert [compute_epsilon(own, 1e-5) for own in runs] == [0.0, 0.0, math.inf]
    # below the least delta, no epsilon is claimed
    assert compute_epsilon([run(1.0, 1.0)], 1e-300, "rdp") == math.inf


@pytest.mark.parametrize("accountant", ["pld", "rdp", "prv"])
@pytest.mark.parametrize(
    "noise, low, high", [(1e-308, math.inf, math.inf), (1e308, 0, 0.01), (math.inf, 0, 0)]
)
def test_compute_epsilon_of_noise_at_the_ends_of_float64(accountant, noise, low, high):
    assert low <= compute_epsilon([run(0.1, noise, steps=10)], 1e-5, accountant) <= high


@pytest.mark.parametrize("delta", [1e-13, 1e-5, 0.5, 0.99, 1 - 1e-12])
@pytest.mark.parametrize("rate", [1e-9, 1e-6, 0.5, 1.0])
def test_accountants_agree_at_the_ends_of_what_they_compute(rate, delta):
    for noise, steps in [(1e-4, 1), (1e-3, 5), (0.5, 2), (50.0, 1), (1e6, 1000)]:
        own = run(rate, noise, steps=steps)
        pld, prv, rdp = (compute_epsilon([own], delta, name) for name in ("pld", "prv", "rdp"))
        assert 0 <= pld <= 1.001 * rdp + 1e-9 and rdp < math.inf, own
        assert 0 <= prv <= 1.1 * pld + 2 * PRV_ERROR, own
        assert prv >= 0.9 * pld - PRV_ERROR, own
        assert compute_epsilon([replace(own, steps=0)], delta, "prv") == 0.0


@pytest.mark.parametrize("noise", [0.02, 0.01])
def test_prv_never_understates_a_huge_epsilon(noise):
    exact = gdp_epsilon(1 / noise, 1e-5)
    assert exact <= compute_epsilon([run(1.0, noise)], 1e-5, "prv") <= 1.02 * exact


@pytest.mark.parametrize("accountant", ["pld", "prv", "rdp"])
@pytest.mark.parametrize(("mu", "steps"), [(0.3, 10_000), (1.0, 1), (3.0, 10_000), (10.0, 300)])
def test_no_accountant_understates_at_a_small_delta(accountant, mu, steps):
    for delta in SMALL_DELTAS:
        exact = exact_epsilon(mu, delta)
        for rate in RATES:
            own = run(rate, math.sqrt(steps) / mu, steps=steps)
            found = compute_epsilon([own], delta, accountant)
            assert exact * (1 - 1e-6) <= found <= 1.1 * exact + 0.01


@pytest.mark.parametrize(("q", "sigma"), [(0.01, 0.5), (0.3, 1.0)])
def test_compute_epsilon_of_one_sampled_step_at_a_small_delta_has_its_closed_form(q, sigma):
    with mpmath.workdps(60):
        for delta in SMALL_DELTAS:
            found = compute_epsilon([run(q, sigma)], delta)
            assert hockey_stick(mpmath.mpf(found), mpmath.mpf(q), sigma, 1) <= delta * (1 + 1e-6)
