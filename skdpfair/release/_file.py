"""The safetensors file of a release: weights, facts, and a digest of both."""

import json
import math
from dataclasses import fields
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from skdpfair._utils.files import path_of, replace_file, sha256_of
from skdpfair._utils.validate import safe_repr
from skdpfair.privacy.privacy_report import PrivacyReport
from skdpfair.privacy.releases import NoisyRelease

_KINDS = "biufUSO"  # of arrays
_MOST_WIDTHS = 64  # of the longest text in an array, in mean lengths: each takes its width


class NotPlain(TypeError):
    """A value that no file of facts can hold, such as code."""


def encode(value):
    """Return ``value`` as lists, dicts, strings and numbers that JSON keeps exactly.

    A dict with one key is the tag of what JSON has no word for.  NotPlain is raised for types that
    a release may not hold.
    """
    if isinstance(value, np.generic) and value.dtype.kind in _KINDS:
        value = value.item()
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # of an enumeration, too
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, (list, range)):
        return [encode(v) for v in value]
    for tag, is_of, parts, _ in _tags():
        if is_of(value):
            text = parts(value)
            return {tag: text if isinstance(text, str) else [encode(part) for part in text]}
    raise NotPlain(f"a release cannot hold {safe_repr(value)} ({type(value).__name__})")


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
    values = value.ravel().tolist()
    return _filled(value.dtype, values).dtype.str, list(value.shape), values


def _to_array(parts):
    kind, shape, values = np.dtype(parts[0]), parts[1], parts[2]
    if kind.kind not in _KINDS:
        raise ValueError(f"an array of {kind}")
    # an axis may be long beside one of no length
    if not isinstance(values, list) or any(n > max(1, len(values)) for n in shape[:1]):
        raise ValueError("an array whose shape is not that of its values")
    return _filled(kind, values).reshape(shape)


def _filled(kind, values):
    """Return an array of values; texts are as wide as the longest, whatever a file declares."""
    if kind.kind in "US":
        sizes = [len(value) for value in values]
        if len(sizes) * max(sizes, default=0) > _MOST_WIDTHS * (len(sizes) + sum(sizes)):
            raise ValueError("an array of short texts and of a far longer one")
        kind = np.dtype((kind.kind, max([1, *sizes])))
    out = np.empty(len(values), dtype=kind)
    # one by one: tuples are values here, not axes
    for i, value in enumerate(values):
        out[i] = value
    return out


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
    ("entry", _of(NoisyRelease), _fields, lambda p: NoisyRelease(**p[0])),
]


def _tags():
    """Give the tags of plain values, then those of objects, which need torch."""
    yield from _PLAIN
    from skdpfair.release._objects import TAGS

    yield from TAGS


FORMAT_VERSION = 1
# one entry of metadata: with several, their order would vary
METADATA_KEY = "skdpfair"
_ADVICE = "Get the file again, from whoever released it."


class Content(NamedTuple):
    """Content of a release file, and its identity: SHA-256 and size."""

    facts: dict[str, Any]
    weights: dict[str, np.ndarray]
    sha256: str  # of the bytes of the file, as sha256sum prints it
    n_bytes: int


def write(path, facts, weights) -> None:
    replace_file(path, file_bytes(facts, weights))


def file_bytes(facts, weights) -> bytes:
    """Return the bytes of a release; equal releases have equal ones."""
    numpy_format = require_safetensors()
    weights = {name: np.array(w, order="C") for name, w in weights.items()}
    header = {"format_version": FORMAT_VERSION, "sha256": digest(facts, weights)} | facts
    return numpy_format.save(weights, metadata={METADATA_KEY: _canonical(header)})


def opened(path) -> Content:
    """Return the content of a file; raise if it is damaged, newer, or no release."""
    numpy_format, content = require_safetensors(), path_of(path).read_bytes()
    try:
        weights = numpy_format.load(content)
        length = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + length]).get("__metadata__") or {}
    except Exception as error:
        # safetensors has errors of its own, and lets others through
        raise ValueError(
            f"{path} is not a safetensors file, or is truncated or damaged: {error}. {_ADVICE}"
        ) from None
    if METADATA_KEY not in metadata:
        raise ValueError(
            f"{path} is a safetensors file, but not a release of skdpfair: its metadata lacks the "
            f"entry {METADATA_KEY!r}. Pass a file written by save_release."
        )
    facts = _checked(path, metadata[METADATA_KEY], weights)
    return Content(facts, weights, sha256(content).hexdigest(), len(content))


def _checked(path, text, weights):
    try:
        facts = json.loads(text)
        canonical = _canonical(facts)
        version, stated = facts.pop("format_version"), facts.pop("sha256")
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        raise ValueError(f"{path} is a damaged release: no facts can be read. {_ADVICE}") from None
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise ValueError(
            f"{path} has format version {version}, written by skdpfair "
            f"{facts.get('skdpfair_version')}; this skdpfair reads format versions up to "
            f"{FORMAT_VERSION}. Update skdpfair."
        )
    if version != FORMAT_VERSION or text != canonical or stated != digest(facts, weights):
        raise ValueError(
            f"{path} was changed after it was written, or is damaged: its digest does not match. "
            f"{_ADVICE}"
        )
    return facts


def digest(facts, weights):
    return sha256_of(weights, _canonical(facts).encode())


def _canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def require_safetensors():
    try:
        import safetensors.numpy
    except ImportError:
        raise ImportError(
            "Releases are safetensors files: pip install 'skdpfair[release]'."
        ) from None
    return safetensors.numpy
