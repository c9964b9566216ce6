"""Batch size that fits in memory, and detection of out-of-memory errors."""

import torch
from torch import Tensor, nn

ACTIVATION_BUDGET = 2**28  # floats that the activations of one chunk may take


def affordable_batch(module: nn.Module, example: Tensor) -> int:
    """Return the number of records like ``example`` that fit the memory budget, at least 1.

    Each activation is counted three times: itself, its gradient, and room for work.
    """
    outputs = []
    handles = [
        layer.register_forward_hook(lambda m, i, o: outputs.append(getattr(o, "numel", int)()))
        for layer in module.modules()
        if not list(layer.children())
    ]
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            module(torch.zeros_like(example))
    finally:
        for handle in handles:
            handle.remove()
    return max(1, ACTIVATION_BUDGET // (3 * max(sum(outputs), example.numel())))


def is_out_of_memory(error: Exception) -> bool:
    """Tell whether an error reports that memory ran out, on any device.

    Examples
    --------
    >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("shapes differ"))
    (True, False)
    """
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
