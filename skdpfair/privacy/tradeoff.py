"""Trade-off curves: errors of every attacker who distinguishes neighbouring data sets."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from skdpfair._utils.validate import number
from skdpfair.privacy import accounting
from skdpfair.privacy.releases import MergedRelease, NoisyRelease, merged
from skdpfair.privacy.renyi import curve_delta, curve_epsilon

_N_EPSILONS = 1000
# the largest whose exponential float64 holds
_MAX_EPSILON = 700.0
# the least at which curves of Renyi divergences are still read
_MIN_RATE = 1e-12
# times the rounding error: deltas from there on are accurate to 0.1 %
_RESOLVED = 1000


@dataclass(frozen=True, eq=False, repr=False)
class TradeOff:
    """Bounds on the errors of every attacker who distinguishes two neighbouring data sets.

    The attacker sees the releases, and claims that a record took part, or that it did not.  A false
    positive is a wrong claim that a record took part.

    ``mu`` is the parameter of Gaussian differential privacy: no attacker does better than one who
    distinguishes N(0, 1) from N(mu, 1), at false-positive rates from ``mu_from`` on at which at
    least ``mu_from`` of the records are missed; ``mu_from`` is 0 if ``mu`` holds at all rates.
    ``plain_mu`` is a mu that holds at all rates, infinite if none is known.  ``epsilons`` go from 0
    to 700, and ``deltas`` are upper bounds on their deltas, in both directions.

    At a false-positive rate a, the true-positive rate is at most ``delta + exp(epsilon) a`` and at
    most ``1 - exp(-epsilon) (1 - delta - a)``, for every epsilon (Proposition 2.5 of
    [dong2022]_).  These are straight lines and their mirror images, so that the bound holds
    for any choice of epsilons, and the false-negative rate is convex, decreasing and symmetric.

    References
    ----------
    .. [dong2022] J. Dong, A. Roth and W. J. Su, "Gaussian Differential Privacy", Journal of the
       Royal Statistical Society B, 2022.
    """

    mu: float
    mu_from: float = 0.0
    plain_mu: float = math.inf
    epsilons: np.ndarray = field(default_factory=lambda: np.empty(0))
    deltas: np.ndarray = field(default_factory=lambda: np.empty(0))

    def true_positive_rate(self, false_positive_rate: ArrayLike) -> np.ndarray:
        """Return an upper bound on the share of records that are found."""
        alphas = np.asarray(false_positive_rate, dtype=np.float64)
        if not np.all((alphas >= 0) & (alphas <= 1)):
            raise ValueError(
                "false_positive_rate must be numbers from 0 to 1, got others. Pass 0.01 for 1 %."
            )
        column, ratios = alphas[..., None], np.exp(self.epsilons)
        steep = np.min(self.deltas + ratios * column, axis=-1, initial=1.0)
        flat = np.min(1 - (1 - self.deltas - column) / ratios, axis=-1, initial=1.0)
        bound = np.minimum(steep, flat)
        if self.plain_mu == 0:
            bound = alphas
        elif self.plain_mu < math.inf:
            bound = np.minimum(bound, ndtr(ndtri(alphas) + self.plain_mu))
        return np.asarray(bound, dtype=np.float64)

    def false_negative_rate(self, false_positive_rate: ArrayLike) -> np.ndarray:
        """Return a lower bound on the share of records that are missed: the trade-off function."""
        return 1 - self.true_positive_rate(false_positive_rate)

    @property
    def total_variation(self) -> float:
        """Bound on the true-positive rate minus the false-positive rate of every attacker."""
        halves = np.tanh(self.epsilons / 2)  # each line meets its mirror image at these heights
        heights = self.deltas * (1 - halves) + halves
        return float(np.min(heights, initial=2 * ndtr(self.plain_mu / 2) - 1))

    @property
    def dg_bound(self) -> float:
        r"""Bound on the total variation by which the output changes if a record is replaced.

        Notes
        -----
        Let :math:`T` be `true_positive_rate`, and :math:`b` the probability of a set of outputs if
        the record is a null record.  With the record its probability is at most :math:`T(b)`, and
        with another one at least :math:`1 - T(1 - b)`.  As :math:`T` is concave, the difference is
        at most

        .. math:: \max_b T(b) + T(1 - b) - 1 = 2\,T(1/2) - 1 .

        For the Gaussian mechanism this is :math:`2 \Phi(\mu) - 1`, which is attained.
        """
        return float(2 * self.true_positive_rate(0.5) - 1)


def trade_off(releases: Iterable[NoisyRelease]) -> TradeOff:
    """Return the trade-off curve of the composition of ``releases``.

    Parameters
    ----------
    releases : iterable of NoisyRelease
        Everything that was released, in any order.

    Returns
    -------
    TradeOff
        Bounds on every attack: ``mu``, ``total_variation``, ``false_negative_rate(alpha)`` and
        ``true_positive_rate(alpha)``.

    Raises
    ------
    TypeError
        If anything but a release is among ``releases``.

    Notes
    -----
    It holds in either direction of the relation of `skdpfair.privacy.compute_epsilon`.  The deltas
    are those of that function, plus a bound on their rounding error, up to the epsilon at which
    delta is 1000 times that error; ``mu`` holds from the corresponding error rate on.  Sampling
    never helps an attacker, so the Gaussian without sampling bounds all rates, and is exact for a
    sampling rate of 1.

    Examples
    --------
    >>> from skdpfair.privacy import NoisyRelease, trade_off
    >>> adult = NoisyRelease("gradient sum", 1 / 92, (1.0,), steps=1840)
    >>> round(trade_off([adult]).total_variation, 2)
    0.24
    """
    runs = merged(releases)
    if any(run.noise_multiplier < accounting.MIN_NOISE for run in runs):
        return TradeOff(math.inf)
    return _of_runs(runs)


def trade_off_from_epsilon(epsilon: float, delta: float) -> TradeOff:
    """Return the trade-off curve that follows from epsilon and delta alone.

    `trade_off` gives a much better bound if the releases are known.  ``mu`` holds for error rates
    of delta or more; no mu holds for all rates.
    """
    epsilon = number("epsilon", epsilon, low=0)
    delta = number("delta", delta, low=0, high=1)
    if epsilon > _MAX_EPSILON or delta == 1:
        return TradeOff(math.inf)
    # where the line meets its mirror image
    middle = (1 - delta) / (1 + math.exp(epsilon))
    alphas = np.array([middle, min(delta, middle) or middle])
    mu = _gaussian(alphas, delta + math.exp(epsilon) * alphas)
    return TradeOff(mu, min(delta, middle), math.inf, np.array([epsilon]), np.array([delta]))


@lru_cache(maxsize=64)
def trade_off_from_curve(curve: tuple[float, ...], delta: float) -> TradeOff:
    """Return the trade-off curve that follows from a Renyi curve alone, as that of a selection.

    It is the best of the bounds that the curve's epsilons give, each at a delta of its own; ``mu``
    holds from the error rate ``delta``.
    """
    renyi = np.array(curve)
    max_epsilon = min(curve_epsilon(renyi, _MIN_RATE), _MAX_EPSILON)
    epsilons = max_epsilon * np.linspace(0, 1, _N_EPSILONS // 4) ** 2
    deltas = np.array([curve_delta(renyi, epsilon) for epsilon in epsilons])
    bounds = TradeOff(math.inf, 0.0, math.inf, epsilons, deltas)
    # from here on the curve is its mirror image
    middle = (1 - bounds.total_variation) / 2
    if middle == 0:
        return TradeOff(math.inf)
    # the power at the end of an interval bounds that within it
    alphas = np.geomspace(min(delta, middle), middle, _N_EPSILONS)
    mu = _gaussian(alphas[:-1], bounds.true_positive_rate(alphas[1:]))
    return replace(bounds, mu=mu, mu_from=float(alphas[0]))


@lru_cache(maxsize=1024)
def _of_runs(runs: tuple[MergedRelease, ...]) -> TradeOff:
    plain = math.hypot(*(math.sqrt(run.steps) / run.noise_multiplier for run in runs))
    if all(run.sample_rate == 1 for run in runs) or accounting.joint_mu(runs) > accounting.MAX_MU:
        return TradeOff(plain, plain_mu=plain)
    least_delta = _RESOLVED * accounting.rounding(runs)
    max_epsilon = min(accounting.pld_epsilon(runs, least_delta, 0), _MAX_EPSILON)
    # closer together at 0, where losses of rarely sampled steps are
    epsilons = np.unique(max_epsilon * np.linspace(0, 1, _N_EPSILONS) ** 2)
    curves = []

    def delta_at_zero(level: int) -> float:
        curves.append(accounting.delta_curve(runs, epsilons, level))
        return float(curves[-1][0])

    accounting.refine_until_stable(runs, delta_at_zero)
    deltas = np.min(curves, axis=0)
    ratios = np.expm1(epsilons)
    # where neighbouring lines meet
    alphas = -np.diff(deltas) / np.diff(ratios)
    mu = _gaussian(alphas, deltas[1:] + (ratios[1:] + 1) * alphas)
    mu, mu_from = (mu, float(alphas[-1])) if 0 <= mu < plain else (plain, 0.0)
    return TradeOff(mu, mu_from, plain, epsilons, deltas)


def _gaussian(alphas: np.ndarray, powers: np.ndarray) -> float:
    """Return the smallest mu whose curve lies below these corners.

    Between two of them the bound is a straight line, and the curve of mu is convex: it lies below
    the line if it does at both ends.
    """
    return float(np.max(ndtri(powers) - ndtri(alphas), initial=-math.inf))
