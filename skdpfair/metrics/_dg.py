"""Distributional generalisation: what a test function sees in train and not in test."""

import numpy as np
import pandas as pd

from skdpfair._validate import flag
from skdpfair.metrics._checks import accuracy, as_vector, as_weights, weighted
from skdpfair.metrics._levels import encode, label, warn_undefined
from skdpfair.metrics._values import metric_of


def dg_gap(y_true, y_pred, *, is_train, metric=None, sample_weight=None):
    """Measure the distributional-generalisation gap: a score on train minus the same on test.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        The labels of training and test records together.
    y_pred : array-like of shape (n_samples,)
        The predictions, whatever ``metric`` takes.
    is_train : array-like of shape (n_samples,), bool
        Which records the model was trained on.
    metric : callable or None, default=None
        ``metric(y_true, y_pred)`` in [0, 1], the mean of a test function of the records; None is
        accuracy.
    sample_weight : array-like of shape (n_samples,) or None, default=None
        Handed to ``metric`` if given; numbers >= 0.

    Returns
    -------
    float
        In [-1, 1]; positive if the model does better on what it has seen. NaN, with an
        ``UndefinedMetricWarning``, if there is no training or no test record. Not itself private.

    Raises
    ------
    ValueError
        If an array has not one entry per label, ``is_train`` is not boolean, or the metric leaves
        [0, 1].
    TypeError
        If ``metric`` is no function.

    Notes
    -----
    Definition of [kulynych2022]_, section 2. In the mean over training sets it is at most
    `dg_bound` of the privacy, for every test function with values in [0, 1].

    References
    ----------
    .. [kulynych2022] B. Kulynych et al., "What You See is What You Get: Principled Deep Learning
       via Distributional Generalization", NeurIPS 2022.

    Examples
    --------
    >>> from skdpfair.metrics import dg_gap
    >>> y_true, y_pred = [1, 0, 1, 0, 1, 0, 1, 0], [1, 0, 1, 0, 0, 0, 1, 0]
    >>> is_train = [True] * 4 + [False] * 4
    >>> dg_gap(y_true, y_pred, is_train=is_train)
    0.25

    For each group, with fairlearn:

    >>> from fairlearn.metrics import MetricFrame
    >>> frame = MetricFrame(
    ...     metrics=dg_gap, y_true=y_true, y_pred=y_pred, sensitive_features=["F", "M"] * 4,
    ...     sample_params={"is_train": is_train},
    ... )
    >>> frame.by_group.to_dict()
    {'F': 0.5, 'M': 0.0}
    """
    data = _checked(y_true, y_pred, is_train, sample_weight)
    for part, rows in {"training": data["is_train"], "test": ~data["is_train"]}.items():
        if not rows.any():
            warn_undefined("dg_gap", f"there is no {part} record. Pass both in is_train.")
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
    """Tabulate a score on train, on test and the gap: overall, of the worst group, of each group.

    Parameters
    ----------
    y_true, y_pred, is_train, metric, sample_weight
        As in `dg_gap`.
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        The groups; several columns make intersections.
    groups : list or None, default=None
        All groups there may be; None means those that occur.
    greater_is_better : bool, default=True
        False for a loss: the worst group is then that of the largest value.

    Returns
    -------
    pandas.DataFrame
        Columns ``train``, ``test``, ``gap``; rows ``overall``, ``worst_group`` (the worst of each
        column: not always the same group) and ``[GROUP]``. NaN, with an
        ``UndefinedMetricWarning``, where a group has no record. Not itself private.

    Raises
    ------
    ValueError
        As `dg_gap`, or if a group is missing or not among ``groups``.

    Examples
    --------
    >>> from skdpfair.metrics import dg_gap_by_group
    >>> y_true, y_pred = [1, 0, 1, 0, 1, 0, 1, 0], [1, 0, 1, 0, 0, 0, 1, 0]
    >>> dg_gap_by_group(
    ...     y_true, y_pred, is_train=[True] * 4 + [False] * 4, sensitive_features=["F", "M"] * 4
    ... )
                 train  test   gap
    overall        1.0  0.75  0.25
    worst_group    1.0  0.50  0.50
    [F]            1.0  0.50  0.50
    [M]            1.0  1.00  0.00
    """
    flag("greater_is_better", greater_is_better)
    data = _checked(y_true, y_pred, is_train, sample_weight)
    codes, levels = encode(sensitive_features, y_true, groups)
    rows = {label(g): _train_and_test(data, metric, codes == i) for i, g in enumerate(levels)}
    table = pd.DataFrame(rows, index=["train", "test"]).T
    if table.isna().any(axis=None):
        warn_undefined("The gap of a group", "a score is undefined, or of no record.")
    worst = table.min(skipna=False) if greater_is_better else table.max(skipna=False)
    overall = pd.Series(_train_and_test(data, metric, codes >= 0), index=["train", "test"])
    table = pd.concat([pd.DataFrame({"overall": overall, "worst_group": worst}).T, table])
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
    """Measure the gap of the worst group: its score on train minus that of the worst in test.

    Parameters
    ----------
    y_true, y_pred, is_train, sensitive_features, metric, sample_weight, greater_is_better
        As in `dg_gap_by_group`.

    Returns
    -------
    float
        In [-1, 1]; NaN, with an ``UndefinedMetricWarning``, if a group lacks training or test
        records. Not itself private.

    Raises
    ------
    ValueError
        As `dg_gap_by_group`.

    Notes
    -----
    The proxy of [kulynych2022]_, section 5: the worst group may be another one in test than in
    train. The largest gap of a single group is ``dg_gap_by_group(...)["gap"].iloc[2:].max()``.

    References
    ----------
    .. [kulynych2022] B. Kulynych et al., "What You See is What You Get: Principled Deep Learning
       via Distributional Generalization", NeurIPS 2022.

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
    return float(table.loc["worst_group", "gap"])


def _checked(y_true, y_pred, is_train, sample_weight):
    """Return one row per record, else raise."""
    columns = {"y_true": as_vector("y_true", y_true, y_true)}
    columns["y_pred"] = as_vector("y_pred", y_pred, y_true)
    is_train = as_vector("is_train", is_train, y_true)
    if not np.isin(is_train, [True, False]).all():
        raise ValueError(
            "is_train must hold True for training records and False for test records, and "
            "nothing else. Pass a boolean array."
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
            f"metric must lie in [0, 1], got {value!r}: a gap is bounded for bounded test "
            "functions only. Clip the loss and divide it by its largest value."
        )
    return value
