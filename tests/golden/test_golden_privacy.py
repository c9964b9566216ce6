"""Epsilon and calibration against an independent accountant, at the tolerances it states."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from skdpfair import get_method
from skdpfair.engine.mechanism import Mechanism
from skdpfair.methods import METHODS
from skdpfair.privacy import NoisyRelease, calibrate_noise, compute_epsilon
from skdpfair.testing import example_task

GOLDEN = json.loads((Path(__file__).parent / "golden_privacy.json").read_text())
CASES = {c["id"]: c for c in GOLDEN["epsilon_cases"]}
RUNS = [k for k, c in CASES.items() if c.get("q") and c.get("sigma_eff")]


def plan_of(case):
    noise = [case["sigma_grad"]]
    if case.get("sigma_count"):
        noise.append(case["sigma_count"] / case["count_sensitivity"])
    return NoisyRelease("steps", case["q"], tuple(noise), case["T"])


def accepts(value, case, accountant):
    golden = case[f"epsilon_{accountant}"]
    if accountant == "rdp":
        return value == pytest.approx(golden, rel=1e-3)
    return golden - 0.005 <= value <= golden + 0.02


SINGLE = [k for k in RUNS if CASES[k]["adjacency"] == "add_or_remove_one"]
SINGLE = [k for k in SINGLE if k not in ("is_group_private_counts", "f_group_r0.5")]


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
@pytest.mark.parametrize("key", SINGLE)
def test_epsilon(key, accountant):
    case, plan = CASES[key], plan_of(CASES[key])
    assert plan.joint_noise_multiplier == pytest.approx(case["sigma_eff"], rel=1e-9)
    assert accepts(compute_epsilon([plan], case["delta"], accountant), case, accountant)


@pytest.mark.parametrize("key", ["adult_dpsgd", "adult_ga", "f_q_large"])
def test_the_prv_accountant_agrees(key):
    case = CASES[key]
    value = compute_epsilon([plan_of(case)], case["delta"], "prv")
    assert case["epsilon_pld"] - 0.005 <= value <= case["epsilon_pld"] + 0.02


@pytest.mark.parametrize("key", SINGLE)
def test_halves_of_a_plan_cost_what_it_costs(key):
    case, plan = CASES[key], plan_of(CASES[key])
    steps = plan.steps // 2, plan.steps - plan.steps // 2
    halves = [replace(plan, what=f"half of {n}", steps=n) for n in steps]
    assert compute_epsilon(halves, case["delta"]) == compute_epsilon([plan], case["delta"])


def test_the_number_of_groups_does_not_enter():
    for name in METHODS:
        costs = {
            Mechanism(METHODS[name](), example_task(n_groups=k), 1.0).release for k in (1, 2, 50)
        }
        assert len(costs) == 1


@pytest.mark.parametrize("case", GOLDEN["calibration_cases"], ids=lambda c: c["id"])
def test_calibration(case):
    ratio = case["ratio_count_over_grad"]
    noise = (1.0,) if ratio is None else (1.0, ratio)
    plan = NoisyRelease("steps", case["q"], noise, case["T"])
    (made,) = calibrate_noise([plan], case["target_epsilon"], case["delta"], case["accountant"])
    assert made.noise_multipliers[0] == pytest.approx(case["sigma_grad"], rel=5e-3)
    if ratio is not None:
        assert made.noise_multipliers[1] == pytest.approx(case["sigma_count"], rel=5e-3)
    spent = compute_epsilon([made], case["delta"], case["accountant"])
    assert 0.995 * case["target_epsilon"] < spent <= case["target_epsilon"]
    method = {"dpsgd": "dpsgd", "naive": "naive"}.get(case["method"], case["method"])
    if ratio is not None:
        auto = Mechanism(get_method(method, count_noise_multiplier=ratio), example_task(), 1.0)
        assert auto.release.noise_multipliers == noise


def test_cases_left_out_are_known():
    """Mixed runs are in tests/privacy; a method without privacy has no epsilon to check."""
    left_out = set(CASES) - set(SINGLE)
    assert left_out == {
        "f_group_r0.5",
        "gdro",
        "is_group_private_counts",
        "partial_fit",
        "replace_special_adult",
    }
