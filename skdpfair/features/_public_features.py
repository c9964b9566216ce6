"""The base of transformers that compute the features of each record alone, and learn nothing."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from torch import Tensor

from skdpfair._utils.progress import ProgressBar
from skdpfair._utils.validate import Parametrised, error_context, safe_repr
from skdpfair.engine.memory import used_device
from skdpfair.engine.precision import full_precision
from skdpfair.inputs.columns import refuse_unreadable
from skdpfair.inputs.provenance import Origin, set_origin
from skdpfair.inputs.rows import BYTES, refuse_other_scale, scale_of

BATCH_SIZE = 256
_NOT_NUMBERS = "must hold numbers: an array of pictures, or rows of their pixels"

Extract = Callable[[Tensor], Tensor]


class PublicFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Parametrised):
    """Base of transformers of pictures that need no fit.

    A subclass defines `_extractor`, `described` and its parameters, ``verbose`` among them.
    """

    verbose: int
    device: str | torch.device
    image_shape: tuple[int, ...] | None = None

    @full_precision()
    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the parameters and record the shape of the pictures in X; nothing is learned."""
        X = self._read(X)
        shape, self._scale = X.shape[1:], scale_of(X, are_pictures=True)
        self._n_features_out = self._width(self._extractor(shape), shape)
        self.in_shape_ = shape
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
        """
        X = self._read(X)
        shape = getattr(self, "in_shape_", X.shape[1:])
        if X.shape[1:] != shape:
            raise ValueError(
                f"X must hold pictures of shape {shape}, as in fit, got {X.shape[1:]}."
            )
        refuse_other_scale(getattr(self, "_scale", None), scale_of(X, are_pictures=True), X)
        extract, n = self._extractor(shape), len(X)
        features = np.empty((n, self._width(extract, shape)), np.float32)
        with ProgressBar(type(self).__name__, "picture", total=n, visible=self.verbose > 0) as bar:
            for start in range(0, n, BATCH_SIZE):
                batch = slice(start, start + BATCH_SIZE)
                features[batch] = self._features(extract, X[batch])
                bar.move_to(min(batch.stop, n))
        return set_origin(features, Origin(self.described))

    @property
    def n_features_out(self) -> int:
        """Number of features of a picture of ``fit``."""
        return int(self._n_features_out)

    @property
    def described(self) -> str:
        """Description of the features, and why they cost no privacy."""
        raise NotImplementedError

    def _extractor(self, shape: tuple[int, ...]) -> Extract:
        """Return a function of a batch (n, ...) to features (n, n_features), record by record."""
        raise NotImplementedError

    @property
    def used_device(self) -> str | torch.device:
        """Device of torch that computes the features."""
        return used_device(self.device)

    def _read(self, X: Any) -> np.ndarray:
        refuse_unreadable("X", X)
        if isinstance(X, Tensor):
            X = (X.float() if X.is_floating_point() else X).numpy(force=True)
        with error_context("X", _NOT_NUMBERS):
            X = np.asarray(X)
        if X.dtype.kind not in "biuf":
            raise TypeError(f"X {_NOT_NUMBERS}, got an array of {X.dtype}.")
        if X.ndim < 2 or not all(X.shape[1:]):
            raise ValueError(f"X must hold records of one axis or more, got shape {X.shape}.")
        if X.ndim == 2 and self.image_shape is not None:
            try:
                X = X.reshape(len(X), *self.image_shape)
            except (ValueError, TypeError):
                raise ValueError(
                    f"image_shape={safe_repr(self.image_shape)} does not hold the {X.shape[1]} "
                    "numbers of a row of X."
                ) from None
        return X

    def _width(self, extract: Extract, shape: tuple[int, ...]) -> int:
        """Return the number of features, by those of two made-up records."""
        # not zeros, of which a network that normalises its input makes NaN
        probe = np.random.default_rng(0).random((2, *shape), dtype=np.float32)
        return self._features(extract, probe).shape[1]

    def _features(self, extract: Extract, X: np.ndarray) -> np.ndarray:
        """Return the features of some pictures, float32."""
        device = self.used_device
        with np.errstate(over="ignore"):  # a copy, as a module may change its input
            x = torch.from_numpy(np.array(X, np.float32, order="C"))
        is_finite = bool(torch.isfinite(x).all())
        with full_precision(device), torch.no_grad():
            x = x.to(device) / (BYTES if X.dtype == np.uint8 else 1)
            features: np.ndarray = extract(x).float().cpu().numpy()
        if not is_finite or not np.isfinite(features).all():
            raise ValueError(
                "X holds NaN, infinity or numbers too large for float32. Leave such pictures out."
            )
        return features

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.three_d_array = True
        return tags
