"""Figure 2 and Appendix C of Kulynych et al.: bounds on generalisation gaps, and calibration gaps.

A gap is that between training records and the population, of a test function with values in [0, 1].
"""

import math

import numpy as np

from skdpfair._validate import one_of
from skdpfair.privacy.accounting import RELATIONS, total_variation, tv_from_epsilon


def dg_bound(releases, adjacency="replace_one"):
    """Bound the expected gap of every test function, overall and in each group.

    By Theorem 2.5 (and C.6 for groups) it is at most the total variation by which the output of
    training changes when one record is replaced. "replace_one" is bounded directly; "add_remove"
    and "zero_out" count twice, which never gives a smaller bound.
    """
    one_of("adjacency", adjacency, RELATIONS)
    factor = 1 if adjacency == "replace_one" else 2
    return min(1.0, factor * total_variation(releases, adjacency))


def dg_bound_from_epsilon(epsilon, delta=0.0, *, bound="tight"):
    """Bound the expected gap by epsilon and delta alone, for replace-one neighbours.

    ``bound`` is "tight", (e^epsilon - 1 + 2 delta) / (e^epsilon + 1) (Proposition 2.6); "additive",
    e^epsilon - 1 + delta (equation 2); or "mutual_information", epsilon, for ``delta=0`` only
    (Steinke and Zakynthinou, 2020). The older two may exceed 1, where they say nothing.
    """
    one_of("bound", bound, ("tight", "additive", "mutual_information"))
    tight = tv_from_epsilon(epsilon, delta)
    if bound == "tight":
        return tight
    if bound == "additive":
        return math.expm1(epsilon) + delta if epsilon < 700 else math.inf
    if delta != 0:
        raise ValueError(f"delta must be 0 with bound='mutual_information', got {delta}.")
    return float(epsilon)


def strong_dg_bound(releases, *, n_samples, failure_probability=None, adjacency="replace_one"):
    """Bound the expected ABSOLUTE gap of every test function, after training on n_samples records.

    With a number p, return what the absolute gap of one training set and run exceeds with a
    probability below p. The bound does not cover the records of one group.

    By Lemma C.3, an algorithm whose output varies by at most delta in total variation has a mean of
    at most 4 delta, if n is at least 2 / delta^2. As it also varies by at most any larger delta,
    the bound is 4 max(delta, sqrt(2 / n)) for every n. Divided by p, it is that of Proposition C.2
    (Markov's inequality).
    """
    stable = max(dg_bound(releases, adjacency), math.sqrt(2 / n_samples))
    return min(1.0, 4 * stable / (failure_probability or 1.0))


def calibration_bound(releases, *, n_samples, n_bins=10, adjacency="replace_one"):
    """Bound the difference of the expected calibration gap between training set and population.

    The bound is delta (n_bins + 1) with delta = `strong_dg_bound`. Theorem C.8 states delta n_bins,
    for bins that are open, so that a probability of exactly 1 lies in none.
    """
    strong = strong_dg_bound(releases, n_samples=n_samples, adjacency=adjacency)
    return min(1.0, (n_bins + 1) * strong)


def calibration_gap(y_true, y_prob, *, n_bins=10):
    """Measure the distance of labels (0 or 1) from probabilities of class 1 (Definition C.7).

    The value is the sum over p in {0, 1 / n_bins, ..., 1} of abs(mean(1{p <= y_prob < p + 1 /
    n_bins} (y_true - p))). The bins of the paper are open; here each includes its lower end. As p
    is the LOWER end, perfectly calibrated probabilities have a gap of up to 1 / n_bins. For the gap
    between train and test, use `dg_gap` with it as the metric, whose mean `calibration_bound`
    bounds.
    """
    lower = np.arange(n_bins + 1) / n_bins
    bins = np.searchsorted(lower, y_prob, side="right") - 1
    residual = (np.asarray(y_true, float) - lower[bins]) / len(bins)
    return float(np.abs(np.bincount(bins, weights=residual)).sum())
