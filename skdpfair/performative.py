"""Performative prediction: training on populations that react to the deployed model.

`repeated_deployment` trains and deploys in rounds against a population such as `StrategicResponse`.
"""

import math

import numpy as np
import pandas as pd
from scipy.special import logit
from sklearn.base import clone
from sklearn.utils.validation import check_consistent_length, has_fit_parameter

from skdpfair._utils import validate
from skdpfair._utils.group_names import escape_reserved
from skdpfair._utils.validate import safe_repr
from skdpfair.inputs.columns import check_indexes
from skdpfair.metrics._arguments import hits
from skdpfair.privacy import compute_epsilon

__all__ = ["StrategicResponse", "repeated_deployment"]

_N_HALVINGS = 20  # of an interval, to a millionth of the budget
_MIN_PROBABILITY = 1e-12  # whose log-odds are finite


class StrategicResponse:
    r"""A population whose rejected records move towards the favourable decision, within a budget.

    Every round starts from the base data, without the changes for the last model.  Labels do not
    change, even if a record gains the favourable decision.

    Parameters
    ----------
    X : DataFrame or array of shape (n_samples, n_features)
        The base data: features before any reaction.
    y : array-like of shape (n_samples,)
        Labels of two classes; the larger one is the favourable decision.
    sensitive_features : array-like of n_samples rows or None, default=None
        The groups.
    budget : float >= 0
        Largest L2 distance that a record moves.
    changeable : list of column names or positions, or None, default=None
        The numeric columns that people can change; None is all.
    step : float > 0, default=0.01
        Half-width of the central differences, in the unit of X.

    Notes
    -----
    Let s be the model's score (``decision_function``, else log-odds), g its gradient in the
    changeable columns at the record's base features, and B the budget.  A record with
    :math:`s(x) \le 0` moves to :math:`x + t g / \lVert g \rVert` for the least t in [0, B] with
    s > 0, found by bisection, or t = B if no such t exists.  This is the best response to a
    linear model, and one gradient step for other models.  If g = 0, as in trees, no record moves.

    References
    ----------
    .. [hardt2016] M. Hardt et al., "Strategic Classification", ITCS 2016.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skdpfair.performative import StrategicResponse
    >>> X, y = np.array([[0.0], [2.0], [4.0], [6.0]]), [0, 0, 1, 1]
    >>> model = LogisticRegression().fit(X, y)  # denies below 3
    >>> moved, _, _ = StrategicResponse(X, y, budget=1.5).sample(model, np.random.default_rng(0))
    >>> moved.round(3).ravel().tolist()
    [1.5, 3.0, 4.0, 6.0]
    """

    def __init__(self, X, y, sensitive_features=None, *, budget, changeable=None, step=0.01):
        check_indexes(X=X, y=y, sensitive_features=sensitive_features)
        check_consistent_length(X, y, sensitive_features)
        self.X, self.y, self.sensitive_features = X, y, sensitive_features
        self._frame = pd.DataFrame(X)
        names = list(self._frame.columns)
        changeable = names if changeable is None else changeable
        self.columns = validate.listed("changeable", changeable, "columns")
        if not self.columns or any(column not in names for column in self.columns):
            raise ValueError(
                "changeable must name at least one column of X, and columns of X only: got "
                f"{safe_repr(self.columns)}, X has {safe_repr(names)}."
            )
        with validate.error_context_without_data("changeable", "must name columns of numbers"):
            self._base = self._frame[self.columns].to_numpy(dtype=float)
        self.step = validate.number("step", step, low=0, low_open=True)
        self.budget = validate.number("budget", budget, low=0)

    def sample(self, model, rng):
        """Return X after the reaction to ``model``, or before any if it is None, y and the groups.

        ``rng`` is not used, because the reaction is not random.
        """
        X = self.X if model is None else self._replaced(self._best_response(model))
        return X, self.y, self.sensitive_features

    def _best_response(self, model):
        values = self._base.copy()
        denied = np.flatnonzero(self._score(model, values) <= 0)
        if not len(denied):
            return values
        score_gradients = self._score_gradients(model, denied)
        length = np.linalg.norm(score_gradients, axis=1, keepdims=True)
        direction = np.zeros_like(score_gradients)
        np.divide(score_gradients, length, out=direction, where=length > 0)

        def at(distance):
            return self._base[denied] + distance[:, None] * direction

        def is_granted(distance):
            return self._score(model, at(distance), denied) > 0

        # high: granted, or all that can be afforded; low: denied
        low, high = np.zeros(len(denied)), np.full(len(denied), self.budget)
        can_gain = is_granted(high)
        # by bisection, because a score need not be linear along the way
        for _ in range(_N_HALVINGS):
            middle = (low + high) / 2
            granted = is_granted(middle)
            low = np.where(can_gain & ~granted, middle, low)
            high = np.where(can_gain & granted, middle, high)
        values[denied] = at(high)
        return values

    def _replaced(self, values, rows=slice(None)):
        """Return rows of X, in its own form, with other values in the changeable columns."""
        X = self._frame.iloc[rows].copy()
        X[self.columns] = values
        return X if isinstance(self.X, pd.DataFrame) else X.to_numpy()

    def _score(self, model, values, rows=slice(None)):
        """Return the score of rows, above 0 where the model predicts ``classes_[1]``."""
        if len(model.classes_) != 2:
            raise ValueError(
                "model must have two classes, the second one favourable, got "
                f"{len(model.classes_)}."
            )
        X = self._replaced(values, rows)
        if hasattr(model, "decision_function"):
            return np.asarray(model.decision_function(X), dtype=float)
        return logit(model.predict_proba(X)[:, 1].clip(_MIN_PROBABILITY, 1 - _MIN_PROBABILITY))

    def _score_gradients(self, model, rows=slice(None)):
        """Return the score's gradients (n_rows, n_columns), by central differences at the base."""
        base = self._base[rows]
        differences = [
            self._score(model, base + h, rows) - self._score(model, base - h, rows)
            for h in self.step * np.eye(len(self.columns))
        ]
        return np.stack(differences, axis=1) / (2 * self.step)


def repeated_deployment(estimator, environment, n_rounds=10, *, mode="repeated", random_state=None):
    """Train and deploy a model in rounds to a population that reacts to it.

    Parameters
    ----------
    estimator : classifier
        It is not changed.  ``sensitive_features`` is passed to ``fit`` if that accepts it by name.
    environment : object
        The map from a deployed model to the data that it induces: a method
        ``sample(model, rng)`` returns X, y and the groups or None; the model is None before the
        first deployment, and must not be kept, because a greedy learner changes it.
    n_rounds : int, default=10
        Number of fits, at least 1.
    mode : {"repeated", "greedy"}, default="repeated"
        "repeated" fits a new clone in every round, on the data induced by the last deployed model.
        "greedy" continues to fit one estimator, with ``warm_start=True``.
    random_state : int, numpy.random.Generator or None, default=None
        Seed of the environment; the estimator has its own.

    Returns
    -------
    pandas.DataFrame
        One row per ``round`` and ``group``, "overall" first; several columns of groups make tuples.
        ``n_samples`` records of the group were trained on; ``accuracy`` is that of the model on
        them, ``accuracy_after`` is that on the data that its own deployment induces; and
        ``epsilon_spent`` is that of all rounds so far, infinite if a fit is not private.

    Notes
    -----
    Every round reads the same people, so ``epsilon_spent`` composes the ledgers of all fits, at the
    delta of the last one; for a greedy estimator, the last ledger must hold all fits.  For
    environments that draw new people each round, it is an upper bound.  The table is not private.

    References
    ----------
    .. [perdomo2020] J. Perdomo et al., "Performative Prediction", ICML 2020.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skdpfair.datasets import make_two_groups
    >>> from skdpfair.performative import StrategicResponse, repeated_deployment
    >>> data = make_two_groups(500, random_state=0)
    >>> people = StrategicResponse(data.data, data.target, data.sensitive_features, budget=0.3)
    >>> table = repeated_deployment(LogisticRegression(), people, 2, random_state=0)
    >>> table[["round", "group", "n_samples", "epsilon_spent"]].head(3)
       round    group  n_samples  epsilon_spent
    0      1  overall        500            inf
    1      1        a        350            inf
    2      1        b        150            inf
    """
    validate.one_of("mode", mode, ("repeated", "greedy"))
    validate.integer("n_rounds", n_rounds)
    rng = validate.generator("random_state", random_state)
    model, reports, rows = clone(estimator), [], []
    if mode == "greedy":
        model.set_params(warm_start=True)
    # without a model, the population has nothing to react to
    X, y, groups = environment.sample(None, rng)
    for i in range(1, n_rounds + 1):
        if mode == "repeated":
            model = clone(model)
        with_groups = groups is not None and has_fit_parameter(model, "sensitive_features")
        model.fit(X, y, **({"sensitive_features": groups} if with_groups else {}))
        before = _accuracies(model, X, y, groups)
        X, y, groups = environment.sample(model, rng)
        after = _accuracies(model, X, y, groups)
        reports.append(getattr(model, "privacy_", None))
        spent = _spent(reports, mode)
        for group, (accuracy, n_samples) in before.items():
            accuracy_after = after.get(group, (np.nan, 0))[0]
            rows.append((i, group, n_samples, accuracy, accuracy_after, spent))
    names = ["round", "group", "n_samples", "accuracy", "accuracy_after", "epsilon_spent"]
    return pd.DataFrame(rows, columns=names)


def _accuracies(model, X, y, groups):
    """Return accuracy and count of each group, ``"overall"`` first."""
    right = pd.Series(hits(y, model.predict(X)))
    accuracies = {"overall": (right.mean(), len(right))}
    if groups is not None:
        columns = pd.DataFrame(np.asarray(groups))
        for level, part in right.groupby([columns[c] for c in columns], dropna=False):
            (name,) = escape_reserved([level if len(level) > 1 else level[0]], ["overall"])
            accuracies[name] = (part.mean(), len(part))
    return accuracies


def _spent(reports, mode):
    """Return epsilon of all fits; infinite if one of them was not private."""
    if not all(report is not None and math.isfinite(report.epsilon) for report in reports):
        return math.inf
    last = reports[-1]  # of a greedy estimator, it covers the fits before
    covering = [last] if mode == "greedy" else reports
    entries = tuple(entry for report in covering for entry in report.releases)
    return compute_epsilon(entries, last.delta, last.accountant)
