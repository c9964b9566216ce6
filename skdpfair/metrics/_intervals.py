"""Intervals of means over runs and of shares of records: one place for both."""

import numpy as np
from scipy.stats import t

from skdpfair.metrics._group_tables import accuracy_interval
from skdpfair.metrics._measures import LEVEL, described, level_of, n_trials

_ROUNDING = 1e-9  # far less than one record changes


def overlap(share, n_by_seed):
    """Return the part of its test records that a run has in common with another, on average.

    ``share`` is the part of a table that a run tests, and ``n_by_seed`` the number of runs of each
    seed: these are folds, which have no record in common.
    """
    n = sum(n_by_seed)
    same = sum(k * (k - 1) for k in n_by_seed)
    return share * (1 - same / (n * (n - 1))) if n > 1 else 0.0


def error_of_mean(values, common=0.0):
    """Return the standard error of a mean over runs, NaN for a single run.

    Runs that test a part ``common`` of the same records vary less than their mean errs: with one
    split a seed, the variance is ``sd**2 * (1 / R + n_test / n_train)`` (Nadeau and Bengio,
    "Inference for the Generalization Error", Machine Learning 52, 2003). Runs that all give the
    same value, apart from rounding errors, have none.
    """
    if len(values) < 2:
        return np.nan
    spread = values.std(ddof=1)
    spread = spread if spread > _ROUNDING else 0.0
    return spread * (1 / len(values) + common / (1 - common)) ** 0.5


def seeds_for(factor, share, n_seeds, n_folds=1):
    """Return how many seeds make intervals shorter by a factor, None if 1,000 do not."""
    n = np.arange(n_seeds, 1001)
    runs = n * n_folds
    common = share * (1 - (n_folds - 1) / (runs - 1))  # as `overlap`
    reach = t.ppf((1 + LEVEL) / 2, runs - 1) * ((1 - common) / runs + common) ** 0.5
    enough = n[reach <= factor * reach[0]]
    return int(enough[0]) if len(enough) else None


def student(mean, error, n_runs, level=LEVEL, limits=(-1.0, 1.0)):
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


def of_share(row, name, rarest):
    """Return the ends of Wilson's interval of a measure in a row, NaN if it is no share."""
    n = n_trials(name, int(row["n"]), row.get("rarest_class_share", 1.0), rarest)
    return wilson(row[name], n) if n and not np.isnan(row[name]) else (np.nan, np.nan)


def wilson(share, n, level=LEVEL):
    hits = np.array([round(share * n)])
    _, low, high = (float(ends[0]) for ends in accuracy_interval(hits, n - hits, 0.0, level))
    return low, high
