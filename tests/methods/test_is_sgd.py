"""Importance sampling without privacy: groups are drawn equally often."""

import math

import pytest

from skdpfair import get_method
from skdpfair.testing import example_task
from tests.methods.formula_steps import RATE, SGD, SHARES, N, assert_steps, releases


class ISSGD(SGD):
    params = {"gradient_noise": 0.05, "group_probabilities": SHARES}

    def step(self, theta, batch):
        self.size = N * sum(q * min(1.0, RATE / (3 * q)) for q in SHARES)
        return super().step(theta, batch)


def test_is_sgd_steps_are_those_of_the_formula():
    assert_steps("is_sgd", ISSGD)


def test_is_sgd_rates_are_at_most_1():
    method = get_method("is_sgd", group_probabilities=(0.9, 0.1))
    rates = method.rates(example_task(sample_rate=0.3)).tolist()
    assert rates == pytest.approx([0.3 / 1.8, 1.0])
    assert releases("is_sgd") == {"gradient sum": (math.inf, 0.0)}
