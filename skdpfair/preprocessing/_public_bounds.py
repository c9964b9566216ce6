"""Scaling of numeric columns by public bounds, and the base of all that uses such bounds."""

from collections.abc import Mapping
from numbers import Real

import numpy as np
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from skdpfair._utils.validate import Parametrised, error_context, safe_repr, without_text
from skdpfair.inputs.columns import in_pandas, refuse_dates


class PublicBounds(TransformerMixin, Parametrised):
    """Transformer of columns of numbers with public ``bounds``."""

    _fitted = "n_features_in_"  # attribute that fit sets last

    def _fit_columns(self, X):
        """Record number and names of the columns, check the bounds, and return X as numbers."""
        X = self._numbers(X, reset=True)
        with error_context("bounds"):
            self._pairs()
        return X

    def _numbers(self, X, reset=False):
        """Return X as an array of floats, or raise an error that shows no cell."""
        if not reset:
            check_is_fitted(self, self._fitted)
        X = in_pandas(X)
        refuse_dates("X", X)
        try:
            dtypes = [np.float64, np.float32]
            return validate_data(self, X, dtype=dtypes, reset=reset, ensure_all_finite="allow-nan")
        except (ValueError, OverflowError) as error:
            if _is_real(X):  # the error is of its shape, its names or infinity
                raise
            without_text(error)
            if hasattr(X, "dtype") and np.iscomplexobj(X):
                raise ValueError("Complex data not supported: X must hold real numbers.") from None
            texts = [column for column in getattr(X, "columns", ()) if not _is_real(X[column])]
            where = f" in columns {safe_repr(texts)}" if texts else ""
            raise ValueError(
                f"X has values that are not real numbers{where}. Scale only numbers; list public "
                "categories for text: public_preprocessor(bounds, categories={column: [...]})."
            ) from None

    def _pairs(self):
        """Return the bounds of the columns as an array of shape (n_features, 2)."""
        names = list(getattr(self, "feature_names_in_", range(self.n_features_in_)))
        bounds = self.bounds
        if isinstance(bounds, Mapping):
            pairs = _ordered(bounds, names)
        elif np.ndim(bounds) == 1 and len(bounds) == 2:
            pairs = [bounds] * len(names)
        else:
            pairs = list(bounds) if np.ndim(bounds) == 2 else []
        if len(pairs) != len(names):
            raise ValueError(
                f"bounds must be one pair (low, high), a dict of pairs by column name, or one "
                f"pair for each of the {len(names)} columns, got {safe_repr(bounds)}."
            )
        return np.array([pair_of(p, n) for p, n in zip(pairs, names, strict=True)])

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


class ColumnScaler(OneToOneFeatureMixin, PublicBounds):
    """Scaler of each column from two limits to [-1, 1]."""

    def transform(self, X):
        """Scale numbers, and keep NaN; float32 stays float32, and other types become float64."""
        return 2 * shares_of(self._numbers(X), self._limits()) - 1

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class BoundedScaler(ColumnScaler):
    """Scale each column from its public bounds to [-1, 1].

    A scaler that computes the minimum or the mean of private rows leaks information that the
    privacy budget does not cover. This scaler uses bounds from public knowledge, such as a form or
    a code book. ``fit`` only records the number and names of the columns.

    Parameters
    ----------
    bounds : tuple, dict or array-like of shape (n_features, 2), default=(-1.0, 1.0)
        Public bounds ``(low, high)`` with ``low < high``, in the unit of the columns: one pair for
        all columns, a dict from column names to pairs (for DataFrames), or one pair per column, in
        order. Values beyond them are moved to the nearer bound.

    Attributes
    ----------
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns; only if ``fit`` saw a DataFrame with names.

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

    def __init__(self, bounds=(-1.0, 1.0)):
        self.bounds = bounds

    def fit(self, X, y=None):
        """Record the number and names of the columns of X, and check the bounds against them."""
        self._fit_columns(X)
        return self

    def _limits(self):
        return self._pairs()


def shares_of(X, limits):
    """Return where values lie between two limits of each column: 0 at the lower, 1 at the upper."""
    low, high = limits.T
    # in float64, of which the limits are
    return ((np.clip(X, low, high) - low) / (high - low)).astype(X.dtype)


def _is_real(X):
    try:
        np.asarray(X, dtype=np.float64)
    except Exception:  # of an object's own making
        return hasattr(X, "toarray")
    return not np.iscomplexobj(X)


def _ordered(bounds, names):
    """Return the pairs of a dict in the order of the columns, else raise."""
    if not isinstance(names[0], str):
        raise ValueError(
            "bounds is a dict of column names, but X has no names. Pass a DataFrame, or one pair "
            "(low, high) per column, in order."
        )
    missing = [name for name in names if name not in bounds]
    unknown = [name for name in bounds if name not in names]
    if missing or unknown:
        raise ValueError(
            f"bounds must have one pair for each column of X, got none for {safe_repr(missing)} "
            f"and some for {safe_repr(unknown)}, which X lacks. Add the missing bounds from the "
            "data description, and drop the others."
        )
    return [bounds[name] for name in names]


def pair_of(pair, column):
    """Return the bounds of a column as two finite floats low < high, else raise."""
    values = list(pair) if np.ndim(pair) == 1 else []
    # a timedelta of numpy counts as a real number
    are_numbers = all(isinstance(v, Real) and not isinstance(v, np.timedelta64) for v in values)
    low, high = map(float, values) if len(values) == 2 and are_numbers else (0.0, 0.0)
    if not 0 < high - low < np.inf:
        raise ValueError(
            "bounds must be a pair of finite numbers low < high for every column, of a finite "
            f"width, got {safe_repr(pair)} for column {safe_repr(column)}. Take them from the data "
            "description, not from the rows."
        )
    return low, high
