"""What predictions may hold, and which metric is taken: refusals that say what to pass."""

import numpy as np
import pandas as pd

from skdpfair._validate import safe_repr


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
            f"metric must be a function metric(y_true, y_pred) or None, got {safe_repr(metric)}. "
            "Pass the function itself, such as sklearn.metrics.accuracy_score: names belong to "
            "scorers."
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
    check_kind(name, values, y_true)
    if values.dtype.kind == "f" and (values != np.round(values)).any():
        raise ValueError(
            f"{name} must hold predicted labels, got fractions. Pass what predict(X) returns, not "
            "probabilities."
        )


def check_kind(name, values, y_true, like="y_true"):
    """Refuse texts where other labels are none, and others where they are texts."""
    if _is_text(values) != _is_text(y_true):
        raise ValueError(
            f"{name} must hold labels such as those of {like}, but one holds texts and the other "
            "does not. Spell all labels alike."
        )


def check_probabilities(name, values, remedy):
    """Refuse what is no number, numbers outside [0, 1], and NaN."""
    numbers = values.dtype.kind in "biuf"
    wrong = values[~((values >= 0) & (values <= 1))] if numbers else values
    if wrong.size:
        kind = "what is no number" if not numbers else "others"
        if numbers and np.isnan(wrong).all():
            kind = "NaN, which a model that diverged gives"
        raise ValueError(f"{name} must hold probabilities in [0, 1], got {kind}. {remedy}")


def _is_text(values):
    return pd.api.types.infer_dtype(np.asarray(values, dtype=object), skipna=True) == "string"
