"""Fitted models, and predictions by model, as the displays are given them."""

from collections.abc import Mapping

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skdpfair._validate import number
from skdpfair.metrics._checks import as_vector


def final_step(estimator, X):
    """Return the fitted classifier at the end of a pipeline, and the rows that it sees."""
    if isinstance(estimator, (str, Mapping)) or not hasattr(estimator, "predict"):
        raise TypeError(
            "estimator must be a fitted DPFairClassifier, or a Pipeline that ends in one, got "
            f"{type(estimator).__name__}. For several, pass a list to TradeoffDisplay."
        )
    check_is_fitted(estimator)
    if hasattr(estimator, "steps"):
        rows = estimator[:-1].transform(X) if len(estimator.steps) > 1 else X
        return final_step(estimator[-1], rows)
    if not hasattr(estimator, "privacy_"):
        raise TypeError(
            f"estimator must be a DPFairClassifier, or a Pipeline that ends in one, got "
            f"{type(estimator).__name__}. Use from_predictions for other models."
        )
    return estimator, X


def by_budget(y_pred, y_true):
    """Return checked predictions by (method, epsilon), epsilon inf without privacy."""
    if not isinstance(y_pred, Mapping):
        raise TypeError(
            "y_pred must be a dict from (method, epsilon) to predicted labels, got "
            f"{type(y_pred).__name__}. Pass {{('twin', None): ..., ('dpsgd', 1.0): ...}}."
        )
    models = {}
    for key, values in y_pred.items():
        if not isinstance(key, tuple) or len(key) != 2:
            raise TypeError(
                f"y_pred must have keys (method, epsilon), got {key!r}. Write ('dpsgd', 1.0), and "
                "('twin', None) for the model without privacy."
            )
        method, epsilon = key
        if epsilon is not None:
            epsilon = number(f"epsilon of y_pred[{key!r}]", epsilon, low=0, low_open=True)
        budget = np.inf if epsilon is None else epsilon
        models[str(method), budget] = as_vector(f"y_pred[{key!r}]", values, y_true)
    return models
