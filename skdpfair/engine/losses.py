"""Losses of single records: values for autograd, and gradients in the outputs of a module."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax, nll_loss

MIN_OUTPUT_GRADIENT = 1e-18  # its square does not underflow, and so no norm of a gradient does
_FEW_CLASSES = 100  # whose identity matrix is small, and quicker to look up than to add to places
HUBER_THRESHOLD = 0.25  # in units of half the range of the targets


class Loss(abc.ABC):
    """A loss of each record by itself, of the ``n_outputs`` outputs of a module and a target."""

    n_outputs: int
    # by how much gradients in the outputs can grow from equal outputs on, over that of two classes
    output_growth = 1.0

    @abc.abstractmethod
    def each(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each record, (batch,); autograd may pass."""

    @abc.abstractmethod
    def terms(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return loss, predictions and the gradient in the outputs, without autograd."""

    @abc.abstractmethod
    def predicted(self, outputs: Tensor) -> Tensor:
        """Return what the outputs predict, (batch, n_outputs)."""

    @abc.abstractmethod
    def probe_targets(self, n: int, device: torch.device) -> Tensor:
        """Return ``n`` targets of no record, on which a module can be tried."""

    def of_warm_up(self, y: Tensor) -> Tensor:
        """Return the targets with which the scale of the gradients is measured."""
        return y


class CrossEntropy(Loss):
    """Cross-entropy of logits (batch, n_outputs) and class codes."""

    def __init__(self, n_classes: int) -> None:
        self.n_outputs = n_classes
        # from the root of 1 - 1/K to that of 2
        self.output_growth = math.sqrt(n_classes / (2 * max(n_classes - 1, 1)))
        self._identity: Tensor | None = None

    def each(self, outputs: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(outputs, y, reduction="none")

    def terms(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        log_p = log_softmax(outputs.detach(), dim=1)
        probability = log_p.exp()
        loss = nll_loss(log_p, y, reduction="none")
        if self.n_outputs <= _FEW_CLASSES:
            gradient = probability - self._one_hot(log_p).index_select(0, y)
        else:
            ones = torch.ones_like(loss)[:, None]
            gradient = (probability + MIN_OUTPUT_GRADIENT).scatter_add_(1, y[:, None], -ones)
        return loss, probability, gradient

    def predicted(self, outputs: Tensor) -> Tensor:
        return outputs.softmax(1)

    def probe_targets(self, n: int, device: torch.device) -> Tensor:
        return torch.arange(n, device=device) % self.n_outputs

    def _one_hot(self, like: Tensor) -> Tensor:
        if self._identity is None or self._identity.dtype != like.dtype:
            # no gradient is so small that its square underflows, and a norm with it
            least = torch.full((self.n_outputs,) * 2, -MIN_OUTPUT_GRADIENT)
            self._identity = least.fill_diagonal_(1.0).to(like.device, like.dtype)
        return self._identity


class Regression(Loss):
    """A loss of the error of one output, by its name; targets and predictions are in [-1, 1]."""

    n_outputs = 1

    def __init__(self, name: str) -> None:
        self.name = name

    def each(self, outputs: Tensor, y: Tensor) -> Tensor:
        return _OF_ERROR[self.name][0](outputs[:, 0] - y)

    def terms(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        outputs = outputs.detach()
        error = outputs[:, 0] - y
        loss, gradient = (function(error) for function in _OF_ERROR[self.name])
        gradient = torch.where(gradient.abs() < MIN_OUTPUT_GRADIENT, MIN_OUTPUT_GRADIENT, gradient)
        return loss, outputs, gradient[:, None]

    def predicted(self, outputs: Tensor) -> Tensor:
        return outputs

    def probe_targets(self, n: int, device: torch.device) -> Tensor:
        return torch.linspace(-1.0, 1.0, n, device=device)

    def of_warm_up(self, y: Tensor) -> Tensor:
        # the scale of the gradients shall not depend on targets
        return torch.ones_like(y)


def _huber(error: Tensor) -> Tensor:
    """Return Huber's loss over its threshold: squared up to there, then of slope 1."""
    size = error.abs()
    within = size.clamp(max=HUBER_THRESHOLD)
    return within * (size - 0.5 * within) / HUBER_THRESHOLD


# the loss of an error, and its derivative
_OF_ERROR: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "squared": (lambda error: 0.5 * error * error, lambda error: error),
    "absolute": (torch.abs, torch.sign),
    "huber": (_huber, lambda error: (error / HUBER_THRESHOLD).clamp(-1.0, 1.0)),
}
REGRESSION = {name: partial(Regression, name) for name in _OF_ERROR}
