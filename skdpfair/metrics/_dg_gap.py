"""Distributional generalisation: the gap of a score between training and test records."""

import numpy as np

from skdpfair._utils.validate import safe_repr
from skdpfair.inputs.columns import check_indexes
from skdpfair.metrics._arguments import accuracy, as_vector, as_weights, metric_of, weighted
from skdpfair.metrics._compare_groups import warn_undefined


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
    The gap is defined in section 2 of Kulynych et al.. By their Theorem 2.5, its average over
    training sets is, for every test function with values in [0, 1], at most the total variation by
    which the output of training changes when one record is replaced.

    Examples
    --------
    >>> from skdpfair.metrics import dg_gap
    >>> y_true, y_pred = [1, 0, 1, 0, 1, 0, 1, 0], [1, 0, 1, 0, 0, 0, 1, 0]
    >>> is_train = [True] * 4 + [False] * 4
    >>> dg_gap(y_true, y_pred, is_train=is_train)
    0.25
    """
    check_indexes(y_true=y_true, y_pred=y_pred, is_train=is_train, sample_weight=sample_weight)
    is_train, y_pred = as_vector("is_train", is_train, y_true), as_vector("y_pred", y_pred, y_true)
    y_true = as_vector("y_true", y_true, y_true)
    if not np.isin(is_train, [True, False]).all():
        raise ValueError(
            "is_train must hold only True, for training records, and False, for test records. "
            "Pass a boolean array."
        )
    is_train, weight = is_train.astype(bool), as_weights(sample_weight, y_true)
    scores = []
    for part, rows in {"training": is_train, "test": ~is_train}.items():
        if not rows.any():
            warn_undefined(f"dg_gap is NaN: there is no {part} record. Pass both in is_train.")
            return float("nan")
        score = weighted(metric_of(metric, accuracy), None if weight is None else weight[rows])
        value = float(score(y_true[rows], y_pred[rows]))
        if not (np.isnan(value) or 0 <= value <= 1):
            raise ValueError(
                f"metric must lie in [0, 1], got {safe_repr(value)}: the bound holds only for "
                "bounded test functions. Clip the loss and divide it by its largest value."
            )
        scores.append(value)
    return scores[0] - scores[1]
