"""Bounded adaptive clipping: the bound follows the norms down to a floor."""

from tests.methods.formula_steps import Adaptive, assert_steps, releases


class BoundedAdapt(Adaptive):
    params = {**Adaptive.params, "min_grad_norm": 0.78}
    lowest = 0.78


def test_bounded_adapt_steps_are_those_of_the_formula():
    assert_steps("bounded_adapt", BoundedAdapt)
    expected = {"gradient sum": (None, 2.0), "above_z": (1.0, 10.0)}
    assert releases("bounded_adapt") == expected
