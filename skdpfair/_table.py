"""What a user hands in -> arrays: features, class codes, group codes; and back at predict."""

import math
import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.sparse import issparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _get_feature_names,
    check_array,
    check_consistent_length,
    column_or_1d,
    validate_data,
)

from skdpfair import groups as _groups
from skdpfair.streaming import as_rows, is_streamed

_SCANNED = 2**19  # numbers looked at in one go


@dataclass(frozen=True)
class Table:
    """The rows of a fit.

    ``x`` is (n_samples, ...) float32, or what lies on disk (numpy.memmap) or in another memory
    than the device's (torch.Tensor), as it is; ``y`` (n_samples,) codes into ``classes``.
    """

    x: np.ndarray
    y: np.ndarray
    classes: np.ndarray
    groups: _groups.Groups


def read(estimator, X, y, sensitive_features) -> Table:
    """Check and take apart what ``fit`` was given; sets the names and width of X."""
    X = _container(estimator, X)
    validate_data(estimator, X, y, skip_check_array=True)
    y = _labels(y)
    check_consistent_length(X, y)
    classes, codes = _classes(y, estimator.classes)
    groups = _groups.encode(
        X,
        y,
        group_col=estimator.group_col,
        groups=estimator.groups,
        sensitive_features=sensitive_features,
    )
    x = _numbers(estimator, _without(X, _hidden(estimator, X)))
    return Table(x, codes, classes, groups)


def read_for_prediction(estimator, X) -> np.ndarray:
    """Return the features of X, with or without the group columns that fit had."""
    X = _container(estimator, X)
    fitted = estimator._group_positions
    if fitted and _lacks_groups(estimator, X, fitted):
        return _numbers(estimator, X)
    validate_data(estimator, X, reset=False, skip_check_array=True)
    return _numbers(estimator, _without(X, fitted))


def group_positions(estimator, X) -> list[int]:
    """Return the positions of the columns that the model must not see."""
    return _hidden(estimator, _container(estimator, X))


def _hidden(estimator, X):
    if estimator.group_as_feature:
        return []
    return _groups.positions(X, estimator.group_col)


def _lacks_groups(estimator, X, fitted):
    names = _get_feature_names(X)
    if names is None or not hasattr(estimator, "feature_names_in_"):
        return X.shape[1] == estimator.n_features_in_ - len(fitted)
    return list(names) == list(np.delete(estimator.feature_names_in_, fitted))


def _container(estimator, X):
    """Return X as a DataFrame or an array of two dimensions or more."""
    if is_streamed(X) and X.ndim >= 2:
        return X
    if issparse(X):
        return check_array(X, estimator=estimator, input_name="X")  # raises
    if hasattr(X, "iloc"):
        return X.to_frame() if isinstance(X, pd.Series) else X
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        X = np.asarray(X)
    if X.ndim < 2 or X.dtype.kind == "c":
        check_array(X, estimator=estimator, input_name="X")  # raises
    return X


def _without(X, columns):
    if not columns:
        return X
    if is_streamed(X):
        raise ValueError(
            "group_col cannot be taken out of a numpy.memmap or a torch.Tensor without copying it. "
            "Give the groups as fit(..., sensitive_features=...), or group_as_feature=True."
        )
    if hasattr(X, "iloc"):
        return X.iloc[:, [i for i in range(X.shape[1]) if i not in set(columns)]]
    return np.delete(X, columns, axis=1)


def _numbers(estimator, X):
    if hasattr(X, "dtypes"):
        text = [str(c) for c, t in zip(X.columns, X.dtypes, strict=True) if not _is_numeric(t)]
        text = [c for c in text if not _is_numeric_object(X[c] if c in X.columns else None)]
        if text:
            raise ValueError(
                f"X has text or category columns {text[:8]}{' ...' if len(text) > 8 else ''}. "
                "Encode them with public categories, for instance "
                "OneHotEncoder(categories=[...]) in a ColumnTransformer, or see "
                "skdpfair.preprocessing.public_preprocessor."
            )
    if is_streamed(X):
        _refuse_not_finite(X, X)
        return X
    try:
        x = check_array(
            X,
            dtype=np.float32,
            order="C",
            allow_nd=True,
            ensure_all_finite=False,
            estimator=estimator,
            input_name="X",
        )
    except ValueError as error:
        if "could not convert" not in str(error):
            raise
        x = None
    if x is None:  # the original message would print a cell of the data
        raise ValueError(
            "X has values that are not numbers. Encode text with public categories, for instance "
            "OneHotEncoder(categories=[...])."
        )
    _refuse_not_finite(X, x)
    return x


def _refuse_not_finite(X, x):
    spoilt = np.zeros(x.shape[1], dtype=bool)
    step = max(1, _SCANNED // max(1, math.prod(x.shape[1:])))
    for start in range(0, len(x), step):
        part = as_rows(x, slice(start, start + step))
        if not np.isfinite(part.sum(dtype=np.float64)):
            spoilt |= ~np.isfinite(part).reshape(len(part), x.shape[1], -1).all(axis=(0, 2))
    spoilt = np.flatnonzero(spoilt)
    if len(spoilt):
        names = [X.columns[i] if hasattr(X, "columns") else int(i) for i in spoilt]
        raise ValueError(
            f"X contains NaN or infinity (inf) in columns {names[:8]}"
            f"{' ...' if len(names) > 8 else ''}. Fill them by public constants: "
            "X.fillna({column: value}), or skdpfair.preprocessing.public_preprocessor(bounds), "
            "which puts missing numbers in the middle of their bounds. An imputer fitted on the "
            "rows would spend privacy that nobody counts."
        )


def _is_numeric(dtype):
    return pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_bool_dtype(dtype)


def _is_numeric_object(column):
    if column is None or column.dtype != object:
        return False
    return pd.api.types.infer_dtype(column, skipna=True) in {
        "integer",
        "floating",
        "boolean",
        "mixed-integer-float",
        "decimal",
        "empty",
    }


def _labels(y):
    y = column_or_1d(y, warn=True)
    if pd.isna(y).any():
        raise ValueError("Input y contains NaN. Drop or label the rows without a class.")
    check_classification_targets(y)
    return y


def _classes(y, declared):
    found, codes = np.unique(y, return_inverse=True)
    if len(found) == 0:
        raise ValueError("X and y have 0 samples, and a classifier needs two classes or more.")
    if declared is None:
        if len(found) < 2:
            raise ValueError(
                f"y has one class only, {found[0]!r}, and a classifier needs two or more."
            )
        return found, codes.astype(np.int64)
    classes = np.unique(np.asarray(declared))
    if len(classes) < 2:
        raise ValueError(f"classes must name two classes or more, got {declared!r}.")
    at = np.searchsorted(classes, found).clip(max=len(classes) - 1)
    if (classes[at] != found).any():
        unknown = found[classes[at] != found].tolist()
        raise ValueError(
            f"y has labels outside classes={classes.tolist()!r}: {unknown[:8]!r}. Declare every "
            "class, spelt as in y."
        )
    return classes, at[codes].astype(np.int64)
