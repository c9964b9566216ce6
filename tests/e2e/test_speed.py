"""What users do takes about as much CPU time, over what it is compared with, as when measured."""

import json

import pytest

from benchmarks import bench_users


@pytest.mark.slow
def test_ratios_are_at_most_one_and_a_half_times_those_that_are_kept():
    kept = json.loads((bench_users.RESULTS / "users.json").read_text())
    found = bench_users.measure(rounds=3)
    assert found.keys() == kept.keys()
    ratios = {name: (row["ratio"], kept[name]["ratio"]) for name, row in found.items()}
    assert {name: pair for name, pair in ratios.items() if pair[0] > 1.5 * pair[1]} == {}
