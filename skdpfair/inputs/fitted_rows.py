"""Marks (keyed hashes) of the rows that the fits of this process saw, for `comparison_scorer`.

Marks are kept beside a net, as long as it lives, and never in it: what copies, pickles or releases
a model knows nothing of them.  Their key is made anew in each process.
"""

import hashlib
import secrets
from weakref import WeakKeyDictionary

import numpy as np

_KEY = secrets.token_bytes(32)
_SEEN: WeakKeyDictionary[object, np.ndarray] = WeakKeyDictionary()
_AT_ONCE = 2**18  # numbers


def remember(net: object, x: np.ndarray, codes: np.ndarray) -> None:
    """Keep the marks of the rows that a net was fitted to."""
    _SEEN[net] = marks(x, codes)


def of(net: object) -> np.ndarray | None:
    """Return the marks of the rows that a net was fitted to, or None if nothing is known."""
    return None if net is None else _SEEN.get(net)


def marks(x: np.ndarray, codes: np.ndarray, key: bytes = _KEY) -> np.ndarray:
    """Return 64 bits for each row of a float32 array and its label: equal for equal rows."""
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
