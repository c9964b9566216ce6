"""Scattering features of pictures."""

import copy
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from skdpfair._networks import has_channels_last
from skdpfair._utils.validate import flag, integer, is_auto, one_of
from skdpfair.engine.precision import full_precision
from skdpfair.features._public_features import Extract, PublicFeatures
from skdpfair.features._wavelets import Scattering

_OPPONENTS = [[1 / 3, 1 / 3, 1 / 3], [0.5, 0.0, -0.5], [-0.25, 0.5, -0.25]]
_EPS = 1e-5
_GREY = 3  # paths in a group of a grey picture: 27 groups for J=2 and L=8, as in print
CHANNELS = ("auto", "first", "last", "none")


@dataclass(repr=False, eq=False)
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
    mirror : bool or "auto", default="auto"
        Whether the features of a picture and of its mirror image (left and right exchanged) are
        averaged, which halves their number.  "auto" is true for three channels: photographs mostly
        show the same thing in a mirror, while a digit or an X-ray does not.
    channels : {"auto", "first", "last", "none"}, default="auto"
        Where pictures of three axes have their channels; "none" for pictures of two axes.  "auto"
        looks for an axis of 1 or 3, first (channels, height, width), then (height, width,
        channels).
    image_shape : tuple of int or None, default=None
        Shape of a picture, if X holds rows of pixels.
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
    A grey picture x gives x * phi, \|x * psi\| * phi and \|\|x * psi\| * psi'\| * phi for Morlet
    wavelets psi and a Gaussian phi, at every ``2**J``-th pixel: for J = 2 and L = 8, 81 numbers for
    each of 7 x 7 places of a picture of 28 x 28.  A colour picture gives those of its mean over
    red, green and blue, and, without the second order, of the differences R - B and 2G - R - B.

    The numbers of a record are normalised in groups, each to mean 0 and variance 1 (1e-5 is added
    to the variance).  For grey pictures, a group is three successive paths over all places; for
    colour pictures, it is one order and scale over all places and orientations, and over both
    colour differences.

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

    J: int = 2
    L: int = 8
    _: KW_ONLY
    max_order: int = 2
    mirror: bool | str = "auto"
    channels: str = "auto"
    image_shape: tuple[int, ...] | None = None
    device: str | torch.device = "auto"
    verbose: int = 0

    @property
    def described(self) -> str:
        """Description of the features, and why they cost no privacy."""
        # where and how loudly it runs changes no feature
        params = self.get_params() | {"device": "auto", "verbose": 0}
        return f"{type(self)(**params)}, which learns nothing"

    def check(self, shape: tuple[int, ...]) -> tuple[int, int, int]:
        """Return (channels, height, width) of records of a shape; raise if they are no pictures."""
        J = integer("J", self.J, high=8)
        integer("L", self.L, high=64)
        integer("max_order", self.max_order, high=2)
        if not is_auto(self.mirror):
            flag("mirror", self.mirror)
        form = form_of(shape, one_of("channels", self.channels, CHANNELS))
        if min(form[1:]) < 2**J:
            raise ValueError(
                f"J={J} needs pictures of at least {2**J} x {2**J} pixels, got {shape}. Use a "
                "smaller J."
            )
        return form

    def _extractor(self, shape: tuple[int, ...]) -> Extract:
        form = self.check(shape)
        mirror = form[0] == 3 if self.mirror == "auto" else bool(self.mirror)
        move = has_channels_last(shape, self.channels)
        extractor = _features(form, move, self.J, self.L, self.max_order, mirror)
        # a copy, as the cached one stays on its device
        return copy.deepcopy(extractor).to(self.used_device)


@lru_cache(maxsize=8)
@full_precision()
def _features(form: tuple[int, int, int], *arguments: Any) -> nn.Module:
    return _Features(form, *arguments)


class _Features(nn.Module):
    """Normalised scattering coefficients of pictures, those of colours coarser."""

    def __init__(
        self,
        form: tuple[int, int, int],
        channels_last: bool,
        J: int,
        L: int,
        max_order: int,
        mirror: bool,
    ) -> None:
        super().__init__()
        self.form, self.channels_last, self.mirror = form, channels_last, mirror
        self.light = Scattering(form[1:], J, L, max_order)
        self.colour = Scattering(form[1:], J, L, 1) if form[0] == 3 else None
        self.register_buffer("opponents", torch.tensor(_OPPONENTS), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x.movedim(-1, 1) if self.channels_last else x
        x = x.reshape(-1, *self.form)
        if self.colour is None:
            return self._normalised(self.light, x)
        x = torch.einsum("kc,nchw->nkhw", self.opponents, x)
        parts = self._normalised(self.light, x[:, :1]), self._normalised(self.colour, x[:, 1:])
        return torch.cat(parts, 1)

    def _normalised(self, scattering: Scattering, x: Tensor) -> Tensor:
        """Return the coefficients of all channels, each group of mean 0 and variance 1."""
        paths = scattering(x.flatten(0, 1)).unflatten(0, (-1, x.shape[1]))
        if self.mirror:
            paths = (paths + paths[:, :, scattering.mirrored].flip(-1)) / 2
            # the mean of a picture and its mirror image is symmetric: one half says all
            paths = paths[..., : (paths.shape[-1] + 1) // 2]
        parts = paths.split(_GREY if self.colour is None else scattering.group_sizes, 2)
        return torch.cat([layer_norm(p.flatten(1), (p[0].numel(),), eps=_EPS) for p in parts], 1)


def form_of(shape: Sequence[int], channels: str) -> tuple[int, int, int]:
    """Return (channels, height, width) of pictures."""
    if len(shape) == 2 and channels in ("auto", "none"):
        return 1, shape[0], shape[1]
    if len(shape) == 3 and has_channels_last(shape, channels):
        return shape[2], shape[0], shape[1]
    if len(shape) == 3 and (channels == "first" or (channels == "auto" and shape[0] in (1, 3))):
        return shape[0], shape[1], shape[2]
    raise ValueError(
        f"X must hold pictures of (height, width), (channels, height, width) or (height, width, "
        f"channels), got {tuple(shape)} with channels={channels!r}. Give image_shape= for rows of "
        'pixels, and channels="first" or "last" for other numbers of channels.'
    )
