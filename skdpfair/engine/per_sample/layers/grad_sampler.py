"""Interface and registry of grad samplers: norms and weighted sums, by layer type.

A grad sampler is made from a layer's input ``a`` and the gradient ``b`` of the summed loss in the
layer's output, both with a row for each record first.  No per-record weight gradient of a Linear or
Embedding is ever made; those of convolutions and scales are small.  A parameter that is frozen, or
absent, takes no part.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from skdpfair.engine.batch import Examples
from skdpfair.engine.sparse_rows import SparseBatch

Views: TypeAlias = dict[Tensor, Tensor]

# layer type -> (grad sampler of (module, a, b), whether it covers a module, on which inputs)
LAYERS: dict[type[nn.Module], tuple[Any, Callable[[Any], bool], Callable[[Any, int], bool]]] = {}


def register_grad_sampler(
    *layer_types: type[nn.Module],
    takes: Callable[[Any, int], bool],
    fits: Callable[[Any], bool] = lambda module: True,
) -> Callable[[Any], Any]:
    """Register the decorated grad sampler for layer types.

    ``fits(module)`` tells whether it covers a module; ``takes(module, n_axes)`` whether the layer
    takes the first of so many axes of its input for the batch.
    """

    def decorate(grad_sampler: Any) -> Any:
        LAYERS.update(dict.fromkeys(layer_types, (grad_sampler, fits, takes)))
        return grad_sampler

    return decorate


def is_covered(module: nn.Module) -> bool:
    """Tell whether exactly this layer type has a grad sampler that covers the configuration."""
    return type(module) in LAYERS and LAYERS[type(module)][1](module)


def sampler_of(module: nn.Module) -> Callable[[Any, Tensor, Tensor], GradSampler]:
    """Return the grad sampler of a covered layer."""
    sampler: Callable[[Any, Tensor, Tensor], GradSampler] = LAYERS[type(module)][0]
    return sampler


def takes_rows(module: nn.Module, a: Tensor) -> bool:
    """Tell whether a covered layer takes the first axis of its input for the batch."""
    return LAYERS[type(module)][2](module, a.dim())


def over_batch(rows: Tensor, like: Tensor) -> Tensor:
    """Return (batch,) numbers in a shape that multiplies each record of ``like``."""
    return rows.view(-1, *[1] * (like.dim() - 1))


def masked(rows: Any, finite_mask: Tensor) -> Any:
    """Return the rows with those of records that are not finite set to zero."""
    if isinstance(rows, SparseBatch):
        return rows.masked(finite_mask)
    return torch.where(over_batch(finite_mask, rows), rows, 0)


def rounding(size: Any, like: Tensor) -> Any:
    """Return a bound on the relative error of sums of products of ``size`` numbers."""
    # errors of n roundings grow with sqrt(n), not n (Higham and Mary, "A New Approach to
    # Probabilistic Rounding Error Analysis", SIAM J. Sci. Comput. 2019): 2 sqrt(n) eps is four
    # standard deviations of n errors of eps / 2; 8 eps are for what is rounded besides
    return (8.0 + 2.0 * size**0.5) * torch.finfo(like.dtype).eps


def lengths_of(width: int) -> Callable[[Tensor], Tensor]:
    """Return a function that takes the L2 norm of each row of at most ``width`` numbers.

    `vector_norm` is fast, and adds a row up one number after another: on wide ones it rounds by
    more than the shrink of a step allows for.
    """
    if width <= 4096:
        return partial(torch.linalg.vector_norm, dim=-1)
    return lambda rows: torch.linalg.vecdot(rows, rows).sqrt_()


def lengths(rows: Tensor) -> Tensor:
    """Return the L2 norm of each row."""
    return lengths_of(rows.shape[-1])(rows)


def norm2_of_rows(rows: Sequence[Tensor], examples: Examples) -> Tensor:
    """Return the squared norms of sums of each example's rows; each parameter has some rows.

    Long rows that cancel leave an error where they are added up: the norm stays above both.
    """
    norm2 = sum_of(lengths(r).square_() for r in rows)
    if examples.rows_per_example == 1:
        return norm2
    longest = examples.sum(norm2.sqrt_()).square_().mul_(rounding(examples.sizes, rows[0]))
    return sum_of(lengths(examples.sum(r)).square_() for r in rows).add_(longest)


def sum_of(parts: Iterable[Tensor]) -> Tensor:
    """Return the sum of one or more tensors."""
    return functools.reduce(torch.add, parts)


def underflow(like: Tensor) -> float:
    """Return a bound on what a row's sum of squares loses to underflow."""
    return like.shape[-1] * torch.finfo(like.dtype).tiny


class GradSampler(abc.ABC):
    """The input ``a`` of a layer and the gradient ``b`` of the loss in its output.

    ``sums`` holds the sum of each example's gradients (n_examples, n), by parameter, where `norm2`
    makes it, and ``bias_rows`` (n_rows, n) the gradients in the bias, where that trains.
    """

    sums: Mapping[Tensor, Tensor] = MappingProxyType({})
    bias_rows: Tensor

    def __init__(self, module: Any, a: Any, b: Tensor) -> None:
        self.module, self.a, self.b = module, a, b
        parameters = (getattr(module, name, None) for name in ("weight", "bias"))
        self.weight_trains, self.bias_trains = (
            p is not None and p.requires_grad for p in parameters
        )

    @abc.abstractmethod
    def norm2(self, examples: Examples) -> Tensor:
        """Return the squared norm of the sum of each example's gradients, (n_examples,).

        Gradients that cancel leave an error where `add` sums them up: the norm stays above both.
        What it adds for that follows from the example's own rows.
        """

    @abc.abstractmethod
    def add_weight(self, weight: Tensor, out: Tensor) -> None:
        """Add the weighted sum of the gradients in the layer's weight to ``out``."""

    def weight_rows(self) -> Tensor | None:
        """Return the gradient of each row in the weight, (n_rows, n); None where none is made."""
        return None

    def add(self, weight: Tensor, views: Views) -> None:
        """Add the gradients' sum, weighted by (n_rows,) numbers, to views of the flat gradient."""
        if self.weight_trains:
            self.add_weight(weight, views[self.module.weight])
        if self.bias_trains:
            views[self.module.bias].view(-1).addmv_(self.bias_rows.t(), weight)

    def masked(self, finite_mask: Tensor) -> GradSampler:
        """Return the grad sampler in which records that are not finite have no gradient."""
        return type(self)(self.module, masked(self.a, finite_mask), masked(self.b, finite_mask))


class RowsGradSampler(GradSampler):
    """A layer whose per-record gradients, ``rows`` and ``bias_rows``, are small enough to make."""

    rows: Tensor  # where the weight trains

    def norm2(self, examples: Examples) -> Tensor:
        rows = [self.rows] if self.weight_trains else []
        return norm2_of_rows(rows + ([self.bias_rows] if self.bias_trains else []), examples)

    def weight_rows(self) -> Tensor:
        return self.rows

    def add_weight(self, weight: Tensor, out: Tensor) -> None:
        out.view(-1).addmv_(self.rows.t(), weight)
