"""Rows that are computed when they are read; without torch, as encoding a table needs none."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


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

    def __getitem__(self, rows: Any) -> np.ndarray:
        return self.function(self.rows[rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype=dtype)
