"""Projected clipped SGD: a step of a published schedule, then a projection on a ball."""

from tests.methods.loops import DPSGD, assert_steps, releases


class PCSGD(DPSGD):
    params = {"max_grad_norm": 0.8, "radius": 1.2, "schedule": (5.0, 7.0)}

    def factor(self, t):
        return 5.0 / (7.0 + t + 1)  # the paper counts from 1

    def after(self, theta):
        return theta * min(1.0, 1.2 / float(theta.norm()))


def test_pcsgd_steps_are_those_of_the_formula():
    assert_steps("pcsgd", PCSGD)
    assert releases("pcsgd", max_grad_norm=0.75) == {"gradient sum": (0.75, 2.0)}
