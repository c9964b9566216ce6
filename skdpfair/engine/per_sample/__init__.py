"""Norms and weighted sums of per-record gradients, by the cheapest exact way for a module."""

import logging

from skdpfair.engine.per_sample.bookkeeping import BookKeeping
from skdpfair.engine.per_sample.checks import bookkeeping_refusal, check_module, disagreement
from skdpfair.engine.per_sample.closed_form import ClosedForm, chain_of, chain_refusal
from skdpfair.engine.per_sample.records import Records, Strategy
from skdpfair.engine.per_sample.vmap import MicroVmap
from skdpfair.exceptions import UnsupportedModuleError

__all__ = ["BookKeeping", "ClosedForm", "MicroVmap", "Records", "Strategy", "choose"]

log = logging.getLogger("skdpfair")


def choose(module, example, n_classes, class_weight=None) -> Strategy:
    """Return the cheapest strategy that is exact for ``module``, or refuse with the reason.

    Parameters
    ----------
    module : torch.nn.Module
        Maps (batch, ...) to logits (batch, n_classes).
    example : Tensor
        Inputs of the right shape and dtype; only its shape, dtype and device are used.
    n_classes : int
        Number of classes.
    class_weight : Tensor of shape (n_classes,), optional
        Fixed public factors of the loss.

    Raises
    ------
    UnsupportedModuleError
        If records are coupled (as by batch normalisation) or the output does not fit.

    Examples
    --------
    >>> import torch
    >>> x, y = torch.eye(3), torch.tensor([0, 1, 1])
    >>> with choose(torch.nn.Linear(3, 2), x, n_classes=2) as model:
    ...     print(model.name, model.records(x, y).norm.shape)
    closed_form torch.Size([3])
    """
    probe = check_module(module, example, n_classes)

    def closed_form(module):
        return ClosedForm(module, n_classes, class_weight, chain_of(module, probe))

    def bookkeeping(module):
        return BookKeeping(module, n_classes, class_weight)

    def vmap(module):
        return MicroVmap(module, n_classes, class_weight, reason=refusals["bookkeeping"])

    refusals = {}
    structure = {
        closed_form: chain_refusal,
        bookkeeping: bookkeeping_refusal,
        vmap: lambda module, probe: None,
    }
    for make, refuses in structure.items():
        reason = refuses(module, probe) or disagreement(make, module, probe, n_classes)
        if reason is None:
            strategy = make(module)
            log.info("%s: %s", strategy.name, strategy.reason)
            return strategy
        refusals[make.__name__] = reason
    raise UnsupportedModuleError(
        f"No way is known to take per-record gradients of this module. {refusals}"
    )
