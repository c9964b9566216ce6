"""Scaling of numeric columns by public bounds."""

from collections.abc import Mapping
from numbers import Real

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from skdpfair._validate import error_context, flag, one_of, safe_repr
from skdpfair.inputs.columns import in_pandas, refuse_masked, refuse_sparse_columns

_FLOATS = (np.float64, np.float32)
_NOT_NUMBERS = (
    "X has values that are not real numbers. Scale only numbers; list public categories for text: "
    "public_preprocessor(bounds, categories={column: [...]})."
)


class BoundedScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Scale each column from its public bounds to a common range.

    A scaler that computes the minimum or the mean of private rows leaks information that the
    privacy budget does not cover. This scaler uses bounds from public knowledge, such as a form or
    a code book. ``fit`` only records the number and names of the columns.

    Parameters
    ----------
    bounds : tuple, dict or array-like of shape (n_features, 2), default=(-1.0, 1.0)
        Bounds ``(low, high)`` with ``low < high``, in the unit of the columns: one pair for all
        columns, a dict from column names to pairs (for DataFrames), or one pair per column, in
        order. Choose them from public knowledge, never from the rows.
    feature_range : tuple of (low, high), default=(-1, 1)
        The range to scale to, ``low < high``.
    clip : bool, default=True
        Move values beyond the bounds to the nearest end of ``feature_range``. If False, values
        beyond the bounds fall outside the range, so the features of a record are unbounded.
    missing : {"keep", "middle"}, default="keep"
        Keep NaN, or replace it by the middle of ``feature_range``, a public value. (Statistics of
        an imputer that is fitted on the rows are not covered by the privacy budget.)

    Attributes
    ----------
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns; only if ``fit`` saw a DataFrame with names.

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
        """Record the number and names of the columns; check the bounds against them.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            The values must be numbers; they are not used.
        y : None
            Ignored.

        Returns
        -------
        BoundedScaler
            The scaler itself.

        Raises
        ------
        ValueError
            If a pair of bounds is missing or superfluous, or does not have ``low < high``.

        Examples
        --------
        >>> BoundedScaler((5, 5)).fit([[1.0], [2.0]])
        Traceback (most recent call last):
        ...
        ValueError: bounds must be a pair of finite numbers low < high for every column, ...
        """
        numbers_of(self, X, reset=True)
        one_of("missing", self.missing, ("keep", "middle"))
        flag("clip", self.clip)
        with error_context("bounds"):
            bounds_of(self)
        with error_context("feature_range"):
            pair_of("feature_range", self.feature_range)
        return self

    def transform(self, X):
        """Scale ``X``.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            Numbers; for NaN see ``missing``.

        Returns
        -------
        ndarray or DataFrame of shape (n_samples, n_features)
            Values within ``feature_range`` if ``clip``; float32 for float32 input, else float64.

        Raises
        ------
        ValueError
            If the columns of ``X`` differ from those in ``fit``, or ``X`` holds infinity.

        Examples
        --------
        >>> BoundedScaler((0, 10)).fit([[0.0]]).transform([[2.5], [99.0]])
        array([[-0.5],
               [ 1. ]])
        """
        check_is_fitted(self, "n_features_in_")
        X = numbers_of(self, X, reset=False)
        low, high = bounds_of(self).T.astype(X.dtype)
        start, stop = pair_of("feature_range", self.feature_range)
        scaled = start + (X - low) / (high - low) * (stop - start)
        if self.missing == "middle":
            scaled = np.where(np.isnan(scaled), X.dtype.type((start + stop) / 2), scaled)
        return np.clip(scaled, start, stop) if self.clip else scaled

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def bounds_of(estimator):
    """Return the bounds of an estimator's columns as an array of shape (n_features, 2)."""
    bounds, names = estimator.bounds, names_of(estimator)
    if isinstance(bounds, Mapping):
        pairs = _ordered(bounds, names, hasattr(estimator, "feature_names_in_"))
    elif np.ndim(bounds) == 1 and len(bounds) == 2:
        pairs = [bounds] * len(names)
    else:
        pairs = list(bounds) if np.ndim(bounds) == 2 else []
    if len(pairs) != len(names):
        raise ValueError(
            f"bounds must be one pair (low, high), a dict of pairs by column name, or one "
            f"pair for each of the {len(names)} columns, got {safe_repr(bounds)}."
        )
    return np.array([pair_of("bounds", p, n) for p, n in zip(pairs, names, strict=True)])


def names_of(estimator):
    """Return the names of a fitted estimator's columns, or their positions."""
    return list(getattr(estimator, "feature_names_in_", range(estimator.n_features_in_)))


def numbers_of(estimator, X, reset):
    """Return X as an array of floats, or raise without a word of what is in its cells."""
    X = in_pandas(X)
    refuse_masked("X", X)
    refuse_sparse_columns("X", X)
    text = [c for c in getattr(X, "columns", ()) if not _holds_numbers(X, c)]
    if text:
        raise ValueError(
            f"bounds names columns that hold text: {safe_repr(text)}. Scale only numbers; list "
            "public categories for text: public_preprocessor(bounds, categories={column: [...]})."
        )
    try:
        return validate_data(
            estimator, X, dtype=_FLOATS, reset=reset, ensure_all_finite="allow-nan"
        )
    except (ValueError, OverflowError):
        if _is_real(X):  # the error is of its shape, its names or infinity
            raise
        if hasattr(X, "dtype") and np.iscomplexobj(X):
            raise ValueError("Complex data not supported: X must hold real numbers.") from None
        raise ValueError(_NOT_NUMBERS) from None


def _is_real(X):
    try:
        np.asarray(X, dtype=np.float64)
    except Exception:  # of an object's own making
        return hasattr(X, "toarray")
    return not np.iscomplexobj(X)


def _holds_numbers(X, column):
    values = X[column]
    if getattr(values, "ndim", 1) != 1 or pd.api.types.is_numeric_dtype(values):
        return True
    return pd.to_numeric(values, errors="coerce").notna().sum() == values.notna().sum()


def _ordered(bounds, names, named):
    """Return the pairs of a dict in the order of the columns, else raise."""
    if not named:
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


def _is_finite(value):
    return (
        isinstance(value, Real)
        and not isinstance(value, np.timedelta64)
        and np.isfinite(float(value))
    )


def pair_of(name, pair, column=None):
    """Return ``pair`` as two finite floats low < high, else raise and name the column."""
    place = "" if column is None else f" for column {safe_repr(column)}"
    every = " for every column" if name == "bounds" else ""
    values = list(pair) if np.ndim(pair) == 1 else []
    if len(values) != 2 or not all(_is_finite(v) for v in values) or not values[0] < values[1]:
        raise ValueError(
            f"{name} must be a pair of finite numbers low < high{every}, got "
            f"{safe_repr(pair)}{place}. Take them from the data description, not from the rows."
        )
    return float(values[0]), float(values[1])
