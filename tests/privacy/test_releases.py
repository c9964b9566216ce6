"""Releases: their fields, their joint noise, and lists of them, whatever function reads these."""

import math

import numpy as np
import pytest

from skdpfair.privacy import NoisyRelease, calibrate_noise, compute_epsilon
from skdpfair.privacy.releases import count_steps, merge_consecutive

from .builders import run

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
def test_noisy_release_refuses_a_field_by_name(field, value):
    with pytest.raises((ValueError, TypeError), match=f"^{field} "):
        NoisyRelease(**GOOD | {field: value})


@pytest.mark.parametrize("noise", [(1e-200,), (1e200,), (math.inf,), (math.inf, 1e-200)])
def test_joint_noise_multiplier_at_the_ends_of_float64(noise):
    assert run(0.1, *noise).joint_noise_multiplier == min(noise)


def test_merge_consecutive_and_count_steps():
    runs = merge_consecutive(NoisyRelease(what, 0.1, (2.0, 10.0)) for what in "aaba")
    assert [(e.what, e.steps) for e in runs] == [("a", 2), ("b", 1), ("a", 1)]
    plan = run(0.1, 2.0, 10.0, steps=4)
    assert count_steps(runs) == 4 and compute_epsilon(runs, 1e-5) == compute_epsilon([plan], 1e-5)
    assert count_steps([plan, NoisyRelease("counts", 1.0, (1.0,), is_one_time=True)]) == 4


RUN = run(0.1, 1.0, 5.0, steps=10)
READERS = {
    "compute_epsilon": lambda runs, **records: compute_epsilon(runs, 1e-5, **records),
    "calibrate_noise": lambda runs, **records: calibrate_noise(runs, 1.0, 1e-5, **records),
}
reader = pytest.mark.parametrize("reader", READERS)


@reader
def test_all_releases_refuses_other_objects(reader):
    unusable = None, 3, "abc", [1.0], [3, RUN], [(1.0, 1.0)], [("what", 1.0, (1.0,))], np.ones(2)
    for releases in unusable:
        with pytest.raises((ValueError, TypeError), match=r"^releases .* NoisyRelease"):
            READERS[reader](releases)


@reader
@pytest.mark.parametrize("records", [0, -1, 1001, 2.5, "2", None])
def test_merged_refuses_records_per_person(reader, records):
    with pytest.raises((ValueError, TypeError), match=f"^records_per_person .*{records}"):
        READERS[reader]([RUN], records_per_person=records)


def test_merged_refuses_too_many_steps():
    with pytest.raises(ValueError, match=r"^steps "):
        compute_epsilon([run(0.1, 1.0, steps=10**9)] * 2, 1e-5, "rdp")
