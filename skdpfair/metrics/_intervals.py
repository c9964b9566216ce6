"""Intervals of means over runs and of shares of records: one place for both."""

import numpy as np
from scipy.stats import t

from skdpfair.metrics._group_tables import accuracy_interval
from skdpfair.metrics._measures import LEVEL, described, level_of


def student(mean, error, n_runs, level=LEVEL, limits=(-1.0, 1.0)):
    """Return the ends of Student's intervals of means over runs, NaN for a single run."""
    mean, error, n_runs = np.asarray(mean), np.asarray(error), np.asarray(n_runs)
    freedom = np.where(n_runs > 1, n_runs - 1.0, np.nan)
    reach = t.ppf((1 + level) / 2, freedom) * error
    return np.clip(mean - reach, *limits), np.clip(mean + reach, *limits)


def student_of_column(column, mean, error, n_runs, n_groups):
    """Return the intervals of a column of a sweep's table, no further than values can be.

    Those of differences, worst groups and costs hold for all groups at once, see `level_of`.
    """
    limits = {"%": (0.0, 1.0), "nats": (-np.inf, np.inf)}.get(described(column)[1], (-1.0, 1.0))
    # the largest mean minus the least
    if column.endswith("_difference"):
        limits = 0.0, limits[1]
    return student(mean, error, n_runs, level_of(column, n_groups), limits)


def wilson(share, n, level=LEVEL):
    """Return the ends of Wilson's interval of a share of n records.

    Examples
    --------
    >>> [f"{end:.3f}" for end in wilson(0.9, 100)]
    ['0.826', '0.945']
    """
    hits = np.array([round(share * n)])
    _, low, high = (float(ends[0]) for ends in accuracy_interval(hits, n - hits, 0.0, level))
    return low, high
