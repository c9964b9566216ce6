"""What a user hands in -> module, arrays and class codes."""

import numpy as np
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from skdpfair import _table


def of_estimator(estimator, X, y):
    """Return the module of a fitted classifier, the features of X, and the class codes of y."""
    if not hasattr(estimator, "fit"):
        raise TypeError(
            "estimator must be a fitted DPFairClassifier, got an object of type "
            f"{type(estimator).__name__}."
        )
    check_is_fitted(estimator, "net_")
    x = _table.read_for_prediction(estimator, X)
    return estimator.net_.module_, x, codes(x, y, estimator.classes_)


def codes(x, y, classes):
    """Return the positions of the labels among the sorted ``classes``, one for each row of x."""
    y = column_or_1d(y)
    check_consistent_length(x, y)
    if len(y) == 0:
        raise ValueError("X and y have 0 samples; at least one is needed.")
    unknown = np.setdiff1d(y, classes)
    if len(unknown):
        raise ValueError(
            f"y has labels outside the model's classes {list(classes)!r}: "
            f"{unknown[:8].tolist()!r}. Leave out these rows, or fit with classes= that has them."
        )
    return np.searchsorted(classes, y)
