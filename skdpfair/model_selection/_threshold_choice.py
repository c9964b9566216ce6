"""The choice of thresholds from numbers of records by score, class and group."""

import numpy as np
from scipy.linalg import block_diag
from scipy.optimize import linprog
from scipy.signal import savgol_filter

OBJECTIVES = ("balanced_accuracy", "accuracy", "true_positive_rate", "selection_rate")
CONSTRAINTS = ("demographic_parity", "equal_opportunity", "equalized_odds")
# edges to which a parabola is fitted
_SMOOTHED = 31
_FEWEST = 1e-6  # records of a class that has none, so that rates exist
# standard deviation of a rate over groups; one with this error counts as much as that of all
_BETWEEN_GROUPS = 0.1
_LARGEST_ERROR = 0.2  # of the rates by which a threshold is chosen: five standard deviations
# mean of a count of no record, in standard deviations of its noise: no count is negative
_OF_NOBODY = 0.66


def best_cut(counts, objective, target=None):
    """Return the position of the edge that serves an objective best.

    ``counts`` (2, n_edges) are numbers of negative and positive records whose score is at least
    each edge, ``objective`` one of ``OBJECTIVES`` or the costs by true and predicted class, and
    ``target`` the smallest true-positive rate, or the selection rate (None: the share of
    positives).
    """
    gains, least_positives, selected = _terms(counts[:, 0], objective, target)
    if selected is not None:
        return int(np.abs(counts.sum(axis=0) - selected).argmin())
    if least_positives:
        return int(np.flatnonzero(counts[1] >= least_positives)[-1])
    return int(_smooth(gains @ counts).argmax())


def _smooth(gains):
    """Return gains by edge as local parabolas: the largest of many noisy ones has much noise."""
    return savgol_filter(gains, _SMOOTHED, 2, mode="nearest")


def pooled(counts, deviation):
    """Return the counts of groups, nearer to those that the rates of all records would give.

    ``counts`` (n_groups, 2, n_edges) are those of `score_counts`, and ``deviation`` is the standard
    deviation of the noise in each.  The rates of a group, its share of positives among them, are
    the mean of its own and of those of all records, weighted as in empirical Bayes by the variance
    of its own rates, by noise and by chance, and by that of rates between groups: a group too small
    to be seen has the rates of all.
    """
    totals, every = np.maximum(counts[:, :, :1], _FEWEST), counts.sum(axis=0)
    sizes, of_all = totals.sum(axis=1, keepdims=True), np.maximum(every[:, :1], _FEWEST)
    class_fractions = _nearer(totals / sizes, of_all / of_all.sum(), _error(sizes, deviation))
    rates = _nearer(counts / totals, every / of_all, _error(totals, deviation))
    return sizes * class_fractions * rates


def _nearer(own, of_all, error):
    """Return rates with a standard error, nearer to those of all."""
    return of_all + _BETWEEN_GROUPS**2 / (_BETWEEN_GROUPS**2 + error**2) * (own - of_all)


def _error(records, deviation):
    """Return the standard error of a rate among so many records, by noise and by chance."""
    return np.sqrt((deviation / records) ** 2 + 0.25 / records)


def few_to_tell(counts, measure, deviation):
    """Return the flags (n_groups,) of groups with rates nearer to those of all than to their own.

    ``measure`` is a constraint or an objective, and ``counts`` and ``deviation`` are as of
    `pooled`.
    """
    return (_errors(counts[:, :, 0], measure, deviation) > _BETWEEN_GROUPS).any(axis=1)


def clearness(counts, measure, deviation, target=None):
    """Return how clearly the counts of all groups tell the rates that a measure needs.

    It is the largest standard error that they may have over their own: from 1 on, they tell.
    A true-positive rate of at least ``target`` lies among the last positives, of which the noise
    must be a part only; a selection rate without a target is the share of positives.
    """
    if measure == "selection_rate" and target is None:
        measure, target = "true_positive_rate", 0.0
    n_groups, deviation = len(counts), deviation * len(counts) ** 0.5
    records = counts[:, :, 0].sum(axis=0, keepdims=True) - _OF_NOBODY * deviation * n_groups**0.5
    if measure == "true_positive_rate" and deviation > (1 - target) * records[0, 1]:
        return 0.0
    return float(_LARGEST_ERROR / max(_errors(records, measure, deviation).max(), 1e-9))


def _errors(records, measure, deviation):
    """Return the standard errors of rates, (n_groups, n_rates), by numbers (n_groups, 2)."""
    if measure in ("demographic_parity", "selection_rate"):
        records, deviation = records.sum(axis=1, keepdims=True), deviation * 2**0.5
    elif measure in ("equal_opportunity", "true_positive_rate"):
        records = records[:, 1:]
    return _error(np.maximum(records, _FEWEST), deviation)


def best_mixtures(counts, objective, target, constraint, tolerance):
    """Return each edge's probability (n_groups, n_edges) that serves an objective under parity.

    The rates of two groups, by ``counts`` (n_groups, 2, n_edges) as of `pooled`, differ by at most
    ``tolerance``; the objective is that of all groups together.  A linear programme over mixtures
    of thresholds: all rates are linear in their probabilities.  The solution exists, since a group
    can be selected at any rate at random.
    """
    n_groups, _, n_edges = counts.shape
    totals = counts[:, :, :1]
    if constraint == "demographic_parity":
        rates = (counts.sum(axis=1) / totals.sum(axis=1))[None]
    else:
        rates = (counts / totals).transpose(1, 0, 2)
        rates = rates[1:] if constraint == "equal_opportunity" else rates
    gains, least_positives, selected = _terms(counts[:, :, 0].sum(axis=0), objective, target)
    n_rates, n_weights = len(rates), n_groups * n_edges
    # after the weights, the lowest rate of all groups for each measure; none exceeds it by more
    of_groups = np.vstack([block_diag(*by_group) for by_group in rates])
    over_lowest = np.hstack([of_groups, np.repeat(-np.eye(n_rates), n_groups, axis=0)])
    limits = np.repeat([tolerance, 0.0], n_rates * n_groups) + 1e-9
    positives = np.pad(counts[:, 1].ravel(), (0, n_rates))
    above = np.vstack([over_lowest, -over_lowest, -positives])
    sums = np.pad(np.kron(np.eye(n_groups), np.ones(n_edges)), ((0, 0), (0, n_rates)))
    equal = np.ones(n_groups)
    if selected is not None:
        sums = np.vstack([sums, np.pad(counts.sum(axis=1).ravel(), (0, n_rates))])
        equal = np.append(equal, selected)
    solution = linprog(
        -np.pad(_smooth(gains @ counts).ravel(), (0, n_rates)),
        A_ub=above,
        b_ub=np.append(limits, -least_positives),
        A_eq=sums,
        b_eq=equal,
        bounds=(0, None),
    )
    weights = np.where(solution.x[:n_weights] > 1e-9, solution.x[:n_weights], 0.0)
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
