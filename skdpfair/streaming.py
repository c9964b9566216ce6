"""Rows that are fetched batch by batch: on disk, or in another memory than the device's."""

import numpy as np
import torch


def is_streamed(X) -> bool:
    """Tell whether rows are to be fetched batch by batch, never all at once."""
    return isinstance(X, (np.memmap, torch.Tensor))


def as_rows(x, rows) -> np.ndarray:
    """Return some rows of an array, memory map or tensor as a float32 array."""
    part = x[rows]
    if isinstance(part, torch.Tensor):
        part = part.numpy(force=True)
    return np.require(part, np.float32, ["C", "W", "E"])
