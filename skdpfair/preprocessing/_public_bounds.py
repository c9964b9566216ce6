"""The base of what scales or encodes numeric columns within public bounds."""

from collections.abc import Mapping
from numbers import Real

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from skdpfair._utils.validate import error_context, flag, one_of, safe_repr
from skdpfair.inputs.columns import in_pandas, refuse_masked, refuse_sparse_columns

_DOCS = {  # texts of parameters and attributes that several classes have
    "bounds": """bounds : tuple, dict or array-like of shape (n_features, 2), default=(-1.0, 1.0)
        Public bounds ``(low, high)`` with ``low < high``, in the unit of the columns: one pair for
        all columns, a dict from column names to pairs (for DataFrames), or one pair per column, in
        order. Choose them from public knowledge, never from the rows.""",
    "scaling": """feature_range : tuple of (low, high), default=(-1, 1)
        The range to scale to, ``low < high``.
    clip : bool, default=True
        Move values beyond both ends of ``feature_range`` to the nearer end. If False, the features
        of a record are unbounded.
    missing : {"keep", "middle"}, default="keep"
        Keep NaN, or replace it by the middle of ``feature_range``, a public value. (Statistics of
        an imputer that is fitted on the rows are not covered by the privacy budget.)""",
    "columns": """n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns; only if ``fit`` saw a DataFrame with names.""",
}
_USE_CATEGORIES = (
    "Scale only numbers; list public categories for text: "
    "public_preprocessor(bounds, categories={column: [...]})."
)


class PublicBounds(TransformerMixin, BaseEstimator):
    """Transformer of columns of numbers with public ``bounds``."""

    _fitted = "n_features_in_"  # attribute that fit sets last

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        for name, text in _DOCS.items():
            cls.__doc__ = (cls.__doc__ or "").replace(f"{{{name}}}", text)

    def _fit_columns(self, X):
        """Record number and names of the columns, check the bounds, and return X as numbers."""
        X = self._numbers(X, reset=True)
        with error_context("bounds"):
            self._pairs()
        return X

    def _numbers(self, X, reset=False):
        """Return X as an array of floats, or raise without a word of what is in its cells."""
        if not reset:
            check_is_fitted(self, self._fitted)
        X = in_pandas(X)
        refuse_masked("X", X)
        refuse_sparse_columns("X", X)
        text = [c for c in getattr(X, "columns", ()) if not _holds_numbers(X, c)]
        if text:
            raise ValueError(
                f"bounds names columns that hold text: {safe_repr(text)}. {_USE_CATEGORIES}"
            )
        try:
            dtypes = [np.float64, np.float32]
            return validate_data(self, X, dtype=dtypes, reset=reset, ensure_all_finite="allow-nan")
        except (ValueError, OverflowError):
            if _is_real(X):  # the error is of its shape, its names or infinity
                raise
            if hasattr(X, "dtype") and np.iscomplexobj(X):
                raise ValueError("Complex data not supported: X must hold real numbers.") from None
            raise ValueError(f"X has values that are not real numbers. {_USE_CATEGORIES}") from None

    def _names(self):
        """Return the names of the columns, or their positions."""
        return list(getattr(self, "feature_names_in_", range(self.n_features_in_)))

    def _pairs(self):
        """Return the bounds of the columns as an array of shape (n_features, 2)."""
        bounds, names = self.bounds, self._names()
        if isinstance(bounds, Mapping):
            pairs = _ordered(bounds, names, hasattr(self, "feature_names_in_"))
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

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


class ColumnScaler(OneToOneFeatureMixin, PublicBounds):
    """Scaler of each column from two limits to ``feature_range``."""

    def transform(self, X):
        """Scale numbers or NaN; float32 stays float32, and all else becomes float64."""
        X = self._numbers(X)
        start, stop = pair_of("feature_range", self.feature_range)
        scaled = start + shares_of(X, self._limits()) * (stop - start)
        if self.missing == "middle":
            scaled = np.where(np.isnan(scaled), X.dtype.type((start + stop) / 2), scaled)
        return np.clip(scaled, start, stop) if self.clip else scaled

    def _check_scaling(self):
        one_of("missing", self.missing, ("keep", "middle"))
        flag("clip", self.clip)
        with error_context("feature_range"):
            pair_of("feature_range", self.feature_range)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def shares_of(X, limits):
    """Return where values lie between two limits of each column: 0 at the lower, 1 at the upper."""
    low, high = limits.T.astype(X.dtype)
    return (X - low) / (high - low)


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


def _ordered(bounds, names, are_names):
    """Return the pairs of a dict in the order of the columns, else raise."""
    if not are_names:
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
    is_number = isinstance(value, Real) and not isinstance(value, np.timedelta64)
    return is_number and np.isfinite(float(value))


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
