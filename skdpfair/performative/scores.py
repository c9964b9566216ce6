"""What people see of a deployed classifier: its score, and which way the score rises."""

import numpy as np

from skdpfair.performative.protocol import replaced, values_of

_LEAST_PROBABILITY = 1e-12


def score(model, X):
    """Return how far each row is on the favourable side: above 0 the model says ``classes_[1]``.

    The decision function if the model has one, else the log-odds of ``predict_proba``.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> model = LogisticRegression().fit([[0.0], [1.0]], ["denied", "granted"])
    >>> (score(model, [[0.0], [1.0]]) > 0).tolist()
    [False, True]
    """
    if not hasattr(model, "decision_function") and not hasattr(model, "predict_proba"):
        raise ValueError(
            f"model must have decision_function or predict_proba, got {type(model).__name__}."
        )
    if len(model.classes_) != 2:
        raise ValueError(
            f"model must have two classes, the second one favourable, got {len(model.classes_)}."
        )
    if hasattr(model, "decision_function"):
        return np.asarray(model.decision_function(X), dtype=float)
    chance = np.clip(model.predict_proba(X)[:, 1], _LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY)
    return np.log(chance) - np.log1p(-chance)


def score_gradient(model, X, columns, step):
    """Return the score's slope in each of the columns, shape (n_samples, n_columns).

    Central differences of half-width ``step``: two evaluations per column, any model.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> model = LogisticRegression().fit([[0.0, 3.0], [1.0, 3.0]], [0, 1])
    >>> slope = score_gradient(model, np.array([[5.0, 5.0]]), [0, 1], step=0.01)
    >>> bool(np.allclose(slope, model.coef_))
    True
    """
    slopes = []
    for column in columns:
        here = values_of(X, [column])
        above, below = (score(model, replaced(X, [column], here + h)) for h in (step, -step))
        slopes.append((above - below) / (2 * step))
    return np.stack(slopes, axis=1)


def coefficients(model, X, columns, step):
    """Return the model's coefficient of each column, shape (n_columns,).

    ``coef_`` of a linear model; of any other model the score's slope, averaged over the rows of X.
    """
    if hasattr(model, "coef_") and np.shape(model.coef_)[0] == 1:
        return np.asarray(model.coef_, dtype=float)[0, columns]
    return score_gradient(model, X, columns, step).mean(axis=0)
