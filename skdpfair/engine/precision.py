"""Torch's modes during a step: no autograd, and full precision of matrix products."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def without_grad(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function to run without autograd; free where that is so already."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.is_grad_enabled():
            with torch.no_grad():
                return function(*args, **kwargs)
        return function(*args, **kwargs)

    return wrapped


def full_precision(device: str | torch.device) -> AbstractContextManager[None]:
    """Return a context in which float32 products are float32's, whatever the process prefers.

    TF32, bfloat16 and autocast would round the sum otherwise than the norms, beyond the shrink
    that a step allows for.  Settings are put back at the end.

    Examples
    --------
    >>> torch.set_float32_matmul_precision("medium")
    >>> with full_precision("cpu"):
    ...     torch.backends.mkldnn.matmul.fp32_precision
    'ieee'
    >>> torch.set_float32_matmul_precision("highest")
    """
    device = torch.device(device)
    return nullcontext() if is_exact(device) else _set(device.type)


def is_exact(device: torch.device) -> bool:
    """Tell whether float32 products on a device are float32's; every step asks, so it is fast.

    Examples
    --------
    >>> is_exact(torch.device("cpu"))
    True
    """
    kind = device.type
    if torch.is_autocast_enabled(kind):
        return False
    if _setting is None:  # before torch 2.9
        return torch.get_float32_matmul_precision() == "highest"
    if kind == "cpu":
        return _setting("mkldnn", "matmul") in _EXACT
    return {_setting(*place) for place in _PLACES[kind == "cuda"]} <= _EXACT


# where torch keeps its settings for products, on a CPU and on a GPU
_PLACES = (("mkldnn", "matmul"),), (("cuda", "matmul"), ("cudnn", "conv"))
_EXACT = {"none", "ieee"}
_setting = getattr(torch._C, "_get_fp32_precision_getter", None)


@contextmanager
def _set(kind: str) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(torch.autocast(kind, enabled=False))
        for backend, name in _PLACES[kind == "cuda"]:
            place: Any = getattr(getattr(torch.backends, backend), name, None)
            if hasattr(place, "fp32_precision"):
                stack.callback(setattr, place, "fp32_precision", place.fp32_precision)
                place.fp32_precision = "ieee"
            else:
                before = torch.get_float32_matmul_precision()
                stack.callback(torch.set_float32_matmul_precision, before)
                torch.set_float32_matmul_precision("highest")
        yield
