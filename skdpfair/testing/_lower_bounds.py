"""Lower bounds of epsilon from the outcomes of attacks, and the sentences that report them."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq

from skdpfair._utils.validate import safe_repr
from skdpfair.privacy import compute_epsilon
from skdpfair.privacy.accounting import delta_curve, joint_mu
from skdpfair.privacy.gdp import gdp_epsilon
from skdpfair.privacy.releases import merged

_DOUBLINGS = 10  # of noise, up or down, that are tried
_TOLERANCE = 1e-3  # of the logarithm of the noise
_N_LINES, _LEAST_CHANCE = 200, 1e-9  # of the bound on a trade-off function
# of the discretisation: a coarse one is three times as fast, and lowers bounds by less than .5 %
LEVEL = -2


def least_epsilon(releases, delta: float, excess) -> float:
    """Return the least epsilon of a fit with these releases that an attack does not refute.

    ``excess`` is positive for releases that the outcome refutes.  The hypotheses are that the fit
    is as private as the releases with the noise of each multiplied by one factor.  They are nested,
    as more noise is more private, so that epsilon of the smallest refuted noise exceeds that of the
    releases only if the releases themselves are refuted.
    """

    def scaled(x):
        return tuple(
            replace(r, noise_multipliers=[s * 2**x for s in r.noise_multipliers]) for r in releases
        )

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
    return compute_epsilon(scaled(high), delta)


def guesses_excess(n_canaries: int, n_guesses: int, n_correct: int, failure: float):
    r"""Return a function of releases, positive if so many right guesses in ONE run refute them.

    The records that are guessed about, some of ``n_canaries``, were put in or left out by fair
    coins; true releases are refuted with a chance of ``failure``.  Guesses may depend on each
    other.  Let :math:`p_t` be the chance of t right guesses.  If one coin is turned, a right guess
    becomes a wrong one, and t right ones become t - 1.  So, on average over the m canaries, each i
    has :math:`\sum_{t > i} t p_t / m \le 1 - f(\sum_{t \ge i} (n - t) p_t / m)`, where n is the
    number of guesses and f the trade-off function of the releases.  Solved for
    :math:`\sum_{t \ge i} p_t`, its right side grows with the sums for larger i: from ``failure``
    for i = n_correct, they are bounded from below one by one.  If the last, for i = 0, exceeds 1,
    so many right guesses are less probable than ``failure`` (Mahloujifar, Melis and Chaudhuri,
    "Auditing f-Differential Privacy in One Run", 2024).
    """
    if not 0 <= n_correct <= n_guesses <= n_canaries:
        raise ValueError(
            f"n_correct={safe_repr(n_correct)}, n_guesses={safe_repr(n_guesses)}, "
            f"n_canaries={safe_repr(n_canaries)} must satisfy 0 <= n_correct <= n_guesses <= "
            "n_canaries."
        )

    def excess(releases):
        needed = least_chance(releases)
        # P[t > i]; sum of the later
        tail, above = failure, 0.0
        for i in range(n_correct - 1, -1, -1):
            missed = n_canaries * needed(((i + 1) * tail + above) / n_canaries)
            above += tail
            tail = max(tail, (above + missed) / (n_guesses - i))
            if tail > 1:
                break
        return tail - 1

    return excess


@lru_cache(maxsize=4)
def least_chance(releases):
    """Return a function from the chance of an event to its least chance on a neighbour."""
    runs = merged(releases)
    highest = 1.5 * gdp_epsilon(joint_mu(runs), _LEAST_CHANCE)
    epsilons = np.linspace(0, highest, _N_LINES)
    deltas, ratio = delta_curve(runs, epsilons, LEVEL), np.exp(-epsilons)

    def chance(y):
        small, large = ratio * (y - deltas), 1 - deltas - (1 - y) / ratio
        return max(0.0, small.max(), large.max())

    return chance


def describe_bound(audit, what, evidence, at_best, more) -> str:
    """Return the sentence that reports an audit: its lower bound, or that it shows nothing.

    ``what`` spends, ``evidence`` is what the bound rests on, ``at_best`` the bound of an attack
    that is never wrong, and ``more`` what there should be more of for a higher one.
    """
    certainty = audit.confidence  # never rounded to 1
    words = f"{certainty:g}" if certainty <= 0.999 else f"1 - {1 - certainty:.0e}"
    where = f"at delta={audit.delta:g} ({evidence}, confidence {words})"
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
