"""Rows of numbers, in memory or fetched batch by batch, from the tables that users give."""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from pandas.api.types import infer_dtype
from scipy import sparse

from skdpfair._utils.validate import error_context_without_data, safe_repr
from skdpfair.inputs.columns import in_pandas, refuse_dates, refuse_unreadable

BYTES = 255
_FLAT = {28 * 28, 32 * 32 * 3}  # numbers of a flat picture; of other tables, few have so many
_SCANNED = 2**16  # numbers looked at in one go, which stay in the cache
_MARGIN = 0.5  # by which resized pictures may leave the range of their numbers
_NUMERIC_OBJECTS = {"integer", "floating", "boolean", "mixed-integer-float", "decimal", "empty"}
_NOT_NUMBERS = (  # "argument must be" is what scikit-learn's checks of estimators look for
    "has values that are not numbers. Each argument must be encoded: a string by public "
    "categories, for instance OneHotEncoder(categories=[...]), and a date as a number"
)


class SparseRows:
    """Rows of a sparse matrix of real numbers, float32, each place of which is stored once."""

    dtype, ndim = np.dtype(np.float32), 2

    def __init__(self, matrix: Any) -> None:
        # what is too large becomes infinite, and is refused as such
        with np.errstate(over="ignore"):
            csr = sparse.csr_array(matrix, dtype=np.float32)
            # made of its arrays, as scipy would take the matrix's word for the next line
            csr = sparse.csr_array((csr.data, csr.indices, csr.indptr), csr.shape)
            # a number that is stored in parts has a square of its own, not those of the parts
            if not csr.has_canonical_format:
                csr = csr.copy()
                csr.sum_duplicates()
        self.matrix, self.shape = csr, csr.shape

    def __len__(self) -> int:
        return int(self.shape[0])

    @property
    def n_stored(self) -> int:
        """How many numbers of a row are stored, on average and rounded up."""
        return -(-self.matrix.nnz // max(1, len(self))) or 1

    def __getitem__(self, index: Any) -> np.ndarray:
        return np.asarray(self.matrix[index].toarray())


class MappedRows:
    """Rows that a function computes from others, each from its own, when they are asked for.

    ``function`` maps some rows of ``rows`` to an array (n, *shape), float32.
    """

    dtype = np.dtype(np.float32)

    def __init__(
        self, rows: Any, function: Callable[[Any], np.ndarray], shape: Sequence[int]
    ) -> None:
        self.rows, self.function = rows, function
        self.shape, self.ndim = (len(rows), *shape), 1 + len(shape)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, index: Any) -> np.ndarray:
        return self.function(self.rows[index])


class LateRows:
    """Rows of an array or a DataFrame, made float32 and checked when they are asked for."""

    dtype = np.dtype(np.float32)

    def __init__(self, table: Any) -> None:
        self.table, self.shape, self.ndim = table, table.shape, table.ndim
        self._scale = BYTES if scale_of(table) == "bytes" else 1
        dtypes = {*getattr(table, "dtypes", ())}
        # of one type, and numpy's own: columns of several types would become objects
        self._is_plain = len(dtypes) == 1 and isinstance(dtypes.pop(), np.dtype)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, index: slice) -> np.ndarray:
        return self.into(None, index)

    @np.errstate(over="ignore", invalid="ignore")  # what is too large for float32 becomes infinite
    def into(
        self, memory: np.ndarray | None, index: slice, *, is_checked: bool = True
    ) -> np.ndarray:
        """Return some rows in ``memory``, or None for new one; refuse other than finite numbers.

        They lie as in the table, row by row or column by column. Unless ``is_checked``, the caller
        must see to numbers that are not finite.
        """
        part = self.table[index]  # of a DataFrame, rows
        if isinstance(part, pd.DataFrame):
            options = {} if self._is_plain else {"dtype": np.float32, "na_value": np.nan}
            part = part.to_numpy(**options)
        memory = np.empty(part.size, np.float32) if memory is None else memory[: part.size]
        is_by_column = part.ndim == 2 and part.strides[0] < part.strides[1]
        x = memory.reshape(part.shape, order="F" if is_by_column else "C")
        np.copyto(x, part, casting="unsafe")
        if self._scale != 1:
            x /= np.float32(self._scale)
        if is_checked and not (np.isfinite(x.sum()) or np.isfinite(x).all()):
            table = self.table
            _refuse_not_finite(table, _of_frame(table) if hasattr(table, "iloc") else table)
        return x


Rows: TypeAlias = np.ndarray | torch.Tensor | SparseRows | MappedRows | LateRows


def select(rows: Any, index: slice | np.ndarray) -> np.ndarray:
    """Return some rows as a float32 array that torch can read in place, bytes over 255."""
    part = rows[index]
    scale = BYTES if are_bytes(part) else 1
    if isinstance(part, torch.Tensor):
        part = part.to(torch.float32).numpy(force=True)  # numpy knows no bfloat16
    dense: np.ndarray = np.require(part, np.float32, ["C", "W", "E"])
    return dense if scale == 1 else dense / np.float32(scale)


def in_parts(rows: Any) -> Iterator[slice]:
    """Return slices of the rows, each with few numbers."""
    step = max(1, _SCANNED // max(1, math.prod(rows.shape[1:])))
    return (slice(start, start + step) for start in range(0, len(rows), step))


def is_streamed(X: object) -> bool:
    """Return True for rows that are fetched batch by batch, never all at once."""
    return isinstance(X, (np.memmap, torch.Tensor, SparseRows, MappedRows, LateRows))


def are_bytes(X: Any) -> bool:
    """Return True for pictures of bytes, flat ones among them, which are divided by 255."""
    is_picture = X.ndim > 2 or (X.ndim == 2 and X.shape[1] in _FLAT)
    return is_picture and X.dtype in (np.uint8, torch.uint8)


def scale_of(X: Any, *, are_pictures: bool = False) -> str:
    """Return what numbers are, by their type: "bytes", other "integers", "flags" or "floats"."""
    none = X.iloc[:0].to_numpy() if hasattr(X, "iloc") else X
    is_of_bytes = none.dtype == np.uint8 if are_pictures else are_bytes(none)
    kinds = {"i": "integers", "u": "integers", "b": "flags"}
    return "bytes" if is_of_bytes else kinds.get(_kind_of(none), "floats")


def refuse_other_scale(fitted: str | None, scale: str, X: Any) -> None:
    """Raise ValueError if rows of one scale come to what was fitted to those of another."""
    if fitted in ("integers", "flags") and scale == "bytes":
        raise ValueError(
            f"X holds bytes (uint8), which are divided by 255, but the fit took {fitted} as they "
            "are. Give both the same type, such as X.astype(int)."
        )
    if scale == "integers" and (fitted == "bytes" or (fitted == "floats" and X.ndim > 2)):
        raise ValueError(
            f"X holds integers, but the fit was to {fitted}. Give numbers like those of the fit: "
            "X.astype(numpy.uint8) for bytes, and mostly X / 255 for numbers from 0 to 1."
        )
    if fitted != "bytes" or scale == "bytes":
        return
    for part in (select(X, rows) for rows in in_parts(X)):
        if part.min() < -_MARGIN or part.max() > 1 + _MARGIN:
            raise ValueError(
                "X must hold bytes (uint8) or numbers from 0 to 1, as the fit was to bytes, which "
                "are divided by 255. Give X.astype(numpy.uint8), or X / 255."
            )


def table_of(X: Any) -> Any:
    """Return X as a DataFrame, an array of two dimensions or more, or rows that are streamed."""
    if sparse.issparse(X):
        if X.ndim != 2 or X.dtype.kind not in "biuf":
            raise ValueError(
                "Complex data not supported: a sparse X must be of two dimensions and hold real "
                "numbers."
            )
        return SparseRows(X)
    if isinstance(X, torch.Tensor) and X.layout is not torch.strided:
        raise TypeError(
            "Sparse data was passed for X as a torch.Tensor, but dense data is required. Convert "
            "it by X.to_dense(), or give a scipy.sparse.csr_array."
        )
    kind, stays = type(X).__name__, is_streamed(X)
    remedy = "Convert it by X.collect()." if hasattr(type(X), "collect") else "Give a DataFrame."
    refuse_unreadable("X", X)
    with error_context_without_data("X", "cannot be read as a table"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        X = X if stays else in_pandas(X)
        if isinstance(X, pd.Series):
            X = X.to_frame()
        elif not (stays or isinstance(X, pd.DataFrame)):
            X = np.asarray(X)
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


@np.errstate(over="ignore", invalid="ignore")  # what is too large for float32 becomes infinite
def numbers_of(X: Any, *, at_once: bool = True) -> Rows:
    """Return rows of `table_of` as float32, streamed ones unchanged; refuse other than numbers.

    Unless ``at_once``, numbers are converted and checked batch by batch.
    """
    is_frame = hasattr(X, "iloc")
    if is_frame:
        _refuse_text(X)
    elif (kind := _kind_of(X)) == "c":
        raise ValueError("Complex data not supported: X must hold real numbers.")
    elif kind not in "biufO" or (
        kind == "O" and any(isinstance(v, (str, bytes)) for v in X.ravel())
    ):
        raise ValueError(f"X {_NOT_NUMBERS}.")
    if 0 in X.shape:
        axis = X.shape.index(0)
        raise ValueError(
            f"Found array with 0 {'feature' if axis else 'sample'}(s) (shape={tuple(X.shape)}) "
            "while a minimum of 1 is required: X must have rows and columns."
        )
    x: Rows = X
    if not is_streamed(X):
        if not at_once and object not in (X.dtypes.tolist() if is_frame else [X.dtype]):
            return LateRows(X)
        with error_context_without_data("X", _NOT_NUMBERS):
            x = _of_frame(X) if is_frame else select(X, slice(None))
    _refuse_not_finite(X, x)
    return x


def _of_frame(X: pd.DataFrame) -> np.ndarray:
    """Return the numbers of a DataFrame, float32, missing ones as NaN."""
    x: np.ndarray = np.empty(X.shape, np.float32)
    # rows that fit into the cache, however pandas keeps their columns; others are one array each
    are_blocks = all(isinstance(dtype, np.dtype) for dtype in X.dtypes)
    for rows in in_parts(x) if are_blocks else [slice(None)]:
        x[rows] = X.iloc[rows].to_numpy(np.float32, na_value=np.nan)
    if scale_of(X) == "bytes":
        x /= np.float32(BYTES)
    return x


def _kind_of(X: Any) -> str:
    """Return the kind of an array's or tensor's numbers, as in ``numpy.dtype.kind``."""
    if not isinstance(X, torch.Tensor):
        return str(X.dtype.kind)
    if X.is_quantized or X.is_meta:
        return "V"
    if X.dtype is torch.bool:
        return "b"
    return "c" if X.is_complex() else "f" if X.is_floating_point() else "i"


def _refuse_text(X: pd.DataFrame) -> None:
    """Raise ValueError if a DataFrame has columns of anything but real numbers."""
    others = [i for i, dtype in enumerate(X.dtypes) if dtype.kind not in "biuf"]
    texts = [i for i in others if infer_dtype(X.iloc[:, i]) not in _NUMERIC_OBJECTS]
    if texts:
        refuse_dates("X", X)
        raise ValueError(
            f"X has text or category columns {safe_repr([str(X.columns[i]) for i in texts])}. "
            "Encode them with public categories, for instance OneHotEncoder(categories=[...]) in a "
            "ColumnTransformer, or see skdpfair.preprocessing.public_preprocessor."
        )


def _refuse_not_finite(X: Any, x: Rows) -> None:
    """Raise ValueError if numbers of X, which are those of x, are NaN or infinite."""
    spoilt = np.zeros(x.shape[1], dtype=bool)
    if isinstance(x, SparseRows):
        spoilt[x.matrix.indices[~np.isfinite(x.matrix.data)]] = True
    else:
        for part in (select(x, rows) for rows in in_parts(x)):
            if not np.isfinite(part.sum()):
                spoilt |= ~np.isfinite(part).reshape(len(part), x.shape[1], -1).all(axis=(0, 2))
    if not spoilt.any():
        return
    if x.ndim > 2:
        raise ValueError(
            "X contains NaN or infinite values (values above 3.4e38 overflow float32). Leave such "
            "records out, or fill them with a public constant: "
            "numpy.where(numpy.isfinite(X), X, 0)."
        )
    is_frame, at = hasattr(X, "columns"), np.flatnonzero(spoilt)
    names = [X.columns[i] if is_frame else int(i) for i in at]
    which = f"columns {safe_repr(names)}" if len(names) > 1 else f"column {safe_repr(names[0])}"
    of_array = "numpy.where(numpy.isfinite(X), X, value)"
    remedy = "X.fillna({column: value})" if is_frame else of_array
    if isinstance(x, SparseRows):
        remedy = "X = X.tocsr(); X.data[~numpy.isfinite(X.data)] = value"
    raise ValueError(
        f"X contains NaN or infinite values in {which} (values above 3.4e38 overflow float32). "
        f"Fill them with public constants: {remedy}, or use "
        "skdpfair.preprocessing.public_preprocessor(bounds), which sets missing numbers to the "
        "middle of their bounds. An imputer that is fitted on the rows leaks information that "
        "the privacy budget does not cover."
    )
