"""Privacy loss of a sampled step about all records of a person: a mixture of Gaussians."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.optimize import brentq
from scipy.special import log_ndtr, logsumexp, ndtr
from scipy.stats import binom

_DEVIATIONS, _LOG_TAIL = 10.0, -50.0  # where Q and P are cut
# probability from which on more records count as all of them
_RARE = 1e-40
_NEWTON_STEPS, _PRECISION = 50, 1e-12  # of which about 6 are taken


class Mixture:
    """The pair that dominates a step: P with the records of a person, Q without.

    Each of ``records`` records is sampled on its own, with probability ``sample_rate`` in (0, 1).
    With s the noise multiplier, Q is N(0, s^2), and P is N(J, s^2) for a J that is
    Binomial(records, sample_rate): the number of her records in the step.  The log likelihood
    ratio of P to Q grows with x, so that half lines attain delta at every epsilon.
    """

    def __init__(self, sample_rate: float, noise_multiplier: float, records: int) -> None:
        self.noise = noise_multiplier
        tails = binom.sf(np.arange(records), records, sample_rate)
        self.counts = np.arange(np.count_nonzero(tails > _RARE) + 1.0)
        # binom.logpmf is less accurate
        probabilities = binom.pmf(self.counts, records, sample_rate)
        # the last one stands for all larger counts, as if each were all records
        probabilities[-1], self.counts[-1] = tails[len(probabilities) - 2], records
        with np.errstate(divide="ignore"):
            self.log_probabilities = np.log(probabilities)
        # the log likelihood ratio at x is logsumexp(levels + counts * x / noise^2)
        self.levels = self.log_probabilities - (self.counts / noise_multiplier) ** 2 / 2

    @property
    def bounds(self) -> tuple[float, float]:
        """The log likelihood ratio where Q starts and where P ends."""

        def excess(x: float) -> float:
            tails = log_ndtr((self.counts - x) / self.noise)
            return float(logsumexp(self.log_probabilities + tails)) - _LOG_TAIL

        lowest = -_DEVIATIONS * self.noise
        highest = brentq(excess, lowest, self.counts[-1] - lowest, xtol=1e-3 * self.noise)
        ends = np.array([[lowest], [highest]]) / self.noise**2
        low, high = logsumexp(self.levels + ends * self.counts, axis=1)
        return float(low), float(high)

    def deltas(self, ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return delta of P against Q at epsilons ``ratios``, and of Q against P at -``ratios``."""
        x = self._inverse(ratios)
        above = ndtr((self.counts - x[:, None]) / self.noise) @ np.exp(self.log_probabilities)
        removed = above - np.exp(ratios + log_ndtr(-x / self.noise))
        tails = log_ndtr((x[:, None] - self.counts) / self.noise)
        log_below = logsumexp(self.log_probabilities + tails, axis=1)
        added = ndtr(x / self.noise) - np.exp(log_below - ratios)
        return removed, added

    def _inverse(self, ratios: np.ndarray) -> np.ndarray:
        """Return where the log likelihood ratio has these values, -inf below its range."""
        x = np.full(len(ratios), -np.inf)
        reached = ratios > self.levels[0]
        # without the term of no records, the sum is solved for u = x / noise^2, in which it is
        # convex: Newton's method from above goes down to the solution
        wanted = ratios[reached] + np.log(-np.expm1(self.levels[0] - ratios[reached]))
        levels, counts = self.levels[1:], self.counts[1:]
        u = np.min((wanted[:, None] - levels) / counts, axis=1)
        for _ in range(_NEWTON_STEPS):
            terms = levels + u[:, None] * counts
            values = logsumexp(terms, axis=1)
            change = (values - wanted) / (np.exp(terms - values[:, None]) @ counts)
            u -= change
            if np.all(np.abs(change) <= _PRECISION * (1 + np.abs(u))):
                break
        x[reached] = u * self.noise**2
        return x


@lru_cache(maxsize=1024)
def loss_bounds(sample_rate: float, noise_multiplier: float, records: int) -> tuple[float, float]:
    """Return the least and the largest privacy loss of a step, up to a negligible mass."""
    return Mixture(sample_rate, noise_multiplier, records).bounds


def worst_mixture(
    variants: Sequence[tuple[float, float]], records: int, width: float
) -> pld.PrivacyLossDistribution:
    """Return a pessimistic privacy loss distribution of a step, on intervals of this width.

    Of several ``variants``, each a sampling rate and a noise multiplier, it dominates all: its
    delta is the largest of theirs at every epsilon.

    The library's ``from_mixture_gaussian_mechanism`` takes a second, a hundred times as long, and
    finds thresholds to 1e-6 only, which understates delta by up to 1e-12.
    """
    low, high = zip(*(loss_bounds(*v, records) for v in variants), strict=True)
    first, last = int(np.floor(min(low) / width)), int(np.ceil(max(high) / width))
    ratios = width * np.arange(first, last + 1)
    deltas = [Mixture(*v, records).deltas(ratios) for v in variants]
    removed, added = np.max(deltas, axis=0)
    connect = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap
    return pld.PrivacyLossDistribution(
        connect(width, first, last, _falling(removed)),
        connect(width, -last, -first, _falling(added[::-1])),
    )


def _falling(deltas: np.ndarray) -> np.ndarray:
    """Return deltas in [0, 1] that never grow, which rounding may have made them do."""
    return np.maximum.accumulate(deltas.clip(0, 1)[::-1])[::-1]
