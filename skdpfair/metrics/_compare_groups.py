"""Difference, minimum and maximum of the values of groups.

Every measure, scorer, table and report of the package compares groups by these functions. A group
without records has the value NaN, and the comparison is between the groups that have a value, as
in `fairlearn.metrics.MetricFrame`.
"""

import warnings

import pandas as pd
from sklearn.exceptions import UndefinedMetricWarning

# a difference between groups of which fewer than two have a value
NOT_COMPARED = "not compared"


def group_min(values):
    """Return the smallest of the groups' values, NaN left out; NaN where no group has a value.

    ``values`` has one value for each group: a Series, a dict or an array.
    """
    return float(pd.Series(values, dtype=float).min())


def group_max(values):
    """Return the largest of the groups' values; see `group_min`."""
    return float(pd.Series(values, dtype=float).max())


def difference(values):
    """Return the largest minus the smallest value of the groups, NaN if only one has a value."""
    is_known = len(values) == 1 or pd.Series(values, dtype=float).count() > 1
    return group_max(values) - group_min(values) if is_known else float("nan")


def ratio(values):
    """Return the smallest over the largest value of the groups, as the four-fifths rule does.

    It is NaN if only one of them has a value, or all are 0.
    """
    largest = group_max(values)
    is_known = difference(values) >= 0 and largest > 0
    return group_min(values) / largest if is_known else float("nan")


def warn_undefined(message):
    """Warn of a value that is NaN, or of groups that are left out."""
    warnings.warn(message, UndefinedMetricWarning, stacklevel=3)
