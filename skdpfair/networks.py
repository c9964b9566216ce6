"""The built-in modules: logistic regression, multi-layer perceptron, small CNN."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from skdpfair._validate import error_context, safe_repr

_MOST_WEIGHTS = 2**28  # of a built-in network: one GiB, and a fit holds several of that size
ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "sigmoid": nn.Sigmoid, "gelu": nn.GELU}


@dataclass(frozen=True)
class Factory:
    """A factory that makes the module of a fit, repeatedly and in any process.

    Parameters
    ----------
    make : callable
        A torch.nn.Module class or a function that returns a module.
    params : dict[str, Any]
        Keyword arguments of ``make``.
    in_shape : tuple of int
        Shape of one record.

    Examples
    --------
    >>> made = Factory(nn.Linear, {"in_features": 3, "out_features": 2}, in_shape=(3,))
    >>> made(), made() is made()
    (Linear(in_features=3, out_features=2, bias=True), False)
    """

    make: Callable[..., Any]
    params: dict[str, Any]
    in_shape: tuple[int, ...]

    def __call__(self) -> nn.Module:
        """Return a new module.

        Returns
        -------
        torch.nn.Module
            Of float32; its initial weights are drawn from torch's global generator.

        Raises
        ------
        TypeError, ValueError
            If ``make`` fails, or makes something else.
        """
        name = safe_repr(getattr(self.make, "__name__", self.make))
        with error_context("module", f"{name} cannot be made with module_params"):
            made = self.make(**self.params)
        if not isinstance(made, nn.Module):
            raise TypeError(
                f"module must return a torch.nn.Module, but {name} returned {type(made).__name__}."
            )
        return made.float()  # as the records are, whatever torch's default is


def factory(
    module: str | Callable[..., nn.Module],
    in_shape: Sequence[int],
    n_classes: int,
    *,
    hidden_layer_sizes: Sequence[int],
    activation: str,
    initial_logits: Sequence[float] | None,
    params: dict[str, Any],
) -> Factory:
    """Return the factory of the module that the estimator's parameters name.

    Parameters
    ----------
    module : {"logistic", "mlp", "cnn"} or callable
        Name of the network, or a class or function that makes it.
    in_shape : tuple of int
        Shape of one record.
    n_classes : int
        Number of outputs.
    hidden_layer_sizes : tuple of int
        Widths of the hidden layers of "mlp".
    activation : {"tanh", "relu", "sigmoid", "gelu"}
        Activation of "mlp" and "cnn".
    initial_logits : tuple of float or None
        Initial logits of an output layer whose weights start at zero.
    params : dict[str, Any]
        Keyword arguments that override the above.

    Returns
    -------
    Factory
        It makes a new module on each call.

    Examples
    --------
    >>> options = {"hidden_layer_sizes": (8,), "activation": "relu", "initial_logits": None}
    >>> made = factory("mlp", (4,), 2, **options, params={"activation": "tanh"})
    >>> made.params["hidden_layer_sizes"], made.params["activation"]
    ((8,), 'tanh')
    """
    if callable(module):
        return Factory(module, params, tuple(in_shape))
    given = {"in_shape": tuple(in_shape), "n_classes": n_classes}
    if module == "logistic":
        given |= {"initial_logits": initial_logits}
    if module == "mlp":
        given |= {"initial_logits": initial_logits}
        given |= {"hidden_layer_sizes": tuple(hidden_layer_sizes), "activation": activation}
    if module == "cnn":
        given |= {"activation": activation}
    return Factory(_BUILTIN[module], given | params, tuple(in_shape))


def logistic(
    in_shape: Sequence[int], n_classes: int, initial_logits: Sequence[float] | None = None
) -> nn.Module:
    """Return a softmax regression with weights that start at zero.

    Parameters
    ----------
    in_shape : tuple of int
        Shape of one record.
    n_classes : int
        Number of outputs.
    initial_logits : tuple of float, optional
        Initial logits of all records; zeros by default.

    Returns
    -------
    torch.nn.Module
        A Linear layer, after a Flatten layer if records have several axes.

    Examples
    --------
    >>> logistic((3,), 2, initial_logits=(1.0, -1.0))(torch.ones(1, 3)).tolist()
    [[1.0, -1.0]]
    """
    layer = nn.Linear(math.prod(in_shape), n_classes)
    _zero(layer, initial_logits)
    return layer if len(in_shape) == 1 else nn.Sequential(nn.Flatten(), layer)


def mlp(
    in_shape: Sequence[int],
    n_classes: int,
    hidden_layer_sizes: Sequence[int] = (256, 256),
    activation: str = "tanh",
    zero_output: bool = False,
    initial_logits: Sequence[float] | None = None,
) -> nn.Sequential:
    """Return a multi-layer perceptron.

    Parameters
    ----------
    in_shape : tuple of int
        Shape of one record.
    n_classes : int
        Number of outputs.
    hidden_layer_sizes : tuple of int, default=(256, 256)
        Widths of the hidden layers.
    activation : {"tanh", "relu", "sigmoid", "gelu"}, default="tanh"
        Activation between the layers.
    zero_output : bool, default=False
        Start the output layer at zero and the others LeCun-uniform, so that all groups start
        with the same logits; otherwise use torch's own initial weights.
    initial_logits : tuple of float, optional
        These logits, with ``zero_output``; zeros by default.

    Returns
    -------
    torch.nn.Sequential
        Linear layers with activations between them.

    Raises
    ------
    ValueError
        If the network has more weights than a fit can hold.

    Examples
    --------
    >>> mlp((4,), 2, hidden_layer_sizes=(8,), activation="relu")
    Sequential(
      (0): Linear(in_features=4, out_features=8, bias=True)
      (1): ReLU()
      (2): Linear(in_features=8, out_features=2, bias=True)
    )
    """
    widths = [math.prod(in_shape), *hidden_layer_sizes, n_classes]
    if sum(a * b for a, b in pairwise(widths)) > _MOST_WEIGHTS:
        raise ValueError(
            f"hidden_layer_sizes={safe_repr(hidden_layer_sizes)} makes more than {_MOST_WEIGHTS} "
            "weights, which no fit can hold. Give smaller ones."
        )
    width = widths[0]
    layers: list[nn.Module] = []
    if len(in_shape) > 1:
        layers.append(nn.Flatten())
    for size in hidden_layer_sizes:
        layers += [nn.Linear(width, size), ACTIVATIONS[activation]()]
        width = size
    last = nn.Linear(width, n_classes)
    layers.append(last)
    module = nn.Sequential(*layers)
    if zero_output:
        _lecun_uniform(module)
        _zero(last, initial_logits)
    return module


def small_cnn(
    in_shape: Sequence[int],
    n_classes: int,
    activation: str = "tanh",
    channels: Sequence[int] = (32, 16),
) -> nn.Sequential:
    """Return the CNN of the papers: 3x3 convolutions without pooling, and a linear layer.

    Parameters
    ----------
    in_shape : tuple of int
        (height, width), (channels, height, width) or (height, width, channels) of one record, see
        `has_channels_last`.
    n_classes : int
        Number of outputs.
    activation : {"tanh", "relu", "sigmoid", "gelu"}, default="tanh"
        Activation after each convolution.
    channels : tuple of int, default=(32, 16)
        Output channels of the convolutions.

    Returns
    -------
    torch.nn.Sequential
        The convolutions with their activations, a Flatten and a Linear layer; before them, what
        puts channels first.

    Examples
    --------
    >>> module = small_cnn((28, 28), 10)
    >>> module(torch.zeros(5, 28, 28)).shape, sum(p.numel() for p in module.parameters())
    (torch.Size([5, 10]), 97114)
    """
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
    """Raise if records have not the two or three axes of pictures.

    Parameters
    ----------
    module : str
        Name of the network, for the message.
    shape : tuple of int
        Shape of one record.

    Raises
    ------
    ValueError
        With the call of ``reshape`` for square pictures, if there is one.

    Examples
    --------
    >>> check_pictures("cnn", (784,))
    Traceback (most recent call last):
    ...
    ValueError: module='cnn' needs pictures, X of shape (n, height, width), (n, channels, height,
    width) or (n, height, width, channels), got records of shape (784,). Reshape X: for square
    pictures, X.reshape(-1, 28, 28).
    """
    if len(shape) in (2, 3):
        return
    size, square = math.prod(shape), "X.reshape(-1, height, width)"
    if (side := math.isqrt(size)) ** 2 == size:
        square = f"for square pictures, X.reshape(-1, {side}, {side})"
    elif 3 * (side := math.isqrt(size // 3)) ** 2 == size:
        square = (
            f"for square pictures in colour, X.reshape(-1, 3, {side}, {side}), or "
            f"X.reshape(-1, {side}, {side}, 3) if each pixel's colours lie side by side"
        )
    raise ValueError(
        f"module={module!r} needs pictures, X of shape (n, height, width), (n, channels, height, "
        "width) or (n, height, width, channels), got records of shape "
        f"{tuple(shape)}. Reshape X: {square}."
    )


class ChannelsFirst(nn.Module):
    """Move the last axis of a batch of pictures, that of channels, before height and width.

    Examples
    --------
    >>> ChannelsFirst()(torch.zeros(5, 32, 24, 3)).shape
    torch.Size([5, 3, 32, 24])
    """

    def __init__(self) -> None:
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return pictures with their channels first.

        Parameters
        ----------
        x : Tensor of shape (batch, height, width, channels)
            Pictures.

        Returns
        -------
        Tensor of shape (batch, channels, height, width)
            The same pictures.
        """
        return x.permute(0, 3, 1, 2).contiguous()


def has_channels_last(shape: Sequence[int], channels: str = "auto") -> bool:
    """Tell whether pictures of a shape have their channels in the last axis.

    Parameters
    ----------
    shape : tuple of int
        Shape of one record.
    channels : {"auto", "first", "last", "none"}, default="auto"
        "auto" is "last" where the last of three axes has length 1 or 3, and the first has not.

    Returns
    -------
    bool

    Examples
    --------
    >>> has_channels_last((32, 24, 3)), has_channels_last((3, 32, 24)), has_channels_last((32, 24))
    (True, False, False)
    """
    if len(shape) != 3 or channels in ("first", "none"):
        return False
    return channels == "last" or (shape[0] not in (1, 3) and shape[2] in (1, 3))


def _zero(layer: nn.Linear, initial_logits: Sequence[float] | None) -> None:
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    if initial_logits is not None:
        with torch.no_grad():
            layer.bias.copy_(torch.tensor(initial_logits))


def _lecun_uniform(module: nn.Sequential) -> None:
    for layer in module:
        if isinstance(layer, nn.Linear):
            bound = math.sqrt(3 / layer.in_features)
            nn.init.uniform_(layer.weight, -bound, bound)
            nn.init.zeros_(layer.bias)


_BUILTIN: dict[str, Callable[..., nn.Module]] = {"logistic": logistic, "mlp": mlp, "cnn": small_cnn}
