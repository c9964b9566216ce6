"""Random views and adversarial inputs, each of one record alone, so that training stays private."""

import copy
import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any, Self, TypeAlias

import numpy as np
import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from skdpfair._networks import has_channels_last
from skdpfair._utils.validate import ParameterObject, safe_repr
from skdpfair.engine.per_sample import Strategy
from skdpfair.engine.per_sample.proof import RecordTrace, TraceError, fixed_draws, hold_statistics
from skdpfair.engine.step import Attack

__all__ = ["PGD", "FlipAndShift", "Views"]

Augment: TypeAlias = Callable[[Tensor], Tensor]
Limits: TypeAlias = tuple[float, float]


@dataclass(repr=False, eq=False)
class FlipAndShift(ParameterObject):
    """Mirror pictures from left to right at random, and shift them by a few pixels.

    ``DPFairClassifier(augment=Views(FlipAndShift(), n=8))`` trains on 8 views of each picture in
    every step, and a grid search can vary ``augment__augment__shift``.  Records of three axes are
    (channels, height, width), or (height, width, channels) if only the last axis has length 1 or 3
    of these two; other records have height and width in their last two axes.

    Parameters
    ----------
    flip : bool, default=True
        Whether to mirror each picture with probability 1/2; False for digits and letters.
    shift : int >= 0, default=4
        Largest number of pixels by which a picture moves, up or down and to either side.  The
        pixels that enter at a border mirror those inside.

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

    flip: bool = True
    shift: int = 4

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


def _shifted(x: Tensor, axis: int, max_shift: int) -> Tensor:
    """Return each picture shifted along an axis by its own random number of pixels."""
    n = x.shape[axis]
    by = torch.randint(-max_shift, max_shift + 1, (len(x), 1), device=x.device)
    at = (torch.arange(n, device=x.device) + by).abs()
    at = (n - 1) - (n - 1 - at).abs()  # mirrored at both borders
    shape = [1] * x.dim()
    shape[0], shape[axis] = len(x), n
    return x.gather(axis, at.view(shape).expand(x.shape))


@dataclass(repr=False, eq=False)
class Views(ParameterObject):
    """Several random views of each record, as the parameter ``augment`` of an estimator.

    Parameters
    ----------
    augment : callable
        ``augment(x)`` returns changed records of the same shape, and may use torch's global
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

    augment: Augment
    n: int = 1

    @classmethod
    def of(cls, augment: Any) -> "Views | None":
        """Return the ``augment`` of an estimator in one form, checked.

        Parameters
        ----------
        augment : callable, Views or None
            The parameter of the estimator; a callable makes one view.

        Returns
        -------
        Views or None
        """
        if augment is None:
            return None
        return (augment if isinstance(augment, cls) else cls(augment)).checked()


def views(
    augment: Augment, model: Strategy, example: Tensor, attack: Attack | None = None
) -> Attack:
    """Return a function that makes random views, each of its own record, then attacks them."""

    def blind(module: object, x: Tensor, y: Tensor) -> Tensor:
        return augment(x)

    # random views may leave the range of pictures, which would be assumed otherwise
    blind.input_range = None  # type: ignore[attr-defined]  # a mark, as attacks have
    view = record_by_record(blind, model, example, 1, "augment")
    return view if attack is None else lambda module, x, y: attack(module, view(module, x, y), y)


@dataclass(repr=False, eq=False)
class PGD(ParameterObject):
    r"""Projected gradient ascent on each record's own loss in an L-infinity ball.

    ``DPFairClassifier(attack=PGD(8 / 255))`` trains on the inputs that the attack returns, and a
    grid search can vary ``attack__radius``.  All parameters are public numbers.

    Parameters
    ----------
    radius : float > 0
        Largest change of any coordinate, in the units of X.
    step_size : float > 0 or None, default=None
        Change of each coordinate in one step; None is ``2.5 * radius / n_steps``.
    n_steps : int >= 1, default=10
        Number of gradient steps per record.
    input_range : tuple (low, high) or None, default=(0.0, 1.0)
        Public range of all inputs, also of adversarial ones.  None sets no range, as for tables.

    Notes
    -----
    With :math:`x^0 = x` and the projection :math:`\Pi` on the ball around x and the range, it uses

    .. math:: x^{t+1} = \Pi\big(x^t + s \cdot \mathrm{sign} \nabla_x \ell(\theta; x^t, y)\big).

    Only the module draws random numbers.  Its mode is unchanged: in training mode, dropout draws a
    mask in every step.  The adversarial input of a record depends only on that record and the
    weights.  A private step bounds its gradient as for any other input, so epsilon is the same with
    and without the attack.

    References
    ----------
    Madry et al., "Towards Deep Learning Models Resistant to Adversarial Attacks", 2018.

    Examples
    --------
    >>> import torch
    >>> module = torch.nn.Linear(2, 2, bias=False)
    >>> _ = module.weight.data.copy_(torch.eye(2))
    >>> x, y = torch.tensor([[0.5, 0.5], [0.9, 0.0]]), torch.tensor([0, 1])
    >>> PGD(radius=0.2)(module, x, y)
    tensor([[0.3000, 0.7000],
            [1.0000, 0.0000]])
    """

    _parameter_constraints = {
        "radius": [Interval(Real, 0, None, closed="neither")],
        "step_size": [Interval(Real, 0, None, closed="neither"), None],
        "n_steps": [Interval(Integral, 1, 2**63 - 1, closed="both")],
        "input_range": [tuple, list, None],
    }

    radius: float
    step_size: float | None = None
    n_steps: int = 10
    _: KW_ONLY
    input_range: Limits | None = (0.0, 1.0)

    def checked(self) -> Self:
        """Return a copy whose values are Python's own; raise if one breaks its constraint."""
        pgd = super().checked()
        pgd.input_range = _limits(self.input_range)
        return pgd

    def __call__(self, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the adversarial inputs of a batch, of class codes ``y``."""
        pgd, x = self.checked(), x.detach()
        if not x.is_floating_point():
            raise TypeError(f"PGD needs inputs of a floating type, got {x.dtype}. Use x.float().")
        step = 2.5 * pgd.radius / pgd.n_steps if pgd.step_size is None else pgd.step_size
        low, high = x - pgd.radius, x + pgd.radius
        if (limits := pgd.input_range) is not None:
            if _is_outside(x, limits):
                raise _out_of_range(limits)
            low, high = low.clamp(min=limits[0]), high.clamp(max=limits[1])
        inputs = x
        for _ in range(pgd.n_steps):
            with torch.enable_grad():
                inputs = inputs.detach().requires_grad_()
                loss = cross_entropy(module(inputs), y, reduction="sum")
                # where each record fails, it counts as zero
                if not loss.requires_grad:
                    return inputs.detach()
                input_gradient = torch.autograd.grad(loss, inputs)[0]
            inputs = (inputs.detach() + step * input_gradient.sign()).clamp(low, high)
        return inputs


def record_by_record(
    attack: Attack, model: Strategy, example: Tensor, n_classes: int, name: str = "attack"
) -> Attack:
    """Return an attack, or augmentation, as one that acts on each record separately.

    The Python code of a user's attack runs on made-up records only: torch traces its operations on
    one, and training repeats them under vmap.  Even if the attack decides by values, by the number
    of records or by its memory, each input depends only on its own record.  An attack that cannot
    be traced is refused, and the message names the line.
    """
    check_attack(attack, model.module, example, n_classes, name)
    if type(attack) is PGD:
        limits = _limits(attack.input_range)
        # X was checked; views of it may lie outside
        return (
            attack if limits is None else lambda module, x, y: attack(module, x.clamp(*limits), y)
        )
    attacked = _Attacked(attack, hold_statistics(copy.deepcopy(model.module)))
    names = [f"module.{name}" for name, _ in model.module.named_parameters()]
    x = _two_records(example, _range_of(attack, example))[0]
    y = torch.zeros((), dtype=torch.int64, device=example.device)

    def one(*args: Tensor) -> Tensor:
        *values, x, y = args
        named = dict(zip(names, values, strict=True))
        inputs: Tensor = functional_call(attacked, named, (x[None].clone(), y[None]))
        return inputs[0]

    def values() -> list[Tensor]:
        return [p.detach() for p in model.module.parameters()]

    try:
        trace = RecordTrace(one, values(), (x, y))
    except TraceError as error:
        raise ValueError(
            f"{name} cannot run on one record at a time: {error}. Use tensor operations such as "
            "torch.where instead of branches on values, random numbers of torch's global "
            "generator, and keep no state between calls."
        ) from None
    return lambda module, x, y: trace(model.generator, values(), x, y)


class _Attacked(nn.Module):
    """An attack as a module, so that its parameters are arguments."""

    def __init__(self, attack: Attack, module: nn.Module) -> None:
        super().__init__()
        self.attack, self.module = attack, module

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.attack(self.module, x, y)


def check_inputs(attack: object, x: object) -> None:
    """Raise ValueError before training if an array has values outside the attack's range."""
    limits = _limits(getattr(attack, "input_range", None))
    if limits is not None and isinstance(x, np.ndarray) and x.size and _is_outside(x, limits):
        raise _out_of_range(limits)


def check_attack(
    attack: Callable[[nn.Module, Tensor, Tensor], Tensor],
    module: nn.Module,
    example: Tensor,
    n_classes: int,
    name: str = "attack",
) -> None:
    """Raise ValueError or TypeError if an attack does not return finite inputs in its range.

    It runs on two made-up records like ``example``, and reads no record of the data.  There are no
    side effects: it gets a copy of the module, and torch's random numbers are restored.
    """
    limits = _range_of(attack.checked() if isinstance(attack, PGD) else attack, example)
    x, y = _two_records(example, limits), torch.tensor([0, n_classes - 1], device=example.device)
    with fixed_draws(x.device), torch.enable_grad():
        inputs: object = attack(copy.deepcopy(module), x.clone(), y)
    if not isinstance(inputs, Tensor):
        raise TypeError(f"{name} must return a torch.Tensor like x, got {type(inputs).__name__}.")
    if inputs.shape != x.shape:
        fault = f"the shape {tuple(inputs.shape)} for x of shape {tuple(x.shape)}"
    elif inputs.dtype != x.dtype:
        fault = f"{inputs.dtype} for x of {x.dtype}. Convert them by .to(x.dtype)"
    elif not bool(torch.isfinite(inputs).all()):
        fault = (
            "NaN or infinity for finite inputs. Bound its steps, for instance by the signs of the "
            "gradient, and clamp to the range of X"
        )
    elif limits is not None and _is_outside(inputs, limits):
        why = "" if hasattr(attack, "input_range") else " (assumed, since X are images)"
        fault = (
            f"values outside input_range={limits!r}{why}. Clamp them, or set attack.input_range = "
            "(low, high) to the public range of X, or None for no range"
        )
    else:
        return
    raise ValueError(f"{name} must return inputs like x, but returns {fault}.")


def _is_outside(x: Any, limits: Limits) -> bool:
    return bool(((x < limits[0]) | (x > limits[1])).any())


def _out_of_range(limits: Limits) -> ValueError:
    return ValueError(
        f"X has values outside the attack's input_range={safe_repr(limits)}. Scale X into it by "
        "public bounds, or set input_range=(low, high) to the public range of X, or None for no "
        "range."
    )


def _range_of(attack: object, example: Tensor) -> Limits | None:
    """Return the range of an attack's inputs, (0, 1) for images if it states none."""
    return _limits(getattr(attack, "input_range", (0.0, 1.0) if example.dim() >= 3 else None))


def _limits(limits: Any) -> Limits | None:
    """Return None or a pair low < high of finite numbers, as Python's own; refuse others."""
    if limits is None:
        return None
    is_list = isinstance(limits, (tuple, list))
    numbers = all(isinstance(v, Real) and math.isfinite(v) for v in limits) if is_list else False
    if not numbers or len(limits) != 2 or not limits[0] < limits[1]:
        raise ValueError(
            "input_range must be None or two finite numbers (low, high) with low < high, got "
            f"{safe_repr(limits)}."
        )
    return float(limits[0]), float(limits[1])


def _two_records(example: Tensor, limits: Limits | None) -> Tensor:
    """Return two records of no data, uniform in the range."""
    low, high = (0.0, 1.0) if limits is None else limits
    x = torch.rand((2, *example.shape[1:]), generator=torch.Generator().manual_seed(0))
    return (low + (high - low) * x.to(example.device, example.dtype)).clamp(low, high)
