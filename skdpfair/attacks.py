"""Adversarial inputs that depend on one record each, so that private training stays private."""

import copy
import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, Self, TypeAlias

import numpy as np
import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from skdpfair._validate import ParameterObject, safe_repr
from skdpfair.engine.per_sample import Strategy
from skdpfair.engine.per_sample.batch_statistics import hold_statistics
from skdpfair.engine.per_sample.closed_list import TraceError
from skdpfair.engine.per_sample.tracing import RecordTrace, fixed_draws
from skdpfair.engine.step import Attack

__all__ = ["PGD"]

Limits: TypeAlias = tuple[float, float]


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

    Only the module draws random numbers: its mode is unchanged, so in training mode, dropout draws
    a mask in every step.  The adversarial input of a record depends only on that record and the
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

    def __init__(
        self,
        radius: float,
        step_size: float | None = None,
        n_steps: int = 10,
        *,
        input_range: Limits | None = (0.0, 1.0),
    ) -> None:
        self.radius = radius
        self.step_size = step_size
        self.n_steps = n_steps
        self.input_range = input_range

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
                slope = torch.autograd.grad(loss, inputs)[0]
            inputs = (inputs.detach() + step * slope.sign()).clamp(low, high)
        return inputs


def record_by_record(
    attack: Attack, model: Strategy, example: Tensor, n_classes: int, name: str = "attack"
) -> Attack:
    """Return an attack, or augmentation, as one that acts on each record separately.

    The Python code of a user's attack runs on made-up records only: torch traces its operations on
    one, and training repeats them under vmap.  Even if the attack decides by values, by the number
    of records or by its memory, each input depends only on its own record.  An attack that cannot
    be traced is refused with the line.
    """
    check_attack(attack, model.module, example, n_classes, name)
    if type(attack) is PGD:
        return attack
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
    """Return None or a pair low < high of finite numbers, as Python's own; refuse all else."""
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
