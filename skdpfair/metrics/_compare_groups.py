"""Values of a measure in each group, and their difference, minimum and maximum.

Every measure, scorer, table and report of the package compares groups by these functions. A group
without records has the value NaN, and the comparison is between the groups that have a value, as
in `fairlearn.metrics.MetricFrame`.
"""

import warnings

import pandas as pd
from fairlearn.metrics import MetricFrame
from sklearn.exceptions import UndefinedMetricWarning

from skdpfair.inputs.columns import check_indexes
from skdpfair.inputs.groups import encode_features, group_names
from skdpfair.metrics._arguments import as_vector, as_weights

NOT_COMPARED = "not compared"  # a difference between groups of which fewer than two have a value


def by_group(measure, y_true, y_pred, *, sensitive_features, **per_record):
    """Return a measure of each group that occurs, a Series in sorted order of the groups.

    ``measure(y_true, y_pred, **per_record)`` gives a number; arguments that are None are left out,
    and all others are cut into groups.
    """
    columns = {"y_true": y_true, "y_pred": y_pred, **per_record}
    check_indexes(**columns, sensitive_features=sensitive_features)
    columns = {k: as_vector(k, v, like=y_true) for k, v in columns.items() if v is not None}
    y_true, y_pred = columns.pop("y_true"), columns.pop("y_pred")
    if "sample_weight" in columns:
        columns["sample_weight"] = as_weights(columns["sample_weight"], y_true)
    groups = encode_features(sensitive_features, len(y_true))

    def value(y_true, y_pred, **params):  # fairlearn warns of a partial, which has no name
        return measure(y_true, y_pred, **params)

    values = MetricFrame(
        metrics=value,
        y_true=y_true,
        y_pred=y_pred,
        sensitive_features=pd.Series(groups.code, name="group"),
        sample_params=columns,
    ).by_group.astype(float)
    names = pd.Index(groups.levels, dtype=object, name="group", tupleize_cols=False)
    return values.set_axis(names)


def group_min(values):
    """Return the smallest of the groups' values, NaN left out; NaN where no group has a value.

    ``values`` has one value for each group: a Series, a dict or an array. A DataFrame has one
    column for each group, and gives one number for each row.
    """
    return _reduced(values, "min")


def group_max(values):
    """Return the largest of the groups' values; see `group_min`."""
    return _reduced(values, "max")


def difference(values):
    """Return the largest minus the smallest of the groups' values, NaN if only one of them has one.

    Examples
    --------
    >>> difference({"F": 0.5, "M": 0.75, "X": float("nan")}), difference([0.5, float("nan")])
    (0.25, nan)
    """
    compared = group_max(values) - group_min(values)
    if isinstance(values, pd.DataFrame):
        return compared.where((values.count(axis=1) > 1) | (values.shape[1] == 1))
    return compared if len(values) == 1 or pd.Series(values).count() > 1 else float("nan")


def _reduced(values, how):
    if isinstance(values, pd.DataFrame):
        return values.agg(how, axis=1)
    return float(pd.Series(values, dtype=float).agg(how))


def labels(groups):
    """Return the names of groups in brackets; intersections are joined by commas."""
    return [f"[{name}]" for name in group_names(groups)]


def warn_undefined(message):
    """Warn of a value that is NaN, or of groups that are left out."""
    warnings.warn(message, UndefinedMetricWarning, stacklevel=3)
