"""Global clipping: gradients above a threshold are dropped, all others are scaled alike."""

import pytest

from skdpfair import get_method
from tests.methods.formula_steps import DPSGD, assert_steps, releases


class Global(DPSGD):
    params = {"max_grad_norm": 0.8, "strict_max_grad_norm": 2.0}

    def step(self, theta, batch):
        rows = self.gradients(theta, batch)
        return self.noisy_mean(0.8 / 2.0 * g for g in rows if g.norm() <= 2.0)


def test_global_steps_are_those_of_the_formula():
    assert_steps("global", Global)


def test_global_releases_the_gradient_sum_and_sets_its_threshold_above_the_scale():
    assert releases("global", max_grad_norm=0.75) == {"gradient sum": (0.75, 2.0)}
    method, unit = get_method("global").at_scale(1.5, 2.0)
    bounds = {"max_grad_norm": 1.0, "strict_max_grad_norm": 6.0}
    assert method.get_params() == bounds and unit == pytest.approx(1 / 6)
