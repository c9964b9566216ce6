"""What no accountant can price is refused by the name of its parameter, whatever the door."""

import math

import numpy as np
import pytest

from skdpfair.exceptions import InfeasibleBudgetError
from skdpfair.privacy import NoisyRelease, calibrate_noise, compute_epsilon
from skdpfair.privacy.gdp import gdp_epsilon
from skdpfair.privacy.renyi import check_law
from skdpfair.privacy.tradeoff import trade_off_from_epsilon

from .reports import report

RUN = NoisyRelease("steps", 0.1, (1.0, 5.0), 10)
GOOD = {"what": "sum", "steps": 1, "sample_rate": 0.5, "noise_multipliers": (1.0,)}


class Shy:
    def __repr__(self):
        raise RuntimeError("private")


FIELDS = {
    "what": [math.nan, Shy()],
    "is_one_time": ["x"],
    "group_rates": [math.nan, (0.1, 2.0)],
    "strata": [math.nan, [(0.1,)], [(0.0, 1.0)], [(1e-3, 1.5)], [(0.9, 1.0)]],
    "steps": [-1, -100, 0.5, 10**30, math.nan, "1", True, np.ones(2)],
    "sample_rate": [0.0, 1.5, None, "a", 10**400],
    "noise_multipliers": [(), (-1.0,), 1.0, Shy()],
}


@pytest.mark.parametrize(
    "field, value",
    [(field, value) for field, values in FIELDS.items() for value in values],
    ids=lambda value: value if isinstance(value, str) else "value",
)
def test_a_field_of_a_release_is_checked(field, value):
    with pytest.raises((ValueError, TypeError), match=f"^{field} "):
        NoisyRelease(**GOOD | {field: value})


LISTS = [None, 3, "abc", [1.0], [3, RUN], [(1.0, 1.0)], [("what", 1.0, (1.0,))], np.ones(2)]
DOORS = {
    "epsilon": lambda runs: compute_epsilon(runs, 1e-5),
    "calibration": lambda runs: calibrate_noise(runs, 1.0, 1e-5),
}


@pytest.mark.parametrize("door", DOORS)
def test_what_is_no_list_of_releases_is_refused(door):
    for runs in LISTS:
        with pytest.raises(
            (ValueError, TypeError), match=r"^releases must be a list of NoisyRelease"
        ):
            DOORS[door](runs)


@pytest.mark.parametrize("wrong", [0, -1, 1001, 2.5, "2", None])
@pytest.mark.parametrize(
    "name, call",
    [
        ("records_per_person", lambda n: compute_epsilon([RUN], 1e-5, records_per_person=n)),
        ("records_per_person ", lambda n: calibrate_noise([RUN], 1, 1e-5, records_per_person=n)),
        ("n_records", lambda n: report().epsilon_for(n)),
    ],
)
def test_a_number_of_records_that_cannot_be_is_named(name, call, wrong):
    with pytest.raises((ValueError, TypeError), match=f"^{name}"):
        call(wrong)


def noise(*multipliers):
    return [NoisyRelease("steps", 0.1, multipliers, 10)]


CALLS = [
    (
        "^steps ",
        lambda: compute_epsilon([NoisyRelease("steps", 0.1, (1.0,), 10**9)] * 2, 1e-5, "rdp"),
    ),
    ("noise_multipliers", lambda: calibrate_noise(noise(0.0, 5.0), 1.0, 1e-5)),
    ("noise_multipliers", lambda: calibrate_noise(noise(math.inf, 5.0), 1.0, 1e-5)),
    *[
        ("fixed must leave out", lambda f=fixed: calibrate_noise([RUN], 1.0, 1e-5, fixed=f))
        for fixed in [(0, 1), (2,), (-1,)]
    ],
    *[
        (f"^{name} ", lambda m=mu, d=delta: gdp_epsilon(m, d))
        for name, mu, delta in [("mu", -1, 1e-5), ("mu", math.nan, 1e-5), ("mu", "1", 1e-5)]
        + [("delta", 1, d) for d in (0, math.inf, math.nan, -1, None)]
    ],
    *[
        (f"^{name} must be", lambda m=mean, s=shape: check_law(m, s))
        for name, mean, shape in [("mean_trials", 0.5, 1.0), ("mean_trials", 1.0, 1.0)]
        # laws that cannot be drawn from in time
        + [("mean_trials", 1e308, 1.0), ("mean_trials", 10**30, math.inf)]
        + [("shape", 3.0, s) for s in (-1.0, 5e-324, 2**63, 1e308)]
    ],
    ("epsilon must be a number >= 0", lambda: trade_off_from_epsilon(-1.0, 0.0)),
    ("delta must be a number >= 0 and <= 1", lambda: trade_off_from_epsilon(1.0, 2.0)),
    (
        "false_positive_rate must be numbers from 0 to 1",
        lambda: trade_off_from_epsilon(1.5, 1e-4).false_negative_rate([0.5, 1.5]),
    ),
    (
        "^n_records must be 1 for a report without releases",
        lambda: report(None, epsilon=3.0).epsilon_for(2),
    ),
]
BUDGETS = [
    (
        "spent by the other releases alone",
        lambda: calibrate_noise([NoisyRelease("counts", 1.0, (1.0,)), RUN], 1.0, 1e-5),
    ),
    (
        r"count_noise_multiplier=0\.3",
        lambda: calibrate_noise(
            [NoisyRelease("steps", 0.5, (1.0, 0.3), 100)], 0.5, 1e-5, fixed=(1,)
        ),
    ),
    *[  # below what an accountant certifies
        ("accountant='pld'", lambda a=name: calibrate_noise([RUN], 1e-3, 1e-6, a))
        for name in ("rdp", "prv")
    ],
    (
        "for a person with 100 records .* use accountant='pld'",
        lambda: calibrate_noise(
            [NoisyRelease("steps", 0.3, (1.0,), 10)], 0.1, 1e-5, "rdp", (), 100
        ),
    ),
    (
        "Raise epsilon or delta",
        lambda: calibrate_noise([NoisyRelease("steps", 1.0, (1.0,))], 0.1, 1e-60),
    ),
]


@pytest.mark.parametrize("message, call", CALLS, ids=[message for message, _ in CALLS])
def test_a_call_is_refused_with_its_reason(message, call):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


@pytest.mark.parametrize("message, call", BUDGETS, ids=[message for message, _ in BUDGETS])
def test_a_budget_that_cannot_be_met_is_refused_with_the_way_out(message, call):
    with pytest.raises(InfeasibleBudgetError, match=message):
        call()


@pytest.mark.parametrize("target", [1e-3, 1e-9])
def test_an_impossible_budget_says_what_would_do(target):
    with pytest.raises(InfeasibleBudgetError, match=r"noise multiplier.*lower steps or"):
        calibrate_noise([NoisyRelease("steps", 0.5, (1.0,), 10_000)], target, 1e-6)
