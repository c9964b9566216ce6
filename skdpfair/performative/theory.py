"""What the published theory promises for the scalar problem, and what its noise really costs."""

import math

import numpy as np

from skdpfair._validate import integer, number
from skdpfair.privacy import PrivacyPlan

__all__ = ["corollary_noise_multiplier", "privacy_plan", "upper_bound"]


def upper_bound(problem, n_steps, *, noise_multiplier):
    r"""Bound the mean squared distance to the stable point along the path, by Theorem 1.

    Parameters
    ----------
    problem : ScalarProblem
    n_steps : int
    noise_multiplier : float >= 0
        As in `simulate`.

    Returns
    -------
    ndarray of shape (n_steps,)
        For theta after steps 1 to ``n_steps``.

    Notes
    -----
    :math:`\prod_{i \le t} (1 - \tilde\mu \gamma_i) (\theta_0 - \theta_{PS})^2 +
    2 c_1 \gamma_t / \tilde\mu + 8 \max(G - c, 0)^2 / \tilde\mu^2`, where
    :math:`c_1 = 2 (c^2 + G^2) + \sigma^2` and :math:`\tilde\mu = \mu - L \beta`.  The last term
    is a worst case over all problems, hundreds of times the bias of this one.

    Examples
    --------
    >>> from skdpfair.performative import ScalarProblem, upper_bound
    >>> print(f"{upper_bound(ScalarProblem(), 100_000, noise_multiplier=0.0)[-1]:.0f}")
    3200
    """
    number("noise_multiplier", noise_multiplier, low=0)
    sizes, rate = problem.step_sizes(integer("n_steps", n_steps)), problem.rate
    c, G = problem.max_grad_norm, problem.gradient_bound
    forgotten = np.cumprod(1 - rate * sizes) * (problem.start - problem.stable_point) ** 2
    c1 = 2 * (c**2 + G**2) + (noise_multiplier * c) ** 2
    return forgotten + 2 * c1 / rate * sizes + 8 * max(G - c, 0.0) ** 2 / rate**2


def privacy_plan(problem, n_steps, *, noise_multiplier=1.0):
    """Return what a run of `simulate` releases, for the accountant to price or calibrate.

    Examples
    --------
    >>> from skdpfair.performative import ScalarProblem, privacy_plan
    >>> plan = privacy_plan(ScalarProblem(n_samples=1000), 10_000).calibrated(3.0, 1e-4)
    >>> print(f"{plan.noise_multipliers[0]:.2f}")
    0.54
    """
    return PrivacyPlan(
        steps=n_steps,
        sample_rate=1 / problem.n_samples,
        noise_multipliers=(float(noise_multiplier),),
    )


def corollary_noise_multiplier(problem, n_steps, *, epsilon, delta):
    r"""Return the slides' noise, :math:`\sqrt{T \log(1/\delta)} / (m \epsilon)`: NOT enough.

    Corollary 1 drops the constant of the moments accountant, and holds for epsilon <= T / m^2
    only.  In the published setting, m = T = 100,000, that is 1e-5, and the noise stated for
    epsilon 0.1 costs 259.

    Examples
    --------
    >>> from skdpfair.performative import ScalarProblem, corollary_noise_multiplier, privacy_plan
    >>> problem = ScalarProblem()
    >>> noise = corollary_noise_multiplier(problem, 100_000, epsilon=0.1, delta=1e-5)
    >>> plan = privacy_plan(problem, 100_000, noise_multiplier=noise)
    >>> print(f"{noise:.4f} {plan.epsilon(1e-5):.0f}")
    0.1073 259
    """
    number("epsilon", epsilon, low=0, low_open=True)
    number("delta", delta, low=0, high=1, low_open=True, high_open=True)
    return math.sqrt(n_steps * math.log(1 / delta)) / (problem.n_samples * epsilon)
