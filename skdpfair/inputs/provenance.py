"""Facts about arrays and nets, kept apart from them: origin of features, rows of a fit.

Notes go with what they are about.  Copies, pickles and releases know nothing of them.
"""

import hashlib
import secrets
import weakref
import zlib
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import _safe_indexing


class Origin(NamedTuple):
    """Facts about an array from the code that computed it, not from its numbers."""

    features: str | None = None  # what computed them
    columns: tuple[str, ...] = ()  # their names


UNKNOWN = Origin()


# by identity, as arrays have no hash; with a checksum, as arrays may be changed in place
_ORIGINS: dict[int, tuple[weakref.ref[Any], int | None, Origin]] = {}
_KEY = secrets.token_bytes(32)  # of the hashes of this process
_ROW_HASHES: weakref.WeakKeyDictionary[object, np.ndarray] = weakref.WeakKeyDictionary()
_AT_ONCE = 2**18  # numbers


def set_origin(array: np.ndarray, origin: Origin) -> np.ndarray:
    """Keep what computed an array, as long as it lives unchanged, and return the array.

    Copies and parts of the array are other arrays, without known facts, but see `rows_of`.
    """
    key = id(array)
    alive = weakref.ref(array, lambda _: _ORIGINS.pop(key, None))
    _ORIGINS[key] = alive, _checksum(array), origin
    return array


def origin_of(array: Any) -> Origin:
    """Return what is known of an array; `UNKNOWN` if nothing is."""
    if not isinstance(array, np.ndarray) or id(array) not in _ORIGINS:
        return UNKNOWN
    alive, checksum, origin = _ORIGINS[id(array)]
    same = checksum == _checksum(array) and alive() is array
    return origin if same else UNKNOWN


def rows_of(array: Any, index: np.ndarray) -> Any:
    """Return some rows of a table or array, which have the origin of the whole."""
    rows, origin = _safe_indexing(array, index), origin_of(array)
    return rows if origin == UNKNOWN else set_origin(rows, origin)


def _checksum(array: np.ndarray) -> int | None:
    """Return a number that changes with the content; None for an array that nobody can change."""
    return zlib.crc32(np.ascontiguousarray(array).data.cast("B")) if array.flags.writeable else None


def record_row_hashes(net: object, x: np.ndarray, codes: np.ndarray) -> None:
    """Keep the hashes of the rows that a net was fitted to, for `comparison_scorer`."""
    _ROW_HASHES[net] = row_hashes(x, codes)


def row_hashes_of(net: object) -> np.ndarray | None:
    """Return the hashes of the rows that a net was fitted to, or None if nothing is known."""
    return None if net is None else _ROW_HASHES.get(net)


def row_hashes(x: np.ndarray, codes: np.ndarray, key: bytes = _KEY) -> np.ndarray:
    """Return 64 keyed bits for each row of a float32 array and its label: equal for equal rows."""
    bits = np.ascontiguousarray(x).reshape(len(x), -1).view(np.uint32)
    width = bits.shape[1] + 1
    factors = np.frombuffer(hashlib.shake_256(key).digest(8 * width), np.uint64) | np.uint64(1)
    out: np.ndarray = codes.astype(np.uint64) * factors[-1]
    rows = max(1, _AT_ONCE // width)
    for start in range(0, len(bits), rows):
        part = bits[start : start + rows]
        # numbers such as 1.0 differ in high bits alone, which a product would push out
        out[start : start + rows] += (part ^ part >> 16).astype(np.uint64) @ factors[:-1]
    return out
