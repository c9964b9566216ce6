"""A learner of one number whose data it moves, with its bias in closed form."""

import math
from dataclasses import dataclass

import numpy as np

from skdpfair._validate import integer, listed, number, safe_repr
from skdpfair.performative.location import shifted

__all__ = ["ScalarProblem"]


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
    schedule : tuple (c0, c1) of float > 0, default=(10.0, 100.0)
        Step t = 1, 2, ... has size c0 / (c1 + t).

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
    >>> from skdpfair.performative import ScalarProblem
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
    schedule: tuple[float, float] = (10.0, 100.0)

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
        schedule = listed("schedule", self.schedule, "two numbers > 0")
        if len(schedule) != 2:
            raise ValueError(f"schedule must be two numbers > 0, got {safe_repr(self.schedule)}.")
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
    def mu(self) -> float:
        """Strong convexity of the loss in theta."""
        return 1.0

    @property
    def smoothness(self) -> float:
        """Lipschitz constant L of the gradient, in theta (1) and in z (a)."""
        return self.a

    @property
    def rate(self) -> float:
        """The factor mu - L beta = 1 - a beta."""
        return self.mu - self.smoothness * self.beta

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
        c0, c1 = self.schedule
        return c0 / (c1 + np.arange(1, n_steps + 1))

    def gradients(self, theta) -> tuple:
        """Return the gradients of a person with Z = 0 and of one with Z = 1."""
        zero = theta + self.a * shifted(0.0, theta, self.beta)
        return zero, zero + self.a * self.b
