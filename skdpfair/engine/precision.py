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
        exact = torch.get_float32_matmul_precision() == "highest"
        return exact and not (kind == "cuda" and torch.backends.cudnn.allow_tf32)
    if kind == "cpu":
        return _setting("mkldnn", "matmul") in _EXACT
    return {_setting(*place) for place in _PLACES[kind == "cuda"]} <= _EXACT


# where torch keeps its settings for products, on a CPU and on a GPU; cuDNN's are under "cuda"
_PLACES = (("mkldnn", "matmul"),), tuple(("cuda", name) for name in ("matmul", "conv", "rnn"))
_EXACT = {"none", "ieee"}
_setting = getattr(torch._C, "_get_fp32_precision_getter", None)


@contextmanager
def _set(kind: str) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(torch.autocast(kind, enabled=False))
        if _setting is None:
            stack.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
            torch.set_float32_matmul_precision("highest")
            cudnn: Any = torch.backends.cudnn
            stack.callback(setattr, cudnn, "allow_tf32", cudnn.allow_tf32)
            cudnn.allow_tf32 = cudnn.allow_tf32 and kind != "cuda"
        else:
            change: Callable[..., Any] = torch._C._set_fp32_precision_setter
            for backend, name in _PLACES[kind == "cuda"]:
                stack.callback(change, backend, name, _setting(backend, name))
                change(backend, name, "ieee")
        yield


def current_device(device: str | torch.device) -> AbstractContextManager[Any]:
    """Return a context in which a CUDA device is the current one, as a recording needs it."""
    device = torch.device(device)
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
