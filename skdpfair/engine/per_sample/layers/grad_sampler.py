"""Interface and registry of grad samplers: norms, weighted sums and shifts, by layer type.

A grad sampler is made from a layer's input ``a`` and the gradient ``b`` of the summed loss in the
layer's output, both with the batch first.  It answers three questions:

* ``norm2()``: squared gradient norm of every record, (batch,);
* ``add(weight, views)``: add the weighted sum of the gradients to views of the flat gradient;
* ``shift(scale, x)``: what the layer's output on ``x`` gains if the parameters of record i are
  moved by ``scale[i]`` times its own gradient.

No per-record weight gradient of a Linear or Embedding is ever made; those of convolutions and
scales are small.  A parameter that is frozen, or absent, takes no part.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

Views = dict[Tensor, Tensor]

# layer type -> (grad sampler of (module, a, b), whether it covers a module, on which inputs)
LAYERS: dict[type[nn.Module], tuple[Callable, Callable, Callable]] = {}


def register_grad_sampler(*layer_types, takes, fits=lambda module: True):
    """Register the decorated grad sampler for layer types.

    ``fits(module)`` tells whether it covers a module; ``takes(module, n_axes)`` whether the layer
    takes the first of so many axes of its input for the batch.
    """

    def decorate(grad_sampler):
        LAYERS.update(dict.fromkeys(layer_types, (grad_sampler, fits, takes)))
        return grad_sampler

    return decorate


def find(module: nn.Module) -> Callable | None:
    """Return the grad sampler of exactly this layer type, if it covers the configuration."""
    grad_sampler, fits, _ = LAYERS.get(type(module), (None, None, None))
    return grad_sampler if grad_sampler is not None and fits(module) else None


def takes_rows(module: nn.Module, a: Tensor) -> bool:
    """Tell whether a covered layer takes the first axis of its input for the batch."""
    return LAYERS[type(module)][2](module, a.dim())


def trains(parameter) -> bool:
    """Tell whether the parameter exists and is not frozen."""
    return parameter is not None and parameter.requires_grad


def over_batch(rows: Tensor, like: Tensor) -> Tensor:
    """Return (batch,) numbers in a shape that multiplies each record of ``like``."""
    return rows.view(-1, *[1] * (like.dim() - 1))


def masked(rows: Tensor, finite: Tensor) -> Tensor:
    """Return the rows with those of records that are not finite set to zero."""
    return torch.where(over_batch(finite, rows), rows, 0)


def rounding(size: int, like: Tensor) -> float:
    """Return a relative error that sums of products of ``size`` numbers stay below."""
    return (8.0 + 2.0 * size**0.5) * torch.finfo(like.dtype).eps


def lengths_of(width: int) -> Callable[[Tensor], Tensor]:
    """Return what takes the L2 norm of each row, of at most so many numbers.

    `vector_norm` is fast, and adds a row up one number after another: on wide ones it rounds by
    more than the shrink of a step allows for.
    """
    if width <= 4096:
        return partial(torch.linalg.vector_norm, dim=1)
    return lambda rows: torch.linalg.vecdot(rows, rows).sqrt_()


def underflow(like: Tensor) -> float:
    """Return what squares that are too small for the type may take from a row's sum of squares."""
    return like.shape[-1] * torch.finfo(like.dtype).tiny


class GradSampler:
    """The input ``a`` of a layer and the gradient ``b`` of the loss in its output."""

    def __init__(self, module: nn.Module, a: Tensor, b: Tensor):
        self.module, self.a, self.b = module, a, b
        self.weight_trains, self.bias_trains = trains(module.weight), trains(module.bias)

    def masked(self, finite: Tensor) -> "GradSampler":
        """Return the grad sampler in which records that are not finite have no gradient."""
        return type(self)(self.module, masked(self.a, finite), masked(self.b, finite))


class RowsGradSampler(GradSampler):
    """A layer whose per-record gradients, ``rows`` and ``bias_rows``, are small enough to make."""

    rows: Tensor | None = None
    bias_rows: Tensor | None = None

    def norm2(self):
        """Return the sum of the squares of the rows."""
        parts = [r for r in (self.rows, self.bias_rows) if r is not None]
        return sum(lengths_of(r.shape[1])(r).square_() for r in parts)

    def add(self, weight, views):
        """Add weight^T rows."""
        if self.rows is not None:
            views[self.module.weight].view(-1).addmv_(self.rows.t(), weight)
        if self.bias_rows is not None:
            views[self.module.bias].view(-1).addmv_(self.bias_rows.t(), weight)
