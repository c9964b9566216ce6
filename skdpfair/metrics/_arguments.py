"""Checks of labels, predictions, weights and metrics; their errors name the parameter."""

import functools

import numpy as np
from sklearn.utils.validation import column_or_1d

from skdpfair._utils.validate import error_context_without_data, outline, safe_repr
from skdpfair.inputs.columns import refuse_masked
from skdpfair.inputs.labels import kinds, plain

_ONE_EACH = "must hold one number or text for each record"


def as_vector(name, values, like):
    """Return ``values`` as an array of shape (n_samples,), one per record of ``like``."""
    with error_context_without_data("y_true", "must have one entry for each record"):
        n_records = len(like)
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
        values = plain(column_or_1d(values))
    if values.dtype.kind in "cSV":
        raise ValueError(f"{name} {_ONE_EACH}, got complex numbers, bytes or records.")
    return values


def as_weights(values, like):
    """Return weights as an array of floats >= 0, not all zero; None stays None."""
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
            f"sample_weight {wanted}: all must be finite, and at least one must be above 0."
        )
    return weights


def accuracy(y_true, y_pred, *, sample_weight=None):
    """Return the share of right predictions; errors name the parameter."""
    right = hits(y_true, y_pred)
    return float(np.average(right, weights=as_weights(sample_weight, right)))


def weighted(metric, sample_weight):
    """Return ``metric`` with its weights filled in, if there are any."""
    if sample_weight is None:
        return metric
    return functools.partial(metric, sample_weight=np.asarray(sample_weight, dtype=float))


def metric_of(metric, default, name="metric"):
    """Return a metric of labels and predictions, ``default`` for None, else raise."""
    if metric is None:
        return default
    if not callable(metric):
        raise TypeError(
            f"{name} must be a function {name}(y_true, y_pred) or None, got {safe_repr(metric)}. "
            "Pass the function itself, such as sklearn.metrics.accuracy_score: only scorers take "
            "names."
        )
    return metric


def check_reference(name, values):
    """Refuse to measure against a reference model without its predictions."""
    if values is None:
        raise TypeError(
            f"{name} is missing. Pass {name}=..., the predictions of the reference model, trained "
            "without clipping and noise, for the same records; to MetricFrame pass "
            f'sample_params={{"{name}": ...}}.'
        )


def check_labels(name, values, y_true):
    """Refuse predictions that can equal no label: text beside numbers, or probabilities."""
    check_kind(name, values, y_true)
    if values.dtype.kind == "f" and (values != np.round(values)).any():
        raise ValueError(
            f"{name} must hold predicted labels, got fractions. Pass what predict(X) returns, not "
            "probabilities."
        )


def check_kind(name, values, y_true, like="y_true"):
    """Refuse labels of another kind than those that they are compared with: texts and numbers."""
    of_values, of_labels = (" and ".join(sorted(kinds(np.asarray(v)))) for v in (values, y_true))
    if of_values != of_labels:
        raise ValueError(
            f"{name} must hold the same labels as {like}, but one holds {of_values} and the other "
            f"{of_labels}. Spell all labels in the same way."
        )


def hits(y_true, y_pred, name="y_pred"):
    """Return which predictions are right; True is 1, as in scikit-learn."""
    y_true, y_pred = as_vector("y_true", y_true, y_true), as_vector(name, y_pred, y_true)
    check_kind(name, y_pred, y_true)
    return np.asarray(y_true == y_pred, dtype=bool)


def check_probabilities(name, values, remedy):
    """Refuse what is no number, numbers outside [0, 1], and NaN."""
    numbers = values.dtype.kind in "biuf"
    wrong = values[~((values >= 0) & (values <= 1))] if numbers else values
    if wrong.size:
        kind = "values that are not numbers" if not numbers else "values outside this range"
        if numbers and np.isnan(wrong).all():
            kind = "NaN, as from a model that diverged"
        raise ValueError(f"{name} must hold probabilities in [0, 1], got {kind}. {remedy}")
