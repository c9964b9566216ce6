"""Runs of projected clipped SGD on the scalar problem, expected and random."""

import math

import numpy as np

from skdpfair._validate import generator, integer, listed, number, safe_repr
from skdpfair.performative.scalar import ScalarProblem

__all__ = ["expected_path", "simulate"]

_BLOCK = 1000  # steps whose draws are held in memory at once


def expected_path(problem, n_steps):
    """Iterate the expected clipped gradient, without noise.

    Parameters
    ----------
    problem : ScalarProblem
    n_steps : int

    Returns
    -------
    ndarray of shape (n_steps + 1,)
        Theta before step 1, then after every step.

    Examples
    --------
    >>> from skdpfair.performative import ScalarProblem, expected_path
    >>> problem = ScalarProblem(beta=0.05)
    >>> path = expected_path(problem, 2000)
    >>> print(f"{path[0]:.3f} {path[-1]:.3f} {problem.fixed_point:.3f}")
    5.000 -0.222 -0.222
    """
    problem_of(problem)
    c, theta = problem.max_grad_norm, problem.start
    path = [theta]
    for size in problem.step_sizes(integer("n_steps", n_steps)).tolist():
        zero, one = problem.gradients(theta)
        zero, one = max(-c, min(c, zero)), max(-c, min(c, one))
        theta -= size * ((1 - problem.share) * zero + problem.share * one)
        theta = max(-problem.radius, min(problem.radius, theta))
        path.append(theta)
    return np.array(path)


def simulate(
    problem, n_steps, *, noise_multiplier, n_repetitions=100, checkpoints=None, random_state=None
):
    """Run projected clipped SGD with greedy deployment, many times at once.

    Parameters
    ----------
    problem : ScalarProblem
    n_steps : int
        At least 1.
    noise_multiplier : float >= 0
        Noise standard deviation over ``max_grad_norm``; 0 for none.
    n_repetitions : int, default=100
        Independent runs.
    checkpoints : sequence of int in 0..n_steps, or None, default=None
        After how many steps to look; None is the end only.
    random_state : int, numpy.random.Generator or None, default=None

    Returns
    -------
    ndarray of shape (n_checkpoints, n_repetitions)
        Theta at each checkpoint, in increasing order of steps.

    Notes
    -----
    A step is ``theta <- P(theta - size * (sum of clipped gradients + noise))``: each of the m
    people takes part with probability 1/m, on data that the current theta induces.  The slides
    draw exactly one person; a Poisson sample of one in expectation is what the accountant
    charges for, and has the same mean.

    Examples
    --------
    >>> from skdpfair.performative import ScalarProblem, simulate
    >>> simulate(ScalarProblem(), 10, noise_multiplier=1.0, random_state=0).shape
    (1, 100)
    """
    problem_of(problem)
    integer("n_steps", n_steps)
    number("noise_multiplier", noise_multiplier, low=0, high=math.inf, high_open=True)
    if checkpoints is not None:
        given = listed("checkpoints", checkpoints, "numbers of steps")
        checkpoints = [integer("checkpoints", step, low=0) for step in given]
    wanted = sorted({n_steps} if checkpoints is None else set(checkpoints))
    if not wanted or wanted[0] < 0 or wanted[-1] > n_steps:
        raise ValueError(f"checkpoints must lie in 0..n_steps={n_steps}, got {safe_repr(wanted)}.")
    rng = generator("random_state", random_state)
    c, radius = problem.max_grad_norm, problem.radius
    theta = np.full(integer("n_repetitions", n_repetitions), float(problem.start))
    looks, seen = set(wanted), {0: theta}
    steps = enumerate(_draws(problem, n_steps, len(theta), rng), start=1)
    for (t, (zeros, ones, noise)), size in zip(steps, problem.step_sizes(n_steps), strict=True):
        zero, one = (np.minimum(np.maximum(g, -c), c) for g in problem.gradients(theta))
        gradient = zeros * zero + ones * one + noise_multiplier * c * noise
        theta = np.minimum(np.maximum(theta - size * gradient, -radius), radius)
        if t in looks:
            seen[t] = theta
    return np.stack([seen[t] for t in wanted])


def problem_of(problem):
    """Refuse what is no ScalarProblem."""
    if not isinstance(problem, ScalarProblem):
        raise TypeError(f"problem must be a ScalarProblem, got {safe_repr(problem)}.")


def _draws(problem, n_steps, n_repetitions, rng):
    """Yield, for each step, how many zeros and ones it samples, and unit noise."""
    rate = 1 / problem.n_samples
    for first in range(0, n_steps, _BLOCK):
        shape = (min(_BLOCK, n_steps - first), n_repetitions)
        zeros = rng.binomial(problem.n_samples - problem.ones, rate, shape)
        ones = rng.binomial(problem.ones, rate, shape)
        yield from zip(zeros, ones, rng.standard_normal(shape), strict=True)
