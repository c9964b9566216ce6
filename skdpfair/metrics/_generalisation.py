"""Distributional generalisation: gaps between train and test, and calibration."""

import numpy as np
import pandas as pd

from skdpfair._validate import flag, number, safe_repr
from skdpfair.inputs.columns import check_indexes
from skdpfair.inputs.groups import encode_features
from skdpfair.metrics._arguments import (
    accuracy,
    as_vector,
    as_weights,
    check_probabilities,
    metric_of,
    weighted,
)
from skdpfair.metrics._compare_groups import group_max, group_min, labels, warn_undefined


def dg_gap(y_true, y_pred, *, is_train, metric=None, sample_weight=None):
    """Measure the distributional-generalisation gap: the train score minus the test score.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        The labels of training and test records together.
    y_pred : array-like of shape (n_samples,)
        The predictions, in the form that ``metric`` takes.
    is_train : array-like of shape (n_samples,), bool
        Which records the model was trained on.
    metric : callable or None, default=None
        ``metric(y_true, y_pred)`` in [0, 1], the mean of a test function of the records; None is
        accuracy.
    sample_weight : array-like of shape (n_samples,) or None, default=None
        Passed to ``metric`` if given; numbers >= 0.

    Returns
    -------
    float
        In [-1, 1]; positive if the model does better on training records. NaN, with an
        ``UndefinedMetricWarning``, without training or test records. The value is not private.

    Notes
    -----
    The gap is defined in section 2 of Kulynych et al.. For every test function with values in
    [0, 1], its average over training sets is at most the `dg_bound` of the fit.

    Examples
    --------
    >>> from skdpfair.metrics import dg_gap
    >>> y_true, y_pred = [1, 0, 1, 0, 1, 0, 1, 0], [1, 0, 1, 0, 0, 0, 1, 0]
    >>> is_train = [True] * 4 + [False] * 4
    >>> dg_gap(y_true, y_pred, is_train=is_train)
    0.25
    """
    data = _checked(y_true, y_pred, is_train, sample_weight)
    for part, rows in {"training": data["is_train"], "test": ~data["is_train"]}.items():
        if not rows.any():
            warn_undefined(f"dg_gap is NaN: there is no {part} record. Pass both in is_train.")
            return float("nan")
    train, test = _train_and_test(data, metric, np.full(len(data), True))
    return train - test


def dg_gap_by_group(
    y_true,
    y_pred,
    *,
    is_train,
    sensitive_features,
    metric=None,
    sample_weight=None,
    groups=None,
    greater_is_better=True,
):
    """Tabulate train score, test score and gap, overall, for the worst group and for each group.

    Parameters
    ----------
    y_true, y_pred, is_train, metric, sample_weight
        As in `dg_gap`.
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        The groups; several columns make intersections.
    groups : list or None, default=None
        All possible groups; None means those that occur.
    greater_is_better : bool, default=True
        False for a loss: the worst group is then the one with the largest value.

    Returns
    -------
    pandas.DataFrame
        Columns ``train``, ``test``, ``gap``; rows ``overall``, ``group_min`` (for a loss
        ``group_max``) and ``[GROUP]``. The group with the smallest score may differ between
        ``train`` and ``test``. A group without records has NaN, with an
        ``UndefinedMetricWarning``, and ``group_min`` ignores it. The table is not private.

    Examples
    --------
    >>> from skdpfair.metrics import dg_gap_by_group
    >>> y_true, y_pred = [1, 0, 1, 0, 1, 0, 1, 0], [1, 0, 1, 0, 0, 0, 1, 0]
    >>> dg_gap_by_group(
    ...     y_true, y_pred, is_train=[True] * 4 + [False] * 4, sensitive_features=["F", "M"] * 4
    ... )
               train  test   gap
    overall      1.0  0.75  0.25
    group_min    1.0  0.50  0.50
    [F]          1.0  0.50  0.50
    [M]          1.0  1.00  0.00
    """
    flag("greater_is_better", greater_is_better)
    data = _checked(y_true, y_pred, is_train, sample_weight, sensitive_features)
    encoded = encode_features(sensitive_features, len(data), groups)
    assert encoded.levels is not None
    rows = {
        group: _train_and_test(data, metric, encoded.code == i)
        for i, group in enumerate(labels(encoded.levels))
    }
    table = pd.DataFrame(rows, index=["train", "test"]).T
    if table.isna().any(axis=None):
        warn_undefined("The gap of a group is NaN: a score is undefined or has no records.")
    worst = group_min(table.T) if greater_is_better else group_max(table.T)
    overall = pd.Series(_train_and_test(data, metric, encoded.code >= 0), index=["train", "test"])
    worst_name = "group_min" if greater_is_better else "group_max"
    table = pd.concat([pd.DataFrame({"overall": overall, worst_name: worst}).T, table])
    return table.assign(gap=table["train"] - table["test"])


def dg_gap_worst_group(
    y_true,
    y_pred,
    *,
    is_train,
    sensitive_features,
    metric=None,
    sample_weight=None,
    greater_is_better=True,
):
    """Measure the worst score of a group on train minus the worst score of a group on test.

    Parameters
    ----------
    y_true, y_pred, is_train, sensitive_features, metric, sample_weight, greater_is_better
        As in `dg_gap_by_group`.

    Returns
    -------
    float
        In [-1, 1]; groups without training or test records are left out, with an
        ``UndefinedMetricWarning``. The value is not private.

    Notes
    -----
    This is the proxy of Kulynych et al., section 5. The worst group may differ between test and
    train. The largest gap of a single group is ``dg_gap_by_group(...)["gap"].iloc[2:].max()``.

    Examples
    --------
    >>> from skdpfair.metrics import dg_gap_worst_group
    >>> y_true, y_pred = [1, 0, 1, 0, 1, 0, 1, 0], [1, 0, 1, 0, 0, 0, 1, 0]
    >>> dg_gap_worst_group(
    ...     y_true, y_pred, is_train=[True] * 4 + [False] * 4, sensitive_features=["F", "M"] * 4
    ... )
    0.5
    """
    table = dg_gap_by_group(
        y_true,
        y_pred,
        is_train=is_train,
        sensitive_features=sensitive_features,
        metric=metric,
        sample_weight=sample_weight,
        greater_is_better=greater_is_better,
    )
    return float(table["gap"].iloc[1])


def _checked(y_true, y_pred, is_train, sample_weight, sensitive_features=None):
    """Return one row per record, else raise."""
    others = {"sample_weight": sample_weight, "sensitive_features": sensitive_features}
    check_indexes(y_true=y_true, y_pred=y_pred, is_train=is_train, **others)
    columns = {"y_true": as_vector("y_true", y_true, y_true)}
    columns["y_pred"] = as_vector("y_pred", y_pred, y_true)
    is_train = as_vector("is_train", is_train, y_true)
    if not np.isin(is_train, [True, False]).all():
        raise ValueError(
            "is_train must hold only True, for training records, and False, for test records. "
            "Pass a boolean array."
        )
    columns["is_train"] = is_train.astype(bool)
    if sample_weight is not None:
        columns["sample_weight"] = as_weights(sample_weight, y_true)
    return pd.DataFrame({name: pd.Series(v, dtype=v.dtype) for name, v in columns.items()})


def _train_and_test(data, metric, rows):
    return tuple(_score(data[rows & (data["is_train"] == part)], metric) for part in (True, False))


def _score(data, metric):
    """Return the metric of some rows, NaN of none."""
    if data.empty:
        return float("nan")
    score = weighted(metric_of(metric, accuracy), data.get("sample_weight"))
    value = float(score(data["y_true"].to_numpy(), data["y_pred"].to_numpy()))
    if not (np.isnan(value) or 0 <= value <= 1):
        raise ValueError(
            f"metric must lie in [0, 1], got {safe_repr(value)}: the bound holds only for bounded "
            "test functions. Clip the loss and divide it by its largest value."
        )
    return value


def calibration_gap(y_true, y_prob, *, tau=0.1, sample_weight=None):
    """Measure the distance of labels from predicted probabilities, in bins of width tau.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        The labels, 0 or 1.
    y_prob : array-like of shape (n_samples,)
        The predicted probability of class 1, in [0, 1].
    tau : float, default=0.1
        Width of the bins: 1/m for an integer m.
    sample_weight : array-like of shape (n_samples,) or None, default=None
        Weights of the mean, >= 0, not all zero.

    Returns
    -------
    float
        In [0, 1]. The value is not private.

    Notes
    -----
    The value is the sum over p in {0, tau, ..., 1} of abs(mean(1{p <= y_prob < p + tau}
    (y_true - p))), Definition C.7 of Kulynych et al.. The bins of the paper are open; here each
    bin includes its lower end, so that the probabilities p are counted. As p is the LOWER end of
    a bin, perfectly calibrated probabilities have a gap of up to tau: compare train with test, or
    models at the same tau. For the gap between train and test, use `dg_gap` with
    ``metric=calibration_gap``, whose mean `calibration_bound` bounds.

    Examples
    --------
    >>> from skdpfair.metrics import calibration_gap
    >>> y_true, y_prob = [0, 1, 1, 1], [0.5, 0.5, 0.9, 0.9]
    >>> round(calibration_gap(y_true, y_prob), 4)  # |1 - 2 * 0.5| / 4 + |2 - 2 * 0.9| / 4
    0.05
    """
    n_bins = bins_of(tau)
    check_indexes(y_true=y_true, y_prob=y_prob, sample_weight=sample_weight)
    y_true = as_vector("y_true", y_true, y_true)
    if not np.isin(y_true, [0, 1]).all():
        raise ValueError(
            "y_true must hold only labels 0 and 1. Pass y_true == c for the class c whose "
            "probability is y_prob."
        )
    y_prob = as_vector("y_prob", y_prob, y_true)
    check_probabilities("y_prob", y_prob, "Pass predict_proba(X)[:, 1].")
    y_prob = y_prob.astype(float)
    sample_weight = as_weights(sample_weight, y_true)
    lower = np.arange(n_bins + 1) / n_bins
    bins = np.searchsorted(lower, y_prob, side="right") - 1
    share = np.ones(len(y_true)) if sample_weight is None else sample_weight
    residual = (y_true.astype(float) - lower[bins]) * share / share.sum()
    return float(np.abs(np.bincount(bins, weights=residual)).sum())


def bins_of(tau):
    """Return the number of bins of width ``tau`` in [0, 1), else raise."""
    tau = number("tau", tau, low=0, low_open=True, high=1)
    n_bins = round(1 / tau)
    if abs(n_bins * tau - 1) > 1e-9:
        raise ValueError(f"tau must divide 1, got {safe_repr(tau)}. Use tau=1/{n_bins}.")
    return n_bins
