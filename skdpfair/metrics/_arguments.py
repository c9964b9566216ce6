"""Checks of labels, predictions, weights and metrics; their errors name the parameter."""

import functools
import warnings

import numpy as np
from sklearn.exceptions import UndefinedMetricWarning

from skdpfair._utils.validate import error_context_without_data, safe_repr
from skdpfair.inputs.columns import one_column, refuse_dates
from skdpfair.inputs.target import kinds, plain

_WEIGHTS = "must hold one finite number >= 0 for each record, at least one of them above 0"


def as_vector(name, values, like):
    """Return ``values`` as an array of shape (n_samples,), one per record of ``like``."""
    with error_context_without_data("y_true", "must have one entry for each record"):
        n_records = len(like)
    values = plain(one_column(name, values, "one number or text for each record"))
    if len(values) != n_records or not n_records:
        raise ValueError(
            f"{name} must have one entry for each of the {n_records} records of y_true, at least "
            f"one, got {len(values)}."
        )
    return values


def as_weights(values, like):
    """Return weights as an array of floats >= 0, not all zero; None stays None."""
    if values is None:
        return None
    refuse_dates("sample_weight", values)
    with error_context_without_data("sample_weight", _WEIGHTS):
        weights = as_vector("sample_weight", values, like).astype(float)
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise ValueError(f"sample_weight {_WEIGHTS}.")
    return weights


def accuracy(y_true, y_pred, *, sample_weight=None):
    right = hits(y_true, y_pred)
    return float(np.average(right, weights=as_weights(sample_weight, right)))


def metric_of(metric, default, weights, name="metric"):
    """Return a metric, ``default`` for None, with the result of `as_weights`; else raise."""
    if metric is not None and not callable(metric):
        raise TypeError(
            f"{name} must be a function {name}(y_true, y_pred) or None, got {safe_repr(metric)}. "
            "Pass the function itself: only scorers take names."
        )
    metric = default if metric is None else metric
    return metric if weights is None else functools.partial(metric, sample_weight=weights)


def check_labels(name, values, y_true):
    """Refuse predictions that cannot equal a label: texts for numbers, or probabilities."""
    check_kind(name, values, y_true)
    is_fraction = values.dtype.kind == "f" and (values != np.round(values)).any()
    if is_fraction and not np.isin(values, y_true).all():
        raise ValueError(
            f"{name} must hold predicted labels, got fractions. Pass what predict(X) "
            "returns, not probabilities."
        )


def check_kind(name, values, y_true, like="y_true"):
    """Refuse labels of another kind than those that they are compared with: texts and numbers."""
    of_values, of_labels = (" and ".join(sorted(kinds(np.asarray(v)))) for v in (values, y_true))
    if of_values != of_labels:
        raise ValueError(
            f"{name} must hold the same labels as {like}, but one holds {of_values} and the other "
            f"{of_labels}. Spell all labels in the same way."
        )


def hits(y_true, y_pred):
    """Return the flags of right predictions; True is 1, as in scikit-learn."""
    y_true, y_pred = as_vector("y_true", y_true, y_true), as_vector("y_pred", y_pred, y_true)
    check_labels("y_pred", y_pred, y_true)
    return np.asarray(y_true == y_pred, dtype=bool)


def check_probabilities(name, values, remedy):
    """Refuse what is no number, numbers outside [0, 1], and NaN, as of a model that diverged."""
    if values.dtype.kind not in "biuf" or not ((values >= 0) & (values <= 1)).all():
        raise ValueError(
            f"{name} must hold probabilities in [0, 1], but some are not, or NaN, as from a model "
            f"that diverged. {remedy}"
        )


def warn_undefined(message):
    """Warn of a value that is NaN, or of groups that are left out."""
    warnings.warn(message, UndefinedMetricWarning, stacklevel=3)
