"""Columns of numpy, pandas and of other libraries' tables: conversion and refusals."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import infer_dtype
from sklearn.utils.validation import column_or_1d

from skdpfair._utils.validate import error_context_without_data, safe_repr

_DATES = {"datetime64", "datetime", "date", "timedelta64", "timedelta", "time", "period"}


def in_pandas(X: Any) -> Any:
    """Return a table of another library, such as polars, as pandas'; return others unchanged."""
    if not hasattr(type(X), "to_pandas"):
        return X
    try:
        return X.to_pandas()
    except ImportError:
        # polars goes through pyarrow
        return pd.DataFrame({name: X[name].to_numpy() for name in X.columns})


def in_numpy(values: Any) -> Any:
    """Return a tensor as a numpy array, also under scikit-learn's dispatch; others unchanged."""
    is_tensor = type(values).__module__.partition(".")[0] == "torch"  # which is not imported here
    return values.numpy(force=True) if is_tensor else values


def check_indexes(*, warns_of: str = "", **arguments: Any) -> None:
    """Raise ValueError if two arguments of a call, or members of dicts, differ in their indexes.

    An X that counts from 0, as transformers make of arrays, says nothing of other labels.  One that
    ``warns_of`` names may be shuffled, as y is by scikit-learn's permutation_test_score.
    """
    parts: dict[str, Any] = {}
    for name, value in arguments.items():
        inner = value.items() if isinstance(value, Mapping) else ()
        parts |= {name: value} | {f"{name}[{safe_repr(key)}]": part for key, part in inner}
    indexed = {n: v.index for n, v in parts.items() if isinstance(v, (pd.Series, pd.DataFrame))}
    others = [index for name, index in indexed.items() if name != "X"]
    of_x = indexed.get("X", pd.Index([""]))
    if of_x.equals(pd.RangeIndex(len(of_x))) and not any(of_x.isin(i).all() for i in others):
        del indexed["X"]
    first = next(iter(indexed), "")
    for name, other in indexed.items():
        index = indexed[first]
        if len(index) == len(other) and not index.equals(other):
            same = index.is_unique and other.is_unique and index.isin(other).all()
            text = (
                f"{name} has another index than {first}, so its values may belong to other rows. "
                f"Pass {f'{name}.loc[{first}.index], or ' if same else ''}{name}.to_numpy() if its "
                f"order is that of {first}."
            )
            # of the rows of a fold, each has the label of any row
            is_shuffled = other.isin(index).any() and not other.equals(pd.RangeIndex(len(other)))
            if name != warns_of or not is_shuffled:
                raise ValueError(text)
            warnings.warn(text, UserWarning, stacklevel=4)


def by_index(score: Callable[..., float]) -> Callable[..., float]:
    """Return a score of scikit-learn's mixins that refuses arguments of different indexes."""

    @wraps(score)
    def checked(self: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        check_indexes(X=X, y=y, sample_weight=sample_weight, warns_of="y")
        return score(self, X, in_numpy(y), in_numpy(sample_weight))

    return checked


def one_column(
    name: str, values: Any, what: str, *, remedy: str = "", dtype: Any = None, warn: bool = False
) -> np.ndarray:
    """Return the values of one column as an array of one dimension.

    ``what`` each row must hold, and the ``remedy`` for several columns, are for the messages.  What
    has no ``dtype`` of its own, as lists, is read as ``dtype``; ``warn`` is as of `column_or_1d`.
    """
    refuse_unreadable(name, values)
    values, wanted = in_numpy(in_pandas(values)), f"must hold {what}"
    with error_context_without_data(name, wanted):
        own = getattr(values, "dtype", dtype)
        # numpy would make labels with missing ones floats
        is_extension = pd.api.types.is_extension_array_dtype(own)
        column = np.asarray(values, dtype=object if is_extension else own)
    if column.ndim != 1 and column.shape[1:] != (1,):
        text = f"{name} {wanted}, got an array of shape {column.shape}. {remedy}"
        raise ValueError(text.rstrip())
    if column.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {name} {wanted}.")
    with error_context_without_data(name, wanted):
        return np.asarray(column_or_1d(column, warn=warn))


def refuse_dates(name: str, values: Any) -> None:
    """Raise ValueError if columns hold dates, times or durations, whose numbers have no unit."""
    columns = {name: values}
    if isinstance(values, pd.DataFrame):
        kinds = enumerate(d.kind for d in values.dtypes)
        columns = {values.columns[i]: values.iloc[:, i] for i, kind in kinds if kind in "mMO"}
    if dates := [str(c) for c, column in columns.items() if _are_dates(column)]:
        where = f" {safe_repr(dates)}" if isinstance(values, pd.DataFrame) else ""
        raise ValueError(
            f"{name} has columns of dates or times{where}. Make each a number, by itself, in the "
            "unit of its limits: (column - pandas.Timestamp('2000-01-01')).dt.days, column.dt.year "
            "or column.dt.total_seconds()."
        )


def _are_dates(values: Any) -> bool:
    kind = getattr(getattr(values, "dtype", None), "kind", None)
    if kind is None and isinstance(values, (list, tuple)):
        kind, values = "O", np.asarray(values, dtype=object)
    return kind in ("m", "M") or (kind == "O" and infer_dtype(np.ravel(values)) in _DATES)


def refuse_unreadable(name: str, values: Any) -> None:
    """Raise an error for masked arrays, arrays of different shapes and sparse columns of pandas."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(
            f"{name} has masked values, which are missing values. Fill them by public constants, "
            "or drop these rows."
        )
    is_list = isinstance(values, (list, tuple)) or (
        isinstance(values, np.ndarray) and values.dtype == object and values.ndim == 1
    )
    # such as pictures of any size
    if is_list and len(values) and hasattr(values[0], "dtype") and np.ndim(values[0]):
        shapes = {tuple(v.shape) for v in values if hasattr(v, "dtype")}
        if len(shapes) > 1:
            one, other, *_ = sorted(shapes)
            raise ValueError(
                f"{name} holds arrays of different shapes, such as {one} and {other}. Give all "
                "records one shape: resize or crop pictures."
            )
    if isinstance(values, pd.DataFrame):
        dtypes = values.dtypes.items()
        if sparse := [column for column, d in dtypes if isinstance(d, pd.SparseDtype)]:
            raise TypeError(
                f"Sparse data was passed for {name}, but dense data is required: the columns "
                f"{safe_repr(sparse)} are sparse. Convert them by {name}.sparse.to_dense()."
            )


def names_of_features(estimator: Any, hidden: Sequence[int]) -> np.ndarray | None:
    """Return the names of the columns without the hidden ones; None if columns have no names."""
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else np.delete(names, hidden)
