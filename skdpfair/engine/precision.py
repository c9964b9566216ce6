"""Torch's modes during a step: no autograd, and full precision of matrix products."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
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
    that a step allows for.  Settings are put back at the end, of the last fit if there are several.

    Examples
    --------
    >>> torch.set_float32_matmul_precision("medium")
    >>> with full_precision("cpu"):
    ...     torch.backends.mkldnn.matmul.fp32_precision
    'ieee'
    >>> torch.set_float32_matmul_precision("highest")
    """
    return _exact(torch.device(device).type)


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


_LOCK = threading.Lock()
# how often each kind of device is in use, and its settings before
_IN_USE: dict[str, tuple[int, list[Any]]] = {}


@contextmanager
def _exact(kind: str) -> Iterator[None]:
    """Set full precision; the last of several threads puts back what the first one found."""
    # not every kind of device knows autocast
    autocasts = torch.is_autocast_enabled(kind)
    with torch.autocast(kind, enabled=False) if autocasts else nullcontext():
        with _LOCK:
            n, before = _IN_USE.get(kind, (0, []))
            before = before if n else _settings(kind)
            _IN_USE[kind] = n + 1, before
            _change(kind, ["highest", False] if _setting is None else ["ieee"] * len(before))
        try:
            yield
        finally:
            with _LOCK:
                n, before = _IN_USE[kind]
                _IN_USE[kind] = n - 1, before
                if n == 1:
                    _change(kind, before)


def _settings(kind: str) -> list[Any]:
    """Return torch's settings for products on a kind of device."""
    if _setting is None:
        return [torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32]
    return [_setting(*place) for place in _PLACES[kind == "cuda"]]


def _change(kind: str, settings: list[Any]) -> None:
    """Change torch's settings for products on a kind of device."""
    if _setting is None:
        torch.set_float32_matmul_precision(settings[0])
        cudnn: Any = torch.backends.cudnn
        cudnn.allow_tf32 = settings[1]
        return
    change: Callable[..., Any] = torch._C._set_fp32_precision_setter
    for place, setting in zip(_PLACES[kind == "cuda"], settings, strict=True):
        change(*place, setting)


def current_device(device: str | torch.device) -> AbstractContextManager[Any]:
    """Return a context in which a CUDA device is the current one, as a recording needs it."""
    device = torch.device(device)
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
