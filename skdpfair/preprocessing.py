"""Transformers with public bounds and categories: they learn nothing from the rows."""

from collections.abc import Mapping
from numbers import Real

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.validation import check_is_fitted, validate_data

from skdpfair._validate import one_of

__all__ = ["BoundedScaler", "outside_public", "public_preprocessor"]

_FLOATS = (np.float64, np.float32)


class BoundedScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Scale every column from its public bounds to a common range.

    A scaler that takes the minimum or the mean of private rows spends privacy that no budget
    counts. This one takes its bounds from you: from a form, a code book, or the meaning of the
    column. ``fit`` records the number and names of the columns and nothing else.

    Parameters
    ----------
    bounds : tuple, dict or array-like of shape (n_features, 2), default=(-1.0, 1.0)
        One pair ``(low, high)`` for all columns, in the unit of the columns; or a dict of one pair
        for each column name, for DataFrames; or one pair a column, in order. ``low < high``. Take
        them from public knowledge, never from the rows.
    feature_range : tuple of (low, high), default=(-1, 1)
        The range to scale to, ``low < high``.
    clip : bool, default=True
        Move values beyond the bounds to the nearest end of ``feature_range``. Otherwise they
        leave the range, and a single record's features are unbounded.
    missing : {"keep", "middle"}, default="keep"
        NaN stays NaN, or becomes the middle of ``feature_range``, a public value. (An imputer that
        is fitted on the rows spends privacy that no budget counts.)

    Attributes
    ----------
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns; only if ``fit`` saw a DataFrame with names.

    Notes
    -----
    ``transform`` computes ``lo' + (x - lo) / (hi - lo) * (hi' - lo')``, bounds (lo, hi) and range
    (lo', hi'). Infinity is refused.

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
            Its values are checked to be numbers and are not used.
        y : None
            Ignored.

        Returns
        -------
        BoundedScaler
            The scaler itself.

        Raises
        ------
        ValueError
            If a pair of bounds is missing, superfluous or not ``low < high``; the message names
            the column.

        Examples
        --------
        >>> BoundedScaler((5, 5)).fit([[1.0], [2.0]])
        Traceback (most recent call last):
        ...
        ValueError: bounds must be a pair of finite numbers low < high for every column, ...
        """
        self._numbers(X, reset=True)
        one_of("missing", self.missing, ("keep", "middle"))
        self._resolved_bounds()
        _pair("feature_range", self.feature_range)
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
            Within ``feature_range`` if ``clip``; float32 stays float32, all else is float64.

        Raises
        ------
        ValueError
            If ``X`` has other columns than in ``fit``, or holds infinity.

        Examples
        --------
        >>> BoundedScaler((0, 10)).fit([[0.0]]).transform([[2.5], [99.0]])
        array([[-0.5],
               [ 1. ]])
        """
        check_is_fitted(self, "n_features_in_")
        X = self._numbers(X, reset=False)
        low, high = self._resolved_bounds().T.astype(X.dtype)
        start, stop = _pair("feature_range", self.feature_range)
        scaled = start + (X - low) / (high - low) * (stop - start)
        if self.missing == "middle":
            scaled = np.where(np.isnan(scaled), X.dtype.type((start + stop) / 2), scaled)
        return np.clip(scaled, start, stop) if self.clip else scaled

    def _numbers(self, X, reset):
        text = [c for c in getattr(X, "columns", ()) if not _holds_numbers(X, c)]
        if text:
            raise ValueError(
                f"bounds names columns that hold text: {text}. Scale numbers only; give text its "
                "public categories: public_preprocessor(bounds, categories={column: [...]})."
            )
        return validate_data(self, X, dtype=_FLOATS, reset=reset, ensure_all_finite="allow-nan")

    def _resolved_bounds(self):
        """Return the bounds as an array of shape (n_features_in_, 2)."""
        names = self._column_names()
        if isinstance(self.bounds, Mapping):
            pairs = _ordered(self.bounds, names, hasattr(self, "feature_names_in_"))
        elif _is_one_pair(self.bounds):
            pairs = [self.bounds] * len(names)
        else:
            pairs = list(self.bounds) if np.ndim(self.bounds) == 2 else []
        if len(pairs) != len(names):
            raise ValueError(
                f"bounds must be one pair (low, high), a dict of pairs by column name, or one "
                f"pair for each of the {len(names)} columns, got {self.bounds!r}."
            )
        return np.array([_pair("bounds", p, n) for p, n in zip(pairs, names, strict=True)])

    def _column_names(self):
        return list(getattr(self, "feature_names_in_", range(self.n_features_in_)))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def public_preprocessor(bounds, categories=None, *, passthrough=(), missing="middle"):
    """Make a ColumnTransformer that learns nothing from the rows it is fitted on.

    Numeric columns are scaled to [-1, 1] by public bounds, categorical ones become 0 or 1 for each
    public category, some columns pass unchanged (the group column, say), all others are dropped.

    Parameters
    ----------
    bounds : dict of str to (low, high)
        Public bounds of the numeric columns, in their units; see `BoundedScaler`.
    categories : dict of str to sequence, optional
        Public list of the categories of each categorical column, spelt as in the table.
    passthrough : sequence of str, default=()
        Columns to hand on unchanged. A column of ``categories`` may be named here too: it is then
        both encoded and handed on.
    missing : {"middle", "keep"}, default="middle"
        What a missing number becomes: 0, the middle of its bounds, or NaN.

    Returns
    -------
    sklearn.compose.ColumnTransformer
        Unfitted; its output is a DataFrame: the scaled columns, then ``column_category`` for each
        category (float32), then the columns of ``passthrough``. A category that is missing or not
        listed makes a row of zeros for its column; a number beyond its bounds is moved to the
        nearer one. Nothing is said of either, for that would tell of the rows; `outside_public`
        counts them where you may look.

    Raises
    ------
    ValueError
        If a column is both in ``bounds`` and in ``categories`` or ``passthrough``, or a column's
        list of categories is empty or has duplicates.

    Examples
    --------
    >>> from skdpfair.datasets import ADULT_BOUNDS, load_adult
    >>> from skdpfair.preprocessing import public_preprocessor
    >>> adult = load_adult(subset="test")
    >>> make = public_preprocessor(ADULT_BOUNDS, {"race": ("Black", "White")}, passthrough=["sex"])
    >>> make.fit_transform(adult.data)[["age", "race_Black", "race_White", "sex"]].head(2).round(2)
        age  race_Black  race_White   sex
    0 -0.78         1.0         0.0  Male
    1 -0.42         0.0         1.0  Male
    """
    categories = {} if categories is None else categories
    passthrough = [passthrough] if isinstance(passthrough, str) else list(passthrough)
    _check_disjoint(bounds, "categories", categories)
    _check_disjoint(bounds, "passthrough", passthrough)
    encoder = OneHotEncoder(
        categories=[_category_list(column, listed) for column, listed in categories.items()],
        handle_unknown="ignore",
        sparse_output=False,
        dtype=np.float32,
    )
    parts = [
        ("numeric", BoundedScaler(dict(bounds), missing=missing), list(bounds)),
        ("categorical", encoder, list(categories)),
        ("passthrough", "passthrough", passthrough),
    ]
    # names and pandas output: without both, the group column's name would not survive
    return ColumnTransformer(
        [part for part in parts if part[2]], remainder="drop", verbose_feature_names_out=False
    ).set_output(transform="pandas")


def outside_public(table, bounds, categories=None):
    """Count what public bounds and categories miss: typing errors, forgotten categories.

    Parameters
    ----------
    table : DataFrame
        The rows, or better a public sample of them.
    bounds, categories : dict
        As in `public_preprocessor`.

    Returns
    -------
    DataFrame
        One row a column of ``bounds`` and ``categories``: the shares ``missing`` and ``outside``,
        and ``example``, a value that is outside. Computed on the rows as they are: NOT private.

    Examples
    --------
    >>> rows = pd.DataFrame({"age": [30, 150, None, 40], "ward": ["A", "b", "A", "A"]})
    >>> outside_public(rows, {"age": (0, 120)}, {"ward": ["A", "B"]})
            missing  outside example
    column
    age        0.25     0.25   150.0
    ward       0.00     0.25       b
    """
    rows = {}
    for column, pair in bounds.items():
        low, high = _pair("bounds", pair, column)
        rows[column] = table[column], ~table[column].between(low, high)
    for column, listed in (categories or {}).items():
        rows[column] = table[column], ~table[column].isin(_category_list(column, listed))
    out = []
    for values, beyond in rows.values():
        beyond &= values.notna()
        example = values[beyond].iloc[0] if beyond.any() else None
        out.append((values.isna().mean(), beyond.mean(), example))
    index = pd.Index(list(rows), name="column")
    return pd.DataFrame(out, index=index, columns=["missing", "outside", "example"])


def _holds_numbers(X, column):
    values = X[column]
    if getattr(values, "ndim", 1) != 1 or pd.api.types.is_numeric_dtype(values):
        return True
    return pd.to_numeric(values, errors="coerce").notna().sum() == values.notna().sum()


def _check_disjoint(bounds, name, columns):
    both = [column for column in columns if column in bounds]
    if both:
        raise ValueError(
            f"{name} and bounds both name {both}: a column is either scaled or kept; take it out "
            "of one of the two."
        )


def _category_list(column, listed):
    """Return a column's categories as a list without NaN, else raise."""
    kept = [] if isinstance(listed, str) else [c for c in listed if not pd.isna(c)]
    if not kept or len(set(kept)) < len(kept):
        raise ValueError(
            f"categories[{column!r}] must list at least one category, each once, got {listed!r}: "
            "take the list from the data description."
        )
    return kept


def _is_one_pair(bounds):
    """Return whether ``bounds`` is two numbers, not two pairs."""
    return np.ndim(bounds) == 1 and len(bounds) == 2


def _ordered(bounds, names, named):
    """Return the pairs of a dict in the order of the columns, else raise."""
    if not named:
        raise ValueError(
            "bounds is a dict of column names, but X has none: pass a DataFrame, or one pair "
            "(low, high) a column, in order."
        )
    missing = [name for name in names if name not in bounds]
    unknown = [name for name in bounds if name not in names]
    if missing or unknown:
        raise ValueError(
            f"bounds must have one pair for each column of X, got none for {missing} and some for "
            f"{unknown}, which X lacks. Add what the data description says, drop the rest."
        )
    return [bounds[name] for name in names]


def _pair(name, pair, column=None):
    """Return ``pair`` as two finite floats low < high, else raise and name the column."""
    place = "" if column is None else f" for column {column!r}"
    every = " for every column" if name == "bounds" else ""
    values = list(pair) if np.ndim(pair) == 1 else []
    if (
        len(values) != 2
        or not all(isinstance(v, Real) and np.isfinite(v) for v in values)
        or not values[0] < values[1]
    ):
        raise ValueError(
            f"{name} must be a pair of finite numbers low < high{every}, got {pair!r}{place}. "
            "Take them from the data description, not from the rows."
        )
    return float(values[0]), float(values[1])
