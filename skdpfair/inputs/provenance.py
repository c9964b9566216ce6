"""What computed an array of features, for the privacy report of a fit on it."""

from __future__ import annotations

import weakref
import zlib
from typing import Any

import numpy as np

# by identity, as arrays have no hash; with a checksum, as arrays may be changed in place
_NOTES: dict[int, tuple[weakref.ref[Any], int | None, str]] = {}


def note(array: np.ndarray, features: str) -> np.ndarray:
    """Note what computed an array, as long as it lives unchanged, and return the array.

    Copies and parts of the array are other arrays, of which nothing is known.
    """
    key = id(array)
    alive = weakref.ref(array, lambda _: _NOTES.pop(key, None))
    _NOTES[key] = alive, _checksum(array), features
    return array


def noted(array: Any) -> str | None:
    """Return the note on an array, or None if there is none."""
    if not isinstance(array, np.ndarray) or id(array) not in _NOTES:
        return None
    alive, checksum, features = _NOTES[id(array)]
    same = checksum == _checksum(array) and alive() is array
    return features if same else None


def _checksum(array: np.ndarray) -> int | None:
    """Return a number that changes with the content; None for an array that nobody can change."""
    return zlib.crc32(np.ascontiguousarray(array).data.cast("B")) if array.flags.writeable else None
