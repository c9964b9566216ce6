"""Trade-off curves against closed forms and numerical integrals."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm

from skdpfair.privacy import compute_epsilon
from skdpfair.privacy.renyi import curve_epsilon, rdp_curve, selection_curve
from skdpfair.privacy.tradeoff import trade_off, trade_off_from_curve, trade_off_from_epsilon

from .builders import ADULT, run

RATES = np.concatenate([[0.0], np.logspace(-8, -1, 30), np.linspace(0.1, 1.0, 40)])


def gaussian(mu, rates):
    """Return the trade-off function of N(0, 1) and N(mu, 1)."""
    return norm.cdf(norm.isf(rates) - mu)


@pytest.mark.parametrize(("sigma", "steps"), [(10.0, 50), (0.5, 1), (13.0, 9)])
def test_trade_off_at_a_rate_of_one_is_that_of_two_gaussians(sigma, steps):
    mu = math.sqrt(steps) / sigma
    exact = gaussian(mu, RATES)
    curve = trade_off([run(1.0, sigma, steps=steps)])
    assert curve.false_negative_rate(RATES) == pytest.approx(exact, abs=1e-12)
    assert curve.mu == pytest.approx(mu)
    assert curve.mu_from == 0
    # a rate that is almost 1 takes the way of sampled steps
    curve = trade_off([run(1 - 1e-9, sigma)])
    lines = curve.__class__(0.0, epsilons=curve.epsilons, deltas=curve.deltas)
    exact = gaussian(1 / sigma, RATES)
    found = lines.false_negative_rate(RATES)
    assert np.all(found <= exact)
    assert found == pytest.approx(exact, abs=1e-3)


@pytest.mark.parametrize("mean", [2.0, 10.0])
@pytest.mark.parametrize("mu", [0.1, 0.5, 2.0])
def test_trade_off_from_curve_bounds_the_attackers_of_a_selection(mean, mu):
    """The largest of K normal numbers is released, K a Poisson number: its law is known."""
    whole = selection_curve(rdp_curve([run(1.0, 1 / mu)]), mean, math.inf)
    curve = trade_off_from_curve(tuple(whole), 1e-5)
    at = np.linspace(-6, 8, 400)
    laws = [np.exp(-mean * norm.sf(at, shift)) for shift in (0.0, mu)]
    for one, other in (laws, laws[::-1]):
        for alphas, found in ((1 - one, 1 - other), (one, other)):  # tests by a threshold
            bound = curve.true_positive_rate(alphas)
            assert np.all(found <= bound + 1e-12)
            inside = (alphas >= curve.mu_from) & (found <= 1 - curve.mu_from)
            assert np.all(found[inside] <= norm.cdf(norm.ppf(alphas[inside]) + curve.mu) + 1e-12)
    # and it is the best of what dp-accounting gives at single deltas
    for delta in (1e-9, 1e-5, 0.01, 0.3):
        single = trade_off_from_epsilon(curve_epsilon(whole, delta), delta)
        assert np.all(curve.true_positive_rate(RATES) <= single.true_positive_rate(RATES) * 1.01)
        assert curve.total_variation <= 1.01 * single.total_variation
    worst = trade_off_from_curve((math.inf,) * len(whole), 1e-5)
    assert worst.mu == math.inf and worst.total_variation == 1


@pytest.mark.parametrize(("rate", "sigma"), [(0.2, 1.0), (0.01, 0.8), (0.001, 0.5)])
def test_trade_off_of_one_sampled_step_agrees_with_numerical_integrals(rate, sigma):
    without = norm(0, sigma)

    def density(x):
        return (1 - rate) * without.pdf(x) + rate * norm.pdf(x, 1, sigma)

    curve = trade_off([run(rate, sigma)])
    ends = -12 * sigma, 1 + 12 * sigma
    for alpha in (1e-6, 1e-4, 0.01, 0.1, 0.3):
        found = float(curve.false_negative_rate(alpha))
        # likelihood-ratio tests, of either hypothesis against the other
        x = without.isf(alpha)
        assert found <= quad(density, ends[0], x, points=[0.0], epsabs=1e-12)[0] + 1e-11
        x = brentq(lambda z, a=alpha: quad(density, ends[0], z)[0] - a, *ends)
        assert found <= without.sf(x) + 1e-7
    # the symmetric curve is made of the deltas in both directions
    x = np.linspace(*ends, 200_001)
    p, q = density(x), without.pdf(x)
    alphas = np.array([1e-6, 1e-4, 0.01, 0.1, 0.3, 0.45])
    exact = np.zeros_like(alphas)
    for eps in np.concatenate([[0.0], np.geomspace(1e-5, 12, 300)]):
        gain = [(a - math.exp(eps) * b).clip(0).sum() * (x[1] - x[0]) for a, b in ((p, q), (q, p))]
        lines = 1 - max(gain) - math.exp(eps) * alphas
        mirrored = math.exp(-eps) * (1 - max(gain) - alphas)
        exact = np.max([exact, lines, mirrored], axis=0)
    tolerance = 5e-3 * curve.total_variation
    assert curve.false_negative_rate(alphas) == pytest.approx(exact, abs=tolerance)
    assert curve.total_variation == pytest.approx(rate * (2 * norm.cdf(0.5 / sigma) - 1), rel=5e-3)


@pytest.mark.parametrize("runs", [[ADULT], [run(0.05, 2.0, steps=50), run(1.0, 20.0)]])
def test_trade_off_is_convex_and_symmetric_and_above_the_curve_of_mu(runs):
    curve = trade_off(runs)
    rates = np.linspace(0, 1, 401)
    missed = curve.false_negative_rate(rates)
    assert np.all(np.diff(missed) <= 0)
    assert np.all(np.diff(missed, 2) >= -1e-12)
    inner = (missed > 1e-6) & (missed < 1 - 1e-6)
    assert curve.false_negative_rate(missed[inner]) == pytest.approx(rates[inner], abs=1e-9)
    assert 1 - np.min(rates + missed) <= curve.total_variation + 1e-12
    held = np.logspace(math.log10(curve.mu_from), -1, 200)
    assert np.all(curve.false_negative_rate(held) >= gaussian(curve.mu, held) - 1e-13)
    # and no smaller mu would do
    assert np.any(curve.false_negative_rate(held) < gaussian(0.99 * curve.mu, held))
    for delta in (1e-3, 1e-5, 1e-7):
        eps = compute_epsilon(runs, delta)
        assert np.all(missed >= 1 - delta - math.exp(eps) * rates - 1e-3 * curve.total_variation)


def test_trade_off_of_no_release_of_no_noise_and_beyond_float64():
    nothing = trade_off([])
    assert nothing.false_negative_rate(RATES) == pytest.approx(1 - RATES)
    assert (nothing.mu, nothing.total_variation, nothing.dg_bound) == (0, 0, 0)
    beyond = [trade_off_from_epsilon(eps, 1e-6) for eps in (math.inf, 1e5)]
    for curve in (trade_off([run(0.1, 0.0, steps=3)]), *beyond):
        assert not curve.false_negative_rate(RATES).any()
        assert (curve.mu, curve.total_variation, curve.dg_bound) == (math.inf, 1, 1)
    # epsilons beyond what float64 can exponentiate
    for own in (run(0.9, 0.02, steps=2), run(0.5, 0.0005, steps=10)):
        found = trade_off([own]).true_positive_rate(RATES)
        assert np.all((found >= 0) & (found <= 1))
    few = trade_off([run(0.5, 0.02)])  # half of the records are never seen
    assert float(few.true_positive_rate(0.01)) == pytest.approx(0.51, abs=1e-3)


def test_trade_off_from_epsilon_is_its_definition():
    eps, delta = 1.5, 1e-4
    curve = trade_off_from_epsilon(eps, delta)
    expected = np.maximum(1 - delta - math.exp(eps) * RATES, math.exp(-eps) * (1 - delta - RATES))
    assert curve.false_negative_rate(RATES) == pytest.approx(expected.clip(0))
    held = np.linspace(delta, 0.18, 500)
    assert np.all(curve.false_negative_rate(held) >= gaussian(curve.mu, held) - 1e-12)
    pure = trade_off_from_epsilon(eps, 0.0)
    assert pure.mu_from == 0
    assert np.all(pure.false_negative_rate(RATES[:-1]) >= gaussian(pure.mu, RATES[:-1]) - 1e-12)


def test_trade_off_refuses_by_name():
    for message, epsilon, delta in ((r"^epsilon .*-1", -1.0, 0.0), (r"^delta .*2", 1.0, 2.0)):
        with pytest.raises(ValueError, match=message):
            trade_off_from_epsilon(epsilon, delta)
    with pytest.raises(ValueError, match=r"^false_positive_rate "):
        trade_off_from_epsilon(1.5, 1e-4).false_negative_rate([0.5, 1.5])
