"""Rows fetched batch by batch: memory maps, and tensors in another memory than the device's."""

import numpy as np
import torch


def is_streamed(X) -> bool:
    """Tell whether rows are to be fetched batch by batch, never all at once."""
    return isinstance(X, (np.memmap, torch.Tensor))


def is_sparse(X) -> bool:
    """Tell whether X is a tensor that does not hold each number."""
    return isinstance(X, torch.Tensor) and X.layout is not torch.strided


def kind_of(X) -> str:
    """Return what an array or tensor holds, as in ``numpy.dtype.kind``."""
    if not isinstance(X, torch.Tensor):
        return X.dtype.kind
    if X.is_quantized or X.is_meta:
        return "V"
    return "c" if X.is_complex() else "f" if X.is_floating_point() else "i"


def as_rows(x, rows) -> np.ndarray:
    """Return some rows of an array, memory map or tensor as a float32 array."""
    part = x[rows]
    if isinstance(part, torch.Tensor):
        part = part.to(torch.float32).numpy(force=True)  # numpy knows no bfloat16
    return np.require(part, np.float32, ["C", "W", "E"])
