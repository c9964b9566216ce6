"""SGD without privacy, and noise that buys no epsilon."""

import math

from tests.methods.formula_steps import SGD, assert_steps, releases


def test_sgd_steps_are_those_of_the_formula():
    assert_steps("sgd", SGD)
    assert releases("sgd") == {"gradient sum": (math.inf, 0.0)}
