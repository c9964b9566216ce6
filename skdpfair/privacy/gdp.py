"""Gaussian differential privacy: conversion of mu and epsilon, and the delta of a guarantee."""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from skdpfair._utils.validate import invalid, is_auto, number, safe_repr

MIN_DELTA = 1e-100
# from here the upper end of the search is the answer, 0.01 % too high
_LARGE = 1e6


def gdp_parameter(epsilon: float, delta: float) -> float:
    """Return the ``mu`` of the Gaussian mechanism that is exactly (epsilon, delta)-private.

    Parameters
    ----------
    epsilon : float >= 0
        Finite.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        The sensitivity over the standard deviation of the noise of one plain Gaussian release.

    Raises
    ------
    TypeError, ValueError
        If a parameter is no number, or outside its range.

    Notes
    -----
    It solves ``delta = Phi(-epsilon/mu + mu/2) - exp(epsilon) Phi(-epsilon/mu - mu/2)``, Corollary
    2.13 of [dong2022]_, in log space.

    References
    ----------
    .. [dong2022] J. Dong, A. Roth, W. Su, "Gaussian Differential Privacy", arXiv:1905.02383, 2019.

    Examples
    --------
    >>> from skdpfair.privacy import gdp_parameter
    >>> round(gdp_parameter(1.0, 1e-5), 4)
    0.2681
    """
    epsilon = number("epsilon", epsilon, low=0, high=math.inf, high_open=True)
    delta = number("delta", delta, low=0, high=1, low_open=True, high_open=True)
    # delta(mu) <= 0.4 mu gives the lower end; the upper one has more than Phi(t) mass above epsilon
    low = math.log(delta)
    high = math.log(2 * math.sqrt(2) * math.sqrt(epsilon) + 40)
    return math.exp(brentq(lambda x: _excess(math.exp(x), epsilon, delta), low, high, xtol=1e-13))


def gdp_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon of the Gaussian mechanism with parameter ``mu`` at ``delta``."""
    mu = number("mu", mu, low=0)
    delta = number("delta", delta, low=0, high=1, low_open=True, high_open=True)
    if mu == 0 or _excess(mu, 0.0, delta) <= 0:
        return 0.0
    if mu > _LARGE:
        return mu * (mu / 2 + 40)
    high = mu * (mu / 2 + 40)
    return float(brentq(lambda e: _excess(mu, e, delta), 0.0, high, xtol=1e-12))


def clt_parameter(
    sample_rate: float, noise_multiplier: float, steps: int, records: int = 1
) -> float:
    """Return the ``mu`` that the central limit theorem gives a run about ``records`` records.

    Exact for ``sample_rate`` 1; else 1 to 14 % below the truth, and far below it at low noise:
    a scale to search on, never a guarantee.
    """
    plain = records * math.sqrt(steps) / noise_multiplier
    if sample_rate == 1 or noise_multiplier**-2 > 700:
        return plain
    sampled = records * sample_rate * math.sqrt(steps * math.expm1(noise_multiplier**-2))
    return min(plain, sampled)


def clt_noise_multiplier(sample_rate: float, mu: float, steps: int, records: int = 1) -> float:
    """Return the noise multiplier at which :func:`clt_parameter` is ``mu``."""
    plain = records * math.sqrt(steps) / mu
    if sample_rate == 1:
        return plain
    sampled: float = math.log1p(mu**2 / ((records * sample_rate) ** 2 * steps)) ** -0.5
    return min(plain, sampled)


def _excess(mu: float, epsilon: float, delta: float) -> float:
    """Log of the mechanism's delta at ``epsilon``, less the log of ``delta``."""
    upper = log_ndtr(mu / 2 - epsilon / mu)
    gap = epsilon + log_ndtr(-mu / 2 - epsilon / mu) - upper if upper > -math.inf else 0.0
    # cancellation far in the tail, where the sign alone matters, may leave a gap of 0 or more
    log_ratio = np.log(-np.expm1(gap)) if gap < 0 else -1e3
    return max(float(upper + log_ratio), -1e6) - math.log(delta)


def auto_delta(n_samples: int) -> float:
    """Return the largest power of ten that is at most 1 / (10 n)."""
    return 10.0 ** -math.ceil(math.log10(10 * n_samples) - 1e-12)


def delta_for(delta: float | str, n_samples: int, *, low: float = MIN_DELTA) -> float:
    """Return the delta for ``n_samples`` records, of at least ``low``; "auto" is `auto_delta`.

    1/n or more is refused, because it would allow releasing one random record in full.
    """
    if is_auto(delta):
        return auto_delta(n_samples)
    delta = number("delta", delta, low=low)
    if delta >= 1 / n_samples:
        raise invalid(
            "delta",
            f"must lie below 1/n_samples = {1 / n_samples:.3g}, got {safe_repr(delta)}; at or "
            "above it, publishing a random record would count as private. Leave it out.",
        )
    return delta
