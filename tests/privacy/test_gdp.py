"""Conversion of mu and epsilon: published values, the ends of float64, refusals."""

import math

import pytest

from skdpfair.privacy.gdp import gdp_epsilon, gdp_parameter


@pytest.mark.parametrize(
    "n_delta, target, mu",
    [(1e-6, 0.5, 0.124), (1e-6, 1, 0.237), (1e-6, 3, 0.648), (1e-6, 8, 1.53), (1e-4, 8, 1.84)],
)
def test_gdp_parameter_has_the_published_values(n_delta, target, mu):
    assert gdp_parameter(target, n_delta) == pytest.approx(mu, rel=5e-3)
    assert gdp_epsilon(gdp_parameter(target, n_delta), n_delta) == pytest.approx(target, rel=1e-6)


def test_gdp_epsilon_and_parameter_at_the_ends_of_float64():
    assert gdp_epsilon(0, 1e-5) == 0.0 and gdp_epsilon(1e308, 1e-5) == math.inf
    assert gdp_epsilon(0.99e6, 1e-5) < gdp_epsilon(1.01e6, 1e-5) < 1.05 * gdp_epsilon(0.99e6, 1e-5)
    assert gdp_parameter(1e308, 1e-5) == pytest.approx(math.sqrt(2) * 1e154)


@pytest.mark.parametrize(
    "name, mu, delta",
    [
        *(("mu", mu, 1e-5) for mu in (-1, math.nan, "1")),
        *(("delta", 1, delta) for delta in (0, math.inf, math.nan, -1, None)),
    ],
)
def test_gdp_epsilon_refuses_by_name(name, mu, delta):
    with pytest.raises((ValueError, TypeError), match=f"^{name} .*{(mu, delta)[name == 'delta']}"):
        gdp_epsilon(mu, delta)
