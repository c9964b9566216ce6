"""Scattering features of pictures, and histograms of oriented gradients."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn.functional import group_norm

from skdpfair._validate import flag, integer, one_of
from skdpfair.features._base import Extract, PublicFeatures
from skdpfair.features._wavelets import Scattering

_COLOURS = (1, 3)
CHANNELS = ("auto", "first", "last", "none")


class Scattering2D(PublicFeatures):
    r"""Scattering features of pictures: wavelets, moduli and local means; nothing is learned.

    A linear model on these features, trained privately, is better than a private network on the
    pixels for a small epsilon, and its fit takes less time.  ``DPFairClassifier(module="auto")``
    uses them for pictures.

    Parameters
    ----------
    J : int >= 1, default=2
        Number of scales of the wavelets: 1, 2, ... ``2**(J - 1)`` pixels.  Means are taken over
        about ``2**J`` pixels.
    L : int >= 1, default=8
        Number of orientations.
    max_order : {1, 2}, default=2
        Largest number of wavelets that are applied one after the other.
    normalize : bool, default=True
        Whether the channels of a record are normalised in groups of three, each to mean 0 and
        variance 1 over channels and places, as by Tramer and Boneh.  It uses numbers of this
        record only.
    channels : {"auto", "first", "last", "none"}, default="auto"
        Where pictures of three axes have their channels; "none" for pictures of two axes.  "auto"
        looks for an axis of 1 or 3, first (channels, height, width), then (height, width,
        channels).
    image_shape : tuple of int or None, default=None
        Shape of the pictures, if the rows of X hold their numbers one after the other.
    cache_dir : path-like or None, default=None
        A folder for memory maps of features, found again by a digest of pictures and parameters.
        The files are as private as the pictures: only their owner may read them, and nobody
        deletes them.
    device : str, default="auto"
        Device of torch that computes the features; "auto" is "cuda" if there is one, else "cpu".
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    in_shape_ : tuple of int
        Shape of the pictures of ``fit``.

    Notes
    -----
    A channel x gives x * phi, \|x * psi\| * phi and \|\|x * psi\| * psi'\| * phi for Morlet wavelets
    psi and a Gaussian phi, at every ``2**J``-th pixel: for J = 2 and L = 8, 81 numbers for each of
    7 x 7 places of a picture of 28 x 28.

    References
    ----------
    Bruna and Mallat, "Invariant scattering convolution networks", 2013.
    Tramer and Boneh, "Differentially private learning needs better features (or much more data)",
    2021.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpfair.features import Scattering2D
    >>> digits = np.random.default_rng(0).random((5, 28, 28))
    >>> Scattering2D().fit_transform(digits).shape
    (5, 3969)
    """

    def __init__(
        self,
        J: int = 2,
        L: int = 8,
        *,
        max_order: int = 2,
        normalize: bool = True,
        channels: str = "auto",
        image_shape: tuple[int, ...] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        device: str | torch.device = "auto",
        verbose: int = 0,
    ) -> None:
        self.J = J
        self.L = L
        self.max_order = max_order
        self.normalize = normalize
        self.channels = channels
        self.image_shape = image_shape
        self.cache_dir = cache_dir
        self.device = device
        self.verbose = verbose

    @property
    def described(self) -> str:
        """What computes the features, and why that costs no privacy."""
        return f"{type(self)(**self._facts())}, which learns nothing"

    def check(self, shape: tuple[int, ...]) -> tuple[int, int, int]:
        """Check the parameters, and that records of a shape are pictures.

        Parameters
        ----------
        shape : tuple of int
            Shape of one record.

        Returns
        -------
        tuple (channels, height, width)
            The shape of a picture with its channels first.

        Raises
        ------
        ValueError, TypeError
            If a parameter or the shape cannot be used.

        Examples
        --------
        >>> Scattering2D().check((32, 32, 3))
        (3, 32, 32)
        """
        J = integer("J", self.J, high=8)
        integer("L", self.L, high=64)
        integer("max_order", self.max_order, high=2)
        flag("normalize", self.normalize)
        form = form_of(shape, one_of("channels", self.channels, CHANNELS))
        if min(form[1:]) < 2**J:
            raise ValueError(
                f"J={J} needs pictures of at least {2**J} x {2**J} pixels, got {shape}. Use a "
                "smaller J."
            )
        return form

    def _extractor(self, shape: tuple[int, ...]) -> Extract:
        form = self.check(shape)
        module = _scattering(form[1:], self.J, self.L, self.max_order).to(self.used_device)

        def extract(x: Tensor) -> Tensor:
            x = x.movedim(-1, 1) if form != shape and len(shape) == 3 else x
            found = module(x.reshape(len(x), *form)).flatten(1, 2)
            if self.normalize:
                found = group_norm(found, max(1, found.shape[1] // 3), eps=1e-5)
            return found.flatten(1)

        return extract


@lru_cache(maxsize=8)
def _scattering(shape: tuple[int, int], J: int, L: int, max_order: int) -> nn.Module:
    return Scattering(shape, J, L, max_order)


def form_of(shape: Sequence[int], channels: str) -> tuple[int, int, int]:
    """Return (channels, height, width) of pictures."""
    if len(shape) == 2 and channels in ("auto", "none"):
        return 1, shape[0], shape[1]
    if len(shape) == 3 and channels != "none":
        first = channels == "first" or (channels == "auto" and shape[0] in _COLOURS)
        if first:
            return shape[0], shape[1], shape[2]
        if channels == "last" or shape[2] in _COLOURS:
            return shape[2], shape[0], shape[1]
    raise ValueError(
        f"X must hold pictures of (height, width), (channels, height, width) or (height, width, "
        f"channels), got {tuple(shape)} with channels={channels!r}. Give image_shape= for rows of "
        'pixels, and channels="first" or "last" for other numbers of channels.'
    )
