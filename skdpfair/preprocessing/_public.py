"""The transformers of `public_preprocessor`.

Seeds of private searches are mixed with the name of this file, through the names of its classes.
"""

import re
from collections import Counter
from numbers import Number

import numpy as np
import pandas as pd
from sklearn import compose
from sklearn.base import TransformerMixin
from sklearn.utils.validation import validate_data

from skdpfair._utils.validate import Parametrised, error_context, safe_repr
from skdpfair.inputs.columns import in_pandas

# texts that are written numbers; codes such as 01 are none
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
_FLAGS = {"True": True, "False": False}


class ColumnTransformer(compose.ColumnTransformer):
    """scikit-learn's ColumnTransformer, which also takes tables of polars and pyarrow."""

    def fit_transform(self, X, y=None, **params):
        if any(isinstance(columns, CategoryColumns) for *_, columns in self.transformers):
            refuse_read_categories(X)
        return as_encoded(super().fit_transform(in_pandas(X), y, **params))

    def transform(self, X, **params):
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
            self.categories_ = {c: category_list(c, X[c].cat.categories) for c in X}
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
        return self._names(self.categories_)

    def names_for(self, n_samples):
        """Return the names of the columns that a fit to so many rows makes; not of "dtype"."""
        return self._names(self.categories)

    def _names(self, categories):
        names = [f"{column}_{c}" for column, listed in categories.items() for c in listed]
        return np.asarray(names, dtype=object)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.categorical = tags.input_tags.string = tags.input_tags.allow_nan = True
        return tags


class CategoryColumns:
    """Chooses the columns whose types list their categories, except some; it reads no value."""

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


def category_list(column, listed):
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
