"""Interface and registry of grad samplers: norms and weighted sums, by layer type.

A grad sampler is made from a layer's input ``a`` and the gradient ``b`` of the summed loss in the
layer's output, both with the batch first.  It answers two questions:

* ``norm2()``: squared gradient norm of every record, (batch,);
* ``add(weight, views)``: add the weighted sum of the gradients to views of the flat gradient.

No per-record weight gradient of a Linear or Embedding is ever made; those of convolutions and
scales are small.  A parameter that is frozen, or absent, takes no part.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor, nn

from skdpfair.engine.units import Units

Views: TypeAlias = dict[Tensor, Tensor]
SamplerMaker: TypeAlias = "Callable[[Any, Tensor, Tensor], GradSampler]"
Maker = TypeVar("Maker", bound=SamplerMaker)

# layer type -> (grad sampler of (module, a, b), whether it covers a module, on which inputs)
LAYERS: dict[
    type[nn.Module], tuple[SamplerMaker, Callable[[Any], bool], Callable[[Any, int], bool]]
]
LAYERS = {}


def register_grad_sampler(
    *layer_types: type[nn.Module],
    takes: Callable[[Any, int], bool],
    fits: Callable[[Any], bool] = lambda module: True,
) -> Callable[[Maker], Maker]:
    """Register the decorated grad sampler for layer types.

    ``fits(module)`` tells whether it covers a module; ``takes(module, n_axes)`` whether the layer
    takes the first of so many axes of its input for the batch.
    """

    def decorate(grad_sampler: Maker) -> Maker:
        LAYERS.update(dict.fromkeys(layer_types, (grad_sampler, fits, takes)))
        return grad_sampler

    return decorate


def find(module: nn.Module) -> SamplerMaker | None:
    """Return the grad sampler of exactly this layer type, if it covers the configuration."""
    grad_sampler, fits, _ = LAYERS.get(type(module), (None, _never, _never))
    return grad_sampler if fits(module) else None


def _never(*args: object) -> bool:
    return False


def sampler_of(module: nn.Module) -> SamplerMaker:
    """Return the grad sampler of a covered layer."""
    return LAYERS[type(module)][0]


def takes_rows(module: nn.Module, a: Tensor) -> bool:
    """Tell whether a covered layer takes the first axis of its input for the batch."""
    return LAYERS[type(module)][2](module, a.dim())


def trains(parameter: Any) -> bool:
    """Tell whether the parameter exists and is not frozen."""
    return parameter is not None and parameter.requires_grad


def over_batch(rows: Tensor, like: Tensor) -> Tensor:
    """Return (batch,) numbers in a shape that multiplies each record of ``like``."""
    return rows.view(-1, *[1] * (like.dim() - 1))


def masked(rows: Tensor, finite: Tensor) -> Tensor:
    """Return the rows with those of records that are not finite set to zero."""
    return torch.where(over_batch(finite, rows), rows, 0)


def rounding(size: Any, like: Tensor) -> Any:
    """Return a bound on the relative error of sums of products of ``size`` numbers."""
    return (8.0 + 2.0 * size**0.5) * torch.finfo(like.dtype).eps


def lengths_of(width: int) -> Callable[[Tensor], Tensor]:
    """Return a function that takes the L2 norm of each row of at most ``width`` numbers.

    `vector_norm` is fast, and adds a row up one number after another: on wide ones it rounds by
    more than the shrink of a step allows for.
    """
    if width <= 4096:
        return partial(torch.linalg.vector_norm, dim=1)
    return lambda rows: torch.linalg.vecdot(rows, rows).sqrt_()


def sum_of(parts: Iterable[Tensor]) -> Tensor:
    """Return the sum of tensors, of which there is one at least."""
    return functools.reduce(torch.add, parts)


def underflow(like: Tensor) -> float:
    """Return a bound on what a row's sum of squares loses to underflow."""
    return like.shape[-1] * torch.finfo(like.dtype).tiny


class GradSampler(abc.ABC):
    """The input ``a`` of a layer and the gradient ``b`` of the loss in its output."""

    module: Any

    def __init__(self, module: Any, a: Tensor, b: Tensor) -> None:
        self.module, self.a, self.b = module, a, b
        self.weight_trains, self.bias_trains = trains(module.weight), trains(module.bias)

    @abc.abstractmethod
    def norm2(self) -> Tensor:
        """Return the squared gradient norm of every record, (batch,)."""

    @abc.abstractmethod
    def add(self, weight: Tensor, views: Views) -> None:
        """Add the gradients' sum, weighted by (batch,) numbers, to views of the flat gradient."""

    def masked(self, finite: Tensor) -> GradSampler:
        """Return the grad sampler in which records that are not finite have no gradient."""
        return type(self)(self.module, masked(self.a, finite), masked(self.b, finite))

    def by_unit(self, units: Units) -> GradSampler:
        """Return the grad sampler of persons, see :class:`UnitGradSampler`."""
        return UnitGradSampler(self, units)

    def as_sequences(self, units: Units, dtype: torch.dtype | None = None) -> Any:
        """Return the grad sampler in which the records of a person are positions of a sequence."""
        a, b = self.a, self.b
        if dtype is not None:
            a, b = a.to(dtype) if a.is_floating_point() else a, b.to(dtype)
        return sampler_of(self.module)(self.module, units.pad(a), units.pad(b))

    def unit_norm2(self, units: Units) -> Tensor:
        """Return the squared norm of the sum of each person's gradients, (n_units,), float64.

        Gradients that cancel leave an error where `add` sums them up: the norm stays above both.
        What it adds for that follows from the person's own records, and so must all that may
        round differently where other persons have more or fewer: it is computed in float64.
        """
        raise NotImplementedError


class RowsGradSampler(GradSampler):
    """A layer whose per-record gradients, ``rows`` and ``bias_rows``, are small enough to make."""

    rows: Tensor  # where the weight trains
    bias_rows: Tensor  # where the bias trains

    def norm2(self) -> Tensor:
        """Return the sum of the squares of the rows."""
        parts = [self.rows] if self.weight_trains else []
        parts += [self.bias_rows] if self.bias_trains else []
        return sum_of(lengths_of(r.shape[1])(r).square_() for r in parts)

    def by_unit(self, units: Units) -> GradSampler:
        """Add up the rows of each person."""
        rows = units.sum(self.rows) if self.weight_trains else None
        bias_rows = units.sum(self.bias_rows) if self.bias_trains else None
        longest = units.sum(RowsGradSampler.norm2(self).sqrt_())
        slack = longest.square_().mul_(rounding(units.size, self.b))
        return UnitRowsGradSampler(self, units, rows, bias_rows, slack)

    def add(self, weight: Tensor, views: Views) -> None:
        """Add weight^T rows."""
        if self.weight_trains:
            views[self.module.weight].view(-1).addmv_(self.rows.t(), weight)
        if self.bias_trains:
            views[self.module.bias].view(-1).addmv_(self.bias_rows.t(), weight)


class UnitGradSampler(GradSampler):
    """A layer's gradients by person: the means of those of each person's records."""

    def __init__(self, records: GradSampler, units: Units) -> None:
        self.module, self._records, self._units = records.module, records, units

    def norm2(self) -> Tensor:
        """Return the squared norm of the SUM of every person's gradients, (n_units,)."""
        return self._records.unit_norm2(self._units)

    def add(self, weight: Tensor, views: Views) -> None:
        """Add the persons' gradients: a record has the weight of its person."""
        self._records.add(self._units.spread(self._units.divided(weight)), views)

    def masked(self, finite: Tensor) -> GradSampler:
        """Return the grad sampler in which persons that are not finite have no gradient."""
        return UnitGradSampler(self._records.masked(self._units.spread(finite)), self._units)


class UnitRowsGradSampler(RowsGradSampler):
    """A layer's gradients by person, where the sum of a person's is small enough to make.

    ``rows`` and ``bias_rows`` hold the sums; None where the parameter does not train.  ``slack``
    (n_units,) is added to the squared norms, see `GradSampler.unit_norm2`.
    """

    def __init__(
        self,
        records: GradSampler,
        units: Units,
        rows: Tensor | None,
        bias_rows: Tensor | None,
        slack: Tensor,
    ) -> None:
        self.module, self._records, self._units = records.module, records, units
        self._slack = slack
        self.weight_trains, self.bias_trains = rows is not None, bias_rows is not None
        if rows is not None:
            self.rows = rows
        if bias_rows is not None:
            self.bias_rows = bias_rows

    def norm2(self) -> Tensor:
        """Return the squared norm of the SUM of every person's gradients, and the slack."""
        return super().norm2() + self._slack

    def add(self, weight: Tensor, views: Views) -> None:
        """Add the means, weighted."""
        super().add(self._units.divided(weight), views)

    def masked(self, finite: Tensor) -> GradSampler:
        """Return the grad sampler in which persons that are not finite have no gradient."""
        rows = masked(self.rows, finite) if self.weight_trains else None
        bias_rows = masked(self.bias_rows, finite) if self.bias_trains else None
        records = self._records.masked(self._units.spread(finite))
        return UnitRowsGradSampler(records, self._units, rows, bias_rows, self._slack)
