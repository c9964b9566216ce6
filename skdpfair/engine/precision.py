"""Torch's modes while this package computes: always full precision, and no autograd."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import torch

from skdpfair._utils.torch_internals import get_fp32_precision, set_fp32_precision

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


@contextmanager
def full_precision(device: str | torch.device = "cpu") -> Iterator[None]:
    """Compute as torch does by default: in float32, also inside contexts of the caller.

    TF32, bfloat16 and autocast would round the sum otherwise than the norms, beyond the shrink
    that a step allows for, and autocast would predict from copies of older weights.  Inference
    mode, anomaly detection, another default device or dtype have no effect, either.  Settings of
    the process are put back at the end, of the last fit if there are several.
    """
    kinds = ("dtype", torch.device(device).type)
    with ExitStack() as stack:
        for is_on, off in _AROUND:
            if is_on():
                stack.enter_context(off())
        for kind in filter(torch.is_autocast_enabled, _AUTOCASTS):
            stack.enter_context(torch.autocast(kind, enabled=False, cache_enabled=False))
        with _LOCK:
            for kind in kinds:
                n, before = _IN_USE.get(kind, (0, []))
                _IN_USE[kind] = n + 1, before if n else [read() for read, _, _ in _switches(kind)]
                for _, write, full in _switches(kind):
                    write(full)
        try:
            yield
        finally:
            with _LOCK:
                for kind in kinds:
                    n, before = _IN_USE[kind]
                    _IN_USE[kind] = n - 1, before
                    for (_, write, _), value in zip(_switches(kind), before, strict=True):
                        if n == 1:
                            write(value)


def is_exact(device: torch.device) -> bool:
    """Tell whether float32 products on a device are float32's; every step asks, so it is fast."""
    kind = device.type
    if torch.is_autocast_enabled(kind):
        return False
    if kind == "cpu":
        return get_fp32_precision("mkldnn", "matmul") in _EXACT
    return {get_fp32_precision(*place) for place in _PLACES[kind == "cuda"]} <= _EXACT


# what may surround a caller, and the context that puts it off
_AROUND: tuple[tuple[Callable[[], bool], Callable[[], AbstractContextManager[Any]]], ...] = (
    (torch.is_inference_mode_enabled, lambda: torch.inference_mode(False)),
    (torch.is_anomaly_enabled, lambda: torch.autograd.set_detect_anomaly(False)),
    (lambda: torch.get_default_device().type != "cpu", lambda: torch.device("cpu")),
)
_AUTOCASTS = [k for k in ("cpu", "cuda", "mps", "xpu") if torch.amp.is_autocast_available(k)]
# where torch keeps its settings for products, on a CPU and on a GPU; cuDNN's are under "cuda"
_PLACES = (("mkldnn", "matmul"),), tuple(("cuda", name) for name in ("matmul", "conv", "rnn"))
_EXACT = {"none", "ieee"}

_LOCK = threading.Lock()
# how often torch's default type and each kind of device are in use, and the settings before
_IN_USE: dict[str, tuple[int, list[Any]]] = {}


def _switches(kind: str) -> list[tuple[Callable[[], Any], Callable[[Any], object], Any]]:
    """Return how to read and to write each setting, and what it is in full precision."""
    if kind == "dtype":
        return [(torch.get_default_dtype, torch.set_default_dtype, torch.float32)]
    get, write = get_fp32_precision, set_fp32_precision
    return [(partial(get, *at), partial(write, *at), "ieee") for at in _PLACES[kind == "cuda"]]


def current_device(device: str | torch.device) -> AbstractContextManager[Any]:
    """Return a context in which a CUDA device is the current one, as modules may expect."""
    device = torch.device(device)
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
