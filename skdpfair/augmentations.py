"""Random views of records, each made from its own record, so that training stays private."""

from collections.abc import Callable
from numbers import Integral
from typing import Any, TypeAlias

import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor

from skdpfair._validate import ParameterObject
from skdpfair.attacks import record_by_record
from skdpfair.engine.per_sample import Strategy
from skdpfair.engine.step import Attack
from skdpfair.networks import has_channels_last

__all__ = ["FlipAndShift", "Views"]

Augment: TypeAlias = Callable[[Tensor], Tensor]


class FlipAndShift(ParameterObject):
    """Mirror pictures from left to right at random, and shift them by a few pixels.

    ``DPFairClassifier(augment=Views(FlipAndShift(), n=8))`` trains on 8 views of each picture in
    every step, and a grid search can vary ``augment__augment__shift``.  Records of three axes are
    (channels, height, width), or (height, width, channels) if only the last axis has length 1 or 3
    of these two; other records have height and width in their last two axes.

    Parameters
    ----------
    flip : bool, default=True
        Whether to mirror each picture with probability 1/2.  Digits and letters must not be.
    shift : int >= 0, default=4
        Largest number of pixels by which a picture moves, up or down and to either side.  What
        enters at a border is the mirror image of what is inside.

    References
    ----------
    De et al., "Unlocking High-Accuracy Differentially Private Image Classification through Scale",
    2022.

    Examples
    --------
    >>> picture = torch.arange(6.0).view(1, 2, 3)  # one grey picture of 2 x 3 pixels
    >>> FlipAndShift(shift=1)(picture).shape
    torch.Size([1, 2, 3])
    >>> FlipAndShift(flip=False, shift=0)(picture).equal(picture)
    True
    """

    _parameter_constraints = {
        "flip": ["boolean"],
        "shift": [Interval(Integral, 0, 2**63 - 1, closed="both")],
    }

    def __init__(self, flip: bool = True, shift: int = 4) -> None:
        self.flip = flip
        self.shift = shift

    def __call__(self, x: Tensor) -> Tensor:
        """Return one random view of each picture of a batch."""
        checked = self.checked()
        flip, shift = checked.flip, checked.shift
        height, width = (-3, -2) if has_channels_last(x.shape[1:]) else (-2, -1)
        if x.dim() < 3 or min(x.shape[height], x.shape[width]) <= shift:
            raise ValueError(
                f"FlipAndShift takes pictures (..., height, width) of more than shift={shift} "
                f"pixels on each side, got records of shape {tuple(x.shape[1:])}. Set a smaller "
                "shift, or another augment for other records."
            )
        if flip:
            mirrored = torch.rand((len(x), *[1] * (x.dim() - 1)), device=x.device) < 0.5
            x = torch.where(mirrored, x.flip(width), x)
        for axis in (height, width) if shift else ():
            x = _shifted(x, axis, shift)
        return x


def _shifted(x: Tensor, axis: int, most: int) -> Tensor:
    """Return each picture shifted along an axis by its own random number of pixels."""
    n = x.shape[axis]
    by = torch.randint(-most, most + 1, (len(x), 1), device=x.device)
    at = (torch.arange(n, device=x.device) + by).abs()
    at = (n - 1) - (n - 1 - at).abs()  # mirrored at both borders
    shape = [1] * x.dim()
    shape[0], shape[axis] = len(x), n
    return x.gather(axis, at.view(shape).expand(x.shape))


class Views(ParameterObject):
    """Several random views of each record, as the parameter ``augment`` of an estimator.

    Parameters
    ----------
    augment : callable
        ``augment(x)`` returns other records of the same shape, random ones by torch's global
        generator.  It is traced on a made-up record, so that each view is made from its own record.
    n : int >= 1, default=1
        Number of views of a record in a step.  Their gradients are averaged and clipped as one, so
        epsilon is the same for any number.

    Examples
    --------
    >>> Views(FlipAndShift(shift=2), n=4).get_params()["augment__shift"]
    2
    """

    _parameter_constraints = {
        "augment": [callable],
        "n": [Interval(Integral, 1, 2**63 - 1, closed="both")],
    }

    def __init__(self, augment: Augment, n: int = 1) -> None:
        self.augment = augment
        self.n = n

    @classmethod
    def of(cls, augment: Any) -> "Views | None":
        """Return the ``augment`` of an estimator in one form, checked."""
        if augment is None:
            return None
        return (augment if isinstance(augment, cls) else cls(augment)).checked()


def views(
    augment: Augment, model: Strategy, example: Tensor, attack: Attack | None = None
) -> Attack:
    """Return what makes random views of records, each from its own record, then attacks them."""

    def blind(module: object, x: Tensor, y: Tensor) -> Tensor:
        return augment(x)

    blind.input_range = None  # type: ignore[attr-defined]
    view = record_by_record(blind, model, example, 1, "augment")
    return view if attack is None else lambda module, x, y: attack(module, view(module, x, y), y)
