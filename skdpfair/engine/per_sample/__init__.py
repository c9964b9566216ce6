"""Norms and weighted sums of per-record gradients, by the cheapest strategy that is exact."""

import logging
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

from skdpfair.engine.losses import CrossEntropy, Loss
from skdpfair.engine.per_sample.bookkeeping import BookKeeping, LayerBook
from skdpfair.engine.per_sample.checks import check_module, gradient_error, refuse_mixing
from skdpfair.engine.per_sample.closed_form import ClosedForm, forward_of, linear_layers
from skdpfair.engine.per_sample.module_code import ModuleCode
from skdpfair.engine.per_sample.records import Gradients, Strategy
from skdpfair.engine.per_sample.vmap import MicroVmap
from skdpfair.engine.precision import full_precision
from skdpfair.exceptions import UnsupportedModuleError

__all__ = [
    "BookKeeping",
    "ClosedForm",
    "Gradients",
    "MicroVmap",
    "Strategy",
    "forward_of",
    "linear_layers",
    "select_strategy",
]

log = logging.getLogger("skdpfair")


def select_strategy(
    module: nn.Module,
    example: Tensor,
    n_classes: int,
    *,
    loss: Loss | None = None,
) -> Strategy:
    """Return the cheapest strategy that is exact for ``module``, or refuse with the reason.

    The module maps inputs (batch, ...), like ``example`` in shape, dtype and device, to outputs
    (batch, n_classes).  The loss is cross-entropy by default.  The strategy is a context manager:
    what it keeps of a batch is gone at the end.
    """
    loss = CrossEntropy(n_classes) if loss is None else loss
    # checks draw random numbers, too
    devices = [example.device] if example.is_cuda else []
    with torch.random.fork_rng(devices), full_precision(example.device):
        return _chosen(module, example, loss)


def _chosen(module: nn.Module, example: Tensor, loss: Loss) -> Strategy:
    probe = check_module(module, example, loss)
    refusals: dict[str, str] = {}

    @cache
    def code() -> ModuleCode:
        refuse_mixing(module, probe)
        return ModuleCode(module, probe, loss)

    @cache
    def book() -> LayerBook:
        return LayerBook(code())

    makers: dict[str, Callable[[nn.Module], Strategy]] = {
        "closed_form": lambda module: ClosedForm(module, loss, linear_layers(module, probe)),
        "bookkeeping": lambda module: BookKeeping(module, loss, code(), book()),
        "vmap": lambda module: MicroVmap(module, loss, code(), refusals["bookkeeping"]),
    }
    for name, make in makers.items():
        reason = gradient_error(make, module, probe, loss)
        if reason is None:
            strategy = make(module)
            log.info("%s: %s", strategy.name, strategy.reason)
            return strategy
        refusals[name] = reason
    raise UnsupportedModuleError(
        f"No way is known to take per-record gradients of this module. {refusals}"
    )
