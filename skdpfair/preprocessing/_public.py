"""Scaling and encoding of tables by public bounds and categories."""

import re
from collections import Counter
from collections.abc import Mapping
from numbers import Number

import numpy as np
import pandas as pd
from sklearn import compose
from sklearn.base import TransformerMixin
from sklearn.utils.validation import validate_data

from skdpfair._utils.validate import Parametrised, error_context, one_of, outline, safe_repr
from skdpfair._utils.validate import listed as as_list
from skdpfair.inputs.columns import in_pandas, refuse_dates
from skdpfair.preprocessing._piecewise_linear import PiecewiseLinearEncoder, log_columns_of
from skdpfair.preprocessing._public_bounds import pair_of

# texts that are written numbers; codes such as 01 are none
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
_FLAGS = {"True": True, "False": False}


class ColumnTransformer(compose.ColumnTransformer):
    """scikit-learn's ColumnTransformer, which also takes tables of polars and pyarrow."""

    def fit_transform(self, X, y=None, **params):
        """Fit all steps, and transform X."""
        if any(isinstance(columns, CategoryColumns) for *_, columns in self.transformers):
            refuse_read_categories(X)
        return as_encoded(super().fit_transform(in_pandas(X), y, **params))

    def transform(self, X, **params):
        """Transform X by all steps."""
        return as_encoded(super().transform(in_pandas(X), **params))


def refuse_read_categories(X):
    """Raise ValueError if a table has types whose categories are those of its rows."""
    of_polars, of_arrow = (type(X).__module__.startswith(name) for name in ("polars", "pyarrow"))
    types = dict(X.schema.items()) if of_polars else {}
    types |= {field.name: field.type for field in X.schema} if of_arrow else {}
    if read := [c for c, of in types.items() if str(of).startswith(("Categorical", "dictionary"))]:
        raise ValueError(
            f"X has columns {safe_repr(read)} of polars' Categorical or pyarrow's dictionary, "
            "whose categories come from the rows. Declare them: pl.Enum([...]), or by pandas."
        )


def as_encoded(table):
    """Return a table, marked as encoded, since its columns may have the names of raw ones."""
    if isinstance(table, pd.DataFrame):
        table.attrs["encoded"] = True
    return table


class PublicEncoder(TransformerMixin, Parametrised):
    """Encode each public category as a column of 0 and 1; nothing is learned from the rows.

    ``categories`` is a dict of the categories of each column, in the order of the columns, or
    "dtype" for those that the types of the columns list.
    """

    def __init__(self, categories):
        self.categories = categories

    def fit(self, X, y=None):
        """Record the number and names of the columns, and the categories of their types."""
        validate_data(self, X, skip_check_array=True)
        self.categories_ = self.categories
        if isinstance(self.categories, str):
            self.categories_ = {c: _category_list(c, X[c].cat.categories) for c in X}
        return self

    def transform(self, X):
        """Return 0 and 1 as float32; a value that is not a listed category gives zeros."""
        encoded = np.zeros((len(X), sum(map(len, self.categories_.values()))), np.float32)
        first = 0
        for i, listed in enumerate(self.categories_.values()):
            codes = codes_in(listed, X.iloc[:, i])
            rows = np.flatnonzero(codes >= 0)
            encoded[rows, first + codes[rows]] = 1
            first += len(listed)
        return encoded

    def get_feature_names_out(self, input_features=None):
        """Return ``column_category`` for each category."""
        names = [f"{column}_{c}" for column, listed in self.categories_.items() for c in listed]
        return np.asarray(names, dtype=object)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.categorical = tags.input_tags.string = tags.input_tags.allow_nan = True
        return tags


class CategoryColumns:
    """Chooses the columns whose types list their categories, but for some; it reads no value."""

    def __init__(self, without):
        self.without = without

    def __call__(self, X):
        """Return the names of the columns."""
        types = X.dtypes.items()
        chosen = [c for c, of in types if isinstance(of, pd.CategoricalDtype)]
        return [c for c in chosen if c not in self.without]


def codes_in(listed, column) -> np.ndarray:
    """Return the position of each value of a column in a list, -1 where it is missing or outside.

    A text and a number agree where the text is the number written out, and so do two such texts,
    unless several of the list are the same number.
    """
    numbers = [_number(value) for value in listed]
    counts = Counter(numbers)
    # exact spelling first: "1" and "1.0" may both be listed
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


def public_preprocessor(
    bounds,
    categories=None,
    *,
    encoding="auto",
    epsilon=1.0,
    n_intervals="auto",
    log_columns="auto",
    passthrough=(),
    missing="middle",
):
    """Make a ColumnTransformer that learns only the number of the rows it is fitted on.

    Parameters
    ----------
    bounds : dict of str to (low, high)
        Public bounds of the numeric columns, in their units; see `BoundedScaler`.
    categories : dict of str to sequence, "dtype" or None, default=None
        Public categories of each categorical column, spelt as in the table; "1", 1 and 1.0 are
        equal, as are "True" and True. "dtype" takes those that pandas' Categorical and polars' Enum
        list, of all such columns but those of ``passthrough``: declare them, as
        ``astype("category")`` would read them from the rows.
    encoding : {"auto", "linear"}, default="auto"
        Encode each numeric column by piecewise-linear functions, or scale it to [-1, 1]. A linear
        model, ``DPFairClassifier(module="logistic")``, fits a curve for each column, or a straight
        line.
    epsilon : float > 0 or None, default=1.0
        Budget of the fit that uses the columns; None for a fit without privacy. It affects
        ``n_intervals="auto"`` only. Nothing is spent.
    n_intervals : int >= 0 or "auto", default="auto"
        Number of intervals between knots on each axis. ``"auto"``: 8, or fewer where budget and
        records are few for the columns. It depends on the number of rows: fit on training rows, and
        only transform others.
    log_columns : list of str or "auto", default="auto"
        Columns that also get a logarithmic axis. ``"auto"``: those with a bound of at least 1,000
        in absolute value and with ``low <= 0`` or ``high >= 1000 * low``. (Years have none.)
    passthrough : sequence of str, default=()
        Columns to keep unchanged, such as the group column. A column may be both here and in
        ``categories``: it is then both encoded and kept.
    missing : {"middle", "indicator"} or list of str, default="middle"
        A missing number becomes the middle of its bounds; or zeros, and 1 in a further column
        ``{column}_missing`` that every numeric column gets. A list names the columns that get it.

    Returns
    -------
    sklearn.compose.ColumnTransformer
        The unfitted transformer. Its output is a DataFrame of the encoded numbers,
        ``column_category`` for each category (float32), and the columns of ``passthrough``. A
        category that is missing or not listed becomes a row of zeros, and a number beyond its
        bounds is moved to the nearer bound. Neither raises a warning, which would reveal
        information about the rows; `outside_public` counts such values.

    Examples
    --------
    >>> from skdpfair.datasets import load_adult
    >>> from skdpfair.preprocessing import public_preprocessor
    >>> adult = load_adult(subset="test")
    >>> races = {"race": ("Black", "White")}
    >>> make = public_preprocessor({"age": (17, 90)}, races, passthrough=["sex"])
    >>> make.fit_transform(adult.data)[["age", "race_Black", "race_White", "sex"]].head(2).round(2)
        age  race_Black  race_White   sex
    0 -0.78         1.0         0.0  Male
    1 -0.42         0.0         1.0  Male
    """
    of_types = isinstance(categories, str) and one_of("categories", categories, ("dtype",))
    categories = {} if categories is None or of_types else categories
    for name, part in (("bounds", bounds), ("categories", categories)):
        if not isinstance(part, Mapping) or not all(isinstance(column, str) for column in part):
            raise TypeError(
                f"{name} must be a dict by column names, which are texts, got {safe_repr(part)}."
            )
    with error_context("bounds"):
        bounds = {column: pair_of(pair, column) for column, pair in bounds.items()}
    if isinstance(missing, str):
        one_of("missing", missing, ("middle", "indicator"))
        missing = list(bounds) if missing == "indicator" else []
    if one_of("encoding", encoding, ("auto", "linear")) == "linear":
        n_intervals, log_columns = 0, []
    missing = as_list("missing", missing, "column names")
    log_columns = log_columns_of(log_columns, bounds)
    for name, columns in (("missing", missing), ("log_columns", log_columns)):
        if unknown := [column for column in columns if column not in bounds]:
            raise ValueError(
                f"{name} names {safe_repr(unknown)}, which bounds does not. Name numeric columns, "
                "spelt as in bounds."
            )
    numeric = PiecewiseLinearEncoder(
        bounds, n_intervals=n_intervals, log_columns=log_columns, epsilon=epsilon, missing=missing
    )
    passthrough = [passthrough] if isinstance(passthrough, str) else passthrough
    passthrough = as_list("passthrough", passthrough, "column names")
    for name, columns in (("categories", categories), ("passthrough", passthrough)):
        if both := [column for column in columns if column in bounds]:
            raise ValueError(
                f"{name} and bounds both name {safe_repr(both)}, but a column is either scaled or "
                "kept. Remove it from one of them."
            )
    chosen = CategoryColumns([*bounds, *passthrough])
    listed = {c: _category_list(c, listed) for c, listed in categories.items()}
    encoder = PublicEncoder("dtype" if of_types else listed)
    parts = [
        ("numeric", numeric, list(bounds)),
        ("categorical", encoder, chosen if of_types else list(categories)),
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
    table : DataFrame
        Rows, which the caller may look at.
    bounds : dict of column to (low, high)
        Public bounds of numbers.
    categories : dict of column to list, or None, default=None
        Public lists of values.

    Returns
    -------
    DataFrame
        For each column, the shares ``missing`` and ``outside``, and ``example``, a value that is
        outside, None if there is none.  It is NOT private.

    Raises
    ------
    TypeError, ValueError
        If ``table`` is not a DataFrame, lacks a column, has one twice, or holds dates in one.

    Examples
    --------
    >>> from skdpfair.preprocessing import outside_public
    >>> rows = pd.DataFrame({"age": [30, 150, None, 40], "ward": ["A", "b", "A", "A"]})
    >>> outside_public(rows, {"age": (0, 120)}, {"ward": ["A", "B"]})
            missing  outside example
    column
    age        0.25     0.25   150.0
    ward       0.00     0.25       b
    """
    categories = categories or {}
    table = with_columns(table, [*bounds, *categories], "bounds and categories")
    refuse_dates("table", table[list(bounds)])
    beyond = {column: ~table[column].between(*pair) for column, pair in bounds.items()}
    beyond |= {c: codes_in(listed, table[c]) < 0 for c, listed in categories.items()}
    out = []
    for column, is_beyond in beyond.items():
        outside = table[column][is_beyond & table[column].notna()]
        example = None if outside.empty else outside.iloc[0]
        out.append((table[column].isna().mean(), len(outside) / len(table), example))
    index = pd.Index(list(beyond), name="column")
    return pd.DataFrame(out, index=index, columns=["missing", "outside", "example"])


def with_columns(table, wanted, of="The schema"):
    """Return a table as pandas', which must have each of some columns once."""
    table = in_pandas(table)
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"table must be a DataFrame with named columns, got {outline(table)}.")
    names = list(table.columns)
    if wrong := [column for column in dict.fromkeys(wanted) if names.count(column) != 1]:
        raise ValueError(
            f"{of} must name columns of table, got {safe_repr(wrong)}, which table lacks, or has "
            "several times. Spell them alike."
        )
    return table


def _category_list(column, listed):
    """Return a column's categories as a list without NaN, else raise."""
    with error_context("categories"):
        present = [] if isinstance(listed, str) else [c for c in listed if not pd.isna(c)]
        n_distinct = min(len(set(present)), len(set(map(str, present))))
    if not present or n_distinct < len(present):
        raise ValueError(
            f"categories[{safe_repr(column)}] must list at least one category, each once, "
            f"got {safe_repr(listed)}. Take the list from the data description."
        )
    return present
