"""Columns of numpy, pandas and of other libraries' tables: conversion and refusals."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import numpy as np
import pandas as pd

from skdpfair._validate import safe_repr


def in_pandas(X: Any) -> Any:
    """Return a table of another library, as polars or pyarrow, as pandas'; all else as it is.

    Examples
    --------
    >>> in_pandas([[1.0]])
    [[1.0]]
    """
    if not hasattr(type(X), "to_pandas"):
        return X
    try:
        return X.to_pandas()
    except ImportError:  # polars goes through pyarrow
        return pd.DataFrame({name: X[name].to_numpy() for name in X.columns})


def check_indexes(**arguments: Any) -> None:
    """Raise ValueError if two arguments of a call, or members of dicts, differ in their indexes.

    An X that counts from 0, as transformers make of arrays, says nothing of other labels.
    """
    parts: dict[str, Any] = {}
    for name, given in arguments.items():
        inner = given.items() if isinstance(given, Mapping) else ()
        parts |= {name: given} | {f"{name}[{safe_repr(key)}]": part for key, part in inner}
    indexed = {n: v.index for n, v in parts.items() if isinstance(v, (pd.Series, pd.DataFrame))}
    others = [index for name, index in indexed.items() if name != "X"]
    own = indexed.get("X", pd.Index([""]))
    if own.equals(pd.RangeIndex(len(own))) and not any(own.isin(i).all() for i in others):
        del indexed["X"]
    first = next(iter(indexed), "")
    for name, other in indexed.items():
        index = indexed[first]
        if len(index) == len(other) and not index.equals(other):
            same = index.is_unique and other.is_unique and index.isin(other).all()
            raise ValueError(
                f"{name} has another index than {first}, so its values may belong to other rows. "
                f"Pass {f'{name}.loc[{first}.index], or ' if same else ''}{name}.to_numpy() if its "
                f"order is that of {first}."
            )


def by_index(score: Callable[..., float]) -> Callable[..., float]:
    """Return a score of scikit-learn's mixins that refuses arguments of different indexes."""

    @wraps(score)
    def checked(self: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        check_indexes(X=X, y=y, sample_weight=sample_weight)
        return score(self, X, y, sample_weight)

    return checked


def refuse_masked(name: str, values: object) -> None:
    """Raise ValueError if a masked array hides any of its values."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(
            f"{name} has masked values, which are missing values. Fill them by public constants, "
            "or drop these rows."
        )


def refuse_different_shapes(name: str, values: object) -> None:
    """Raise ValueError if a list holds arrays of different shapes, such as pictures of any size."""
    if isinstance(values, (list, tuple)) or (
        isinstance(values, np.ndarray) and values.dtype == object and values.ndim == 1
    ):
        arrays = (v for v in values if hasattr(v, "dtype") and np.ndim(v) > 0)
        shapes = {tuple(v.shape) for v in arrays}
        if len(shapes) > 1:
            one, other, *_ = sorted(shapes)
            raise ValueError(
                f"{name} holds arrays of different shapes, such as {one} and {other}. Give all "
                "records one shape: resize or crop pictures."
            )


def refuse_sparse_columns(name: str, frame: object) -> None:
    """Raise TypeError if a DataFrame has columns that pandas stores without their zeros."""
    if not isinstance(frame, pd.DataFrame):
        return
    sparse = [c for c, d in frame.dtypes.items() if isinstance(d, pd.SparseDtype)]
    if sparse:
        raise TypeError(
            f"Sparse data was passed for {name}, but dense data is required: the columns "
            f"{safe_repr(sparse)} are sparse. Convert them by {name}.sparse.to_dense()."
        )
