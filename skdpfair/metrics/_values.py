"""What predictions may hold, and which metric is taken: refusals that say what to pass."""

import numpy as np
import pandas as pd

from skdpfair._validate import shown


def metric_of(metric, default):
    """Return a metric of labels and predictions, ``default`` for None, else raise.

    Examples
    --------
    >>> metric_of("accuracy", default=max)
    Traceback (most recent call last):
    ...
    TypeError: metric must be a function metric(y_true, y_pred) or None, got 'accuracy'. Pass the
    function itself, such as sklearn.metrics.accuracy_score: names belong to scorers.
    """
    if metric is None:
        return default
    if not callable(metric):
        raise TypeError(
            f"metric must be a function metric(y_true, y_pred) or None, got {shown(metric)}. Pass "
            "the function itself, such as sklearn.metrics.accuracy_score: names belong to scorers."
        )
    return metric


def check_given(name, values):
    """Refuse to measure against a twin of which nothing is given."""
    if values is None:
        raise TypeError(
            f"{name} is missing: what the model without clipping and noise, the twin, predicts "
            f"for the same records. Pass {name}=...; to MetricFrame and bootstrap_interval pass "
            f'sample_params={{"{name}": ...}}.'
        )


def check_labels(name, values, y_true):
    """Refuse predictions that can equal no label: text beside numbers, or probabilities."""
    if _is_text(values) != _is_text(y_true):
        raise ValueError(
            f"{name} must hold labels such as those of y_true, {shown(_some(y_true))}, "
            f"got {shown(_some(values))}. Pass what predict(X) returns."
        )
    numbers = values.dtype.kind == "f"
    if numbers and (fractions := values[values != np.round(values)]).size:
        raise ValueError(
            f"{name} must hold predicted labels, got {fractions[0]!r}. Pass what predict(X) "
            "returns, not probabilities."
        )


def check_probabilities(name, values, remedy):
    """Refuse numbers outside [0, 1], and NaN, by the first of them."""
    if values.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} must hold probabilities in [0, 1], got {shown(_some(values))}. {remedy}"
        )
    wrong = values[~((values >= 0) & (values <= 1))]
    if wrong.size:
        kind = "NaN, which a model that diverged gives" if np.isnan(wrong).all() else wrong.flat[0]
        many = f" and {wrong.size - 1} more" if wrong.size > 1 else ""
        raise ValueError(f"{name} must hold probabilities in [0, 1], got {kind}{many}. {remedy}")


def _is_text(values):
    return pd.api.types.infer_dtype(np.asarray(values, dtype=object), skipna=True) == "string"


def _some(values):
    return list(dict.fromkeys(np.asarray(values).tolist()))[:3]
