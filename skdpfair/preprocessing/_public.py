"""Scaling and encoding of tables by public bounds and categories."""

import re
from collections import Counter
from collections.abc import Mapping
from numbers import Number, Real

import numpy as np
import pandas as pd
from sklearn import compose
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from skdpfair._validate import error_context, flag, one_of, safe_repr
from skdpfair._validate import listed as as_list
from skdpfair.inputs.columns import in_pandas, refuse_masked, refuse_sparse_columns

_FLOATS = (np.float64, np.float32)
_NOT_NUMBERS = (
    "X has values that are not real numbers. Scale only numbers; list public categories for text: "
    "public_preprocessor(bounds, categories={column: [...]})."
)
# texts that are written numbers; codes such as 01 are none
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
_FLAGS = {"True": True, "False": False}


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
            self._resolved_bounds()
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
        low, high = self._resolved_bounds().T.astype(X.dtype)
        start, stop = pair_of("feature_range", self.feature_range)
        scaled = start + (X - low) / (high - low) * (stop - start)
        if self.missing == "middle":
            scaled = np.where(np.isnan(scaled), X.dtype.type((start + stop) / 2), scaled)
        return np.clip(scaled, start, stop) if self.clip else scaled

    def _resolved_bounds(self):
        """Return the bounds as an array of shape (n_features, 2)."""
        names = list(getattr(self, "feature_names_in_", range(self.n_features_in_)))
        if isinstance(self.bounds, Mapping):
            pairs = _ordered(self.bounds, names, hasattr(self, "feature_names_in_"))
        elif np.ndim(self.bounds) == 1 and len(self.bounds) == 2:
            pairs = [self.bounds] * len(names)
        else:
            pairs = list(self.bounds) if np.ndim(self.bounds) == 2 else []
        if len(pairs) != len(names):
            raise ValueError(
                f"bounds must be one pair (low, high), a dict of pairs by column name, or one "
                f"pair for each of the {len(names)} columns, got {safe_repr(self.bounds)}."
            )
        return np.array([pair_of("bounds", p, n) for p, n in zip(pairs, names, strict=True)])

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


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


class ColumnTransformer(compose.ColumnTransformer):
    """scikit-learn's ColumnTransformer, which also takes tables of polars and pyarrow."""

    def fit_transform(self, X, y=None, **params):
        """Fit all steps, and transform X."""
        return super().fit_transform(in_pandas(X), y, **params)

    def transform(self, X, **params):
        """Transform X by all steps."""
        return super().transform(in_pandas(X), **params)


class PublicEncoder(TransformerMixin, BaseEstimator):
    """Encode each public category as a column of 0 and 1; nothing is learned from the rows.

    Parameters
    ----------
    categories : dict of str to list
        The categories of each column, in the order of the columns.

    Examples
    --------
    >>> rows = pd.DataFrame({"ward": [1.0, 2.0, None]})
    >>> PublicEncoder({"ward": ["1", "2"]}).set_output(transform="pandas").fit_transform(rows)
       ward_1  ward_2
    0     1.0     0.0
    1     0.0     1.0
    2     0.0     0.0
    """

    def __init__(self, categories):
        self.categories = categories

    def fit(self, X, y=None):
        """Record the number and names of the columns."""
        validate_data(self, X, skip_check_array=True)
        return self

    def transform(self, X):
        """Return 0 and 1 as float32; a value that is not a listed category gives zeros."""
        parts = [
            codes_in(listed, X.iloc[:, i])[:, None] == np.arange(len(listed))
            for i, listed in enumerate(self.categories.values())
        ]
        return np.hstack(parts).astype(np.float32)

    def get_feature_names_out(self, input_features=None):
        """Return ``column_category`` for each category."""
        names = [f"{column}_{c}" for column, listed in self.categories.items() for c in listed]
        return np.asarray(names, dtype=object)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.categorical = tags.input_tags.string = tags.input_tags.allow_nan = True
        return tags


def codes_in(listed, column) -> np.ndarray:
    """Return the position of each value of a column in a list, -1 where it is missing or outside.

    A text and a number agree where the text is the number written out, and so do two such texts,
    unless several of the list are the same number.

    Examples
    --------
    >>> codes_in(["1", "2", "01"], pd.Series(["1.0", 2, "01", None, 3.0])).tolist()
    [0, 1, 2, -1, -1]
    """
    numbers = [_number(value) for value in listed]
    counts = Counter(numbers)
    exact = {value: i for i, value in enumerate(listed)}
    by_number = {n: i for i, n in enumerate(numbers) if n is not None and counts[n] == 1}
    each, distinct = pd.factorize(column)
    places = [exact.get(v, by_number.get(_number(v), -1)) for v in distinct.tolist()]
    return np.array([*places, -1], dtype=np.int64)[each]


def _number(value):
    """Return the number or flag that a value is, or whose text it is, or None."""
    if not isinstance(value, str):
        return value if isinstance(value, (Number, np.bool_)) else None
    if value in _FLAGS or not _NUMBER.fullmatch(value):
        return _FLAGS.get(value)
    return float(value) if "." in value else int(value)


def public_preprocessor(bounds, categories=None, *, passthrough=(), missing="middle"):
    """Make a ColumnTransformer that learns nothing from the rows it is fitted on.

    Numeric columns are scaled to [-1, 1] by public bounds, and categorical columns become 0 or 1
    for each public category. Columns of ``passthrough`` are unchanged; all others are dropped.

    Parameters
    ----------
    bounds : dict of str to (low, high)
        Public bounds of the numeric columns, in their units; see `BoundedScaler`.
    categories : dict of str to sequence, optional
        Public categories of each categorical column, spelt as in the table; "1", 1 and 1.0 are
        equal, as are "True" and True.
    passthrough : sequence of str, default=()
        Columns to keep unchanged, such as the group column. A column may be both here and in
        ``categories``: it is then both encoded and kept.
    missing : {"middle", "keep"}, default="middle"
        Replace missing numbers by 0, the middle of the scaled bounds, or keep them as NaN.

    Returns
    -------
    sklearn.compose.ColumnTransformer
        The unfitted transformer. Its output is a DataFrame of the scaled columns,
        ``column_category`` for each category (float32), and the columns of ``passthrough``. A
        category that is missing or not listed becomes a row of zeros, and a number beyond its
        bounds is moved to the nearer bound. Neither raises a warning, which would reveal
        information about the rows; `outside_public` counts such values.

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
    _check_dicts(bounds, categories)
    one_of("missing", missing, ("middle", "keep"))
    for column, pair in bounds.items():
        with error_context("bounds"):
            pair_of("bounds", pair, column)
    if isinstance(passthrough, str):
        passthrough = [passthrough]
    passthrough = as_list("passthrough", passthrough, "column names")
    _check_disjoint(bounds, "categories", categories)
    _check_disjoint(bounds, "passthrough", passthrough)
    encoder = PublicEncoder({c: _category_list(c, listed) for c, listed in categories.items()})
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
    """Count values outside public bounds and categories, such as typing errors.

    Parameters
    ----------
    table : DataFrame, of pandas, polars or pyarrow
        The rows, or preferably a public sample of them.
    bounds, categories : dict
        As in `public_preprocessor`.

    Returns
    -------
    DataFrame
        One row per column of ``bounds`` and ``categories``: the shares ``missing`` and ``outside``,
        and ``example``, a value that is outside. The table is NOT private.

    Examples
    --------
    >>> rows = pd.DataFrame({"age": [30, 150, None, 40], "ward": ["A", "b", "A", "A"]})
    >>> outside_public(rows, {"age": (0, 120)}, {"ward": ["A", "B"]})
            missing  outside example
    column
    age        0.25     0.25   150.0
    ward       0.00     0.25       b
    """
    categories = {} if categories is None else categories
    _check_dicts(bounds, categories)
    table = in_pandas(table)
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"table must be a DataFrame, got {type(table).__name__}.")
    unknown = [column for column in (*bounds, *categories) if column not in table]
    if unknown:
        raise ValueError(
            f"bounds and categories must name columns of table, got {safe_repr(unknown)}, which "
            "table lacks. Remove these, or spell them as in the table."
        )
    rows = {}
    for column, pair in bounds.items():
        with error_context("bounds"):
            low, high = pair_of("bounds", pair, column)
        rows[column] = table[column], ~table[column].between(low, high)
    for column, listed in categories.items():
        rows[column] = table[column], codes_in(_category_list(column, listed), table[column]) < 0
    out = []
    for values, beyond in rows.values():
        beyond = beyond & values.notna()
        example = values[beyond].iloc[0] if beyond.any() else None
        out.append((values.isna().mean(), beyond.mean(), example))
    index = pd.Index(list(rows), name="column")
    return pd.DataFrame(out, index=index, columns=["missing", "outside", "example"])


def _check_dicts(bounds, categories):
    for name, value in (("bounds", bounds), ("categories", categories)):
        if not isinstance(value, Mapping):
            raise TypeError(f"{name} must be a dict by column name, got {safe_repr(value)}.")


def _check_disjoint(bounds, name, columns):
    both = [column for column in columns if column in bounds]
    if both:
        raise ValueError(
            f"{name} and bounds both name {safe_repr(both)}, but a column is either scaled or "
            "kept. Remove it from one of them."
        )


def _category_list(column, listed):
    """Return a column's categories as a list without NaN, else raise."""
    with error_context("categories"):
        kept = [] if isinstance(listed, str) else [c for c in listed if not pd.isna(c)]
        n_distinct = min(len(set(kept)), len(set(map(str, kept))))
    if not kept or n_distinct < len(kept):
        raise ValueError(
            f"categories[{safe_repr(column)}] must list at least one category, each once, "
            f"got {safe_repr(listed)}. Take the list from the data description."
        )
    return kept
