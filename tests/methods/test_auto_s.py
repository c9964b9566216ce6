"""AUTO-S: directions of long gradients count alike."""

import pytest

from skdpfair import get_method
from tests.methods.formula_steps import DPSGD, assert_steps, releases


class AutoS(DPSGD):
    params = {"gamma": 0.1}

    def step(self, theta, batch):
        rows = self.gradients(theta, batch)
        return self.noisy_mean((g / (g.norm() + 0.1) for g in rows), bound=1.0)


def test_auto_s_steps_are_those_of_the_formula():
    assert_steps("auto_s", AutoS)


def test_auto_s_releases_a_sum_of_sensitivity_1_and_steps_by_the_inverse_scale():
    assert releases("auto_s") == {"gradient sum": (1.0, 2.0)}
    assert get_method("auto_s").at_scale(4.0, 2.0)[1] == pytest.approx(1 / 8)
