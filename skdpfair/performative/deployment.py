"""Repeated deployment: training in rounds on data that react to the deployed model."""

import math

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from skdpfair._validate import generator, integer, one_of
from skdpfair.inputs.groups import apart
from skdpfair.metrics._arguments import hits
from skdpfair.privacy import Ledger


def repeated_deployment(estimator, environment, n_rounds=10, *, mode="repeated", random_state=None):
    """Train and deploy a model in rounds to a population that reacts to it.

    Parameters
    ----------
    estimator : classifier
        It is not changed.  ``sensitive_features`` is passed to ``fit`` if that accepts it by name.
    environment : DistributionMap
        The map from a deployed model to the data that it induces.
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
            "environment must have a method sample(model, rng), see DistributionMap; got "
            f"{type(environment).__name__}."
        )
    rng = generator("random_state", random_state)
    model, entries, rows = _learner(estimator, mode), [], []
    data = _Sample(environment, None, rng, number=1)
    for number in range(1, n_rounds + 1):
        if mode == "repeated":
            model = clone(model)
        data.fit(model)
        after = _Sample(environment, model, rng, number=number + 1)
        after.check_like(data)
        entries = _composed(entries, model, mode)
        distance = environment.distance(model) if hasattr(environment, "distance") else math.nan
        common = {"distance": distance, "epsilon_spent": _spent(entries, model)}
        rows += [{"round": number, **row, **common} for row in _accuracies(model, data, after)]
        data = after
    return pd.DataFrame(rows)


class _Sample:
    """The data of one round, checked."""

    def __init__(self, environment, model, rng, number):
        self.X, self.y, self.groups = environment.sample(model, rng)
        self.number = number
        for name, column in (("y", self.y), ("sensitive_features", self.groups)):
            if column is not None and len(column) != len(self.X):
                raise ValueError(
                    f"environment returned {len(self.X)} rows of X and {len(column)} of {name} in "
                    f"round {number}; it must return as many."
                )

    @property
    def n_features(self):
        return np.shape(self.X)[1]

    def check_like(self, last):
        if self.n_features != last.n_features:
            raise ValueError(
                f"environment returned {self.n_features} features in round {self.number}, and "
                f"{last.n_features} in round {last.number}; it must not change their number."
            )

    def fit(self, model):
        takes_groups = has_fit_parameter(model, "sensitive_features")
        if self.groups is not None and takes_groups:
            model.fit(self.X, self.y, sensitive_features=self.groups)
        else:
            model.fit(self.X, self.y)

    def accuracy(self, model):
        """Return accuracy and count of each group, ``"overall"`` first."""
        right = pd.Series(hits(self.y, model.predict(self.X)))
        found = {"overall": (right.mean(), len(right))}
        if self.groups is not None:
            columns = pd.DataFrame(np.asarray(self.groups))
            parts = right.groupby([columns[c] for c in columns], dropna=False)
            for level, part in parts:
                (name,) = apart([level if len(level) > 1 else level[0]], ["overall"])
                found[name] = (part.mean(), len(part))
        return found


def _learner(estimator, mode):
    model = clone(estimator)
    if mode == "repeated":
        return model
    if "warm_start" not in model.get_params():
        raise ValueError(
            f"mode='greedy' fits on with warm_start=True, which {type(estimator).__name__} does "
            "not have. Use an estimator that has it, or mode='repeated'."
        )
    return model.set_params(warm_start=True)


def _composed(entries, model, mode):
    """Return the releases so far, or None if anything was not private."""
    privacy = getattr(model, "privacy_", None)
    if privacy is None or entries is None or not math.isfinite(privacy.epsilon):
        return None
    released = list(privacy.ledger.entries)
    return released if mode == "greedy" else entries + released


def _spent(entries, model):
    if entries is None:
        return math.inf
    return Ledger(tuple(entries)).epsilon(model.privacy_.delta, model.privacy_.accountant)


def _accuracies(model, data, after):
    before, then = data.accuracy(model), after.accuracy(model)
    for group, (accuracy, n_samples) in before.items():
        yield {
            "group": group,
            "n_samples": n_samples,
            "accuracy": accuracy,
            "accuracy_after": then.get(group, (math.nan, 0))[0],
        }
