"""A population that shifts as a whole against the model's coefficients."""

import numpy as np

from skdpfair._validate import number
from skdpfair.performative.protocol import BasePopulation, columns_of, replaced, values_of
from skdpfair.performative.scores import coefficients

__all__ = ["LocationShift", "shifted"]


def shifted(base, theta, beta):
    """Return ``base - beta * theta``: the location family of the decision-dependent setting.

    Examples
    --------
    >>> shifted(1.0, theta=5.0, beta=0.01)
    0.95
    """
    return base - beta * theta


class LocationShift(BasePopulation):
    r"""Every record moves by :math:`-\beta \theta`, with the model's coefficients as theta.

    Parameters
    ----------
    X : DataFrame or array of shape (n_samples, n_features)
        The base data.
    y : array-like of shape (n_samples,)
        Labels of two classes.
    sensitive_features : array-like of n_samples rows or None, default=None
        The groups.
    beta : float >= 0
        Sensitivity of the distribution: it moves by at most beta times as far (in Wasserstein-1
        distance) as the coefficients.
    changeable : list of column names or positions, or None, default=None
        The columns that shift, numeric; None is all.
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
    A model without ``coef_`` counts with the slope of its score, averaged over the base data,
    which for a linear model is the same.

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
        self,
        X,
        y,
        sensitive_features=None,
        *,
        beta,
        changeable=None,
        stable_coef=None,
        step=0.01,
    ):
        super().__init__(X, y, sensitive_features)
        self.beta = number("beta", beta, low=0)
        self.columns = columns_of(X, changeable)
        self.step = number("step", step, low=0, low_open=True)
        self.stable_coef = None if stable_coef is None else np.asarray(stable_coef, dtype=float)
        if self.stable_coef is not None and self.stable_coef.shape != self.columns.shape:
            raise ValueError(
                f"stable_coef must have shape {self.columns.shape}, one per changeable column, "
                f"got {self.stable_coef.shape}."
            )

    def moved(self, model):
        """Return X, shifted against the coefficients of ``model``."""
        theta = coefficients(model, self.X, self.columns, self.step)
        values = shifted(values_of(self.X, self.columns), theta, self.beta)
        return replaced(self.X, self.columns, values)

    def distance(self, model):
        """Return the L2 distance of the coefficients to ``stable_coef``; NaN if it is None."""
        if self.stable_coef is None:
            return np.nan
        theta = coefficients(model, self.X, self.columns, self.step)
        return float(np.linalg.norm(theta - self.stable_coef))
