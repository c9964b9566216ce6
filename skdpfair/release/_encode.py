"""Values as JSON and back, of a closed list of types, so that reading runs no code of a file."""

import math
from dataclasses import fields

import numpy as np
import pandas as pd

from skdpfair._utils.validate import safe_repr
from skdpfair.privacy.ledger import Ledger, Release
from skdpfair.privacy.statement import PrivacyReport

_KINDS = "biufUSO"  # of arrays


class NotPlain(TypeError):
    """A value that no file of facts can hold, such as code."""


def encode(value):
    """Return ``value`` as lists, dicts, strings and numbers of which JSON keeps every bit.

    A dict with one key is the tag of what JSON has no word for.  NotPlain is raised for types that
    a release may not hold.

    Examples
    --------
    >>> encode((1, float("inf"))), decode(encode((1, float("inf"))))
    ({'tuple': [1, {'float': 'inf'}]}, (1, inf))
    """
    if isinstance(value, np.generic):
        if value.dtype.kind not in _KINDS:
            raise NotPlain(f"a release cannot hold {safe_repr(value)} ({type(value).__name__})")
        value = value.item()
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, (list, range)):
        return [encode(v) for v in value]
    for tag, is_of, parts, _ in _tags():
        if is_of(value):
            return {tag: encode_parts(parts(value))}
    raise NotPlain(f"a release cannot hold {safe_repr(value)} ({type(value).__name__})")


def encode_parts(parts):
    """Return the parts of a tagged value: text as it is, all else encoded."""
    return parts if isinstance(parts, str) else [encode(part) for part in parts]


def decode(value):
    """Return the value that `encode` has encoded; ValueError on an unknown tag."""
    if isinstance(value, list):
        return [decode(v) for v in value]
    if not isinstance(value, dict):
        return value
    (tag, parts), *others = value.items()
    back = next((back for known, *_, back in _tags() if known == tag), None)
    if back is None or others:
        raise ValueError(f"unknown entry {str(value)[:80]!r}")
    return back(parts if isinstance(parts, str) else [decode(part) for part in parts])


def _of(*types):
    return lambda value: isinstance(value, types)


def _array(value):
    value = np.asarray(value)
    if value.dtype.kind not in _KINDS:
        raise NotPlain(f"a release cannot hold an array of {value.dtype}")
    return value.dtype.str, list(value.shape), value.ravel().tolist()


def _to_array(parts):
    kind, shape, values = np.dtype(parts[0]), parts[1], parts[2]
    if kind.kind not in _KINDS:
        raise ValueError(f"an array of {kind}")
    out = np.empty(len(values), dtype=kind)
    # one by one: tuples are values here, not axes
    for i, value in enumerate(values):
        out[i] = value
    return out.reshape(shape)


def _fields(value):
    return ({f.name: getattr(value, f.name) for f in fields(value)},)


# tag, whether a value is of this kind, its parts (a string or several values), and back
_PLAIN = [
    ("tuple", _of(tuple), lambda v: v, tuple),
    ("dict", _of(dict), lambda v: [list(item) for item in v.items()], dict),
    ("array", _of(np.ndarray, pd.Index, pd.Series), _array, _to_array),
    ("float", _of(float), repr, float),
    ("bytes", _of(bytes), bytes.hex, bytes.fromhex),
    ("NA", lambda v: v is pd.NA, lambda _: "", lambda _: pd.NA),
    ("NaT", lambda v: v is pd.NaT, lambda _: "", lambda _: pd.NaT),
    ("timestamp", _of(pd.Timestamp), pd.Timestamp.isoformat, pd.Timestamp),
    (
        "interval",
        _of(pd.Interval),
        lambda v: (v.left, v.right, v.closed),
        lambda parts: pd.Interval(*parts),
    ),
    ("report", _of(PrivacyReport), _fields, lambda p: PrivacyReport(**p[0])),
    ("ledger", _of(Ledger), lambda v: v.entries, lambda p: Ledger(tuple(p))),
    ("entry", _of(Release), _fields, lambda p: Release(**p[0])),
]


def _tags():
    """Give the tags of plain values, then those of objects, which need torch."""
    yield from _PLAIN
    from skdpfair.release._objects import TAGS

    yield from TAGS
