"""Calibrated noise never exceeds its target, stays near it, and is refused in time."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpfair.exceptions import InfeasibleBudgetError
from skdpfair.privacy import NoisyRelease, calibrate_noise, compute_epsilon
from skdpfair.privacy.accounting import pld_epsilon
from skdpfair.privacy.calibration import MIN_NOISE_MULTIPLIER

from .builders import exact_epsilon, run

COUNTS = NoisyRelease("counts", 1.0, (300.0,), is_one_time=True)


@settings(max_examples=12, deadline=None)
@given(
    rate=st.sampled_from([1.0, 0.5, 1 / 16, 0.01]),
    steps=st.sampled_from([20, 110, 630]),
    target=st.floats(0.3, 8.0),
    delta=st.sampled_from([1e-4, 1e-6]),
    counts=st.sampled_from([(), (5.0,), (5.0, 10.0)]),
)
def test_calibrate_noise_scales_all_noise_to_the_target(rate, steps, target, delta, counts):
    plan = run(rate, 1.0, *counts, steps=steps)
    (made,) = calibrate_noise([plan], target, delta)
    assert 0.99 * target <= compute_epsilon([made], delta) <= target
    factor = made.noise_multipliers[0]
    assert made.noise_multipliers == pytest.approx([factor * s for s in plan.noise_multipliers])
    joint = sum(s**-2 for s in made.noise_multipliers) ** -0.5
    assert made.joint_noise_multiplier == pytest.approx(joint)


@pytest.mark.parametrize(
    "accountant, rate, steps, once, records",
    [
        *((name, 0.05, 200, (), 1) for name in ("pld", "rdp", "prv")),
        *((name, 0.05, 20, (30.0,), 4) for name in ("pld", "rdp")),
        *(("pld", 1.0, 20, (), 4), ("prv", 0.05, 20, (), 4)),
    ],
)
def test_calibrate_noise_by_each_accountant_and_person(accountant, rate, steps, once, records):
    runs = [*(run(1.0, s) for s in once), run(rate, 1.0, steps=steps)]
    runs = calibrate_noise(runs, 2.0, 1e-5, accountant, records_per_person=records)
    assert 1.99 <= compute_epsilon(runs, 1e-5, accountant, records) <= 2.0


@pytest.mark.parametrize("target", [0.5, 3.0, 8.0])
def test_calibrate_noise_for_all_strata(target):
    counts = replace(COUNTS, noise_multipliers=(40.0,))
    steps = run(0.2, 1.0, 5.0, steps=300, strata=((0.05, 1.0), (0.2, 0.28)))
    _, steps = calibrate_noise([counts, steps], target, 1e-5)
    assert 0.998 * target <= compute_epsilon([counts, steps], 1e-5) <= target
    for rate, factor in steps.strata:
        alone = run(rate, *(s / factor for s in steps.noise_multipliers), steps=300)
        assert 0.6 * target < compute_epsilon([counts, alone], 1e-5) < target


RUNS = [(1.0, 100), (0.3, 20), (1 / 92, 1840), (1e-3, 10_000)]
TARGETS = [(0.05, RUNS), (200.0, RUNS), (1e3, RUNS[:1]), (1e6, RUNS[:2]), (1e308, RUNS[1:2])]


@pytest.mark.parametrize("rate, steps, target", [(*r, t) for t, runs in TARGETS for r in runs])
def test_calibrate_noise_meets_targets_far_away_beside_other_releases(rate, steps, target):
    runs = calibrate_noise([COUNTS, run(rate, 1.0, 5.0, steps=steps)], target, 1e-6)
    assert runs[0] == COUNTS
    cost, noise = compute_epsilon(runs, 1e-6), runs[1].joint_noise_multiplier
    assert noise >= MIN_NOISE_MULTIPLIER and cost <= target
    assert cost >= 0.999 * target or noise == pytest.approx(MIN_NOISE_MULTIPLIER)


@pytest.mark.parametrize("accountant", ["pld", "prv"])
@pytest.mark.parametrize(("rate", "steps"), [(1.0, 1), (1 - 1e-9, 300), (1 - 1e-9, 10_000)])
def test_calibrate_noise_at_a_small_delta(accountant, rate, steps):
    for delta in (1e-11, 1e-12, 1e-13, 1e-14, 1e-30, 1e-99):
        (made,) = calibrate_noise([run(rate, 1.0, steps=steps)], 8.0, delta, accountant)
        exact = exact_epsilon(math.sqrt(steps) / made.joint_noise_multiplier, delta)
        assert 0.9 * 8.0 <= exact <= 8.0 * (1 + 1e-6)


def test_calibrate_noise_leaves_fixed_positions():
    (made,) = calibrate_noise([run(0.05, 1.0, 4.0, steps=100)], 2.0, 1e-5, fixed=(1,))
    assert made.noise_multipliers[1] == 4.0 and compute_epsilon([made], 1e-5) <= 2.0


@pytest.mark.parametrize(
    ("rate", "steps", "target", "most"),
    [(1.0, 100, 1.0, 2), (0.3, 20, 3.0, 4), (1 / 92, 1840, 3, 5)],
)
def test_calibrate_noise_and_the_epsilon_after_it_take_few_evaluations(rate, steps, target, most):
    pld_epsilon.cache_clear()
    counts = replace(COUNTS, noise_multipliers=(90.0,))
    for noise in ((1.0,), (1.0, 7.0, 10.0)):
        runs = calibrate_noise([counts, run(rate, *noise, steps=steps)], target, 3e-6)
        assert compute_epsilon(runs, 3e-6) <= target
    assert pld_epsilon.cache_info().misses <= most


@pytest.mark.parametrize(
    "noise, fixed, message",
    [
        ((0.0, 5.0), (), "^noise_multipliers .*0.0"),
        ((math.inf, 5.0), (), "^noise_multipliers .*inf"),
        *(((1.0, 5.0), fixed, f"^fixed .*2 .*{fixed[-1]}") for fixed in [(0, 1), (2,), (-1,)]),
    ],
)
def test_calibrate_noise_refuses_noise_that_cannot_be_scaled(noise, fixed, message):
    with pytest.raises(ValueError, match=message):
        calibrate_noise([run(0.1, *noise, steps=10)], 1.0, 1e-5, fixed=fixed)


PLAN = run(0.1, 1.0, 5.0, steps=10)


@pytest.mark.parametrize(
    "releases, epsilon, delta, settings, remedy",
    [
        ([run(1.0, 1.0), PLAN], 1.0, 1e-5, {}, "group_count_noise_multiplier"),
        ([run(0.5, 1.0, 0.3, steps=100)], 0.5, 1e-5, {"fixed": (1,)}, "count_noise_.*=0.3.*Raise"),
        # below what an accountant certifies
        ([PLAN], 1e-3, 1e-6, {"accountant": "rdp"}, "'rdp'.*accountant='pld'"),
        ([PLAN], 1e-3, 1e-6, {"accountant": "prv"}, "'prv'.*accountant='pld'"),
        (
            [run(0.3, 1.0, steps=10)],
            *(0.1, 1e-5, {"accountant": "rdp", "records_per_person": 100}),
            "100 records .*accountant='pld'",
        ),
        ([run(1.0, 1.0)], 0.1, 1e-60, {}, "Raise epsilon or delta"),
        ([run(0.5, 1.0, steps=10_000)], 1e-3, 1e-6, {}, "noise multiplier.*lower steps or"),
        ([run(0.5, 1.0, steps=10_000)], 1e-9, 1e-6, {}, "noise multiplier.*lower steps or"),
    ],
)
def test_calibrate_noise_refuses_a_budget_with_its_remedy(
    releases, epsilon, delta, settings, remedy
):
    with pytest.raises(InfeasibleBudgetError, match=rf"(?s){remedy}"):
        calibrate_noise(releases, epsilon, delta, **settings)
