"""What a population that reacts to a model looks like from outside."""

from typing import Protocol, runtime_checkable

import numpy as np

from skdpfair._validate import error_context_without_data, listed, safe_repr

__all__ = ["DistributionMap"]


@runtime_checkable
class DistributionMap(Protocol):
    """The map from a deployed model to the data that it induces.

    An environment may also have a method ``distance(model) -> float``: how far the model is from
    the performatively stable one.

    References
    ----------
    .. [perdomo2020] J. Perdomo et al., "Performative Prediction", ICML 2020.

    Examples
    --------
    >>> from skdpfair.performative import DistributionMap
    >>> class NobodyReacts:
    ...     def sample(self, model, rng):
    ...         return rng.normal(size=(4, 2)), [0, 1, 0, 1], ["F", "F", "M", "M"]
    >>> isinstance(NobodyReacts(), DistributionMap)
    True
    """

    def sample(self, model, rng):
        """Return the data of one round.

        Parameters
        ----------
        model : fitted classifier or None
            The deployed model; None before the first deployment.  It must not be kept: a greedy
            learner changes it.
        rng : numpy.random.Generator
            Where the environment's draws come from.

        Returns
        -------
        X : DataFrame or array of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sensitive_features : array-like of n_samples rows, or None
            The groups.
        """
        ...


class BasePopulation:
    """Base data that an environment moves: the same people in every round."""

    def __init__(self, X, y, sensitive_features=None):
        self.X, self.y, self.sensitive_features = X, y, sensitive_features
        for name, column in (("y", y), ("sensitive_features", sensitive_features)):
            if column is None:
                continue
            with error_context_without_data(name, "must have one entry per row of X"):
                is_like = len(column) == len(X)
            if not is_like:
                raise ValueError(
                    f"{name} must have one entry per row of X ({len(X)}), got {len(column)}."
                )

    def sample(self, model, rng):
        """Return the base data, moved by the deployed model; see `DistributionMap`."""
        X = self.X if model is None else self.moved(model)
        return X, self.y, self.sensitive_features

    def moved(self, model):
        """Return X as the model's deployment leaves it."""
        raise NotImplementedError  # each reaction is a subclass with its own


def columns_of(X, changeable):
    """Return the positions of the changeable columns; None is all of them.

    Examples
    --------
    >>> import pandas as pd
    >>> columns_of(pd.DataFrame({"age": [30], "savings": [5.0]}), ["savings"])
    array([1])
    """
    names = list(X.columns) if hasattr(X, "columns") else list(range(np.shape(X)[1]))
    given = names if changeable is None else changeable
    wanted = listed("changeable", given, "columns of X")
    unknown = [c for c in wanted if c not in names]
    if unknown or not wanted:
        raise ValueError(
            f"changeable must name at least one column of X, and columns of X only: got "
            f"{safe_repr(wanted)}, X has {safe_repr(names)}."
        )
    return np.array([names.index(c) for c in wanted])


def values_of(X, columns):
    """Return a copy of those columns as floats, shape (n_samples, n_columns).

    Examples
    --------
    >>> values_of(np.array([[1, 2], [3, 4]]), [1])
    array([[2.],
           [4.]])
    """
    part = X.iloc[:, columns] if hasattr(X, "iloc") else np.asarray(X)[:, columns]
    return np.array(part, dtype=float)


def replaced(X, columns, values):
    """Return a copy of X with those columns replaced; a DataFrame stays one.

    Examples
    --------
    >>> replaced(np.array([[1, 2], [3, 4]]), [1], np.array([[2.5], [4.5]]))
    array([[1. , 2.5],
           [3. , 4.5]])
    """
    if hasattr(X, "iloc"):
        names = X.columns[columns]
        return X.assign(**dict(zip(names, np.transpose(values), strict=True)))
    moved = np.array(X, dtype=float) if np.asarray(X).dtype.kind in "iub" else np.array(X)
    moved[:, columns] = values
    return moved
