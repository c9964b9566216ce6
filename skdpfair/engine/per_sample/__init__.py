"""Norms and weighted sums of per-record gradients, by the cheapest strategy that is exact."""

import logging
from collections.abc import Callable

import torch
from torch import Tensor, nn

from skdpfair.engine.losses import CrossEntropy, Loss
from skdpfair.engine.per_sample.autograd import Autograd
from skdpfair.engine.per_sample.batch_statistics import mixing_layers
from skdpfair.engine.per_sample.bookkeeping import BookKeeping, uncovered
from skdpfair.engine.per_sample.checks import check_module, disagreement, recorded
from skdpfair.engine.per_sample.closed_form import ClosedForm, chain_of
from skdpfair.engine.per_sample.graph import Graph
from skdpfair.engine.per_sample.records import Records, Strategy
from skdpfair.engine.per_sample.vmap import MicroVmap
from skdpfair.engine.precision import full_precision
from skdpfair.exceptions import UnsupportedModuleError

__all__ = [
    "Autograd",
    "BookKeeping",
    "ClosedForm",
    "MicroVmap",
    "Records",
    "Strategy",
    "select_strategy",
]

log = logging.getLogger("skdpfair")


def select_strategy(
    module: nn.Module,
    example: Tensor,
    n_classes: int,
    class_weight: Tensor | None = None,
    records_per_unit: int = 1,
    *,
    loss: Loss | None = None,
    may_mix: bool = False,
) -> Strategy:
    """Return the cheapest strategy that is exact for ``module``, or refuse with the reason.

    Parameters
    ----------
    module : torch.nn.Module
        Maps (batch, ...) to logits (batch, n_classes).
    example : Tensor
        Inputs of the right shape and dtype; only its shape, dtype and device are used.
    n_classes : int
        Number of classes; of outputs, if ``loss`` is given.
    class_weight : Tensor of shape (n_classes,), optional
        Fixed public factors of the loss.
    records_per_unit : int, default=1
        Largest number of records of a person.
    loss : Loss, optional
        The loss; cross-entropy of the classes by default.
    may_mix : bool, default=False
        Whether records may be mixed by batch normalisation, so that gradients are NOT private.

    Returns
    -------
    Strategy
        A context manager: what it keeps of a batch is gone at the end.

    Raises
    ------
    UnsupportedModuleError
        If records are coupled (as by batch normalisation) or the output does not fit.

    Examples
    --------
    >>> import torch
    >>> x, y = torch.eye(3), torch.tensor([0, 1, 1])
    >>> with select_strategy(torch.nn.Linear(3, 2), x, n_classes=2) as model:
    ...     print(model.name, model.records(x, y).norm.shape)
    closed_form torch.Size([3])
    """
    loss = CrossEntropy(n_classes, class_weight) if loss is None else loss
    # checks draw random numbers, too
    devices = [example.device] if example.is_cuda else []
    with torch.random.fork_rng(devices), full_precision(example.device):
        if may_mix and mixing_layers(module):
            check_module(module, example, loss, may_mix=True)
            return Autograd(module, loss)
        return _chosen(module, example, loss, records_per_unit)


def _chosen(
    module: nn.Module,
    example: Tensor,
    loss: Loss,
    records_per_unit: int,
) -> Strategy:
    probe = check_module(module, example, loss)
    graph = recorded(module, probe)

    def closed_form(module: nn.Module, graph: Graph | str) -> ClosedForm:
        chain = chain_of(module, probe)
        assert not isinstance(chain, str)  # else it is unsuited, and never made
        return ClosedForm(module, loss, chain)

    def bookkeeping(module: nn.Module, graph: Graph | str) -> BookKeeping:
        assert not isinstance(graph, str)
        return BookKeeping(module, loss, graph)

    def vmap(module: nn.Module, graph: Graph | str) -> MicroVmap:
        reason = refusals["bookkeeping"]
        return MicroVmap(module, loss, reason, records_per_unit)

    chain = chain_of(module, probe)
    refusals: dict[str, str] = {}
    unsuited: dict[Callable[[nn.Module, Graph | str], Strategy], str | None] = {
        closed_form: chain if isinstance(chain, str) else None,
        bookkeeping: graph if isinstance(graph, str) else uncovered(graph, module),
        vmap: None,
    }
    for make, reason in unsuited.items():
        reason = reason or disagreement(make, module, graph, probe, loss)
        if reason is None:
            strategy = make(module, graph)
            log.info("%s: %s", strategy.name, strategy.reason)
            return strategy
        refusals[make.__name__] = reason
    raise UnsupportedModuleError(
        f"No way is known to take per-record gradients of this module. {refusals}"
    )
