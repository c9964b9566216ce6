"""Lower bounds of epsilon from one run, against others' numbers, simulation and hypotheses."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from skdpfair.privacy import NoisyRelease, compute_epsilon
from skdpfair.privacy.gdp import gdp_epsilon
from skdpfair.testing._fit_audit import FitAudit
from skdpfair.testing._lower_bounds import guesses_excess, least_epsilon

# (canaries, guesses, right ones, delta, failure): epsilon of jax-privacy 2.0.0
ONE_RUN = {
    (1000, 100, 95, 1e-5, 0.05): 3.3233004900323655,
    (1000, 1000, 600, 1e-5, 0.05): 0.583540400999374,
    (1000, 50, 50, 1e-6, 1e-6): 1.3090436720354057,
    (500, 200, 160, 1e-4, 0.01): 1.2822260684128657,
    (2000, 300, 290, 1e-6, 0.05): 4.921102739353441,
    (100, 100, 100, 1e-5, 0.05): 8.216186103950786,
    (1000, 100, 50, 1e-5, 0.05): 0.0,
}
PLAIN = NoisyRelease("steps", 1.0, (1.0,), 1)


def epsilon_in_float64(m, n, k, delta, failure):
    """Return the bound for Gaussian mechanisms, by the right and the wrong guesses of a tail."""

    def refuted(mu):
        right, wrong = failure * k / m, failure * (n - k) / m
        for i in range(k - 1, -1, -1):
            least = max(wrong, norm.cdf(norm.ppf(right) - mu))
            right, wrong = min(1.0, right + i / (n - i) * (least - wrong)), least
        return right + wrong > n / m

    low, high = 0.0, 20.0
    for _ in range(40):
        mu = (low + high) / 2
        low, high = (mu, high) if refuted(mu) else (low, mu)
    return gdp_epsilon(low, delta) if low > 1e-6 else 0.0


@pytest.mark.parametrize("case", ONE_RUN)
def test_guesses_excess_agrees_with_jax_privacy_and_with_float64(case):
    m, n, k, delta, failure = case
    found = least_epsilon([PLAIN], delta, guesses_excess(m, n, k, failure))
    for exact in (ONE_RUN[case], epsilon_in_float64(*case)):
        assert 0.995 * exact <= found <= exact + 1e-6  # rounding only ever lowers it


def test_guesses_excess_refutes_true_runs_as_seldom_as_its_failure():
    """At 90 %, of 2000 fits of 60 canaries; and noise 30 % too low is refuted in most."""
    rng, run = np.random.default_rng(0), NoisyRelease("steps", 0.1, (1.0,), 20)
    least = min(k for k in range(30, 61) if guesses_excess(60, 60, k, 0.1)((run,)) > 0)
    refuted = {1.0: 0, 0.7: 0}
    for noise in refuted:
        for _ in range(2000):
            took_part = rng.random(60) < 0.5
            x = (rng.random((20, 60)) < 0.1) * took_part + noise * rng.normal(size=(20, 60))
            ratio = np.log1p(0.1 * np.expm1((x - 0.5) / noise**2)).sum(0)
            refuted[noise] += (took_part == (ratio > 0)).sum() >= least
    assert refuted[1.0] <= 200 + 5 * 13 and refuted[0.7] > refuted[1.0]


def test_least_epsilon_never_leaves_the_hypotheses():
    assert least_epsilon([PLAIN], 1e-5, lambda runs: -1.0) == 0.0
    assert least_epsilon([PLAIN], 1e-5, lambda runs: 1.0) > 1e3

    def noisier(runs):  # than 1.5
        return math.log(runs[0].joint_noise_multiplier / 1.5)

    exact = compute_epsilon([NoisyRelease("steps", 1.0, (1.5,), 1)], 1e-5)
    assert 0.995 * exact < least_epsilon([PLAIN], 1e-5, noisier) <= exact


def test_guesses_excess_refuses_more_right_guesses_than_guesses():
    with pytest.raises(ValueError, match=r"^n_correct=5"):
        guesses_excess(10, 4, 5, 0.05)


@pytest.mark.parametrize(
    "changes, facts",
    [
        ({}, ["0.5 or more", "confidence 0.95)", "not above its claim of 1"]),
        ({"epsilon_lower": 2.0}, ["ABOVE its claim of 1"]),
        ({"confidence": 1 - 1e-9}, ["confidence 1 - 1e-09)"]),  # never rounded to certainty
        ({"epsilon_lower": 0.0}, ["shows nothing", "would have shown 4.25."]),
        (
            {"epsilon_lower": 0.0, "epsilon_claimed": 8.0},
            ["would have shown 4.25: too little to exceed its claim of 8"],
        ),
    ],
)
def test_describe_bound_has_the_numbers_of_an_audit(changes, facts):
    numbers = {"method": "dpsgd", "epsilon_claimed": 1.0, "epsilon_lower": 0.5, "delta": 1e-5}
    numbers |= {"confidence": 0.95, "n_canaries": 1000, "n_guesses": 100, "n_correct": 60}
    text = str(FitAudit(**numbers | {"epsilon_at_best": 4.25} | changes))
    assert [fact for fact in facts if fact not in text] == []
