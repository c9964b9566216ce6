"""DP-SGD: each gradient is clipped to one bound."""

from tests.methods.formula_steps import DPSGD, assert_steps, releases


def test_dpsgd_steps_are_those_of_the_formula():
    assert_steps("dpsgd", DPSGD)
    assert releases("dpsgd", max_grad_norm=0.75) == {"gradient sum": (0.75, 2.0)}
