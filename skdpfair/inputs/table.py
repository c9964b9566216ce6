"""Features, class codes and group codes of the tables given to fit and predict."""

import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from pandas.api.types import infer_dtype
from scipy.sparse import issparse
from sklearn.utils.validation import _get_feature_names, check_array, validate_data

from skdpfair._utils.describe import digest
from skdpfair._utils.keystream import Keystream
from skdpfair._utils.validate import LARGE, error_context, error_context_without_data, safe_repr
from skdpfair.inputs import fitted_rows
from skdpfair.inputs import groups as _groups
from skdpfair.inputs import labels as _labels
from skdpfair.inputs import persons as _persons
from skdpfair.inputs.columns import (
    check_indexes,
    in_pandas,
    refuse_dates,
    refuse_different_shapes,
    refuse_masked,
    refuse_sparse_columns,
)
from skdpfair.inputs.mapped_rows import MappedRows
from skdpfair.inputs.provenance import noted
from skdpfair.inputs.streaming import (
    BYTES,
    SparseRows,
    as_rows,
    in_parts,
    is_sparse,
    is_streamed,
    kind_of,
    refuse_other_scale,
    scale_of,
)

Rows: TypeAlias = np.ndarray | torch.Tensor | SparseRows | MappedRows

_NUMERIC_OBJECTS = {"integer", "floating", "boolean", "mixed-integer-float", "decimal", "empty"}
_NOT_NUMBERS = (
    "X has values that are not numbers. Encode text with public categories, for instance "
    "OneHotEncoder(categories=[...]), and dates as numbers."
)


@dataclass(frozen=True)
class Table:
    """The rows of a fit."""

    x: Rows  # float32 in memory; a memory map or a tensor is kept as it is
    y: np.ndarray  # codes into classes, int64; without these, targets in [-1, 1], float32
    classes: np.ndarray | None  # sorted; None for a regression
    groups: _groups.GroupCodes
    group_positions: list[int]  # in X, of the group columns, which are no features
    validation: tuple[np.ndarray, np.ndarray] | None = None  # public records (x, y), likewise
    weight: np.ndarray | None = None  # float64
    most_weight: float | None = None  # the public bound of weights: declared, or the largest
    # number of each record's person, int64, -1 for records that take no part; None if each record
    # is a person
    person: np.ndarray | None = None
    persons: str | None = None  # name of the column of the persons, if it has one
    features: str | None = None  # what computed x from each record alone; None if unknown
    variables: tuple[str, ...] = ("",)  # names of target and group columns, "" for none

    @property
    def n_outputs(self) -> int:
        """Number of outputs of a module: one for each class, or the prediction."""
        return 1 if self.classes is None else len(self.classes)

    @property
    def n_examples(self) -> int:
        """Number of persons; of records, if each is a person."""
        return len(self.y) if self.person is None else int(self.person.max()) + 1

    @property
    def adjacency(self) -> str:
        """The relation between neighbouring tables."""
        return "zero_out" if self.person is None else "zero_out_person"

    def digest(self, key: bytes) -> bytes:
        """Return a keyed digest of features and labels, which does not depend on their order."""
        marks = [
            fitted_rows.marks(as_rows(self.x, rows), self.y[rows], key) for rows in in_parts(self.x)
        ]
        return digest(np.sort(np.concatenate(marks)))

    def thinned(self, most: int | None, generator: Keystream) -> "Table":
        """Return the table with at most ``most`` records of each person, who has one group."""
        if self.person is None or most is None:
            return self
        groups = _persons.grouped(self.groups, self.person)  # all her records vote
        return replace(self, person=_persons.thinned(self.person, most, generator), groups=groups)


def read(
    estimator: Any,
    spec: Any,
    X: Any,
    y: Any,
    sensitive_features: Any,
    sample_weight: Any = None,
    persons: Any = None,
) -> Table:
    """Check the data given to ``fit`` and split it; no message holds a cell of them.

    The estimator reads y, and gets ``n_features_in_``, ``feature_names_in_`` and ``_scale``; its
    ``spec`` names the columns of groups and persons.
    """
    features = noted(X).features
    X, named = _container(X), y
    # scikit-learn compares a text with texts of its own
    if isinstance(y, str):
        raise ValueError("y should be a 1d array, one value for each row, got a text.")
    validate_data(estimator, X, y, skip_check_array=True)
    given = {"sensitive_features": sensitive_features, "sample_weight": sample_weight}
    check_indexes(X=X, y=y, **given, persons=persons, warns_of="y")
    y, classes, codes = estimator._read_target(y)
    group_col = spec.groups.columns
    if len(X) != len(y):
        raise ValueError(f"X and y have inconsistent numbers of samples: {[len(X), len(y)]}.")
    if isinstance(X, SparseRows) and group_col not in (None, [_groups.TARGET]):
        raise ValueError(
            f"group_col={safe_repr(group_col)} names columns of X, but X is sparse. Give "
            "the groups as fit(..., sensitive_features=...), or let a ColumnTransformer return a "
            'dense table: sparse_threshold=0, sparse_output=False, set_output(transform="pandas").'
        )
    levels, given = spec.groups.levels, sensitive_features
    if levels is None and spec.classes is not None and group_col == [_groups.TARGET]:
        levels = classes
    groups = _groups.encode(X, y, group_col=group_col, sensitive_features=given, levels=levels)
    at = _persons.columns(X, spec.persons, spec.groups)
    hidden = at if spec.groups.as_feature else [*_groups.positions(X, group_col), *at]
    # before a column of persons is a feature
    person = _persons.encode(X, len(y), at=at, persons=persons)
    visible = _without(X, hidden)
    x, estimator._scale = _numbers(visible), scale_of(visible)
    if person is not None:
        _persons.check(person, spec.persons)
    validation = None
    if classes is not None and spec.validation_data is not None:
        validation = _validation(estimator, spec.validation_data, hidden, x.shape[1:], classes)
    weight, most = _weights(sample_weight, len(y), spec.max_sample_weight)
    variables = _groups.variables_of(named, X, group_col, sensitive_features)
    names = _persons.name_of(X, at, persons), features, variables
    return Table(x, codes, classes, groups, hidden, validation, weight, most, person, *names)


def _weights(
    weights: Any, n_samples: int, declared: float | None
) -> tuple[np.ndarray | None, float | None]:
    """Return the sample weights and their bound, the largest if none is declared; None for none.

    They may all be 0: whether a fit succeeds must not tell the weight of one record.
    """
    if weights is None:
        return None, None
    most = LARGE if declared is None else declared
    bound = f"{most:g}" if declared is None else f"max_sample_weight={most:g}"
    wanted = f"one number from 0 to {bound} for each of the {n_samples} rows"
    refuse_masked("sample_weight", weights)
    refuse_dates("sample_weight", weights)
    with error_context_without_data("sample_weight", f"must hold {wanted}"):
        weight = np.asarray(weights, dtype=np.float64)
    if weight.shape != (n_samples,):
        raise ValueError(f"sample_weight must hold {wanted}, got an array of {weight.shape}.")
    if not ((weight >= 0) & (weight <= most)).all():
        raise ValueError(
            f"sample_weight must hold {wanted}, but some are outside or NaN. Declare a larger "
            "max_sample_weight, or clip them: np.clip(sample_weight, 0, max_sample_weight)."
        )
    return weight, float(weight.max()) if declared is None else declared


def read_for_prediction(estimator: Any, X: Any) -> Rows:
    """Return the features of X, with or without the group columns that fit had."""
    x, features = read_rows(estimator, estimator._encoded(X)), estimator.features_
    in_shape = estimator.net_.module.in_shape
    return x if features is None else MappedRows(x, features.transform, in_shape)


def read_rows(estimator: Any, X: Any) -> Rows:
    """Return X without group columns, before features are computed that the classifier chose."""
    features = estimator.features_
    shape = estimator.net_.module.in_shape if features is None else features.in_shape_
    return _like_fitted(estimator, X, estimator._group_positions, shape)


def _like_fitted(estimator: Any, X: Any, hidden: list[int], shape: tuple[int, ...]) -> Rows:
    """Return the features of rows like those of the fit, each of the same ``shape``."""
    X = _container(X)
    present, is_frame = _hidden_in(estimator, X, hidden), hasattr(X, "iloc")
    n_absent = len(hidden) - len(present)
    width, expected = X.shape[1] + n_absent, estimator.n_features_in_
    if not is_frame and width != expected and X.ndim == 2 and len(shape) == 1:
        raise ValueError(
            f"X has {width} features, but {type(estimator).__name__} is expecting {expected} "
            "features as input."
            + " Give raw records as a DataFrame."
            * hasattr(estimator, "_schema")
        )
    if not n_absent and is_frame:
        validate_data(estimator, X, reset=False, skip_check_array=True)
    # errors come before the warning of no names
    named = hasattr(estimator, "feature_names_in_")
    visible = _without(X, present)
    x = _numbers(visible, at_once=named)
    if x.shape[1:] != tuple(shape):
        raise ValueError(
            f"X must have records of shape {tuple(shape)}, as in fit, got {tuple(x.shape[1:])}."
        )
    refuse_other_scale(getattr(estimator, "_scale", None), scale_of(visible), x)
    if not n_absent and not is_frame:  # warns if fit saw names
        validate_data(estimator, X, reset=False, skip_check_array=True)
    return x


def _validation(
    estimator: Any,
    validation_data: tuple[Any, Any],
    hidden: list[int],
    shape: tuple[int, ...],
    classes: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    X, y = validation_data
    with error_context("validation_data", "must be (X, y) like the records of the fit"):
        check_indexes(X=X, y=y)
        x, y = as_rows(_like_fitted(estimator, X, hidden, shape), slice(None)), _labels.read(y)
        if len(x) != len(y):
            raise ValueError(f"X has {len(x)} rows and y has {len(y)} labels.")
        return x, _labels.codes_in(classes, y)


def _hidden_in(estimator: Any, X: Any, hidden: list[int]) -> list[int]:
    """Return the positions in X of the columns that the model does not see; all may be absent."""
    names = _get_feature_names(X)
    if names is None or not hasattr(estimator, "feature_names_in_"):
        return [] if X.shape[1] == estimator.n_features_in_ - len(hidden) else hidden
    unseen = set(estimator.feature_names_in_[hidden])
    visible = [i for i, name in enumerate(names) if name in unseen]
    if list(np.delete(names, visible)) == list(np.delete(estimator.feature_names_in_, hidden)):
        return visible
    return hidden


def _container(X: Any) -> Any:
    """Return X as a DataFrame, an array of two dimensions or more, or rows that stay sparse."""
    if issparse(X):
        if X.ndim != 2 or kind_of(X) not in "biuf":
            raise ValueError(
                "Complex data not supported: a sparse X must be of two dimensions and hold real "
                "numbers."
            )
        return SparseRows(X)
    if is_sparse(X):
        raise TypeError(
            "Sparse data was passed for X as a torch.Tensor, but dense data is required. Convert "
            "it by X.to_dense(), or give a scipy.sparse.csr_array."
        )
    refuse_sparse_columns("X", X)
    refuse_masked("X", X)
    refuse_different_shapes("X", X)
    kind = type(X).__name__
    is_lazy = hasattr(type(X), "collect")
    remedy = "Convert it by X.collect()." if is_lazy else "Give a DataFrame of it."
    with error_context_without_data("X", "cannot be read as a table"):
        if not is_streamed(X):
            X = _in_memory(X)
    if isinstance(X, pd.DataFrame) and not X.columns.is_unique:
        twice = X.columns[X.columns.duplicated()].unique()
        raise ValueError(f"X has columns of one name: {safe_repr(list(twice))}. Rename them.")
    if X.ndim < 2:
        raise ValueError(
            f"Expected 2D array, got 1D array instead: X, of type {kind}, must be of shape "
            "(n_samples, n_features). Reshape your data by X.reshape(-1, 1) if it has a single "
            "feature, or by X.reshape(1, -1) if it is a single sample."
            if X.ndim
            else f"Expected 2D array, got scalar array instead: X is a {kind}. {remedy}"
        )
    return X


def _in_memory(X: Any) -> Any:
    """Return X as a DataFrame or an array."""
    X = in_pandas(X)
    if hasattr(X, "iloc") and not isinstance(X, type):
        return X.to_frame() if isinstance(X, pd.Series) else X
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(X)


def _without(X: Any, columns: list[int]) -> Any:
    if not columns:
        return X
    if is_streamed(X):
        raise ValueError(
            "Columns of groups and persons cannot be taken out of a numpy.memmap or a torch.Tensor "
            "without copying it. Give groups as fit(..., sensitive_features=...) or "
            "group_col=Groups(..., as_feature=True), and persons as fit(..., persons=...)."
        )
    if hasattr(X, "iloc"):
        return X.iloc[:, [i for i in range(X.shape[1]) if i not in set(columns)]]
    return np.delete(X, columns, axis=1)


def numbers_of(X: Any) -> Rows:
    """Return the numbers of X as a fit reads them."""
    return _numbers(_container(X))


def _numbers(X: Any, *, at_once: bool = True) -> Rows:
    """Return features as float32, or as they are if streamed; refuse other than finite numbers.

    Unless ``at_once``, the numbers of an array are converted and checked batch by batch.
    """
    if hasattr(X, "iloc"):
        _refuse_text(X)
    elif kind_of(X) == "c":
        raise ValueError("Complex data not supported: X must hold real numbers.")
    elif kind_of(X) not in "biufO" or (
        X.dtype == object and any(isinstance(v, (str, bytes)) for v in X.ravel())
    ):
        raise ValueError(_NOT_NUMBERS)
    if 0 in X.shape:
        axis = X.shape.index(0)
        raise ValueError(
            f"Found array with 0 {'feature' if axis else 'sample'}(s) (shape={tuple(X.shape)}) "
            "while a minimum of 1 is required: X must have rows and columns."
        )
    if is_streamed(X):
        streamed: Rows = X
        _refuse_not_finite(X, streamed)
        return streamed
    if not at_once and isinstance(X, np.ndarray) and X.dtype != object:
        return MappedRows(X, partial(_finite, X), X.shape[1:])
    x = _as_float32(X)
    _refuse_not_finite(X, x)
    return x


@np.errstate(over="ignore", invalid="ignore")
def _finite(X: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return some rows of X as float32; refuse other than finite numbers."""
    x = as_rows(rows, slice(None))
    if not (np.isfinite(x.sum()) or np.isfinite(x).all()):
        _refuse_not_finite(X, X)
    return x


def _as_float32(X: Any) -> np.ndarray:
    """Return numbers as a float32 array that torch can read in place."""
    try:
        # what is too large becomes infinite, and is refused as such
        with np.errstate(over="ignore"):
            if isinstance(X, pd.DataFrame) and all(map(_is_plain, X.dtypes)):
                # rows that fit into the cache, however pandas keeps their columns
                x: np.ndarray = np.empty(X.shape, np.float32)
                for rows in in_parts(x):
                    x[rows] = X.iloc[rows].to_numpy(np.float32)
            else:
                x = check_array(
                    X, dtype=np.float32, order="C", allow_nd=True, ensure_all_finite=False
                )
    except (ValueError, OverflowError):
        # their messages would print a cell of the data
        raise ValueError(_NOT_NUMBERS) from None
    except Exception:  # of an object's own making
        raise TypeError(f"{_NOT_NUMBERS} (argument must be a string or a number)") from None
    numbers = np.require(x, requirements=["C", "W"])
    return numbers / np.float32(BYTES) if scale_of(X) == "bytes" else numbers


def _refuse_text(X: Any) -> None:
    """Raise ValueError if a DataFrame has columns of anything but real numbers."""
    columns = (X.iloc[:, i] for i, dtype in enumerate(X.dtypes) if not _is_plain(dtype))
    if texts := [str(c.name) for c in columns if not _is_numeric(c)]:
        refuse_dates("X", X)
        raise ValueError(
            f"X has text or category columns {safe_repr(texts)}. Encode them with public "
            "categories, for instance OneHotEncoder(categories=[...]) in a ColumnTransformer, or "
            "see skdpfair.preprocessing.public_preprocessor."
        )


@np.errstate(over="ignore", invalid="ignore")  # float64 becomes float32, sums may overflow
def _refuse_not_finite(X: Any, x: Rows) -> None:
    """Raise ValueError if numbers of X, which are those of x, are NaN or infinite."""
    spoilt = np.zeros(x.shape[1], dtype=bool)
    if isinstance(x, SparseRows):
        spoilt[x.matrix.indices[~np.isfinite(x.matrix.data)]] = True
    else:
        for part in (as_rows(x, rows) for rows in in_parts(x)):
            if not np.isfinite(part.sum()):
                spoilt |= ~np.isfinite(part).reshape(len(part), x.shape[1], -1).all(axis=(0, 2))
    if spoilt.any() and x.ndim > 2:
        raise ValueError(
            "X contains NaN or infinite values (values above 3.4e38 overflow float32). Leave such "
            "records out, or fill them with a public constant: "
            "numpy.where(numpy.isfinite(X), X, 0)."
        )
    if spoilt.any():
        at = np.flatnonzero(spoilt)
        names = [X.columns[i] if hasattr(X, "columns") else int(i) for i in at]
        which = f"columns {safe_repr(names)}" if len(names) > 1 else f"column {safe_repr(names[0])}"
        of_array = "numpy.where(numpy.isfinite(X), X, value)"
        remedy = "X.fillna({column: value})" if hasattr(X, "columns") else of_array
        if isinstance(x, SparseRows):
            remedy = "X = X.tocsr(); X.data[~numpy.isfinite(X.data)] = value"
        raise ValueError(
            f"X contains NaN or infinite values in {which} (values above 3.4e38 overflow float32). "
            f"Fill them with public constants: {remedy}, or use "
            "skdpfair.preprocessing.public_preprocessor(bounds), which sets missing numbers to the "
            "middle of their bounds. An imputer that is fitted on the rows leaks information that "
            "the privacy budget does not cover."
        )


def _is_plain(dtype: Any) -> bool:
    """Return whether a dtype is numpy's, of real numbers."""
    return isinstance(dtype, np.dtype) and dtype.kind in "biuf"


def _is_numeric(column: pd.Series) -> bool:
    """Return whether a column of a DataFrame holds real numbers."""
    if column.dtype == object:
        return infer_dtype(column, skipna=True) in _NUMERIC_OBJECTS
    is_number = pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column)
    # categories that are flags count as flags, to pandas
    is_other = isinstance(column.dtype, pd.CategoricalDtype) or column.dtype.kind == "c"
    return is_number and not is_other
