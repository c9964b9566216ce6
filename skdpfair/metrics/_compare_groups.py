"""Values of a measure in each group, and their difference, minimum, maximum and ratio.

Every measure, scorer, table and report of the package compares groups by these functions. A group
without records has the value NaN, and the comparison is between the groups that have a value, as
in `fairlearn.metrics.MetricFrame`.
"""

import warnings

import pandas as pd
from fairlearn.metrics import MetricFrame
from sklearn.exceptions import UndefinedMetricWarning

from skdpfair.inputs.groups import encode_features, group_name
from skdpfair.metrics._arguments import as_vector, as_weights


def by_group(measure, y_true, y_pred, *, sensitive_features, **per_record):
    """Return a measure of each group that occurs, a Series in sorted order of the groups.

    ``measure(y_true, y_pred, **per_record)`` gives a number; arguments that are None are left out,
    and all others are cut into groups.

    Examples
    --------
    >>> from sklearn.metrics import accuracy_score
    >>> by_group(accuracy_score, [1, 0], [1, 1], sensitive_features=["F", "M"]).to_dict()
    {'F': 1.0, 'M': 0.0}
    """
    given = {name: values for name, values in per_record.items() if values is not None}
    for name, values in {"y_true": y_true, "y_pred": y_pred, **given}.items():
        as_vector(name, values, like=y_true)
    if "sample_weight" in given:
        given["sample_weight"] = as_weights(given["sample_weight"], y_true)
    found = encode_features(sensitive_features, len(y_true))

    def value(y_true, y_pred, **params):  # fairlearn warns of a partial, which has no name
        return measure(y_true, y_pred, **params)

    values = MetricFrame(
        metrics=value,
        y_true=y_true,
        y_pred=y_pred,
        sensitive_features=pd.Series(found.code, name="group"),
        sample_params=given,
    ).by_group.astype(float)
    names = pd.Index(found.levels, dtype=object, name="group", tupleize_cols=False)
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
    """Return the largest minus the smallest of the groups' values; see `group_min`.

    Examples
    --------
    >>> difference({"F": 0.5, "M": 0.75, "X": float("nan")}), difference([])
    (0.25, nan)
    """
    return group_max(values) - group_min(values)


def ratio(values):
    """Return the smallest of the groups' values divided by the largest.

    The ratio is NaN unless all values are at least 0 and one is above 0.

    Examples
    --------
    >>> ratio([0.25, 0.5]), ratio([-0.1, 0.5])
    (0.5, nan)
    """
    least, largest = group_min(values), group_max(values)
    return least / largest if least >= 0 and largest > 0 else float("nan")


def _reduced(values, how):
    if isinstance(values, pd.DataFrame):
        return values.agg(how, axis=1)
    return float(pd.Series(values, dtype=float).agg(how))


def label(group):
    """Return a group's name in brackets; intersections are joined by commas.

    Examples
    --------
    >>> label("F"), label(("F", "White"))
    ('[F]', '[F, White]')
    """
    return f"[{group_name(group)}]"


def warn_undefined(message):
    """Warn of a value that is NaN, or of groups that are left out."""
    warnings.warn(message, UndefinedMetricWarning, stacklevel=3)
