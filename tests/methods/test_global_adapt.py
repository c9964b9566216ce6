"""Global adaptive clipping: a threshold that follows a noisy count of the norms above it."""

import math

import pytest

from skdpfair import get_method
from tests.methods.formula_steps import DPSGD, assert_steps, releases


class GlobalAdapt(DPSGD):
    params = {
        "max_grad_norm": 0.8,
        "strict_max_grad_norm": 2.0,
        "threshold": 0.7,
        "lr_z": 0.1,
        "z_gain": 1.0,
        "count_noise_multiplier": 3.0,
    }

    def step(self, theta, batch):
        z, rows = self.kept.get("z", 2.0), self.gradients(theta, batch)
        (count,) = self.counted([sum(float(g.norm()) > 0.7 * z for g in rows)])
        self.kept["z"] = z * math.exp(max(-1.0, min(1.0, count / self.size - 0.1)))
        return self.noisy_mean(0.8 / max(z, float(g.norm())) * g for g in rows)


def test_global_adapt_steps_are_those_of_the_formula():
    assert_steps("global_adapt", GlobalAdapt)
    expected = {"gradient sum": (0.75, 2.0), "above_z": (1.0, 10.0)}
    assert releases("global_adapt", max_grad_norm=0.75) == expected


def test_global_adapt_floor_of_the_threshold_follows_the_scale_where_both_are_auto():
    method, unit = get_method("global_adapt").at_scale(2.0, 1.5)
    assert method.min_strict_max_grad_norm > 0 and unit == 1.0
    method, unit = get_method("global_adapt", max_grad_norm=0.5).at_scale(2.0, 1.5)
    assert (method.min_strict_max_grad_norm, method.strict_max_grad_norm, unit) == (0.0, 2.0, 1.0)


@pytest.mark.parametrize(
    ("given", "lr_z", "z_gain"),
    [({}, 0.2 * 0.15, 0.15), ({"z_gain": 2.0}, 0.2 * 2.0, 2.0), ({"lr_z": 0.05}, 0.05, 1.0)],
)
def test_planned_sets_parameters_from_public_facts(given, lr_z, z_gain):
    planned = get_method("global_adapt", **given).planned(target_quantile=0.2)
    assert (planned.lr_z, planned.z_gain) == (lr_z, z_gain)
