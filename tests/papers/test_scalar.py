"""The scalar simulation against its closed forms and the published numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from benchmarks.papers.scalar import (
    ScalarProblem,
    corollary_noise_multiplier,
    expected_path,
    minimum_bias_step,
    noise_for,
    simulate,
    steps_of,
    upper_bound,
)
from skdpfair.privacy import compute_epsilon


@pytest.mark.parametrize("beta, published", [(0.01, 0.9755), (0.05, 3.1605)])
def test_expected_path_ends_at_the_published_bias(beta, published):
    problem = ScalarProblem(beta=beta)
    end = expected_path(problem, 20_000)[-1]
    assert (end - problem.stable_point) ** 2 == pytest.approx(published, rel=0.01)
    assert problem.squared_bias == pytest.approx(published, abs=5e-5)


def test_bias_of_expected_path_grows_as_the_inverse_square_of_the_rate():
    problems = [ScalarProblem(beta=beta) for beta in np.linspace(0, 0.08, 9)]
    bias = [(expected_path(p, 20_000)[-1] - p.stable_point) ** 2 for p in problems]
    slope, _ = np.polyfit(np.log([p.rate for p in problems]), np.log(bias), 1)
    assert slope == pytest.approx(-2, rel=0.05)


def test_expected_path_without_clipping_ends_at_the_stable_point():
    problem = ScalarProblem(beta=0.05, max_grad_norm=100.0)
    assert problem.squared_bias == 0
    assert expected_path(problem, 20_000)[-1] == pytest.approx(problem.stable_point, abs=1e-6)


@given(beta=st.floats(0, 0.09), c=st.floats(0.1, 20), p=st.floats(0.05, 0.45), b=st.floats(0.1, 3))
@settings(deadline=None)
def test_expected_gradient_vanishes_at_the_fixed_and_the_stable_point(beta, c, p, b):
    problem = ScalarProblem(beta=beta, max_grad_norm=c, p=p, b=b, radius=1000.0)
    clipped = np.clip(problem.gradients(problem.fixed_point), -c, c)
    for zero, one in (clipped, problem.gradients(problem.stable_point)):
        assert (1 - problem.share) * zero + problem.share * one == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("beta", [0.01, 0.05])
@pytest.mark.parametrize("noise", [0.0, 0.54, 5.0])
def test_upper_bound_is_above_the_mean_squared_distance_along_the_path(beta, noise):
    problem, looks = ScalarProblem(beta=beta), [1, 3, 10, 30, 100, 300, 1000, 3000]
    drawn = {"checkpoints": looks, "n_repetitions": 50, "random_state": 0}
    theta = simulate(problem, 3000, noise_multiplier=noise, **drawn)
    distance = ((theta - problem.stable_point) ** 2).mean(axis=1)
    bound = upper_bound(problem, 3000, noise_multiplier=noise)
    assert (distance <= bound[np.array(looks) - 1]).all()
    assert ((expected_path(problem, 3000)[1:] - problem.stable_point) ** 2 <= bound).all()


def test_upper_bound_is_its_formula():
    problem, noise = ScalarProblem(max_grad_norm=2.0), 0.5
    product = (1 - 0.9 * 10 / 101) * (1 - 0.9 * 10 / 102) * (5 - problem.stable_point) ** 2
    c1 = 2 * (2**2 + 19**2) + 1.0**2
    by_hand = product + 2 * c1 / 0.9 * 10 / 102 + 8 * 17**2 / 0.9**2
    assert upper_bound(problem, 2, noise_multiplier=noise)[1] == pytest.approx(by_hand)
    tight = ScalarProblem(max_grad_norm=19.0)
    assert upper_bound(tight, 10**6, noise_multiplier=0)[-1] < 0.05


@pytest.mark.parametrize(("beta", "c", "noise"), [(0.01, 1.0, 0.5), (0.05, 3.0, 20.0)])
def test_minimum_bias_step_is_that_of_a_search(beta, c, noise):
    """Theorem 1 with constant steps, where exp bounds the product, minimised numerically."""
    T, rate, c1 = 10_000, 1 - 10 * beta, 2 * (c**2 + ((1 - 10 * beta) * 10 + 10) ** 2)
    distance = (5 + 1 / rate) ** 2

    def bound(size):
        return np.exp(-rate * size * T) * distance + 2 * (c1 + (noise * c) ** 2) / rate * size

    searched = optimize.minimize_scalar(bound, bounds=(0, 0.1), options={"xatol": 1e-10}).x
    problem = ScalarProblem(beta=beta, max_grad_norm=c)
    found = minimum_bias_step(problem, T, noise_multiplier=noise)
    assert found == pytest.approx(searched, rel=1e-4)
    with pytest.raises(ValueError, match=r"^n_steps=9"):
        minimum_bias_step(problem, 9, noise_multiplier=noise)


def test_schedule_of_a_number_is_the_size_of_every_step():
    problem = ScalarProblem(schedule=0.25)
    assert problem.step_sizes(3).tolist() == [0.25] * 3
    zero, one = problem.clipped(5.0)
    assert expected_path(problem, 1)[1] == pytest.approx(5 - 0.25 * (0.9 * zero + 0.1 * one))


@pytest.mark.parametrize("beta", [0.01, 0.05])
def test_simulate_has_the_mean_of_the_theory(beta):
    problem = ScalarProblem(beta=beta)
    (theta,) = simulate(problem, 10_000, noise_multiplier=0.54, n_repetitions=200, random_state=0)
    error = theta.std() / np.sqrt(len(theta))
    assert abs(theta.mean() - problem.fixed_point) < 5 * error
    assert abs(theta.mean() - problem.stable_point) > 50 * error


def test_simulate_has_the_variance_of_a_linear_recursion():
    # near the fixed point both clipped gradients are linear in theta or constant
    problem, noise, n_steps = ScalarProblem(), 2.0, 3000
    share, c = problem.share, problem.max_grad_norm
    pull = (1 - share) * problem.rate
    at_rest = (1 - share) * (problem.fixed_point * problem.rate) ** 2 + share * c**2
    variance = 0.0
    for size in problem.step_sizes(n_steps):
        variance = (1 - size * pull) ** 2 * variance + size**2 * (at_rest + noise**2)
    drawn = {"noise_multiplier": noise, "n_repetitions": 2000, "random_state": 0}
    ratio = simulate(problem, n_steps, **drawn)[0].var() / variance
    assert abs(ratio - 1) < 0.15  # nearly five standard errors of 2000 runs
    assert abs(1.44 * ratio - 1) > 0.15  # noise 1.2 times as large would show


def test_projection_leaves_theta_feasible():
    problem = ScalarProblem(radius=5.0)
    theta = simulate(problem, 50, noise_multiplier=100.0, checkpoints=range(51), random_state=0)
    assert np.abs(theta).max() == 5.0
    assert np.abs(expected_path(ScalarProblem(max_grad_norm=1e3), 500)).max() <= 10


def test_checkpoints_are_of_the_same_runs():
    settings = {"noise_multiplier": 1.0, "n_repetitions": 5, "random_state": 3}
    every = simulate(ScalarProblem(), 1200, checkpoints=[1200, 0, 7], **settings)
    assert every.shape == (3, 5) and (every[0] == 5.0).all()
    np.testing.assert_array_equal(every[2], simulate(ScalarProblem(), 1200, **settings)[0])


def test_noise_for_a_budget_and_the_epsilon_of_the_stated_noise():
    small, n_steps, delta = ScalarProblem(n_samples=1000), 1000, 1e-4
    steps = steps_of(small, n_steps, noise_multiplier=noise_for(small, n_steps, 1.0, delta))
    assert 0.99 <= compute_epsilon([steps], delta) <= 1.0
    stated = corollary_noise_multiplier(ScalarProblem(), 100_000, epsilon=0.1, delta=1e-5)
    assert stated == pytest.approx(0.1073, abs=1e-4)
    for noise, epsilon in ((stated, 259), (0.5397, 0.1)):
        steps = steps_of(ScalarProblem(), 100_000, noise_multiplier=noise)
        assert compute_epsilon([steps], 1e-5) == pytest.approx(epsilon, rel=0.01)


@pytest.mark.parametrize(
    "params, message",
    [
        ({"beta": 0.1}, r"^beta .*< 0.1, got 0.1"),
        ({"n_samples": 3}, "Raise n_samples"),
        ({"radius": 2.0}, r"^radius .*5, .*got 2.0"),
        ({"schedule": (0.0, 1.0)}, r"^schedule .*> 0, got 0.0"),
    ],
)
def test_scalar_problem_refuses_parameters_by_name(params, message):
    with pytest.raises(ValueError, match=message):
        ScalarProblem(**params)
