"""The built-in modules: logistic regression, multi-layer perceptron, small CNN."""

import copy
import math
import pickle
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, combinations, pairwise
from typing import Any, ClassVar, Self

import torch
from sklearn.utils._param_validation import StrOptions
from torch import nn
from torch.nn.parameter import UninitializedParameter

from skdpfair._utils.validate import (
    ParameterObject,
    error_context,
    integer,
    listed,
    one_of,
    safe_repr,
)
from skdpfair.exceptions import UnsupportedModuleError

# initial weights pass through torch's global generator; a function may fit a public model first
INIT_LOCK = threading.RLock()
MAX_WEIGHTS = 2**28  # of a built-in network: one GiB, and a fit holds several of that size
MODULES = ("auto", "logistic", "mlp", "cnn", "scattering")
# of the axis of a number, and of categories at most, in pairs
_AXIS_CELLS, _MAX_CELLS = 6, 12
ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "sigmoid": nn.Sigmoid, "gelu": nn.GELU}


class Factory:
    """A class or function with keyword arguments, as the parameter of an estimator.

    A search varies an argument by its name: ``module__width`` for
    ``module=Factory(MyNet, width=64)``.

    Parameters
    ----------
    make : class, function or str
        What makes the object; an optimizer of ``torch.optim`` can be given by its name.
    **params
        Its keyword arguments.

    Examples
    --------
    >>> sgd = Factory("SGD", momentum=0.9)
    >>> sgd.set_params(nesterov=True)
    Factory('SGD', momentum=0.9, nesterov=True)
    """

    def __init__(self, make: Any, /, **params: Any) -> None:
        self.make, self.params = make, params

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the keyword arguments; ``deep`` is ignored."""
        return dict(self.params)

    def set_params(self, **params: Any) -> Self:
        """Set keyword arguments, and return the factory itself."""
        self.params = self.params | params
        return self

    def __sklearn_clone__(self) -> Self:
        # a copy, so that a search that sets arguments of one clone changes no other
        return type(self)(self.make, **copy.deepcopy(self.params))

    def __repr__(self) -> str:
        make = getattr(self.make, "__name__", repr(self.make))
        return f"Factory({', '.join([make, *(f'{k}={v!r}' for k, v in self.params.items())])})"


class _Network(ParameterObject):
    """A built-in network with an activation and the sizes of its layers."""

    _sizes: ClassVar[str]  # the parameter that holds them
    _least = 1
    _parameter_constraints = {
        "activation": [StrOptions(set(ACTIVATIONS))],
        "hidden_layer_sizes": ["array-like"],
        "channels": ["array-like"],
        "amounts": ["array-like"],
        "fine": ["array-like", None],
        "columns": ["array-like"],
        "pairs": ["array-like"],
        "limits": ["array-like"],
        "zero_output": ["boolean"],
    }

    def checked(self) -> Self:
        """Return a copy whose values are Python's own; raise if one breaks its constraint."""
        network, name = super().checked(), self._sizes
        sizes = listed(name, getattr(self, name), "integers")
        setattr(network, name, tuple(integer(name, size, low=self._least) for size in sizes))
        return network


@dataclass(repr=False, eq=False)
class MLP(_Network):
    """A multi-layer perceptron, as the ``module`` of an estimator.

    Parameters
    ----------
    hidden_layer_sizes : tuple of int, default=(256, 256)
        Widths of the hidden layers, by default those of the papers.
    activation : {"tanh", "relu", "sigmoid", "gelu"}, default="tanh"
        Activation between the layers.
    zero_output : bool, default=False
        Start the output layer at zero and the others LeCun-uniform, so that all groups start
        with the same logits; otherwise use torch's own initial weights.

    Examples
    --------
    >>> from skdpfair import DPFairClassifier
    >>> clf = DPFairClassifier(module=MLP((64,))).set_params(module__activation="relu")
    >>> clf.module
    MLP(activation='relu', hidden_layer_sizes=(64,))
    """

    _sizes = "hidden_layer_sizes"

    hidden_layer_sizes: Sequence[int] = (256, 256)
    activation: str = "tanh"
    zero_output: bool = False


@dataclass(repr=False, eq=False)
class CNN(_Network):
    """The CNN of the papers: 3x3 convolutions without pooling, and a linear layer.

    Parameters
    ----------
    activation : {"tanh", "relu", "sigmoid", "gelu"}, default="tanh"
        Activation after each convolution.
    channels : tuple of int, default=(32, 16)
        Output channels of the convolutions.
    """

    _sizes = "channels"

    activation: str = "tanh"
    channels: Sequence[int] = (32, 16)


@dataclass(repr=False, eq=False)
class Curves(_Network):
    """Logistic regression with fine curves, and cells of pairs, as the ``module`` of an estimator.

    ``module="auto"`` takes it if `public_preprocessor` encoded the columns.

    Parameters
    ----------
    amounts : tuple of int
        Positions of the columns, scaled to [-1, 1], whose curves may be fine.
    fine : tuple of int or None, default=None
        The columns whose curves are fine; None lets the fit choose them and the pairs by noisy
        counts.
    columns : tuple of (int, int), default=()
        The encoded columns whose pairs may interact: the first position of each, and its width,
        which is 1 for a number and otherwise the number of categories.
    pairs : tuple of (int, int, int, int), default=()
        The pairs that interact: two of ``columns`` each.
    limits : tuple of (float, float), default=()
        Public bounds of each amount, for the choice of fine curves.
    """

    _sizes, _least = "amounts", 0

    amounts: Sequence[int]
    fine: Sequence[int] | None = None
    columns: Sequence[Sequence[int]] = ()
    pairs: Sequence[Sequence[int]] = ()
    limits: Sequence[Sequence[float]] = ()

    @property
    def positions(self) -> set[int]:
        """All positions that it names."""
        blocks = (range(first, first + width) for first, width in self.columns)
        return {*self.amounts, *(self.fine or ()), *chain.from_iterable(blocks)}

    @property
    def candidates(self) -> list[tuple[int, ...]]:
        """All pairs of columns."""
        return [(*a, *b) for a, b in combinations(self.columns, 2)]

    def chosen(self, fine: Sequence[int], pairs: Sequence[Sequence[int]]) -> Any:
        """Return the network with chosen curves and pairs, or "logistic" for none."""
        choice = type(self)(self.amounts, tuple(fine), self.columns, tuple(map(tuple, pairs)))
        return choice if fine or pairs else "logistic"


@dataclass(frozen=True)
class ModuleFactory:
    """Makes the module of a fit, repeatedly and in any process."""

    make: Callable[..., Any]
    params: dict[str, Any]
    in_shape: tuple[int, ...]

    def __call__(self) -> nn.Module:
        """Return a new module of float32, drawn from torch's global generator.

        It is a copy, so that training changes nothing that the class or function keeps.
        """
        # as the records are, whatever torch's default is
        return plain_copy(self._made()).float()

    def check(self) -> None:
        """Raise ValueError for what the copies would lack or share without saying so."""
        with INIT_LOCK, torch.random.fork_rng(devices=[]):
            first, second = self._made(), self._made()
        others = set(second.parameters())
        trained = {name: p for name, p in first.named_parameters() if p.requires_grad}
        if any(isinstance(p, UninitializedParameter) for p in trained.values()):
            raise UnsupportedModuleError(
                "module has lazy layers, whose sizes are unknown before data pass through. Give "
                "the sizes, by arguments of a Factory for instance."
            )
        for name, p in trained.items():
            if p in others:
                raise ValueError(
                    f"module must make a new network in each call, but two calls share {name!r}, "
                    "which trains: a fit would begin where the one before ended. Make the layers "
                    "within the class or function, or return copy.deepcopy(network)."
                )
            if p._backward_hooks or p._post_accumulate_grad_hooks:
                raise UnsupportedModuleError(
                    f"module has a hook on the gradient of {name!r}, which private steps do not "
                    "call. Multiply the parameter by a mask, a buffer, in the forward pass instead."
                )
        places = [p.data_ptr() for p in trained.values() if p.numel()]
        if len(set(places)) < len(places):
            raise UnsupportedModuleError(
                "module has different parameters that share memory; tie them by using one "
                "parameter in both places."
            )

    def _made(self) -> nn.Module:
        name = safe_repr(getattr(self.make, "__name__", self.make))
        with error_context("module", f"{name} cannot be made with its arguments"):
            module = self.make(**self.params)
        if not isinstance(module, nn.Module):
            kind = type(module).__name__
            raise TypeError(f"module must return a torch.nn.Module, but {name} returned {kind}.")
        return module


def copied(module: nn.Module) -> nn.Module:
    """Return a deep copy, whose parameters are its own."""
    try:
        module = copy.deepcopy(module)
        for p in module.parameters():
            if not p.is_leaf:  # torch copies those of scripted modules as results of the original's
                p.detach_().requires_grad_()
        return module
    except (RuntimeError, TypeError, pickle.PickleError) as error:
        raise UnsupportedModuleError(
            f"module cannot be copied: {error} (torch.nn.utils.parametrizations has forms of "
            "weight_norm and spectral_norm that can; a function of torch.jit can be a global "
            "variable of the code, but no attribute of the module.)"
        ) from error


def plain_copy(module: nn.Module) -> nn.Module:
    """Return a deep copy of a module, without the wrappers of `torch.compile`."""
    original = getattr(module, "_orig_mod", module)
    module = copied(original)
    if not {p for p in original.parameters() if p.requires_grad}.isdisjoint(module.parameters()):
        raise UnsupportedModuleError(
            "module has layers whose __deepcopy__ returns the layer itself, so that fits would "
            "continue each other. Leave __deepcopy__ out."
        )
    for layer in module.modules():
        for name, child in layer._modules.items():
            layer._modules[name] = getattr(child, "_orig_mod", child)
    return module


def network_of(module: Any) -> Any:
    """Return the ``module`` of an estimator in one form, checked.

    It is "auto", "logistic" or "scattering", or an object with the arguments.
    """
    if isinstance(module, nn.Module):
        raise TypeError(
            "module must be a class or a factory, got an instance of "
            f"{type(module).__name__}. Pass the class, or Factory(class, **arguments), so that "
            "clones start afresh."
        )
    if isinstance(module, str):
        module = {"mlp": MLP(), "cnn": CNN()}.get(one_of("module", module, MODULES), str(module))
    if isinstance(module, ParameterObject):
        return module.checked()
    is_features = hasattr(module, "image_shape") and not isinstance(module, type)
    if isinstance(module, (str, Factory)) or is_features:
        return module
    if callable(module):
        return Factory(module)
    raise TypeError(
        f"module must be one of {', '.join(map(repr, MODULES))}, an object such as MLP(), or a "
        f"class or function that makes a torch.nn.Module, got {safe_repr(module)}."
    )


def module_factory(
    network: Any,
    in_shape: Sequence[int],
    n_classes: int,
    initial_logits: Sequence[float] | None = None,
) -> ModuleFactory:
    """Return what makes the modules of a network, as `network_of` returns it.

    ``initial_logits`` are those of an output layer whose weights start at zero.
    """
    shape = tuple(in_shape)
    if isinstance(network, Factory):
        return ModuleFactory(network.make, network.params, shape)
    make: Any = {CNN: small_cnn, MLP: mlp, Curves: curves}.get(type(network), logistic)
    params = {"in_shape": shape, "n_classes": n_classes}
    if make is not small_cnn:
        params["initial_logits"] = initial_logits
    arguments = network.get_params() if isinstance(network, _Network) else {}
    # among which the fine ones and the pairs were chosen
    arguments = {k: v for k, v in arguments.items() if k not in ("amounts", "columns", "limits")}
    return ModuleFactory(make, params | arguments, shape)


def is_linear(network: Any) -> bool:
    """Return whether a network, as `network_of` returns it, is a logistic regression."""
    return isinstance(network, Curves) or (isinstance(network, str) and network == "logistic")


def logistic(
    in_shape: Sequence[int], n_classes: int, initial_logits: Sequence[float] | None = None
) -> nn.Module:
    """Return a softmax regression whose weights start at zero, with ``initial_logits`` if given."""
    layer = nn.Linear(math.prod(in_shape), n_classes)
    _zero(layer, initial_logits)
    return layer if len(in_shape) == 1 else nn.Sequential(nn.Flatten(), layer)


def curves(
    in_shape: Sequence[int],
    n_classes: int,
    fine: Sequence[int],
    pairs: Sequence[Sequence[int]] = (),
    initial_logits: Sequence[float] | None = None,
) -> nn.Module:
    """Return a `logistic` regression, of the `FineColumns` too."""
    more = FineColumns(fine, in_shape[0], pairs)
    return nn.Sequential(more, logistic((more.width,), n_classes, initial_logits))


def n_cells(width: int) -> int:
    """Return the number of cells of an encoded column, see `cell_of`."""
    return _AXIS_CELLS if width == 1 else min(width, _MAX_CELLS)


def cell_of(x: torch.Tensor, first: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the cell of each record in a column of `Curves`, and whether it has a value there.

    The cells of a number are of equal width, and the middle of its axis, where missing numbers
    are, is no value. Categories beyond the twelfth share the cells of the others.
    """
    if width == 1:
        number = x[:, first]
        cell = ((number + 1) * (_AXIS_CELLS / 2)).long()  # of NaN any integer
        return cell.clamp_(0, _AXIS_CELLS - 1), number != 0
    largest, category = x[:, first : first + width].max(1)
    return category % _MAX_CELLS, largest > 0


class FineColumns(nn.Module):
    """Append columns for many knots on some columns u, scaled to [-1, 1], and for cells of pairs.

    For J = 16, 32, ..., 512 and odd j < J, the knots are J^(1/4) max(0, 1 - ``|J(u + 1)/2 - j|``),
    of which one at most is not zero for each J. A record has a 1 in its cell of a pair, in which
    both columns have a value.
    """

    columns: torch.Tensor
    n_intervals: torch.Tensor
    first: torch.Tensor  # knot of each column and J

    def __init__(
        self, columns: Sequence[int], n_features: int, pairs: Sequence[Sequence[int]] = ()
    ) -> None:
        super().__init__()
        n_intervals = [16.0, 32.0, 64.0, 128.0, 256.0, 512.0]
        each = [int(j / 2) for j in n_intervals] * len(columns)
        *first, self.n_knots = accumulate(each, initial=0)
        self.pairs = [tuple(pair) for pair in pairs]
        sizes = (n_cells(m) * n_cells(n) for _, m, _, n in self.pairs)
        *self._first_cells, self.n_more = accumulate(sizes, initial=self.n_knots)
        self.n_features, self.width = n_features, n_features + self.n_more
        constants = {"columns": columns, "n_intervals": n_intervals, "first": first}
        for name, numbers in constants.items():
            dtype = torch.float32 if name == "n_intervals" else torch.int64
            self.register_buffer(name, torch.tensor(numbers, dtype=dtype), persistent=False)

    def stored(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the columns, counted from 0, that may not be zero, and their values."""
        at, values = self.knots(x)
        if not self.pairs:
            return at, values
        cells, has_values = self.cells(x)
        return torch.cat([at, cells], 1), torch.cat([values, has_values.to(values.dtype)], 1)

    def knots(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the knots that may not be zero, and their values."""
        position = (x[:, self.columns, None] + 1).clamp(0, 2) / 2 * self.n_intervals
        knot = (position / 2).floor().minimum(self.n_intervals / 2 - 1)
        # flat ones, J^0, learn half as much in the same steps
        values = self.n_intervals**0.25 * (1 - (position - 2 * knot - 1).abs())
        return knot.flatten(1).long() + self.first, values.flatten(1)

    def cells(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the cell of each pair, (batch, n_pairs), and whether both columns have a value."""
        at, has_values = [], []
        for first_cell, (i, m, j, n) in zip(self._first_cells, self.pairs, strict=True):
            (row, has_row), (column, has_column) = cell_of(x, i, m), cell_of(x, j, n)
            at.append(first_cell + row * n_cells(n) + column)
            has_values.append(has_row & has_column)
        return torch.stack(at, 1), torch.stack(has_values, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return records (batch, width); those that have the columns stay as they are."""
        if x.shape[1] == self.width:
            return x
        # of the shape, so that exporters see batches of any size
        more = x.new_zeros(x.shape[0], self.n_more).scatter(1, *self.stored(x))
        return torch.cat([x, more], 1)


def fine_columns_of(module: nn.Module) -> FineColumns | None:
    """Return the `FineColumns` that a module begins with, or None."""
    first = next(module.children(), None) if isinstance(module, nn.Sequential) else None
    return first if isinstance(first, FineColumns) else None


def mlp(
    in_shape: Sequence[int],
    n_classes: int,
    hidden_layer_sizes: Sequence[int] = (256, 256),
    activation: str = "tanh",
    zero_output: bool = False,
    initial_logits: Sequence[float] | None = None,
) -> nn.Sequential:
    """Return an `MLP`; with ``zero_output``, its logits start at zero or ``initial_logits``."""
    widths = [math.prod(in_shape), *hidden_layer_sizes, n_classes]
    # before memory is asked for, as the operating system may kill the process
    if sum(a * b for a, b in pairwise(widths)) > MAX_WEIGHTS:
        raise ValueError(
            f"hidden_layer_sizes={safe_repr(hidden_layer_sizes)} makes more than {MAX_WEIGHTS} "
            "weights, which no fit can hold. Give smaller ones."
        )
    layers: list[nn.Module] = [nn.Flatten()] if len(in_shape) > 1 else []
    for size, width in pairwise(widths):
        layers += [nn.Linear(size, width), ACTIVATIONS[activation]()]
    module = nn.Sequential(*layers[:-1])
    if zero_output:
        for layer in module:
            if isinstance(layer, nn.Linear):
                # uniform of variance 1 / in_features, as LeCun
                bound = math.sqrt(3 / layer.in_features)
                nn.init.uniform_(layer.weight, -bound, bound)
                nn.init.zeros_(layer.bias)
        _zero(module[-1], initial_logits)
    return module


def small_cnn(
    in_shape: Sequence[int],
    n_classes: int,
    activation: str = "tanh",
    channels: Sequence[int] = (32, 16),
) -> nn.Sequential:
    """Return a `CNN` for pictures of two or three axes."""
    check_pictures("cnn", in_shape)
    layers: list[nn.Module] = [nn.Unflatten(1, (1, in_shape[0]))] if len(in_shape) == 2 else []
    if has_channels_last(in_shape):
        layers, in_shape = [ChannelsFirst()], (in_shape[2], *in_shape[:2])
    depth, height, width = in_shape if len(in_shape) == 3 else (1, *in_shape)
    for size in channels:
        layers += [nn.Conv2d(depth, size, 3), ACTIVATIONS[activation]()]
        depth, height, width = size, height - 2, width - 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(depth * height * width, n_classes))


def check_pictures(module: str, shape: Sequence[int]) -> None:
    """Raise ValueError if records have not the two or three axes of pictures."""
    if len(shape) in (2, 3):
        return
    size, remedy = math.prod(shape), "X.reshape(-1, height, width)"
    if (side := math.isqrt(size)) ** 2 == size:
        remedy = f"X.reshape(-1, {side}, {side})"
    elif 3 * (side := math.isqrt(size // 3)) ** 2 == size:
        remedy = f"X.reshape(-1, 3, {side}, {side}) or X.reshape(-1, {side}, {side}, 3)"
    raise ValueError(
        f"module={module!r} needs pictures, X of shape (n, height, width), (n, channels, height, "
        f"width) or (n, height, width, channels), got records of shape {tuple(shape)}. Reshape X, "
        f"as by {remedy}."
    )


class ChannelsFirst(nn.Module):
    """Move the last axis of a batch of pictures, that of channels, before height and width."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return pictures (batch, channels, height, width)."""
        return x.permute(0, 3, 1, 2).contiguous()


def has_channels_last(shape: Sequence[int], channels: str = "auto") -> bool:
    """Return whether pictures of a shape have their channels in the last axis."""
    if len(shape) != 3 or channels in ("first", "none"):
        return False
    return channels == "last" or (shape[0] not in (1, 3) and shape[2] in (1, 3))


def _zero(layer: Any, initial_logits: Sequence[float] | None) -> None:
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    if initial_logits is not None:
        with torch.no_grad():
            layer.bias.copy_(torch.tensor(initial_logits))
