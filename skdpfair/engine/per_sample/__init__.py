"""Norms and weighted sums of per-record gradients, by the cheapest exact way for a module."""

from skdpfair.engine.per_sample.bookkeeping import BookKeeping
from skdpfair.engine.per_sample.checks import bookkeeping_refusal, check_module
from skdpfair.engine.per_sample.closed_form import ClosedForm, chain_of
from skdpfair.engine.per_sample.records import Records, Strategy
from skdpfair.engine.per_sample.vmap import MicroVmap

__all__ = ["BookKeeping", "ClosedForm", "MicroVmap", "Records", "Strategy", "choose"]


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
    """
    probe = check_module(module, example, n_classes)
    chain = chain_of(module, example)
    if not isinstance(chain, str):
        return ClosedForm(module, n_classes, class_weight, chain)
    refusal = bookkeeping_refusal(module, probe)
    if refusal is None:
        return BookKeeping(module, n_classes, class_weight)
    return MicroVmap(module, n_classes, class_weight, reason=refusal)
