"""Scaling of numeric columns by public bounds."""

from skdpfair.preprocessing._public_bounds import ColumnScaler


class BoundedScaler(ColumnScaler):
    """Scale each column from its public bounds to a common range.

    A scaler that computes the minimum or the mean of private rows leaks information that the
    privacy budget does not cover. This scaler uses bounds from public knowledge, such as a form or
    a code book. ``fit`` only records the number and names of the columns.

    Parameters
    ----------
    {bounds}
    {scaling}

    Attributes
    ----------
    {columns}

    Notes
    -----
    ``transform`` computes ``lo' + (x - lo) / (hi - lo) * (hi' - lo')`` for bounds (lo, hi) and
    range (lo', hi'). It raises ValueError on infinity.

    Examples
    --------
    >>> import pandas as pd
    >>> from skdpfair.preprocessing import BoundedScaler
    >>> rows = pd.DataFrame({"age": [17.0, 53.5, 120.0], "hours": [1.0, 50.0, 99.0]})
    >>> scaler = BoundedScaler({"age": (17, 90), "hours": (1, 99)})
    >>> scaler.fit_transform(rows)
    array([[-1., -1.],
           [ 0.,  0.],
           [ 1.,  1.]])
    """

    def __init__(self, bounds=(-1.0, 1.0), *, feature_range=(-1, 1), clip=True, missing="keep"):
        self.bounds = bounds
        self.feature_range = feature_range
        self.clip = clip
        self.missing = missing

    def fit(self, X, y=None):
        """Record the number and names of the columns of X, and check the bounds against them."""
        self._fit_columns(X)
        self._check_scaling()
        return self

    def _limits(self):
        return self._pairs()
