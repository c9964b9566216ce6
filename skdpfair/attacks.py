"""Adversarial inputs that depend on one record each, so that private training stays private."""

import copy
import math
from collections.abc import Callable
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from skdpfair import _validate
from skdpfair._validate import safe_repr
from skdpfair.engine.per_sample import Strategy
from skdpfair.engine.per_sample.batch_statistics import hold_statistics
from skdpfair.engine.per_sample.closed_list import TraceError
from skdpfair.engine.per_sample.tracing import RecordTrace, fixed_draws
from skdpfair.engine.step import Attack

Limits: TypeAlias = tuple[float, float]


class RecordByRecord:
    """A user's attack, or augmentation, that runs on each record separately.

    Its Python code runs once, on a made-up batch of one record, while torch traces its operations.
    Training repeats the traced operations under vmap: even if the attack decides by values, by the
    number of records or by its memory, each input depends only on its own record.

    Parameters
    ----------
    attack : callable
        See :func:`check_attack`.
    model : Strategy
        The module that is attacked, see :func:`skdpfair.engine.select_strategy`.
    example : Tensor of shape (1, ...)
        Only its shape, dtype and device are used.
    name : str, default="attack"
        What errors call it.

    Raises
    ------
    ValueError
        If the attack cannot be traced; the message names the line.

    Examples
    --------
    >>> from skdpfair.engine import select_strategy
    >>> example = torch.zeros(1, 3)
    >>> with select_strategy(nn.Linear(3, 2), example, n_classes=2) as model:
    ...     attack = RecordByRecord(lambda module, x, y: x / len(x), model, example)
    ...     attack(None, torch.ones(2, 3), torch.tensor([0, 1]))
    tensor([[1., 1., 1.],
            [1., 1., 1.]])
    """

    def __init__(
        self, attack: Attack, model: Strategy, example: Tensor, name: str = "attack"
    ) -> None:
        self.model = model
        attacked = _Attacked(attack, hold_statistics(copy.deepcopy(model.module)))
        names = [f"module.{name}" for name, _ in model.module.named_parameters()]
        x = _two_records(example, _input_range(attack, example))[0]
        y = torch.zeros((), dtype=torch.int64, device=example.device)

        def one(*args: Tensor) -> Tensor:
            *values, x, y = args
            named = dict(zip(names, values, strict=True))
            inputs: Tensor = functional_call(attacked, named, (x[None].clone(), y[None]))
            return inputs[0]

        try:
            self._trace = RecordTrace(one, self._values(), (x, y))
        except TraceError as error:
            raise ValueError(
                f"{name} cannot run on one record at a time: {error}. Use tensor operations such "
                "as torch.where instead of branches on values, random numbers of torch's global "
                "generator, and keep no state between calls."
            ) from None

    def __call__(self, module: object, x: Tensor, y: Tensor) -> Tensor:
        """Return the inputs to train on, each from its own record.

        Parameters
        ----------
        module : object
            Not used: the attack was traced on the module of the strategy.
        x : Tensor of shape (batch, ...)
            Inputs.
        y : Tensor of shape (batch,)
            Class codes.

        Returns
        -------
        Tensor
            Like ``x``.
        """
        inputs: Tensor = self._trace(self.model.generator, self._values(), x, y)
        return inputs

    def _values(self) -> list[Tensor]:
        return [p.detach() for p in self.model.module.parameters()]


class _Attacked(nn.Module):
    """An attack as a module, so that its parameters are arguments."""

    def __init__(self, attack: Attack, module: nn.Module) -> None:
        super().__init__()
        self.attack, self.module = attack, module

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.attack(self.module, x, y)


class PGD(BaseEstimator):
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

    def plain(self) -> "PGD":
        """Return the same attack, its parameters checked, as plain Python numbers.

        Returns
        -------
        PGD
            An attack with equal parameters.

        Raises
        ------
        ValueError, TypeError
            If a parameter cannot be used.
        """
        positive: dict[str, Any] = {"low": 0, "low_open": True, "high": math.inf, "high_open": True}
        return PGD(
            _validate.number("radius", self.radius, **positive),
            None
            if self.step_size is None
            else _validate.number("step_size", self.step_size, **positive),
            _validate.integer("n_steps", self.n_steps),
            input_range=_plain_range(self.input_range),
        )

    def __call__(self, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the adversarial inputs of a batch.

        Parameters
        ----------
        module : torch.nn.Module
            Maps (batch, ...) to logits (batch, n_classes); its gradients are not touched.
        x : Tensor of shape (batch, ...)
            Floating numbers inside ``input_range``.
        y : Tensor of shape (batch,)
            Class codes.

        Returns
        -------
        Tensor
            Like ``x``, at most ``radius`` away from it in every coordinate.
        """
        pgd, x = self.plain(), x.detach()
        if not x.is_floating_point():
            raise TypeError(f"PGD needs inputs of a floating type, got {x.dtype}. Use x.float().")
        step = 2.5 * pgd.radius / pgd.n_steps if pgd.step_size is None else pgd.step_size
        low, high = x - pgd.radius, x + pgd.radius
        if (limits := pgd.input_range) is not None:
            if bool(((x < limits[0]) | (x > limits[1])).any()):
                raise _out_of_range(limits)
            low, high = low.clamp(min=limits[0]), high.clamp(max=limits[1])
        inputs = x
        for _ in range(pgd.n_steps):
            inputs = (inputs + step * _slope(module, inputs, y).sign()).clamp(low, high)
        return inputs


def check_inputs(attack: object, x: object) -> None:
    """Check before training that rows in memory lie in the attack's range.

    Parameters
    ----------
    attack : object
        An attack, whose attribute ``input_range`` is (low, high) or None, or None.
    x : object
        The rows; only arrays are checked.

    Raises
    ------
    ValueError
        If a value lies outside the range.
    TypeError
        If ``input_range`` is not a pair of finite numbers.

    Examples
    --------
    >>> check_inputs(PGD(8 / 255), np.array([[0.0, 1.0]]))
    >>> check_inputs(PGD(8 / 255), np.array([[0.0, 255.0]]))
    Traceback (most recent call last):
    ...
    ValueError: X has values outside the attack's input_range=(0.0, 1.0)...
    """
    limits = _plain_range(getattr(attack, "input_range", None))
    if limits is None or not isinstance(x, np.ndarray) or not x.size:
        return
    if x.min() < limits[0] or x.max() > limits[1]:
        raise _out_of_range(limits)


def _out_of_range(limits: Limits) -> ValueError:
    return ValueError(
        f"X has values outside the attack's input_range={safe_repr(limits)}. Scale X into it by "
        "public bounds, or set input_range=(low, high) to the public range of X, or None for no "
        "range."
    )


def check_attack(
    attack: Callable[[nn.Module, Tensor, Tensor], Tensor],
    module: nn.Module,
    example: Tensor,
    n_classes: int,
    name: str = "attack",
) -> None:
    """Check that an attack can be used on inputs like ``example``.

    It runs on two made-up records, and must return finite inputs of the same shape in its
    ``input_range``.  The check reads no record of the data and has no side effects: the attack gets
    a copy of the module, and the state of torch's random numbers is restored.

    Parameters
    ----------
    attack : callable
        ``attack(module, x, y)`` returns other inputs.  Its attribute ``input_range`` is (low,
        high) or None; without the attribute, it is (0, 1) for images and None for tables.
    module : torch.nn.Module
        Maps (batch, ...) to logits (batch, n_classes).
    example : Tensor of shape (1, ...)
        Only its shape, dtype and device are used.
    n_classes : int
        Number of classes.
    name : str, default="attack"
        What errors call it.

    Raises
    ------
    TypeError
        If the attack does not return a tensor.
    ValueError
        If its parameters are out of range, or it returns inputs of another form.

    Examples
    --------
    >>> module, example = torch.nn.Linear(3, 2), torch.zeros(1, 3)
    >>> check_attack(PGD(0.1), module, example, n_classes=2)
    >>> check_attack(lambda module, x, y: x[:1], module, example, n_classes=2)
    Traceback (most recent call last):
    ...
    ValueError: attack must return inputs of the shape of x, (2, 3) for a batch of 2, got (1, 3).
    """
    if isinstance(attack, PGD):
        attack.plain()
    limits = _input_range(attack, example)
    x, y = _two_records(example, limits), torch.tensor([0, n_classes - 1], device=example.device)
    with fixed_draws(x.device), torch.enable_grad():
        inputs: object = attack(copy.deepcopy(module), x.clone(), y)
    if not isinstance(inputs, Tensor):
        raise TypeError(f"{name} must return a torch.Tensor like x, got {type(inputs).__name__}.")
    if inputs.shape != x.shape:
        raise ValueError(
            f"{name} must return inputs of the shape of x, {tuple(x.shape)} for a batch of "
            f"{len(x)}, got {tuple(inputs.shape)}."
        )
    if inputs.dtype != x.dtype:
        raise ValueError(
            f"{name} must return inputs of the dtype of x, {x.dtype}, got {inputs.dtype}. Convert "
            "them by .to(x.dtype)."
        )
    if not bool(torch.isfinite(inputs).all()):
        raise ValueError(
            f"{name} returns NaN or infinity for finite inputs. Bound its steps, for instance by "
            "the signs of the gradient, and clamp to the range of X."
        )
    if limits is not None and bool(((inputs < limits[0]) | (inputs > limits[1])).any()):
        why = "" if hasattr(attack, "input_range") else " (assumed, since X are images)"
        raise ValueError(
            f"{name} returns inputs outside input_range={limits!r}{why}. Clamp them, or set "
            "attack.input_range = (low, high) to the public range of X, or None for no range."
        )


def _slope(module: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    """Return the gradient of each record's loss in its own input."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        loss = cross_entropy(module(x), y, reduction="sum")
        return torch.autograd.grad(loss, x)[0]


def _input_range(attack: object, example: Tensor) -> Limits | None:
    """Return the range of an attack's inputs, (0, 1) for images if it states none."""
    return _plain_range(getattr(attack, "input_range", (0.0, 1.0) if example.dim() >= 3 else None))


def _plain_range(limits: Any) -> Limits | None:
    """Return None or a pair low < high of finite numbers, as Python's own; refuse all else."""
    if limits is None:
        return None
    wanted = "input_range must be None or two finite numbers (low, high) with low < high"
    if not isinstance(limits, (tuple, list)) or not all(
        isinstance(value, Real) and math.isfinite(value) for value in limits
    ):
        raise TypeError(f"{wanted}, got {safe_repr(limits)}.")
    if len(limits) != 2 or not limits[0] < limits[1]:
        raise ValueError(f"{wanted}, got {safe_repr(limits)}.")
    return float(limits[0]), float(limits[1])


def _two_records(example: Tensor, limits: Limits | None) -> Tensor:
    """Return two records of no data, uniform in the range."""
    low, high = (0.0, 1.0) if limits is None else limits
    x = torch.rand((2, *example.shape[1:]), generator=torch.Generator().manual_seed(0))
    return (low + (high - low) * x.to(example.device, example.dtype)).clamp(low, high)
