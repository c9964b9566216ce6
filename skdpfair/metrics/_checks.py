"""What all measures ask of their inputs, and how a measure becomes a gap."""

import functools
import math

import numpy as np
import pandas as pd
from fairlearn.metrics import MetricFrame, count
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import column_or_1d

from skdpfair._validate import error_context_without_data, outline, refuse_masked, safe_repr
from skdpfair.metrics._values import check_kind

_ONE_EACH = "must hold one number or text for each record"
_ONE_GROUP = "must hold one group for each record"
_MOST_GROUPS = 10_000  # that the values of several columns may make together


def as_vector(name, values, like):
    """Return ``values`` as a 1-D array, one per record of ``like``, else raise.

    Parameters
    ----------
    name : str
        The parameter's name, for the error.
    values : array-like of shape (n_samples,)
        Anything of one dimension; a single column counts as one.
    like : sized
        Has one entry per record.

    Returns
    -------
    ndarray of shape (n_samples,)

    Raises
    ------
    ValueError
        If the lengths differ, or there is more than one column, or no record at all.

    Examples
    --------
    >>> as_vector("y_ref", [0, 1], like=[1, 1, 0])
    Traceback (most recent call last):
    ...
    ValueError: y_ref must have one entry for each of the 3 records of y_true, got 2.
    """
    n_records = _length("y_true", like)
    if values is None:
        raise ValueError(
            f"{name} must have one entry for each of the {n_records} records of y_true, got None. "
            f"Pass {name}=."
        )
    refuse_masked(name, values)
    if isinstance(values, (str, bytes, dict, set, frozenset)):
        raise TypeError(f"{name} must be of shape (n_samples,), got {outline(values)}.")
    with error_context_without_data(name, "must be of shape (n_samples,)"):
        shape = np.shape(values)
    if len(shape) not in (1, 2) or (len(shape) == 2 and shape[1] != 1):
        raise ValueError(f"{name} must be of shape (n_samples,), got shape {shape}.")
    if shape[0] != n_records:
        raise ValueError(
            f"{name} must have one entry for each of the {n_records} records of y_true, "
            f"got {shape[0]}."
        )
    if shape[0] == 0:
        raise ValueError("y_true must have at least one record, got none.")
    with error_context_without_data(name, _ONE_EACH):
        values = column_or_1d(values)
    if values.dtype.kind in "cSV":
        raise ValueError(f"{name} {_ONE_EACH}: complex numbers, bytes and records are none.")
    return values


def _length(name, values):
    with error_context_without_data(name, "must have one entry for each record"):
        return len(values)


def as_weights(values, like):
    """Return weights as an array of floats >= 0, not all zero; None stays None.

    Examples
    --------
    >>> as_weights([1, 0], like=[0, 1])
    array([1., 0.])
    """
    if values is None:
        return None
    weights = as_vector("sample_weight", values, like)
    wanted = "must hold one number >= 0 for each record"
    if weights.dtype.kind not in "biufO":
        raise TypeError(f"sample_weight {wanted}, got values that are not numbers.")
    with error_context_without_data("sample_weight", f"{wanted}, got values that are not numbers"):
        weights = weights.astype(float)
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise ValueError(
            f"sample_weight {wanted}: weights are finite, none is negative and not all are zero."
        )
    return weights


def accuracy(y_true, y_pred, sample_weight=None):
    """Return scikit-learn's accuracy; its errors name the parameter.

    Examples
    --------
    >>> accuracy([1, 0], [1, 1])
    0.5
    """
    check_kind("y_pred", y_pred, y_true)
    with error_context_without_data("y_pred", "cannot be compared with y_true"):
        return accuracy_score(y_true, y_pred, sample_weight=sample_weight)


def by_group(measure, y_true, y_pred, *, sensitive_features, **per_record):
    """Return a measure of each group that occurs.

    Parameters
    ----------
    measure : callable
        ``measure(y_true, y_pred, **per_record)`` gives a number.
    y_true, y_pred : array-like of shape (n_samples,)
        Labels and predictions.
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        The groups; several columns make intersections.
    **per_record : array-like of shape (n_samples,) or None
        More arguments of ``measure``, cut into groups as well; None is left out.

    Returns
    -------
    pandas.Series
        One number per group, in the groups' order.

    Examples
    --------
    >>> from sklearn.metrics import accuracy_score
    >>> by_group(accuracy_score, [1, 0], [1, 1], sensitive_features=["F", "M"]).to_dict()
    {'F': 1.0, 'M': 0.0}
    """
    given = {name: values for name, values in per_record.items() if values is not None}

    def value(y_true, y_pred, **params):  # fairlearn warns of a partial, which has no name
        return measure(y_true, y_pred, **params)

    frame = MetricFrame(
        metrics={"value": value, "count": count},
        y_true=y_true,
        y_pred=y_pred,
        sensitive_features=as_pandas(sensitive_features, y_true),
        sample_params={"value": given},
    )
    # fairlearn lists every product of levels, also the intersections that have no records
    return frame.by_group.loc[frame.by_group["count"] > 0, "value"].astype(float)


def as_pandas(groups, like):
    """Return the groups as pandas: fairlearn squeezes arrays, which fails for a single record."""
    n_records = _length("y_true", like)
    refuse_masked("sensitive_features", groups)
    with error_context_without_data("sensitive_features", _ONE_GROUP):
        is_one = np.ndim(groups) == 0 and not isinstance(groups, dict)
    if groups is None or is_one:
        raise ValueError(
            "sensitive_features must hold one group for each record of y_true, got "
            f"{outline(groups)}. Pass the column itself, such as X['sex']."
        )
    columns = groups.values() if isinstance(groups, dict) else [groups]
    for column in columns:
        refuse_masked("sensitive_features", column)
    with error_context_without_data("sensitive_features", _ONE_GROUP):
        sizes = [len(column) for column in columns]
    if not sizes or any(size != n_records for size in sizes):
        raise ValueError(
            f"sensitive_features must have one entry for each of the {n_records} records of "
            f"y_true, got {sizes[0] if len(sizes) == 1 else sizes}."
        )
    with error_context_without_data("sensitive_features", _ONE_GROUP):
        groups = _as_frame(groups)
    if groups.shape[1] == 0:
        raise ValueError(f"sensitive_features {_ONE_GROUP}, but has no columns.")
    if not groups.columns.is_unique:
        twice = groups.columns[groups.columns.duplicated()].unique()
        raise ValueError(
            f"sensitive_features has columns of one name: {safe_repr(list(twice))}. Rename them."
        )
    with error_context_without_data("sensitive_features", _ONE_GROUP):
        is_missing = groups.isna().to_numpy().any()
        n_groups = math.prod(groups.nunique())
        for i in range(groups.shape[1]):  # fairlearn's own table cannot hold half characters
            texts = [v for v in groups.iloc[:, i].unique() if isinstance(v, str)]
            "".join(texts).encode()
    if is_missing:
        raise ValueError(
            "sensitive_features has missing values. Give them a group of their own, for instance "
            "by fillna('unknown')."
        )
    if n_groups > _MOST_GROUPS:
        raise ValueError(
            f"sensitive_features makes more than {_MOST_GROUPS} groups. Choose columns of few "
            "values, or cut numbers into ranges."
        )
    return groups.iloc[:, 0] if groups.shape[1] == 1 else groups


def _as_frame(groups):
    """Return the groups as a DataFrame of one column or more, whose texts pandas keeps."""
    if isinstance(groups, pd.Series):
        groups = groups.to_frame("group" if groups.name is None else groups.name)
    elif isinstance(groups, dict):
        groups = pd.DataFrame({name: pd.Series(_column(v)) for name, v in groups.items()})
    elif not isinstance(groups, pd.DataFrame):
        values = np.asarray(groups, dtype=object)
        many = values.ndim == 2
        names = [f"group_{j}" for j in range(values.shape[1])] if many else ["group"]
        groups = pd.DataFrame(values, columns=names, dtype=object)  # raises beyond two dimensions
    return groups


def _column(values):
    return values.to_numpy() if isinstance(values, pd.Series) else np.asarray(values, dtype=object)


def gap(measure, y_true, y_pred, *, sensitive_features, **per_record):
    """Return the largest minus the smallest value of a measure over the groups.

    Takes the parameters of `by_group`, and returns a float >= 0, which is 0 for a single group
    and NaN if the measure is NaN for some group.

    Examples
    --------
    >>> from sklearn.metrics import accuracy_score
    >>> gap(accuracy_score, [1, 0], [1, 1], sensitive_features=["F", "M"])
    1.0
    """
    as_vector("y_true", y_true, like=y_true)
    for name, values in {"y_pred": y_pred, **per_record}.items():
        if values is not None:
            as_vector(name, values, like=y_true)
    if "sample_weight" in per_record:
        per_record["sample_weight"] = as_weights(per_record["sample_weight"], y_true)
    values = by_group(measure, y_true, y_pred, sensitive_features=sensitive_features, **per_record)
    # a metric undefined in some group makes the gap NaN, rather than hiding the group
    return float(values.max(skipna=False) - values.min(skipna=False))


def weighted(metric, sample_weight):
    """Return ``metric`` with its weights filled in, if there are any.

    Examples
    --------
    >>> from sklearn.metrics import accuracy_score
    >>> weighted(accuracy_score, [3, 1])([1, 0], [1, 1])
    0.75
    """
    if sample_weight is None:
        return metric
    return functools.partial(metric, sample_weight=np.asarray(sample_weight, dtype=float))
