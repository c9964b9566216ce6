"""The safetensors file of a release: weights, facts, and a digest of both."""

import json
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from skdpfair._utils.files import path_of, replace_file, sha256_of

FORMAT_VERSION = 1
# one entry of metadata: with several, their order would vary
METADATA_KEY = "skdpfair"
_ADVICE = "Get the file again, from whoever released it."


class Content(NamedTuple):
    """What a release file holds, and what tells it from others: its SHA-256 and its size."""

    facts: dict[str, Any]
    weights: dict[str, np.ndarray]
    sha256: str  # of the bytes of the file, as sha256sum prints it
    n_bytes: int


def write(path, facts, weights) -> None:
    """Write a release, whole or not at all."""
    replace_file(path, file_bytes(facts, weights))


def file_bytes(facts, weights) -> bytes:
    """Return the bytes of a release; equal releases have equal ones."""
    numpy_format = require_safetensors()
    weights = {name: np.array(w, order="C") for name, w in weights.items()}
    header = {"format_version": FORMAT_VERSION, "sha256": digest(facts, weights)} | facts
    return numpy_format.save(weights, metadata={METADATA_KEY: _canonical(header)})


def read(path):
    """Return the facts and weights of a file, see `opened`."""
    return opened(path)[:2]


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
    """Return the SHA-256 of the facts and weights of a release, in hex."""
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
