"""Lower bounds of epsilon from the outcomes of attacks, and the sentences that report them."""

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.stats import beta, chi2, norm

from skdpfair._validate import safe_repr
from skdpfair.privacy.accounting import (
    delta_curve,
    epsilon,
    joint_mu,
)
from skdpfair.privacy.gdp import gdp_epsilon
from skdpfair.privacy.releases import merged

_DOUBLINGS = 10  # of noise, up or down, that are tried
_TOLERANCE = 1e-3  # of the logarithm of the noise
_N_LINES, _LEAST_CHANCE = 200, 1e-9  # of the bound on a trade-off function


def rate_at_most(hits: int, trials: int, failure: float) -> float:
    """Return the upper confidence limit of a rate [clopper1934use]_.

    Parameters
    ----------
    hits, trials : int
        How often something happened, and how often it could have.
    failure : float in (0, 1)
        Chance that the rate exceeds the limit.

    Returns
    -------
    float
        In (0, 1].

    Examples
    --------
    >>> rate_at_most(0, 100, 0.05) < 0.03, rate_at_most(100, 100, 0.05)
    (True, 1.0)
    """
    if hits == trials:
        return 1.0
    return float(beta.isf(failure, hits + 1, trials - hits))


def mu_lower_bound(without, with_record, thresholds, failure: float) -> float:
    """Return the least ``mu`` of Gaussian differential privacy that two samples leave possible.

    Parameters
    ----------
    without, with_record : ndarray
        Scores of outputs on the two neighbours; high ones speak for the record.
    thresholds : sequence of float
        Chosen without a look at these scores.
    failure : float in (0, 1)
        Chance, over all thresholds together, that the bound exceeds the truth.

    Returns
    -------
    float
        >= 0.

    Notes
    -----
    A test of a mu-GDP mechanism has ``Phi^-1(1 - FPR) - Phi^-1(FNR) <= mu``
    (Dong et al., 2022); both rates are replaced by upper confidence limits.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.normal(size=(2, 20_000))
    >>> print(f"{mu_lower_bound(a, b + 1.0, [0.0, 0.5, 1.0], 1e-6):.2f}")
    0.89
    """
    each, best = failure / (2 * len(thresholds)), 0.0
    for threshold in thresholds:
        false_positive = rate_at_most(int(np.sum(without > threshold)), len(without), each)
        missed = int(np.sum(with_record <= threshold))
        false_negative = rate_at_most(missed, len(with_record), each)
        if max(false_positive, false_negative) < 1:
            best = max(best, norm.isf(false_positive) - norm.ppf(false_negative))
    return float(best)


def epsilon_lower_bound(without, with_record, thresholds, delta: float, failure: float) -> float:
    """Return the least epsilon at ``delta`` that two samples of scores leave possible.

    Parameters are those of :func:`mu_lower_bound`.  A test of an (epsilon, delta)-DP mechanism
    has ``TPR <= exp(epsilon) FPR + delta``, in both directions.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.normal(size=(2, 20_000))
    >>> print(f"{epsilon_lower_bound(a, b + 1.0, [0.5, 1.0, 2.0], 1e-5, 1e-6):.2f}")
    1.64
    """
    each, best = failure / (4 * len(thresholds)), 0.0
    pairs = ((without, with_record, 1), (with_record, without, -1))
    for threshold in thresholds:
        for low, high, sign in pairs:
            hits = [int(np.sum(sign * s > sign * threshold)) for s in (low, high)]
            wrong = rate_at_most(hits[0], len(low), each)
            right = 1 - rate_at_most(len(high) - hits[1], len(high), each)
            if right > delta:
                best = max(best, math.log((right - delta) / wrong))
    return best


def least_epsilon(releases, delta: float, excess) -> float:
    """Return the least epsilon of a fit with these steps that the outcome of an attack leaves.

    Parameters
    ----------
    runs : sequence of Release
        The steps as they are accounted for.
    delta : float in (0, 1)
        Where epsilon is taken.
    excess : callable
        Positive for a tuple of releases that the outcome refutes.

    Returns
    -------
    float
        >= 0.

    Notes
    -----
    The hypotheses are that the fit is as private as the runs with the noise of each multiplied by
    one factor.  They are nested, as more noise is more private, so that epsilon of the largest
    refuted noise exceeds that of the runs only if the runs themselves are refuted.
    """

    def scaled(x):
        noise = ([s * 2**x for s in release.noise_multipliers] for release in releases)
        pairs = zip(releases, noise, strict=True)
        return tuple(replace(r, noise_multipliers=s) for r, s in pairs)

    def at(x):
        return excess(scaled(x))

    high = next((x for x in range(_DOUBLINGS) if at(x) > 0), None)
    if high is None:
        return 0.0
    low = high - 1
    while at(low) > 0 and low > -_DOUBLINGS:
        high, low = low, low - 1
    if low > -_DOUBLINGS:
        high = min(high, brentq(at, low, high, xtol=_TOLERANCE) + _TOLERANCE)
    return epsilon(scaled(high), delta)


def guesses_excess(n_canaries: int, n_guesses: int, n_correct: int, failure: float):
    r"""Return a function of releases, positive if so many right guesses in ONE run refute them.

    Parameters
    ----------
    n_canaries : int
        Records that were put in or left out by independent fair coins.
    n_guesses : int
        For how many of them a guess was made; fixed beforehand.
    n_correct : int
        How many of the guesses were right.
    failure : float in (0, 1)
        Chance that true runs are refuted.

    Notes
    -----
    Let :math:`p_t` be the chance of t right guesses.  If one coin is turned, a right guess becomes
    a wrong one, and t right ones become t - 1.  So, on average over the m canaries, each i has
    :math:`\sum_{t > i} t p_t / m \le 1 - f(\sum_{t \ge i} (n - t) p_t / m)`, where n is the
    number of guesses and f the trade-off function of the runs.  Solved for
    :math:`\sum_{t \ge i} p_t`, its right side grows with the sums for larger i: from ``failure``
    for i = n_correct, they are bounded from below one by one.  If the last, for i = 0, exceeds 1,
    so many right guesses are less probable than ``failure``.  Guesses may depend on each other.

    References
    ----------
    Mahloujifar, Melis and Chaudhuri, "Auditing f-Differential Privacy in One Run", 2024.
    """
    if not 0 <= n_correct <= n_guesses <= n_canaries:
        raise ValueError(
            f"n_correct={safe_repr(n_correct)}, n_guesses={safe_repr(n_guesses)}, "
            f"n_canaries={safe_repr(n_canaries)} must satisfy 0 <= n_correct <= n_guesses <= "
            "n_canaries."
        )

    def excess(releases):
        needed, tail, above = (
            least_chance(releases),
            failure,
            0.0,
        )  # P[t > i]; sum of the later
        for i in range(n_correct - 1, -1, -1):
            missed = n_canaries * needed(((i + 1) * tail + above) / n_canaries)
            above += tail
            tail = max(tail, (above + missed) / (n_guesses - i))
            if tail > 1:
                break
        return tail - 1

    return excess


def accuracy_excess(n_guesses: int, n_correct: int, failure: float):
    """Return a function of releases, positive if so many right INDEPENDENT guesses refute them.

    Parameters are those of :func:`guesses_excess`.  A guess about a fair coin is right with a
    chance of at most (1 + TV) / 2, where TV is the total variation of the runs; the number of right
    guesses is binomial, and its chance is replaced by the lower confidence limit.

    Examples
    --------
    >>> from skdpfair.privacy import Release
    >>> excess = accuracy_excess(1000, 700, 0.05)
    >>> one, two = ((Release("step", 1.0, (s,)),) for s in (1.2, 1.0))
    >>> excess(one) > 0 > excess(two)
    True
    """
    accuracy = 1 - rate_at_most(n_guesses - n_correct, n_guesses, failure)
    return lambda rs: float(2 * accuracy - 1 - delta_curve(merged(rs), np.zeros(1))[0])


@lru_cache(maxsize=4)
def least_chance(releases):
    """Return a function: what has chance y on one neighbour has how much at least on the other.

    Examples
    --------
    >>> from skdpfair.privacy import Release
    >>> chance = least_chance((Release("step", 1.0, (1.0,)),))
    >>> print(f"{chance(0.5):.3f} {norm.cdf(norm.ppf(0.5) - 1):.3f}")
    0.159 0.159
    """
    runs = merged(releases)
    highest = 1.5 * gdp_epsilon(joint_mu(runs), _LEAST_CHANCE)
    epsilons = np.linspace(0, highest, _N_LINES)
    deltas, ratio = delta_curve(runs, epsilons), np.exp(-epsilons)

    def chance(y):
        small, large = ratio * (y - deltas), 1 - deltas - (1 - y) / ratio
        return max(0.0, small.max(), large.max())

    return chance


def sampling_p_values(included, rates) -> dict[str, float]:
    """Return how well batches agree with independent Poisson sampling.

    Parameters
    ----------
    included : ndarray of shape (n_steps, n_samples), bool
        Which record was in which batch; an even number of records.
    rates : float or ndarray of shape (n_samples,)
        The claimed sampling rates, in (0, 1).

    Returns
    -------
    dict of str to float
        Two-sided p-values: of the number of records in all, the spread of the batch sizes, the
        spread of the records' counts, a record's presence in two batches in a row, and that of
        two records in one batch.  Shuffled batches and batches of fixed size fail.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> min(sampling_p_values(rng.random((500, 40)) < 0.1, 0.1).values()) > 1e-6
    True
    >>> fixed = rng.permuted(np.tile(np.arange(40) < 4, (500, 1)), axis=1)
    >>> min(sampling_p_values(fixed, 0.1).values()) < 1e-6
    True
    """
    q = np.broadcast_to(rates, included.shape)

    def of_count(found, p):
        z = (found.sum() - p.sum()) / math.sqrt((p * (1 - p)).sum())
        return float(2 * norm.sf(abs(z)))

    def of_spread(counts, mean, variance):
        value = float(((counts - mean) ** 2 / variance).sum())
        return float(2 * min(chi2.cdf(value, len(counts)), chi2.sf(value, len(counts))))

    variance = q * (1 - q)
    return {
        "records": of_count(included, q),
        "batch sizes": of_spread(included.sum(1), q.sum(1), variance.sum(1)),
        "each record": of_spread(included.sum(0), q.sum(0), variance.sum(0)),
        "twice in a row": of_count(included[1:] & included[:-1], q[1:] * q[:-1]),
        "in pairs": of_count(included[:, ::2] & included[:, 1::2], q[:, ::2] * q[:, 1::2]),
    }


def confidence_in_words(confidence: float) -> str:
    """Return a confidence in words that never round it to certainty.

    Examples
    --------
    >>> confidence_in_words(0.95), confidence_in_words(1 - 1e-9)
    ('0.95', '1 - 1e-09')
    """
    return f"{confidence:g}" if confidence <= 0.999 else f"1 - {1 - confidence:.0e}"


def describe_bound(audit, what, evidence, at_best, more) -> str:
    """Return the sentence that reports an audit: its lower bound, or that it shows nothing.

    Parameters
    ----------
    audit : FitAudit or StepAudit
        Holds both epsilons, ``delta`` and ``confidence``.
    what : str
        What spends.
    evidence : str
        What the bound rests on.
    at_best : float
        The bound if the attack had never been wrong.
    more : str
        What there should be more of, for a higher one.
    """
    where = (
        f"at delta={audit.delta:g} ({evidence}, confidence {confidence_in_words(audit.confidence)})"
    )
    claim = f"its claim of {audit.epsilon_claimed:.3g}"
    if audit.epsilon_lower > 0:
        verdict = "not above" if audit.passed else "ABOVE"
        spent = f"{audit.epsilon_lower:.3g}"
        return f"{audit.method}: {what} spends epsilon {spent} or more {where}, {verdict} {claim}."
    within = "" if at_best > audit.epsilon_claimed else f": too little to exceed {claim}"
    return (
        f"{audit.method}: shows nothing (lower bound 0) {where}. An attack that is never wrong "
        f"would have shown {at_best:.3g}{within}. More {more} show more."
    )
