"""Steps in full precision: what is measured, and then bounded, must be what is added."""

from contextlib import ExitStack, contextmanager, nullcontext

import torch

_EXACT = ("none", "ieee")


def full_precision(device):
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
    kind = torch.device(device).type
    if all(_is_exact(place) for place in _places(kind)) and not torch.is_autocast_enabled(kind):
        return nullcontext()
    return _set(kind)


def _places(kind):
    """Return where torch keeps its settings for products on a kind of device."""
    if kind == "cuda":
        return torch.backends.cuda.matmul, torch.backends.cudnn.conv
    return (torch.backends.mkldnn.matmul,)


def _is_exact(place):
    if hasattr(place, "fp32_precision"):
        return place.fp32_precision in _EXACT
    return torch.get_float32_matmul_precision() == "highest"  # before torch 2.9


@contextmanager
def _set(kind):
    with ExitStack() as stack:
        stack.enter_context(torch.autocast(kind, enabled=False))
        for place in _places(kind):
            if hasattr(place, "fp32_precision"):
                stack.callback(setattr, place, "fp32_precision", place.fp32_precision)
                place.fp32_precision = "ieee"
            else:
                before = torch.get_float32_matmul_precision()
                stack.callback(torch.set_float32_matmul_precision, before)
                torch.set_float32_matmul_precision("highest")
        yield
