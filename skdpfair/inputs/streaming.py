"""Rows fetched batch by batch: memory maps, and tensors in another memory than the device's."""

from typing import Any

import numpy as np
import torch


def is_streamed(X: object) -> bool:
    """Tell whether rows are fetched batch by batch, never all at once."""
    return isinstance(X, (np.memmap, torch.Tensor))


def is_sparse(X: object) -> bool:
    """Tell whether X is a tensor that does not hold each number."""
    return isinstance(X, torch.Tensor) and X.layout is not torch.strided


def kind_of(X: Any) -> str:
    """Return the kind of an array's or tensor's numbers, as in ``numpy.dtype.kind``."""
    if not isinstance(X, torch.Tensor):
        return str(X.dtype.kind)
    if X.is_quantized or X.is_meta:
        return "V"
    return "c" if X.is_complex() else "f" if X.is_floating_point() else "i"


def as_rows(x: Any, rows: slice | np.ndarray) -> np.ndarray:
    """Return some rows of an array, memory map or tensor as a float32 array."""
    part = x[rows]
    if isinstance(part, torch.Tensor):
        part = part.to(torch.float32).numpy(force=True)  # numpy knows no bfloat16
    return np.require(part, np.float32, ["C", "W", "E"])
