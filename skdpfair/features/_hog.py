"""Histograms of oriented gradients, from scikit-image."""

from __future__ import annotations

import os
from importlib import import_module

import numpy as np
import torch
from torch import Tensor

from skdpfair._validate import integer, one_of
from skdpfair.features._base import Extract, PublicFeatures
from skdpfair.features._scattering import CHANNELS, form_of
from skdpfair.networks import has_channels_last


class Hog(PublicFeatures):
    """Histograms of oriented gradients of pictures; nothing is learned.

    A light alternative to :class:`Scattering2D`: fewer features, computed faster, and a less
    accurate model.  It needs ``pip install 'skdpfair[images]'``.

    Parameters
    ----------
    orientations : int >= 1, default=9
        Number of bins of a histogram.
    pixels_per_cell : int >= 1, default=4
        Height and width of a cell, which has one histogram.
    cells_per_block : int >= 1, default=2
        Height and width of a block of cells, whose histograms are normalised together.
    channels : {"auto", "first", "last", "none"}, default="auto"
        Where pictures of three axes have their channels, see :class:`Scattering2D`.  At each pixel
        the channel with the largest gradient counts.
    image_shape : tuple of int or None, default=None
        Shape of the pictures, if the rows of X hold their numbers one after the other.
    cache_dir : path-like or None, default=None
        A folder for memory maps of features, see :class:`Scattering2D`.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    in_shape_ : tuple of int
        Shape of the pictures of ``fit``.

    References
    ----------
    Dalal and Triggs, "Histograms of oriented gradients for human detection", 2005.

    Examples
    --------
    >>> from skdpfair.features import Hog
    >>> Hog().fit_transform(np.zeros((5, 28, 28))).shape
    (5, 1296)
    """

    used_device = "cpu"

    def __init__(
        self,
        orientations: int = 9,
        *,
        pixels_per_cell: int = 4,
        cells_per_block: int = 2,
        channels: str = "auto",
        image_shape: tuple[int, ...] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        verbose: int = 0,
    ) -> None:
        self.orientations = orientations
        self.pixels_per_cell = pixels_per_cell
        self.cells_per_block = cells_per_block
        self.channels = channels
        self.image_shape = image_shape
        self.cache_dir = cache_dir
        self.verbose = verbose

    @property
    def described(self) -> str:
        """What computes the features, and why that costs no privacy."""
        return f"{type(self)(**self._facts())}, which learns nothing"

    def _extractor(self, shape: tuple[int, ...]) -> Extract:
        cell = integer("pixels_per_cell", self.pixels_per_cell)
        block = integer("cells_per_block", self.cells_per_block)
        orientations = integer("orientations", self.orientations)
        form = form_of(shape, one_of("channels", self.channels, CHANNELS))
        if min(form[1:]) < cell * block:
            raise ValueError(
                f"pixels_per_cell={cell} and cells_per_block={block} need pictures of at least "
                f"{cell * block} x {cell * block} pixels, got {shape}. Use smaller cells or blocks."
            )
        try:
            hog = import_module("skimage.feature").hog
        except ImportError:
            raise ImportError("Hog needs: pip install 'skdpfair[images]'.") from None

        def extract(x: Tensor) -> Tensor:
            x = x.movedim(-1, 1) if has_channels_last(shape, self.channels) else x
            pictures = x.reshape(len(x), *form).movedim(1, -1).numpy()
            found = [
                hog(
                    picture,
                    orientations=orientations,
                    pixels_per_cell=(cell, cell),
                    cells_per_block=(block, block),
                    channel_axis=-1,
                )
                for picture in pictures
            ]
            return torch.from_numpy(np.stack(found))

        return extract
