"""A learner of one number whose data it moves: simulation, closed forms and published theory.

The published example is that of Li et al. [li2024]; its figures are in `li`.
"""

import math
from dataclasses import dataclass

import numpy as np

from skdpfair._utils.validate import generator, integer, listed, number, safe_repr
from skdpfair.privacy import NoisyRelease, calibrate_noise

_BLOCK = 1000  # steps whose draws are held in memory at once


@dataclass(frozen=True, kw_only=True)
class ScalarProblem:
    r"""Minimise :math:`E (\theta + a z)^2 / 2`, where :math:`z = b Z - \beta \theta`.

    Z is 0 or 1 for each of ``n_samples`` people, 1 for a share p of them.  The defaults are the
    published simulation.

    Parameters
    ----------
    beta : float >= 0, default=0.01
        How far the data move with theta; below ``mu / L = 1 / a``.
    p : float in (0, 0.5), default=0.1
        Share of ones, rounded to whole people.
    a : float >= 1, default=10.0
        Weight of the data in the loss.
    b : float > 0, default=1.0
        Size of a one.
    max_grad_norm : float > 0, default=1.0
        Clipping bound c.
    n_samples : int, default=100_000
        People m.  A step samples each with probability 1/m: one person in expectation.
    start : float, default=5.0
        The first theta.
    radius : float > 0, default=10.0
        Of the feasible set [-radius, radius], which holds ``start`` and the stable point.
    schedule : tuple (c0, c1) of float > 0 or float > 0, default=(10.0, 100.0)
        Step t = 1, 2, ... has size c0 / (c1 + t); a number is the size of every step.

    Raises
    ------
    ValueError, TypeError
        If a parameter is out of range, or the feasible set too small.

    Notes
    -----
    With u = theta (1 - a beta), a record's gradient is u + a b Z.  The expected gradient vanishes
    at u = -a b p, the stable point; the expected CLIPPED gradient, (1 - p) u + p c, at
    u = -p c / (1 - p), unless (1 - p) a b <= c: then no gradient is clipped there.  Both are
    divided by 1 - a beta = mu - L beta, and so is their distance, the bias.

    References
    ----------
    .. [li2024] Q. Li, M. Yemini and H.-T. Wai, "Privacy-Efficacy Tradeoff of Clipped SGD with
       Decision-dependent Data", ICML Workshop on Humans, Algorithmic Decision-Making and Society,
       2024.

    Examples
    --------
    >>> from benchmarks.papers.scalar import ScalarProblem
    >>> [round(ScalarProblem(beta=beta).squared_bias, 4) for beta in (0.01, 0.05)]
    [0.9755, 3.1605]
    """

    beta: float = 0.01
    p: float = 0.1
    a: float = 10.0
    b: float = 1.0
    max_grad_norm: float = 1.0
    n_samples: int = 100_000
    start: float = 5.0
    radius: float = 10.0
    schedule: tuple[float, float] | float = (10.0, 100.0)

    def __post_init__(self):
        number("a", self.a, low=1, high=math.inf, high_open=True)
        for name in ("b", "max_grad_norm", "radius"):
            number(name, getattr(self, name), low=0, low_open=True, high=math.inf, high_open=True)
        number("beta", self.beta, low=0, high=1 / self.a, high_open=True)
        number("p", self.p, low=0, high=0.5, low_open=True, high_open=True)
        integer("n_samples", self.n_samples)
        if not 0 < self.ones < self.n_samples / 2:
            raise ValueError(
                f"p={self.p:g} of n_samples={self.n_samples} must be at least one person and less "
                f"than half of them, got {self.ones}. Raise n_samples."
            )
        schedule = [self.schedule]
        if not isinstance(self.schedule, (int, float)):
            schedule = listed("schedule", self.schedule, "two numbers > 0")
            if len(schedule) != 2:
                got = safe_repr(self.schedule)
                raise ValueError(f"schedule must be one or two numbers > 0, got {got}.")
        for value in schedule:
            number("schedule", value, low=0, low_open=True, high=math.inf, high_open=True)
        number("start", self.start, low=-1e300, high=math.inf, high_open=True)
        needed = max(abs(self.start), abs(self.stable_point))
        if self.radius < needed:
            raise ValueError(
                f"radius must be at least {needed:.4g}, so that start and stable point are "
                f"feasible, got {self.radius!r}."
            )

    @property
    def ones(self) -> int:
        """Number of people whose Z is 1."""
        return round(self.p * self.n_samples)

    @property
    def share(self) -> float:
        """Share of people whose Z is 1: p, rounded to whole people."""
        return self.ones / self.n_samples

    @property
    def rate(self) -> float:
        """The factor mu - L beta = 1 - a beta, of strong convexity and Lipschitz constant."""
        return 1.0 - self.a * self.beta

    @property
    def gradient_bound(self) -> float:
        """Largest absolute gradient G on the feasible set."""
        return self.rate * self.radius + self.a * self.b

    @property
    def stable_point(self) -> float:
        """The performatively stable theta."""
        return -self.a * self.b * self.share / self.rate

    @property
    def fixed_point(self) -> float:
        """Where the expected clipped iteration stays."""
        clipped = self.share * self.max_grad_norm / (1 - self.share)
        return -min(self.a * self.b * self.share, clipped) / self.rate

    @property
    def squared_bias(self) -> float:
        """Squared distance from the fixed point to the stable point."""
        return (self.fixed_point - self.stable_point) ** 2

    def step_sizes(self, n_steps) -> np.ndarray:
        """Return the sizes of steps 1 to ``n_steps``."""
        if isinstance(self.schedule, (int, float)):
            return np.full(n_steps, float(self.schedule))
        c0, c1 = self.schedule
        return c0 / (c1 + np.arange(1, n_steps + 1))

    def gradients(self, theta) -> tuple:
        """Return the gradients of a person with Z = 0 and of one with Z = 1."""
        zero = theta + self.a * (0.0 - self.beta * theta)
        return zero, zero + self.a * self.b

    def clipped(self, theta) -> tuple:
        """Return both gradients, clipped."""
        c = self.max_grad_norm
        zero, one = self.gradients(theta)
        return np.minimum(np.maximum(zero, -c), c), np.minimum(np.maximum(one, -c), c)

    def projected(self, theta):
        """Return theta, moved into the feasible set."""
        return np.minimum(np.maximum(theta, -self.radius), self.radius)


def expected_path(problem, n_steps):
    """Return theta along the expected clipped gradient, without noise: shape (n_steps + 1,).

    Examples
    --------
    >>> problem = ScalarProblem(beta=0.05)
    >>> path = expected_path(problem, 2000)
    >>> print(f"{path[0]:.3f} {path[-1]:.3f} {problem.fixed_point:.3f}")
    5.000 -0.222 -0.222
    """
    theta, share = problem.start, problem.share
    path = [theta]
    for size in problem.step_sizes(integer("n_steps", n_steps)):
        zero, one = problem.clipped(theta)
        theta = problem.projected(theta - size * ((1 - share) * zero + share * one))
        path.append(theta)
    return np.array(path)


def simulate(
    problem, n_steps, *, noise_multiplier, n_repetitions=100, checkpoints=None, random_state=None
):
    """Run projected clipped SGD with greedy deployment, many times at once.

    Returns theta, an array of shape (n_checkpoints, n_repetitions): ``checkpoints`` are numbers of
    steps, and None is the end only.

    A step is ``theta <- P(theta - size * (sum of clipped gradients + noise))``: each of the m
    people takes part with probability 1/m, on data that the current theta induces.  The slides
    draw exactly one person; a Poisson sample of one in expectation is what the accountant
    charges for, and has the same mean.

    Examples
    --------
    >>> simulate(ScalarProblem(), 10, noise_multiplier=1.0, random_state=0).shape
    (1, 100)
    """
    integer("n_steps", n_steps)
    number("noise_multiplier", noise_multiplier, low=0, high=math.inf, high_open=True)
    looks = {n_steps} if checkpoints is None else set(checkpoints)
    if not looks or min(looks) < 0 or max(looks) > n_steps:
        raise ValueError(f"checkpoints must lie in 0..n_steps={n_steps}, got {sorted(looks)}.")
    rng = generator("random_state", random_state)
    theta = np.full(integer("n_repetitions", n_repetitions), float(problem.start))
    scale, seen = noise_multiplier * problem.max_grad_norm, {0: theta}
    steps = enumerate(_draws(problem, n_steps, len(theta), rng), start=1)
    for (t, (zeros, ones, noise)), size in zip(steps, problem.step_sizes(n_steps), strict=True):
        zero, one = problem.clipped(theta)
        theta = problem.projected(theta - size * (zeros * zero + ones * one + scale * noise))
        if t in looks:
            seen[t] = theta
    return np.stack([seen[t] for t in sorted(looks)])


def _draws(problem, n_steps, n_repetitions, rng):
    """Yield, for each step, how many zeros and ones it samples, and unit noise."""
    rate = 1 / problem.n_samples
    for first in range(0, n_steps, _BLOCK):
        shape = (min(_BLOCK, n_steps - first), n_repetitions)
        zeros = rng.binomial(problem.n_samples - problem.ones, rate, shape)
        ones = rng.binomial(problem.ones, rate, shape)
        yield from zip(zeros, ones, rng.standard_normal(shape), strict=True)


def upper_bound(problem, n_steps, *, noise_multiplier):
    r"""Return Theorem 1's bound on the mean squared distance to the stable point, by step.

    Notes
    -----
    :math:`\prod_{i \le t} (1 - \tilde\mu \gamma_i) (\theta_0 - \theta_{PS})^2 +
    2 c_1 \gamma_t / \tilde\mu + 8 \max(G - c, 0)^2 / \tilde\mu^2`, where
    :math:`c_1 = 2 (c^2 + G^2) + \sigma^2` and :math:`\tilde\mu = \mu - L \beta`.  The last term
    is a worst case over all problems, hundreds of times the bias of this one.

    Examples
    --------
    >>> print(f"{upper_bound(ScalarProblem(), 100_000, noise_multiplier=0.0)[-1]:.0f}")
    3200
    """
    sizes, rate = problem.step_sizes(n_steps), problem.rate
    c, G = problem.max_grad_norm, problem.gradient_bound
    forgotten = np.cumprod(1 - rate * sizes) * (problem.start - problem.stable_point) ** 2
    c1 = _spread(problem, noise_multiplier)
    return forgotten + 2 * c1 / rate * sizes + 8 * max(G - c, 0.0) ** 2 / rate**2


def minimum_bias_step(problem, n_steps, *, noise_multiplier, rate=None):
    r"""Return the constant step size that minimises Theorem 1's bound: gamma* of the slides.

    ``rate=None`` is :math:`\tilde\mu = \mu - L \beta`.  The slides' other step size ignores that
    the data react: it takes :math:`\mu`, which is 1 here.

    Notes
    -----
    With a constant step, the first term of the bound is at most
    :math:`e^{-\tilde\mu \gamma T} (\theta_0 - \theta_{PS})^2`.  The sum is least at
    :math:`\gamma^* = \log(1 / \Delta(\tilde\mu)) / (\tilde\mu T)`, where
    :math:`\Delta(m) = 2 c_1 / (m^2 T (\theta_0 - \theta_{PS})^2)`.  The slides do not define
    :math:`\Delta`; this one follows from their bound.

    Examples
    --------
    >>> problem = ScalarProblem(beta=0.05)
    >>> sizes = [minimum_bias_step(problem, 100_000, noise_multiplier=0.54, rate=rate)
    ...          for rate in (None, 1.0)]
    >>> print(*(f"{size:.2e}" for size in sizes))
    1.44e-04 8.60e-05
    """
    rate = problem.rate if rate is None else rate
    distance = (problem.start - problem.stable_point) ** 2
    share = 2 * _spread(problem, noise_multiplier) / (rate**2 * n_steps * distance)
    if share >= 1:
        raise ValueError(
            f"n_steps={n_steps} are too few: Theorem 1's bound is least without any step. Take "
            f"more than {share * n_steps:.0f}."
        )
    return math.log(1 / share) / (rate * n_steps)


def _spread(problem, noise_multiplier):
    """Return the constant c_1 of Theorem 1."""
    c, G = problem.max_grad_norm, problem.gradient_bound
    return 2 * (c**2 + G**2) + (noise_multiplier * c) ** 2


def steps_of(problem, n_steps, *, noise_multiplier=1.0):
    """Return what a run of `simulate` releases, for the accountant.

    Examples
    --------
    >>> from skdpfair.privacy import compute_epsilon
    >>> print(f"{compute_epsilon([steps_of(ScalarProblem(), 100_000)], 1e-5):.4f}")
    0.0108
    """
    return NoisyRelease("steps", 1 / problem.n_samples, (float(noise_multiplier),), n_steps)


def noise_for(problem, n_steps, epsilon, delta):
    """Return the noise multiplier with which a run of `simulate` costs epsilon.

    Examples
    --------
    >>> print(f"{noise_for(ScalarProblem(n_samples=1000), 10_000, 3.0, 1e-4):.2f}")
    0.54
    """
    (steps,) = calibrate_noise([steps_of(problem, n_steps)], epsilon, delta)
    return steps.joint_noise_multiplier


def corollary_noise_multiplier(problem, n_steps, *, epsilon, delta):
    r"""Return the slides' noise, :math:`\sqrt{T \log(1/\delta)} / (m \epsilon)`: NOT enough.

    Corollary 1 drops the constant of the moments accountant, and holds for epsilon <= T / m^2
    only.  In the published setting, m = T = 100,000, that is 1e-5, and the noise stated for
    epsilon 0.1 costs 259.

    Examples
    --------
    >>> problem = ScalarProblem()
    >>> noise = corollary_noise_multiplier(problem, 100_000, epsilon=0.1, delta=1e-5)
    >>> from skdpfair.privacy import compute_epsilon
    >>> steps = steps_of(problem, 100_000, noise_multiplier=noise)
    >>> print(f"{noise:.4f} {compute_epsilon([steps], 1e-5):.0f}")
    0.1073 259
    """
    return math.sqrt(n_steps * math.log(1 / delta)) / (problem.n_samples * epsilon)
