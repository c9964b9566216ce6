"""The choice of thresholds from numbers of records by score, class and group."""

import numpy as np
from scipy.optimize import linprog
from scipy.signal import savgol_filter

OBJECTIVES = ("balanced_accuracy", "accuracy", "true_positive_rate", "selection_rate")
CONSTRAINTS = ("demographic_parity", "equal_opportunity", "equalized_odds")
# edges to which a parabola is fitted
_SMOOTHED = 31
_FEWEST = 1e-6  # records of a class that has none, so that rates exist
# standard deviation of a rate over groups, from which that of one group is told in spite of noise
_BETWEEN_GROUPS = 0.1
_SEEN = 2.0  # standard deviations of noise, from which numbers of records tell rates of a group


def best_cut(counts, objective, target=None):
    """Return the position of the edge that serves an objective best.

    ``counts`` (2, n_edges) are numbers of negative and positive records whose score is at least
    each edge, ``objective`` one of ``OBJECTIVES`` or the costs by true and predicted class, and
    ``target`` the smallest true-positive rate, or the selection rate (None: the share of
    positives).  Gains are smoothed by local parabolas, as the largest of many noisy numbers would
    be one with much noise.
    """
    gains, least_positives, selected = _terms(counts[:, 0], objective, target)
    if selected is not None:
        return int(np.abs(counts.sum(axis=0) - selected).argmin())
    if least_positives:
        return int(np.flatnonzero(counts[1] >= least_positives)[-1])
    return int(savgol_filter(gains @ counts, _SMOOTHED, 2, mode="nearest").argmax())


def pooled(counts, deviation):
    """Return the counts of groups, nearer to those that the rates of all records would give.

    ``counts`` (n_groups, 2, n_edges) are those of `score_counts`, and ``deviation`` is the standard
    deviation of the noise in each.  The rates of a group are the mean of its own and of those of
    all records, weighted as in empirical Bayes by the variance of its own rates, by noise and by
    chance, and by that of rates between groups: a group too small to be seen has the rates of all.
    """
    totals, every = np.maximum(counts[:, :, :1], _FEWEST), counts.sum(axis=0)
    own, of_all = counts / totals, every / np.maximum(every[:, :1], _FEWEST)
    variance = (deviation / totals) ** 2 + of_all * (1 - of_all) / totals
    weight = _BETWEEN_GROUPS**2 / (_BETWEEN_GROUPS**2 + variance)
    return totals * (of_all + weight * (own - of_all))


def bound(counts, constraint, deviation):
    """Return which rates of groups a constraint binds, (n_rates, n_groups).

    Those of groups of which noise alone could make up the records, ``deviation`` as of `pooled`,
    are free: else, one group that nobody is in would decide for all.
    """
    records = counts[:, :, 0].T
    if constraint == "demographic_parity":
        records, deviation = records.sum(axis=0, keepdims=True), deviation * 2**0.5
    elif constraint == "equal_opportunity":
        records = records[1:]
    # exact counts of a group without records are 0, and it has no rate
    return records > max(0.5, _SEEN * deviation)


def best_mixtures(counts, objective, target, constraint, tolerance, deviation=0.0):
    """Return each edge's probability (n_groups, n_edges) that serves an objective under parity.

    The rates of two groups, by ``counts`` (n_groups, 2, n_edges), differ by at most ``tolerance``,
    if `bound`; the objective is that of all groups together.  A linear programme over mixtures of
    thresholds: all rates are linear in their probabilities.  The solution exists, since a group can
    be selected at any rate at random.
    """
    n_groups, _, n_edges = counts.shape
    is_bound = bound(counts, constraint, deviation)
    # what noise alone could make up gets the rates of all records
    is_seen = counts[:, :, :1] > _SEEN * deviation
    counts = np.where(is_seen, counts, pooled(counts, deviation))
    totals = np.maximum(counts[:, :, :1], _FEWEST)
    if constraint == "demographic_parity":
        rates = (counts.sum(axis=1) / totals.sum(axis=1))[None]
    else:
        rates = (counts / totals).transpose(1, 0, 2)
        rates = rates[1:] if constraint == "equal_opportunity" else rates
    gains, least_positives, selected = _terms(counts[:, :, 0].sum(axis=0), objective, target)
    n_rates, n_weights = len(rates), n_groups * n_edges
    # after the weights, the lowest rate of all groups for each measure; none exceeds it by more
    bounded = np.zeros((2, n_rates, n_groups, n_weights + n_rates))
    for k in range(n_rates):
        for g in range(n_groups):
            if is_bound[k, g]:
                of_group = slice(g * n_edges, (g + 1) * n_edges)
                bounded[0, k, g, of_group], bounded[0, k, g, n_weights + k] = rates[k, g], -1
                bounded[1, k, g] = -bounded[0, k, g]
    limits = np.repeat([tolerance, 0.0], n_rates * n_groups) + 1e-9
    positives = np.pad(counts[:, 1].ravel(), (0, n_rates))
    above = np.vstack([bounded.reshape(-1, n_weights + n_rates), -positives])
    sums = np.pad(np.kron(np.eye(n_groups), np.ones(n_edges)), ((0, 0), (0, n_rates)))
    equal = np.ones(n_groups)
    if selected is not None:
        sums = np.vstack([sums, np.pad(counts.sum(axis=1).ravel(), (0, n_rates))])
        equal = np.append(equal, selected)
    found = linprog(
        -np.pad(np.einsum("c,gce->ge", gains, counts).ravel(), (0, n_rates)),
        A_ub=above,
        b_ub=np.append(limits, -least_positives),
        A_eq=sums,
        b_eq=equal,
        bounds=(0, None),
    )
    weights = np.where(found.x[:n_weights] > 1e-9, found.x[:n_weights], 0.0)
    weights = weights.reshape(n_groups, n_edges)
    return weights / weights.sum(axis=1, keepdims=True)


def _terms(totals, objective, target):
    """Return gains of a false and of a true positive, fewest true positives, number selected."""
    negatives, positives = np.maximum(totals, _FEWEST)
    gains, least_positives, selected = np.array([-1.0, 1.0]), 0.0, None
    if not isinstance(objective, str):
        (as_0, fp), (fn, as_1) = objective
        gains = np.array([as_0 - fp, fn - as_1], dtype=np.float64)
    elif objective == "balanced_accuracy":
        gains = gains / (negatives, positives)
    elif objective == "true_positive_rate":
        gains, least_positives = np.array([-1.0, 0.0]), target * totals[1]
    elif objective == "selection_rate":
        selected = positives if target is None else target * (negatives + positives)
    return gains, least_positives, selected
