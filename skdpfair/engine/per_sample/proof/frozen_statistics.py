"""Layers that normalise by statistics of the batch, or by constants once they are frozen."""

from __future__ import annotations

from typing import TypeVar

from torch import nn

from skdpfair._utils.torch_internals import BatchNorm, InstanceNorm, SpectralNorm

M = TypeVar("M", bound=nn.Module)


def hold_statistics(module: M) -> M:
    """Put the frozen layers among these in evaluation mode, and return the module.

    Their running statistics are then constants: no record changes them, nor another record's
    output.  A layer is frozen if it has running statistics and parameters, and none trains.
    `spectral_norm` keeps its directions, which it would change with each call.
    """
    for layer in module.modules():
        if isinstance(layer, SpectralNorm) or (_is_of_batch(layer) and _is_frozen(layer)):
            layer.eval()
    return module


def mixes(layer: nn.Module) -> bool:
    """Tell whether a layer mixes the records, or keeps statistics: one that is not frozen."""
    return _is_of_batch(layer) and not _is_frozen(layer)


def _is_of_batch(layer: nn.Module) -> bool:
    keeps = isinstance(layer, InstanceNorm) and layer.track_running_stats
    return isinstance(layer, BatchNorm) or bool(keeps)


def _is_frozen(layer: nn.Module) -> bool:
    statistics = (getattr(layer, f"running_{name}", None) for name in ("mean", "var"))
    keeps = bool(layer.track_running_stats) and all(value is not None for value in statistics)
    trains = [p.requires_grad for p in layer.parameters()]
    return keeps and bool(trains) and not any(trains)
