"""Noise, budget and ledger: calibration never exceeds its target, and refuses in time."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpfair.privacy import NoisyRelease, calibrate_noise, compute_epsilon
from skdpfair.privacy.accounting import pld_epsilon
from skdpfair.privacy.gdp import gdp_epsilon, gdp_parameter
from skdpfair.privacy.releases import count_steps, merge_consecutive
from skdpfair.privacy.statement import rounded_up

from .reports import report


@pytest.mark.parametrize(
    "n_delta, target, mu",
    [(1e-6, 0.5, 0.124), (1e-6, 1, 0.237), (1e-6, 3, 0.648), (1e-6, 8, 1.53), (1e-4, 8, 1.84)],
)
def test_gdp_parameter_gives_the_published_values(n_delta, target, mu):
    assert gdp_parameter(target, n_delta) == pytest.approx(mu, rel=5e-3)
    assert gdp_epsilon(gdp_parameter(target, n_delta), n_delta) == pytest.approx(target, rel=1e-6)


@settings(max_examples=12, deadline=None)
@given(
    rate=st.sampled_from([1.0, 0.5, 1 / 16, 0.01]),
    steps=st.sampled_from([20, 110, 630]),
    target=st.floats(0.3, 8.0),
    delta=st.sampled_from([1e-4, 1e-6]),
    counts=st.sampled_from([(), (5.0,), (5.0, 10.0)]),
)
def test_calibrated_noise_meets_the_target_from_below(rate, steps, target, delta, counts):
    plan = NoisyRelease("steps", rate, (1.0, *counts), steps)
    (made,) = calibrate_noise([plan], target, delta)
    assert 0.99 * target <= compute_epsilon([made], delta) <= target
    factor = made.noise_multipliers[0]
    assert made.noise_multipliers == pytest.approx([factor * s for s in plan.noise_multipliers])
    joint = sum(s**-2 for s in made.noise_multipliers) ** -0.5
    assert made.joint_noise_multiplier == pytest.approx(joint)


@pytest.mark.parametrize("accountant", ["pld", "rdp", "prv"])
def test_every_accountant_calibrates(accountant):
    run = NoisyRelease("steps", 0.05, (1.0,), 200)
    spent = compute_epsilon(calibrate_noise([run], 2.0, 1e-5, accountant), 1e-5, accountant)
    assert 1.97 <= spent <= 2.0


@pytest.mark.parametrize("target", [0.05, 200.0])
@pytest.mark.parametrize("rate, steps", [(1.0, 100), (0.3, 20), (1 / 92, 1840), (1e-3, 10_000)])
def test_the_target_is_met_from_below_however_far_it_lies(rate, steps, target):
    counts = NoisyRelease("counts", 1.0, (300.0,), is_one_time=True)
    runs = calibrate_noise([counts, NoisyRelease("steps", rate, (1.0, 5.0), steps)], target, 1e-6)
    assert runs[0] == counts
    assert 0.999 * target <= compute_epsilon(runs, 1e-6) <= target


def test_fixed_noise_stays():
    plan = NoisyRelease("steps", 0.05, (1.0, 4.0), 100)
    (made,) = calibrate_noise([plan], 2.0, 1e-5, fixed=(1,))
    assert made.noise_multipliers[1] == 4.0 and compute_epsilon([made], 1e-5) <= 2.0


def test_more_steps_cost_more_and_more_noise_costs_less():
    costs = [compute_epsilon([NoisyRelease("steps", 0.1, (2.0,), t)], 1e-5) for t in (10, 40, 160)]
    assert costs == sorted(costs) and costs[0] < costs[-1]
    costs = [compute_epsilon([NoisyRelease("steps", 0.1, (s,), 40)], 1e-5) for s in (4.0, 2.0, 1.0)]
    assert costs == sorted(costs) and costs[0] < costs[-1]


def test_nothing_costs_nothing_and_no_noise_costs_all():
    assert (
        compute_epsilon([], 1e-5) == 0.0
        and compute_epsilon([NoisyRelease("steps", 0.1, (1.0,), 0)], 1e-5) == 0.0
    )
    assert compute_epsilon([NoisyRelease("steps", 0.1, (0.0,), 1)], 1e-5) == math.inf


def test_equal_consecutive_releases_are_merged():
    runs = merge_consecutive(NoisyRelease(what, 0.1, (2.0, 10.0)) for what in "aaba")
    assert [(e.what, e.steps) for e in runs] == [("a", 2), ("b", 1), ("a", 1)]
    plan = NoisyRelease("steps", 0.1, (2.0, 10.0), 4)
    assert count_steps(runs) == 4 and compute_epsilon(runs, 1e-5) == compute_epsilon([plan], 1e-5)


def test_a_report_escapes_the_names_of_users():
    bare = report(method="<b>", epsilon=math.inf, is_private=False, assumptions=("<script>",))
    assert "<script>" not in bare._repr_html_() and "<b>&lt;b" not in bare._repr_html_()
    assert "NOT differentially private" in repr(bare)
    assert json.loads(json.dumps(bare.facts()))["epsilon"] == "inf"


@given(value=st.floats(1e-12, 1e6), digits=st.integers(2, 6))
def test_what_is_printed_is_never_less_than_what_was_spent(value, digits):
    printed = float(rounded_up(value, digits))
    assert value <= printed <= value * (1 + 10.0 ** (1 - digits))
    statement = report(epsilon=value, delta=value).statement
    numbers = statement.split("(")[1].split(")")[0].split(", ")
    assert [float(t) >= value for t in numbers] == [True, True]


def test_gdp_at_the_ends_of_float64():
    assert gdp_epsilon(0, 1e-5) == 0.0
    assert gdp_epsilon(1e308, 1e-5) == math.inf
    assert gdp_epsilon(0.99e6, 1e-5) < gdp_epsilon(1.01e6, 1e-5) < 1.05 * gdp_epsilon(0.99e6, 1e-5)
    assert gdp_parameter(1e308, 1e-5) == pytest.approx(math.sqrt(2) * 1e154)
    (huge,) = calibrate_noise([NoisyRelease("steps", 0.1, (1.0,), 10)], 1e308, 1e-5)
    assert huge.joint_noise_multiplier == pytest.approx(0.1)


@pytest.mark.parametrize("noise", [(1e-200,), (1e200,), (math.inf,), (math.inf, 1e-200)])
def test_joint_noise_at_the_ends_of_float64(noise):
    plan = NoisyRelease("steps", 0.1, noise, 1)
    assert plan.joint_noise_multiplier == min(noise)


@pytest.mark.parametrize(
    ("rate", "steps", "target", "most"),
    [(1.0, 100, 1.0, 2), (0.3, 20, 3.0, 4), (1 / 92, 1840, 3, 5)],
)
def test_calibration_and_the_report_after_it_take_few_evaluations(rate, steps, target, most):
    pld_epsilon.cache_clear()
    counts = NoisyRelease("counts", 1.0, (90.0,), is_one_time=True)
    for noise in ((1.0,), (1.0, 7.0, 10.0)):
        runs = calibrate_noise([counts, NoisyRelease("steps", rate, noise, steps)], target, 3e-6)
        assert compute_epsilon(runs, 3e-6) <= target
    assert pld_epsilon.cache_info().misses <= most


@pytest.mark.parametrize("name", ["private", "by person", "by group", "none"])
def test_the_facts_of_a_report_are_json_and_it_prints_twelve_lines(name):
    run = NoisyRelease("gradient sum", 0.1, (2.0,), 10)
    facts = {
        "private": {"assumptions": ("n",), "max_grad_norm": 1.0},
        "by person": {"adjacency": "zero_out_person", "max_records": 3},
        "by group": {"group_epsilons": {"F": 1.0, "M": np.inf}, "records_per_person": 2},
        "none": {"epsilon": np.inf, "is_private": False, "holds": ("a", "b")},
    }[name]
    first = report(None if name == "none" else run, n_samples=80, **facts)
    stated = first.facts()
    assert json.loads(json.dumps(stated, allow_nan=False)).keys() == stated.keys()
    assert stated.keys() >= vars(first).keys()
    assert len(repr(first).splitlines()) <= 12
    assert all(text in repr(first) for text in first.summary.values())
