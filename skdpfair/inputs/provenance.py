"""What computed an array of features, for a fit on it and its privacy report."""

from __future__ import annotations

import weakref
import zlib
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import _safe_indexing


class Origin(NamedTuple):
    """What is known of an array from the code that computed it, and not from its numbers."""

    features: str | None = None  # what computed them
    columns: tuple[str, ...] = ()  # their names


# by identity, as arrays have no hash; with a checksum, as arrays may be changed in place
_NOTES: dict[int, tuple[weakref.ref[Any], int | None, Origin]] = {}


def note(array: np.ndarray, origin: Origin) -> np.ndarray:
    """Note what computed an array, as long as it lives unchanged, and return the array.

    Copies and parts of the array are other arrays, of which nothing is known, but see `rows_of`.
    """
    key = id(array)
    alive = weakref.ref(array, lambda _: _NOTES.pop(key, None))
    _NOTES[key] = alive, _checksum(array), origin
    return array


def noted(array: Any) -> Origin:
    """Return the note on an array, or an empty one if there is none."""
    if not isinstance(array, np.ndarray) or id(array) not in _NOTES:
        return Origin()
    alive, checksum, origin = _NOTES[id(array)]
    same = checksum == _checksum(array) and alive() is array
    return origin if same else Origin()


def rows_of(array: Any, index: np.ndarray) -> Any:
    """Return some rows of a table or array, which has the note of the whole."""
    rows, origin = _safe_indexing(array, index), noted(array)
    return rows if origin == Origin() else note(rows, origin)


def _checksum(array: np.ndarray) -> int | None:
    """Return a number that changes with the content; None for an array that nobody can change."""
    return zlib.crc32(np.ascontiguousarray(array).data.cast("B")) if array.flags.writeable else None
