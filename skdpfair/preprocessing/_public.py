"""Whole tables by public bounds and categories."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import OneHotEncoder

from skdpfair._validate import about, one_of, shown
from skdpfair._validate import listed as as_list
from skdpfair.preprocessing._scaler import BoundedScaler, pair_of


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
    _check_dicts(bounds, categories)
    one_of("missing", missing, ("middle", "keep"))
    for column, pair in bounds.items():
        with about("bounds"):
            pair_of("bounds", pair, column)
    if isinstance(passthrough, str):
        passthrough = [passthrough]
    passthrough = as_list("passthrough", passthrough, "column names")
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
    categories = {} if categories is None else categories
    _check_dicts(bounds, categories)
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"table must be a DataFrame, got {type(table).__name__}.")
    unknown = [column for column in (*bounds, *categories) if column not in table]
    if unknown:
        raise ValueError(
            f"bounds and categories must name columns of table, got {shown(unknown)}, which it "
            "lacks. Leave these out, or spell them as in the table."
        )
    rows = {}
    for column, pair in bounds.items():
        with about("bounds"):
            low, high = pair_of("bounds", pair, column)
        rows[column] = table[column], ~table[column].between(low, high)
    for column, listed in categories.items():
        rows[column] = table[column], ~table[column].isin(_category_list(column, listed))
    out = []
    for values, beyond in rows.values():
        beyond &= values.notna()
        example = values[beyond].iloc[0] if beyond.any() else None
        out.append((values.isna().mean(), beyond.mean(), example))
    index = pd.Index(list(rows), name="column")
    return pd.DataFrame(out, index=index, columns=["missing", "outside", "example"])


def _check_dicts(bounds, categories):
    for name, value in (("bounds", bounds), ("categories", categories)):
        if not isinstance(value, Mapping):
            raise TypeError(f"{name} must be a dict by column name, got {shown(value)}.")


def _check_disjoint(bounds, name, columns):
    both = [column for column in columns if column in bounds]
    if both:
        raise ValueError(
            f"{name} and bounds both name {shown(both)}: a column is either scaled or kept; take "
            "it out of one of the two."
        )


def _category_list(column, listed):
    """Return a column's categories as a list without NaN, else raise."""
    with about("categories"):
        kept = [] if isinstance(listed, str) else [c for c in listed if not pd.isna(c)]
        n_distinct = len(set(kept))
    if not kept or n_distinct < len(kept):
        raise ValueError(
            f"categories[{shown(column)}] must list at least one category, each once, "
            f"got {shown(listed)}: take the list from the data description."
        )
    return kept
