"""People who were denied change what they can, as far as it helps and they can afford."""

import numpy as np

from skdpfair._validate import number
from skdpfair.performative.protocol import BasePopulation, columns_of, replaced, values_of
from skdpfair.performative.scores import score, score_gradient

_HALVINGS = 20

__all__ = ["StrategicResponse"]


class StrategicResponse(BasePopulation):
    r"""Records that the model denies move towards the favourable decision, within a budget.

    Every round starts from the base data: what was changed for the last model is undone.  Labels
    stay, so to gain the favourable decision is not to deserve it.

    Parameters
    ----------
    X : DataFrame or array of shape (n_samples, n_features)
        The base data: features before anybody reacts.
    y : array-like of shape (n_samples,)
        Labels of two classes; the larger one is the favourable decision.
    sensitive_features : array-like of n_samples rows or None, default=None
        The groups.
    budget : float >= 0, or array-like of shape (n_samples,)
        Largest L2 distance that a record moves; by record where means differ.
    changeable : list of column names or positions, or None, default=None
        The columns that people can change, numeric; None is all.
    step : float > 0, default=0.01
        Half-width of the central differences, in the unit of X.

    Raises
    ------
    ValueError
        If a parameter is out of range, a column is unknown, lengths differ; in ``sample`` if the
        deployed model has more than two classes, or no score.

    Notes
    -----
    With s the model's score (``decision_function``, else log-odds), g its gradient in the
    changeable columns at the record's base features and B its budget, a record with
    :math:`s(x) \le 0` moves to :math:`x + t g / \lVert g \rVert` for the least t in [0, B] with
    s > 0, found by bisection; t = B if that does not suffice.  That is the best response to a
    linear model, and one gradient step for any other.  Where g = 0, as in trees, nobody moves.

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
        super().__init__(X, y, sensitive_features)
        self.columns = columns_of(X, changeable)
        self.step = number("step", step, low=0, low_open=True)
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

    def moved(self, model):
        """Return X after the denied have reacted to ``model``."""
        denied = np.flatnonzero(score(model, self.X) <= 0)
        values = values_of(self.X, self.columns)
        if len(denied):
            rows = self.X.iloc[denied] if hasattr(self.X, "iloc") else np.asarray(self.X)[denied]
            values[denied] = self._responses(model, rows, values[denied], self.budget[denied])
        return replaced(self.X, self.columns, values)

    def _responses(self, model, rows, base, budget):
        slope = score_gradient(model, rows, self.columns, self.step)
        length = np.linalg.norm(slope, axis=1, keepdims=True)
        direction = np.divide(slope, length, out=np.zeros_like(slope), where=length > 0)

        def at(distance):
            return base + distance[:, None] * direction

        # high: granted, or all that can be afforded; low: denied
        low, high = np.zeros(len(base)), budget
        enough = score(model, replaced(rows, self.columns, at(high))) > 0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            granted = score(model, replaced(rows, self.columns, at(middle))) > 0
            low = np.where(enough & ~granted, middle, low)
            high = np.where(enough & granted, middle, high)
        return at(high)
