"""Performative prediction: training on populations that react to the deployed model.

`repeated_deployment` trains and deploys in rounds against a population such as `StrategicResponse`
or `LocationShift`.
"""

import math

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from skdpfair._validate import (
    error_context_without_data,
    generator,
    integer,
    listed,
    number,
    one_of,
    safe_repr,
)
from skdpfair.inputs.columns import check_indexes
from skdpfair.inputs.groups import apart
from skdpfair.metrics._arguments import hits
from skdpfair.privacy import Ledger

__all__ = ["LocationShift", "StrategicResponse", "repeated_deployment"]

_HALVINGS = 20  # of an interval, to a millionth of the budget
_LEAST_PROBABILITY = 1e-12  # whose log-odds are finite


class _Population:
    """Base data whose changeable columns an environment moves: the same people in every round."""

    def __init__(self, X, y, sensitive_features, changeable, step):
        check_indexes(X=X, y=y, sensitive_features=sensitive_features)
        self.X, self.y, self.sensitive_features = X, y, sensitive_features
        for name, column in (("y", y), ("sensitive_features", sensitive_features)):
            expected = f"must have one entry per row of X ({len(X)})"
            with error_context_without_data(name, expected):
                n = len(X) if column is None else len(column)
            if n != len(X):
                raise ValueError(f"{name} {expected}, got {n}.")
        names = list(X.columns) if hasattr(X, "columns") else list(range(np.shape(X)[1]))
        wanted = listed("changeable", names if changeable is None else changeable, "columns of X")
        if not wanted or any(c not in names for c in wanted):
            raise ValueError(
                "changeable must name at least one column of X, and columns of X only: got "
                f"{safe_repr(wanted)}, X has {safe_repr(names)}."
            )
        self.columns = np.array([names.index(c) for c in wanted])
        self.step = number("step", step, low=0, low_open=True)

    def sample(self, model, rng):
        """Return the base data after the reaction to the deployed model.

        Parameters
        ----------
        model : fitted classifier or None
            The deployed model; None returns the base data.
        rng : numpy.random.Generator
            Not used, because the reaction is not random.

        Returns
        -------
        X : DataFrame or array of shape (n_samples, n_features)
            The changed features.
        y : array-like of shape (n_samples,)
            The base labels.
        sensitive_features : array-like of n_samples rows, or None
            The groups.
        """
        X = self.X
        if model is not None:
            X = _replaced(X, self.columns, self._moved(model, _values(X, self.columns)))
        return X, self.y, self.sensitive_features

    def _moved(self, model, values):
        """Return the values of the changeable columns after a deployment."""
        raise NotImplementedError  # each reaction is a subclass with its own

    def _coefficients(self, model):
        """Return the model's coefficients, else the mean slope of its score, of each column."""
        if hasattr(model, "coef_") and np.shape(model.coef_)[0] == 1:
            return np.asarray(model.coef_, dtype=float)[0, self.columns]
        return _slope(model, self.X, self.columns, self.step).mean(axis=0)


class StrategicResponse(_Population):
    r"""A population whose rejected records move towards the favourable decision, within a budget.

    Every round starts from the base data: what was changed for the last model is undone.  Labels
    stay, so to gain the favourable decision is not to deserve it.

    Parameters
    ----------
    X : DataFrame or array of shape (n_samples, n_features)
        The base data: features before any reaction.
    y : array-like of shape (n_samples,)
        Labels of two classes; the larger one is the favourable decision.
    sensitive_features : array-like of n_samples rows or None, default=None
        The groups.
    budget : float >= 0, or array-like of shape (n_samples,)
        Largest L2 distance that a record moves, for all records or for each record.
    changeable : list of column names or positions, or None, default=None
        The numeric columns that people can change; None is all.
    step : float > 0, default=0.01
        Half-width of the central differences, in the unit of X.

    Raises
    ------
    ValueError
        If a parameter is out of range, a column is unknown, or lengths differ; in ``sample`` if
        the deployed model has more than two classes, or no score.

    Notes
    -----
    Let s be the model's score (``decision_function``, else log-odds), g its gradient in the
    changeable columns at the record's base features, and B the record's budget.  A record with
    :math:`s(x) \le 0` moves to :math:`x + t g / \lVert g \rVert` for the least t in [0, B] with
    s > 0, found by bisection, or t = B if no such t exists.  This is the best response to a
    linear model, and one gradient step for other models.  If g = 0, as in trees, no record moves.

    References
    ----------
    .. [hardt2016] M. Hardt et al., "Strategic Classification", ITCS 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skdpfair.performative import StrategicResponse
    >>> X, y = np.array([[0.0], [2.0], [4.0], [6.0]]), [0, 0, 1, 1]
    >>> model = LogisticRegression().fit(X, y)  # denies below 3
    >>> moved, _, _ = StrategicResponse(X, y, budget=1.5).sample(model, np.random.default_rng(0))
    >>> moved.round(3).ravel().tolist()
    [1.5, 3.0, 4.0, 6.0]
    """

    def __init__(self, X, y, sensitive_features=None, *, budget, changeable=None, step=0.01):
        super().__init__(X, y, sensitive_features, changeable, step)
        if np.ndim(budget) == 0:
            budget = number("budget", budget, low=0)
        elif np.shape(budget) != (len(X),):
            raise ValueError(
                "budget must be a number >= 0 or one per row of X, shape "
                f"({len(X)},), got shape {np.shape(budget)}."
            )
        self.budget = np.broadcast_to(np.asarray(budget, dtype=float), len(X))
        if not (self.budget >= 0).all():
            raise ValueError("budget must be >= 0 for every record.")

    def _moved(self, model, values):
        denied = np.flatnonzero(_score(model, self.X) <= 0)
        if not len(denied):
            return values
        X = self.X.iloc[denied] if hasattr(self.X, "iloc") else np.asarray(self.X)[denied]
        base, slope = values[denied], _slope(model, X, self.columns, self.step)
        length = np.linalg.norm(slope, axis=1, keepdims=True)
        direction = np.divide(slope, length, out=np.zeros_like(slope), where=length > 0)

        def at(distance):
            return base + distance[:, None] * direction

        def granted(distance):
            return _score(model, _replaced(X, self.columns, at(distance))) > 0

        # high: granted, or all that can be afforded; low: denied
        low, high = np.zeros(len(base)), self.budget[denied]
        enough = granted(high)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            is_granted = granted(middle)
            low = np.where(enough & ~is_granted, middle, low)
            high = np.where(enough & is_granted, middle, high)
        values[denied] = at(high)
        return values


class LocationShift(_Population):
    r"""A population that moves by :math:`-\beta \theta` for model coefficients :math:`\theta`.

    Parameters
    ----------
    X : DataFrame or array of shape (n_samples, n_features)
        The base data.
    y : array-like of shape (n_samples,)
        Labels of two classes.
    sensitive_features : array-like of n_samples rows or None, default=None
        The groups.
    beta : float >= 0
        Sensitivity of the distribution: it moves (in Wasserstein-1 distance) by at most beta times
        the change of the coefficients.
    changeable : list of column names or positions, or None, default=None
        The numeric columns that shift; None is all.
    stable_coef : array-like of shape (n_changeable,) or None, default=None
        Coefficients of the performatively stable model, if they are known.
    step : float > 0, default=0.01
        Half-width of the central differences for models without ``coef_``, in the unit of X.

    Raises
    ------
    ValueError
        If a parameter is out of range, a column is unknown, or lengths differ.

    Notes
    -----
    For a model without ``coef_``, the slope of its score, averaged over the base data, is used,
    which equals the coefficients for a linear model.

    References
    ----------
    .. [li2024] Q. Li, M. Yemini and H.-T. Wai, "Privacy-Efficacy Tradeoff of Clipped SGD with
       Decision-dependent Data", ICML Workshop on Humans, Algorithmic Decision-Making and Society,
       2024.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skdpfair.performative import LocationShift
    >>> X, y = np.array([[0.0], [2.0], [4.0], [6.0]]), [0, 0, 1, 1]
    >>> model = LogisticRegression().fit(X, y)
    >>> moved, _, _ = LocationShift(X, y, beta=0.5).sample(model, np.random.default_rng(0))
    >>> bool(np.allclose(moved, X - 0.5 * model.coef_))
    True
    """

    def __init__(
        self, X, y, sensitive_features=None, *, beta, changeable=None, stable_coef=None, step=0.01
    ):
        super().__init__(X, y, sensitive_features, changeable, step)
        self.beta = number("beta", beta, low=0)
        self.stable_coef = None if stable_coef is None else np.asarray(stable_coef, dtype=float)
        if self.stable_coef is not None and self.stable_coef.shape != self.columns.shape:
            raise ValueError(
                f"stable_coef must have shape {self.columns.shape}, one per changeable column, "
                f"got {self.stable_coef.shape}."
            )

    def _moved(self, model, values):
        return values - self.beta * self._coefficients(model)

    def distance(self, model):
        """Return the L2 distance between the coefficients of the model and the stable model.

        Parameters
        ----------
        model : fitted classifier of two classes
            The deployed model.

        Returns
        -------
        float
            At least 0; NaN if ``stable_coef`` is None.
        """
        if self.stable_coef is None:
            return np.nan
        return float(np.linalg.norm(self._coefficients(model) - self.stable_coef))


def _values(X, columns):
    """Return a copy of those columns as floats, shape (n_samples, n_columns)."""
    part = X.iloc[:, columns] if hasattr(X, "iloc") else np.asarray(X)[:, columns]
    return np.array(part, dtype=float)


def _replaced(X, columns, values):
    """Return a copy of X with those columns replaced; a DataFrame stays one."""
    if hasattr(X, "iloc"):
        names = X.columns[columns]
        X = X.copy()
        X[list(names)] = values
        return X
    moved = np.array(X, dtype=float) if np.asarray(X).dtype.kind in "iub" else np.array(X)
    moved[:, columns] = values
    return moved


def _score(model, X):
    """Return the score of each row; where it is above 0 the model predicts ``classes_[1]``.

    The decision function if the model has one, else the log-odds of ``predict_proba``.
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


def _slope(model, X, columns, step):
    """Return the score's slope in each of the columns, shape (n_samples, n_columns).

    Central differences of half-width ``step``: two evaluations per column, any model.
    """
    slopes = []
    for column in columns:
        values = _values(X, [column])
        above, below = (_score(model, _replaced(X, [column], values + h)) for h in (step, -step))
        slopes.append((above - below) / (2 * step))
    return np.stack(slopes, axis=1)


def repeated_deployment(estimator, environment, n_rounds=10, *, mode="repeated", random_state=None):
    """Train and deploy a model in rounds to a population that reacts to it.

    Parameters
    ----------
    estimator : classifier
        It is not changed.  ``sensitive_features`` is passed to ``fit`` if that accepts it by name.
    environment : object
        The map from a deployed model to the data that it induces: a method
        ``sample(model, rng)`` returns X, y and the groups or None; the model is None before the
        first deployment, and must not be kept, because a greedy learner changes it.  A method
        ``distance(model) -> float`` is optional.
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
        One row per round and group, ``"overall"`` first, with the columns

        round : int
            Counted from 1.
        group : object
            The group; several columns make tuples. A group called "overall" is in quotes.
        n_samples : int
            Number of records of the group in the training data.
        accuracy, accuracy_after : float
            Accuracy on the training data of the model, and on the data that its own deployment
            induces, in [0, 1].
        distance : float
            ``environment.distance(model)``, or NaN if the environment has no such method.
        epsilon_spent : float
            Epsilon of all rounds so far, infinite for an estimator that is not private.

    Raises
    ------
    ValueError
        If ``mode`` is unknown, ``n_rounds`` < 1, a greedy estimator has no ``warm_start``, the
        environment changes the number of features, or returns columns of different lengths.
    TypeError
        If the environment has no method ``sample``, or ``n_rounds`` is not an integer.

    Notes
    -----
    Every round reads the same people, so their privacy losses add up: ``epsilon_spent`` is the
    accountant's composition of the ledgers (``privacy_.ledger``) of all fits, at the delta of the
    last fit, and is less than the sum of their epsilons.  A private greedy estimator must compose
    its own fits: its last ledger must hold all of them.  For environments that draw new people
    each round, the value is an upper bound.  The table is not private.

    References
    ----------
    .. [perdomo2020] J. Perdomo et al., "Performative Prediction", ICML 2020.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skdpfair.datasets import make_two_groups
    >>> from skdpfair.performative import StrategicResponse, repeated_deployment
    >>> data = make_two_groups(500, random_state=0)
    >>> people = StrategicResponse(
    ...     data.data, data.target, data.sensitive_features, budget=0.3, changeable=["x0"]
    ... )
    >>> table = repeated_deployment(LogisticRegression(), people, 2, random_state=0)
    >>> table[["round", "group", "n_samples", "epsilon_spent"]]
       round    group  n_samples  epsilon_spent
    0      1  overall        500            inf
    1      1        a        350            inf
    2      1        b        150            inf
    3      2  overall        500            inf
    4      2        a        350            inf
    5      2        b        150            inf
    """
    one_of("mode", mode, ("repeated", "greedy"))
    integer("n_rounds", n_rounds)
    if not callable(getattr(environment, "sample", None)):
        raise TypeError(
            f"environment must have a method sample(model, rng), got {type(environment).__name__}."
        )
    rng = generator("random_state", random_state)
    model, reports, rows = clone(estimator), [], []
    if mode == "greedy":
        if "warm_start" not in model.get_params():
            raise ValueError(
                "mode='greedy' fits on with warm_start=True, which "
                f"{type(estimator).__name__} does not have. Use an estimator that has it, or "
                "mode='repeated'."
            )
        model.set_params(warm_start=True)
    X, y, groups = _sample(environment, None, rng, 1)
    for i in range(1, n_rounds + 1):
        if mode == "repeated":
            model = clone(model)
        with_groups = groups is not None and has_fit_parameter(model, "sensitive_features")
        model.fit(X, y, **({"sensitive_features": groups} if with_groups else {}))
        before, n_features = _accuracies(model, X, y, groups), np.shape(X)[1]
        X, y, groups = _sample(environment, model, rng, i + 1, n_features)
        after = _accuracies(model, X, y, groups)
        reports.append(getattr(model, "privacy_", None))
        common = {
            "distance": environment.distance(model) if hasattr(environment, "distance") else np.nan,
            "epsilon_spent": _spent(reports, mode),
        }
        rows += [
            {"round": i, "group": group, "n_samples": n_samples, "accuracy": accuracy}
            | {"accuracy_after": after.get(group, (np.nan, 0))[0], **common}
            for group, (accuracy, n_samples) in before.items()
        ]
    return pd.DataFrame(rows)


def _sample(environment, model, rng, number, n_features=None):
    """Return the data of a round, which must have as many features as those before."""
    X, y, groups = environment.sample(model, rng)
    for name, column in (("y", y), ("sensitive_features", groups)):
        if column is not None and len(column) != len(X):
            raise ValueError(
                f"environment returned {len(X)} rows of X and {len(column)} of {name} in round "
                f"{number}; it must return as many."
            )
    if np.shape(X)[1] != (n_features or np.shape(X)[1]):
        raise ValueError(
            f"environment returned {np.shape(X)[1]} features in round {number}, and {n_features} "
            f"in round {number - 1}; it must not change their number."
        )
    return X, y, groups


def _accuracies(model, X, y, groups):
    """Return accuracy and count of each group, ``"overall"`` first."""
    right = pd.Series(hits(y, model.predict(X)))
    accuracies = {"overall": (right.mean(), len(right))}
    if groups is not None:
        columns = pd.DataFrame(np.asarray(groups))
        for level, part in right.groupby([columns[c] for c in columns], dropna=False):
            (name,) = apart([level if len(level) > 1 else level[0]], ["overall"])
            accuracies[name] = (part.mean(), len(part))
    return accuracies


def _spent(reports, mode):
    """Return epsilon of all fits; infinite if one of them was not private."""
    if not all(report is not None and math.isfinite(report.epsilon) for report in reports):
        return math.inf
    last = reports[-1]  # of a greedy estimator, it covers the fits before
    covering = [last] if mode == "greedy" else reports
    entries = tuple(entry for report in covering for entry in report.ledger.entries)
    return Ledger(entries).epsilon(last.delta, last.accountant)
