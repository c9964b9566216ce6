"""The base of transformers that compute the features of each record alone, and learn nothing."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from torch import Tensor

from skdpfair._files import put_in_place
from skdpfair._progress import ProgressBar
from skdpfair._validate import error_context, safe_repr
from skdpfair.engine.memory import used_device
from skdpfair.engine.precision import full_precision
from skdpfair.inputs.columns import refuse_different_shapes
from skdpfair.inputs.provenance import note

BATCH_SIZE = 256
_VERSION = 1  # of cached files: a change of any transformer's numbers needs the next
_NOT_NUMBERS = "must hold numbers: an array of pictures, or rows of their pixels"

Extract = Callable[[Tensor], Tensor]


class PublicFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of transformers of pictures that need no fit.

    A subclass defines `_extractor`, `_described` and its parameters, ``cache_dir`` and ``verbose``
    among them.
    """

    cache_dir: str | os.PathLike[str] | None
    verbose: int
    device: str | torch.device
    image_shape: tuple[int, ...] | None = None

    @full_precision()
    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the parameters and record the shape of the pictures; nothing is learned.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Pictures like those of ``transform``.
        y : None
            Ignored.

        Returns
        -------
        self
            The transformer itself.

        Raises
        ------
        ValueError, TypeError
            If a parameter or the shape of the pictures cannot be used.
        """
        X = self._read(X)
        extract = self._extractor(X.shape[1:])
        self.in_shape_ = tuple(X.shape[1:])
        self._n_features_out = _features_of(extract, X, slice(0, 1), self.used_device).shape[1]
        return self

    @full_precision()
    def transform(self, X: Any) -> np.ndarray:
        """Return the features of each picture, computed from this picture alone.

        Parameters
        ----------
        X : array-like of shape (n_samples, height, width), (n_samples, channels, height, width) \
or (n_samples, height, width, channels)
            Pictures; rows (n_samples, n_pixels) need ``image_shape``.  A memory map is read in
            batches.  Those of uint8 are divided by 255, and other numbers are taken as they are.

        Returns
        -------
        ndarray of shape (n_samples, n_features), float32
            A read-only memory map if ``cache_dir`` is given.

        Raises
        ------
        ValueError, TypeError
            If X does not hold pictures, or values that are not finite.
        """
        X = self._read(X)
        shape = getattr(self, "in_shape_", tuple(X.shape[1:]))
        if tuple(X.shape[1:]) != shape:
            raise ValueError(
                f"X must hold pictures of shape {shape}, as in fit, got {tuple(X.shape[1:])}."
            )
        extract = self._extractor(shape)
        if self.cache_dir is None:
            out = self._filled(X, extract, lambda shape: np.empty(shape, np.float32))
        else:
            out = self._cached(X, extract)
        found: np.ndarray = note(out, self.described)
        return found

    @property
    def n_features_out(self) -> int:
        """Number of features of a picture of ``fit``."""
        return int(self._n_features_out)

    @property
    def described(self) -> str:
        """What computes the features, and why that costs no privacy."""
        raise NotImplementedError

    def _extractor(self, shape: tuple[int, ...]) -> Extract:
        """Return a function of a batch (n, ...) to features (n, n_features), record by record."""
        raise NotImplementedError

    @property
    def used_device(self) -> str | torch.device:
        """Device of torch that computes the features."""
        return used_device(self.device)

    def _facts(self) -> dict[str, Any]:
        """Return the facts that decide the features, for the name of a cached file."""
        params: dict[str, Any] = self.get_params(deep=False)
        return {k: v for k, v in params.items() if k not in ("cache_dir", "verbose", "device")}

    def _read(self, X: Any) -> Any:
        refuse_different_shapes("X", X)
        if not isinstance(X, (np.ndarray, Tensor)):
            with error_context("X", _NOT_NUMBERS):
                X = np.asarray(X)
        kind = X.dtype.kind if isinstance(X, np.ndarray) else "f"
        if kind not in "biuf":
            raise TypeError(f"X {_NOT_NUMBERS}, got an array of {X.dtype}.")
        if X.ndim < 2 or not all(X.shape[1:]):
            raise ValueError(f"X must hold records of one axis or more, got shape {X.shape}.")
        if X.ndim == 2 and self.image_shape is not None:
            try:
                X = X.reshape(len(X), *self.image_shape)
            except (ValueError, RuntimeError, TypeError):
                raise ValueError(
                    f"image_shape={safe_repr(self.image_shape)} does not hold the {X.shape[1]} "
                    "numbers of a row of X."
                ) from None
        return X

    def _filled(
        self, X: Any, extract: Extract, empty: Callable[[tuple[int, int]], np.ndarray]
    ) -> np.ndarray:
        """Return the features of all pictures in an array that ``empty(shape)`` returns."""
        n, out = len(X), None
        with ProgressBar(type(self).__name__, "pictures", total=n, shown=self.verbose > 0) as bar:
            for start in range(0, max(n, 1), BATCH_SIZE):
                rows = slice(start, start + BATCH_SIZE)
                part = _features_of(extract, X, rows, self.used_device)
                out = empty((n, part.shape[1])) if out is None else out
                out[rows] = part
                bar.move_to(min(start + BATCH_SIZE, n))
        assert out is not None
        return out

    def _cached(self, X: Any, extract: Extract) -> np.ndarray:
        """Return a memory map of the features, computed unless a file holds them."""
        assert self.cache_dir is not None
        with error_context("cache_dir", "cannot be used"):
            folder = Path(self.cache_dir)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # of records of no data, too: code that is not among the parameters may have changed
        probe = np.random.default_rng(0).random((2, *X.shape[1:]), dtype=np.float32)
        probe = _features_of(extract, probe, slice(None), self.used_device)
        path = folder / f"{type(self).__name__.lower()}-{self._digest(X, probe)}.npy"
        shape = (len(X), probe.shape[1])
        if not _holds(path, shape):
            # written beside it and only readable by its owner: features tell what pictures show
            handle, part = tempfile.mkstemp(suffix=".part", dir=folder)
            os.close(handle)
            try:
                self._filled(X, extract, lambda shape: _new_map(part, shape))
                with open(part, "rb+") as file:
                    os.fsync(file.fileno())  # or a power cut could leave zeros in its place
                put_in_place(part, path)
            finally:
                with suppress(OSError):
                    os.unlink(part)
        features: np.ndarray = np.load(path, mmap_mode="r")
        return features

    def _digest(self, X: Any, probe: np.ndarray) -> str:
        facts = [_VERSION, type(self).__name__, self._facts(), X.shape, str(X.dtype)]
        sha256 = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode())
        sha256.update(probe.tobytes())
        for start in range(0, len(X), BATCH_SIZE):
            part = X[start : start + BATCH_SIZE]
            if isinstance(part, Tensor):
                part = part.float() if part.is_floating_point() else part
                part = part.numpy(force=True)
            sha256.update(np.ascontiguousarray(part).view(np.uint8).reshape(-1).data)
        return sha256.hexdigest()[:32]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.three_d_array = True
        return tags


def _holds(path: Path, shape: tuple[int, int]) -> bool:
    """Return True if a file holds features of this shape."""
    try:
        array = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        return False
    return bool(array.shape == shape and array.dtype == np.float32)


def _new_map(path: str, shape: tuple[int, int]) -> np.ndarray:
    return np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)


def _features_of(extract: Extract, X: Any, rows: slice, device: str | torch.device) -> np.ndarray:
    """Return the features of some pictures, float32."""
    part = X[rows]
    scale = 255 if part.dtype in (np.uint8, torch.uint8) else 1
    if isinstance(part, Tensor):
        part = part.to(torch.float32, copy=True)
    else:  # a copy, as a module may change its input
        with np.errstate(over="ignore"):
            part = torch.from_numpy(np.array(part, np.float32, order="C"))
    with full_precision(device), torch.no_grad():
        features: np.ndarray = extract(part.to(device) / scale).float().cpu().numpy()
    if not bool(torch.isfinite(part).all()) or not np.isfinite(features).all():
        raise ValueError(
            "X holds NaN, infinity or numbers too large for float32. Leave such pictures out."
        )
    return features
