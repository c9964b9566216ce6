"""Devices, batch sizes that fit in their memory, and detection of out-of-memory errors."""

import copy
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from skdpfair._utils.validate import error_context, safe_repr

ACTIVATION_BUDGET = 2**28  # floats that the activations of one chunk may take, but on CUDA
# what the libraries of a device say where memory ran out, in errors of no type of their own
_OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "ALLOC_FAILED", "ALLOCATION_FAILED")


def used_device(device: str | torch.device) -> str | torch.device:
    """Return a device unchanged if torch can compute there; for "auto", "cuda" or else "cpu"."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    reason = f"{safe_repr(device)} is not a torch device that can be used here, as 'auto' is"
    with error_context("device", reason):
        if torch.device(device).type == "meta":
            raise ValueError("it holds no numbers")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.zeros(1, device=device).add_(1)
    return device


def affordable_batch(module: nn.Module, example: Tensor, n_inputs: int | None = None) -> int:
    """Return the number of records like ``example`` that fit the memory budget, at least 1.

    ``n_inputs`` is how many numbers of a record are in memory, if that is not all of them.  Each
    activation that the backward pass needs is counted three times: itself, its gradient, and room
    for work.  Only the largest of the other activations, as of a frozen backbone, is counted.
    """
    module = copy.deepcopy(module, {id(p): p for p in module.parameters()}).eval()
    saved, passing = [0], [n_inputs or example.numel()]

    def count(layer: nn.Module, inputs: Any, out: Any) -> None:
        if isinstance(out, Tensor):
            (saved if out.requires_grad else passing).append(out.numel())

    for layer in module.modules():
        if not list(layer.children()) and not isinstance(layer, torch.jit.ScriptModule):
            layer.register_forward_hook(count)
    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        module(torch.zeros_like(example))
    return max(1, _budget(example.device) // (3 * max(sum(saved), *passing)))


def _budget(device: torch.device) -> int:
    """Return the floats that one chunk's activations may take: on CUDA half of the free memory."""
    if device.type != "cuda":
        return ACTIVATION_BUDGET
    free, _ = torch.cuda.mem_get_info(device)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return (free + cached) // (2 * torch.float32.itemsize)


def is_out_of_memory(error: Exception) -> bool:
    """Tell whether an error reports that memory ran out, on any device."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _OUT_OF_MEMORY)
