"""Soft adaptive clipping: longer gradients stay longer, but below the bound."""

import math

from tests.methods.formula_steps import Adaptive, assert_steps, releases


class SoftAdaClip(Adaptive):
    def weighted(self, g, c):
        norm = float(g.norm())
        return g * c * math.tanh(norm / c) / norm


def test_soft_adaclip_steps_are_those_of_the_formula():
    assert_steps("soft_adaclip", SoftAdaClip)
    expected = {"gradient sum": (None, 2.0), "above_z": (1.0, 10.0)}
    assert releases("soft_adaclip") == expected
