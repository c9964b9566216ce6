"""Rows fetched batch by batch: memory maps, sparse rows, tensors in another memory."""

from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from scipy import sparse

from skdpfair.inputs.mapped_rows import MappedRows

_AT_ONCE = 2**22  # numbers
BYTES = 255


class SparseRows:
    """Rows of a sparse matrix of real numbers, made dense a few at a time, on torch's device."""

    dtype, ndim = np.dtype(np.float32), 2

    def __init__(self, matrix: Any, device: str | torch.device = "cpu") -> None:
        # what is too large becomes infinite, and is refused as such
        with np.errstate(over="ignore"):
            self.matrix = sparse.csr_array(matrix, dtype=np.float32)
        self.shape, self.device = self.matrix.shape, torch.device(device)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, rows: Any) -> np.ndarray:
        dense: np.ndarray = self.matrix[rows].toarray()
        return dense

    def parts(self) -> Iterator[np.ndarray]:
        """Return all rows, some at a time."""
        n = max(1, _AT_ONCE // max(1, self.shape[1]))
        return (self[start : start + n] for start in range(0, len(self), n))

    def index_select(self, dim: int, index: torch.Tensor) -> "SparseRows":
        """Return some rows, still sparse."""
        return SparseRows(self.matrix[index.cpu().numpy()], self.device)

    def split(self, size: int | list[int]) -> list["SparseRows"]:
        """Return chunks of ``size`` rows, or of the sizes in a list, still sparse, as torch does.

        The last of equal size may be shorter; there is one if there are no rows.
        """
        if isinstance(size, int):
            starts = [*range(0, max(len(self), 1), size), len(self)]
        else:
            starts = [0, *accumulate(size)]
        return [SparseRows(self.matrix[a:b], self.device) for a, b in pairwise(starts)]

    def dense(self) -> torch.Tensor:
        """Return the rows as a tensor on the device."""
        return torch.from_numpy(self.matrix.toarray()).to(self.device)


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
    """Return True for pictures of bytes, which are divided by 255."""
    return x.ndim > 2 and x.dtype in (np.uint8, torch.uint8)
