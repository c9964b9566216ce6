"""Layers that normalise by statistics of the batch, or by constants once they are frozen."""

from __future__ import annotations

from typing import TypeVar

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

M = TypeVar("M", bound=nn.Module)


def hold_statistics(module: M) -> M:
    """Put the frozen layers among these in evaluation mode, and return the module.

    Their running statistics are then constants: no record changes them, nor another record's
    output.  A layer is frozen if it has running statistics and parameters, and none trains.
    """
    for layer in module.modules():
        if _is_of_batch(layer) and _is_frozen(layer):
            layer.eval()
    return module


def mixing_layers(module: nn.Module) -> dict[str, nn.Module]:
    """Return the layers that are not frozen, by name: they mix the records, or keep statistics."""
    named = module.named_modules()
    return {name: m for name, m in named if _is_of_batch(m) and not _is_frozen(m)}


def has_running_statistics(layer: nn.Module) -> bool:
    """Tell whether a layer can predict by statistics that it kept."""
    both = (getattr(layer, f"running_{name}", None) for name in ("mean", "var"))
    return bool(layer.track_running_stats) and all(value is not None for value in both)


def _is_of_batch(layer: nn.Module) -> bool:
    keeps = isinstance(layer, _InstanceNorm) and layer.track_running_stats
    return isinstance(layer, _BatchNorm) or bool(keeps)


def _is_frozen(layer: nn.Module) -> bool:
    trains = [p.requires_grad for p in layer.parameters()]
    return bool(trains) and not any(trains) and has_running_statistics(layer)
