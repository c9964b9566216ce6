"""The interface between a step and the ways to compute per-record gradients."""

import abc
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import log_softmax, nll_loss

from skdpfair.engine.flat import split


@dataclass(frozen=True)
class Records:
    r"""The per-record gradients of one batch, known by their norms and weighted sums.

    ``norm`` and ``loss`` have shape (batch,), ``probability`` (batch, n_classes);
    ``weighted_sum(weight, out)`` adds :math:`\sum_i w_i g_i` to the flat vector ``out``.
    """

    norm: Tensor
    loss: Tensor
    probability: Tensor
    weighted_sum: Callable[[Tensor, Tensor], None]


class Strategy(abc.ABC):
    """A way to compute per-record gradients of cross-entropy for one module.

    Use it as a context manager: what it attaches to the module is gone at the end.
    """

    name: str

    def __init__(self, module, n_classes, class_weight=None, reason=""):
        self.module, self.n_classes = module, n_classes
        self.class_weight, self.reason = class_weight, reason
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self._views, self._identity = (None, {}), None
        self.n_parameters = sum(p.numel() for p in self.parameters)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self._views = None, {}

    def __repr__(self):
        return f"{type(self).__name__}({self.reason})"

    @abc.abstractmethod
    def records(self, x: Tensor, y: Tensor) -> Records:
        """Return the gradients of a batch that is not empty."""

    def flat(self) -> Tensor:
        """Return a zero vector with one entry per trainable parameter."""
        like = self.parameters[0]
        return torch.zeros(self.n_parameters, dtype=like.dtype, device=like.device)

    def views(self, flat: Tensor) -> dict[Tensor, Tensor]:
        """Return the part of ``flat`` that belongs to each trainable parameter."""
        known, views = self._views
        if known is not flat:
            views = dict(zip(self.parameters, split(flat, self.parameters), strict=True))
            self._views = flat, views
        return views

    def _one_hot(self, like):
        if self._identity is None or self._identity.dtype != like.dtype:
            self._identity = torch.eye(self.n_classes, dtype=like.dtype, device=like.device)
        return self._identity

    def loss_terms(self, logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return loss, probabilities and the loss's gradient in the logits, per record."""
        log_p = log_softmax(logits.detach(), dim=1)
        probability = log_p.exp()
        loss = nll_loss(log_p, y, reduction="none")
        slope = probability - self._one_hot(log_p).index_select(0, y)
        if self.class_weight is not None:
            factor = self.class_weight[y]
            loss, slope = loss * factor, slope * factor[:, None]
        return loss, probability, slope
