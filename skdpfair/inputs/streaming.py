"""Rows fetched batch by batch: memory maps, sparse rows, tensors in another memory."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy import sparse

from skdpfair.inputs.mapped_rows import MappedRows

BYTES = 255
SIDES = (28, 32, 48, 64, 96, 128, 224, 256)  # of pictures, as data sets have them
_FLAT = {28 * 28, 32 * 32 * 3}  # numbers of a flat picture; of other tables, few have so many
_SCANNED = 2**16  # numbers looked at in one go, which stay in the cache
_MARGIN = 0.5  # by which resized pictures may leave the range of their numbers


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

    def __getitem__(self, rows: Any) -> np.ndarray:
        dense: np.ndarray = self.matrix[rows].toarray()
        return dense


def is_streamed(X: object) -> bool:
    """Return True for rows that are fetched batch by batch, never all at once."""
    return isinstance(X, (np.memmap, torch.Tensor, SparseRows, MappedRows))


def is_sparse(X: object) -> bool:
    """Return True for a tensor that does not hold each number."""
    return isinstance(X, torch.Tensor) and X.layout is not torch.strided


def kind_of(X: Any) -> str:
    """Return the kind of an array's or tensor's numbers, as in ``numpy.dtype.kind``."""
    if not isinstance(X, torch.Tensor):
        return str(X.dtype.kind)
    if X.is_quantized or X.is_meta:
        return "V"
    if X.dtype is torch.bool:
        return "b"
    return "c" if X.is_complex() else "f" if X.is_floating_point() else "i"


def as_rows(x: Any, rows: slice | np.ndarray) -> np.ndarray:
    """Return some rows of an array, memory map or tensor as a float32 array, bytes over 255."""
    part = x[rows]
    scale = BYTES if are_bytes(part) else 1
    if isinstance(part, torch.Tensor):
        part = part.to(torch.float32).numpy(force=True)  # numpy knows no bfloat16
    dense: np.ndarray = np.require(part, np.float32, ["C", "W", "E"])
    return dense if scale == 1 else dense / np.float32(scale)


def are_bytes(x: Any) -> bool:
    """Return True for pictures of bytes, flat ones among them, which are divided by 255."""
    is_picture = x.ndim > 2 or (x.ndim == 2 and x.shape[1] in _FLAT)
    return is_picture and x.dtype in (np.uint8, torch.uint8)


def scale_of(X: Any, *, are_pictures: bool = False) -> str:
    """Return what numbers are, by their type: "bytes", other "integers", "flags" or "floats"."""
    none = X.iloc[:0].to_numpy() if hasattr(X, "iloc") else X
    is_of_bytes = none.dtype == np.uint8 if are_pictures else are_bytes(none)
    kinds = {"i": "integers", "u": "integers", "b": "flags"}
    return "bytes" if is_of_bytes else kinds.get(kind_of(none), "floats")


def refuse_other_scale(fitted: str | None, given: str, x: Any) -> None:
    """Raise ValueError if rows ``x`` of one scale come to what was fitted to those of another."""
    if fitted in ("integers", "flags") and given == "bytes":
        raise ValueError(
            f"X holds bytes (uint8), which are divided by 255, but the fit took {fitted} as they "
            "are. Give both the same type, such as X.astype(int)."
        )
    if given == "integers" and (fitted == "bytes" or (fitted == "floats" and x.ndim > 2)):
        raise ValueError(
            f"X holds integers, but the fit was to {fitted}. Give numbers like those of the fit: "
            "X.astype(numpy.uint8) for bytes, and mostly X / 255 for numbers from 0 to 1."
        )
    if fitted != "bytes" or given == "bytes":
        return
    for part in (as_rows(x, rows) for rows in in_parts(x)):
        if part.min() < -_MARGIN or part.max() > 1 + _MARGIN:
            raise ValueError(
                "X must hold bytes (uint8) or numbers from 0 to 1, as the fit was to bytes, which "
                "are divided by 255. Give X.astype(numpy.uint8), or X / 255."
            )


def in_parts(x: Any) -> Iterator[slice]:
    """Return slices of the rows of which each holds few numbers."""
    step = max(1, _SCANNED // max(1, math.prod(x.shape[1:])))
    return (slice(start, start + step) for start in range(0, len(x), step))
