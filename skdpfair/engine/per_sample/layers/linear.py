"""Linear layers: gradients of rank one, never made for each record."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from skdpfair.engine.batch import Examples
from skdpfair.engine.per_sample.layers.grad_sampler import (
    GradSampler,
    Views,
    lengths,
    masked,
    register_grad_sampler,
    rounding,
    sum_of,
    underflow,
)
from skdpfair.engine.sparse_rows import SparseBatch


@register_grad_sampler(nn.Linear, takes=lambda module, n_axes: n_axes >= 2)
def linear_grad_sampler(module: nn.Linear, a: Tensor, b: Tensor) -> LinearGradSampler:
    """Return the grad sampler of a Linear on vectors or on sequences."""
    return (LinearGradSampler if a.dim() == 2 else SequenceGradSampler)(module, a, b)


class LinearGradSampler(GradSampler):
    """A Linear on vectors: the gradient of record i is ``b_i a_i^T``, of rank one."""

    def norm2(self, examples: Examples) -> Tensor:
        """Return |b|^2 (|a|^2 + 1) of one row, and squared norms of sums of several."""
        if examples.each != 1:
            return self._norm2_of_sums(examples)
        norm2: Tensor = torch.linalg.vecdot(self.b, self.b).add_(underflow(self.b))
        if self.weight_trains:
            a2 = torch.linalg.vecdot(self.a, self.a)
            norm2.mul_(a2.add_(1.0 if self.bias_trains else underflow(self.a)))
        return norm2

    def _norm2_of_sums(self, examples: Examples) -> Tensor:
        """Return the squared norms of sums over each example's rows and positions."""
        norm2 = self._squares_of_sums(examples)
        # `add` sums all up in one go, where long parts that cancel leave an error: the norm stays
        # above gradient and error, so that no weighted part grows long
        slack = rounding(max(*self.a.shape[1:], self.b.shape[-1]), self.b)
        # nor may squares that underflow on one side hide what is long on the other
        least = (max(underflow(self.a), underflow(self.b)) / slack) ** 0.5
        length = lengths(self.b).add_(least)
        if self.weight_trains:
            length.mul_(self._input_lengths().add_(1.0 if self.bias_trains else least))
        length = length if length.dim() == 1 else length.sum(1)
        return norm2.clamp_(min=0.0).add_(examples.sum(length).square_().mul_(slack))

    def _input_lengths(self) -> Tensor:
        return lengths(self.a)

    def _squares_of_sums(self, examples: Examples) -> Tensor:
        # no larger than the inputs
        if self.b.dim() == 2 and self.b.shape[1] <= examples.largest:
            self.sums = sums = {}
            if self.weight_trains:
                sums[self.module.weight] = examples.outer_sum(self.b, self.a).flatten(1)
            if self.bias_trains:
                sums[self.module.bias] = examples.sum(self.b)
            return sum_of(lengths(rows).square_() for rows in sums.values())
        return torch.cat([self._squares(*block) for block in examples.blocks(self.a, self.b)])

    def _squares(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the squared norms of the sums of b_t (a_t, 1)^T over positions t, (n,).

        They are sums of (a_s.a_t + 1) b_s.b_t over positions s, t, unless these are many.
        """
        if not self.weight_trains:
            return b.sum(1).square_().sum(1)
        if 2 * a.shape[1] ** 2 > a.shape[2] * b.shape[2]:
            norm2 = torch.bmm(b.transpose(1, 2), a).square_().sum((1, 2))
            return norm2.add_(b.sum(1).square_().sum(1)) if self.bias_trains else norm2
        gram, products = torch.bmm(b, b.transpose(1, 2)), torch.bmm(a, a.transpose(1, 2))
        gram.mul_(products.add_(1.0) if self.bias_trains else products)
        return gram.sum((1, 2))

    def add(self, weight: Tensor, views: Views) -> None:
        """Weigh the narrower of a and b."""
        a, b, module = self.a, self.b, self.module
        if self.weight_trains:
            if a.shape[1] < b.shape[1]:
                views[module.weight].addmm_(b.t(), a * weight[:, None])
            else:
                views[module.weight].addmm_((b * weight[:, None]).t(), a)
        if self.bias_trains:
            views[module.bias].addmv_(b.t(), weight)

    def factor(self, scale: Tensor, x: Tensor) -> Tensor:
        """Return the numbers (batch,) by which ``b`` is added to the output on ``x``."""
        if not self.weight_trains:
            return scale
        product: Tensor = torch.linalg.vecdot(self.a, x)
        return scale * (product + 1.0 if self.bias_trains else product)

    def shift(self, scale: Tensor, x: Tensor) -> Tensor:
        """Return the change scale b (a.x + 1) of the output."""
        return self.factor(scale, x)[:, None] * self.b

    def shift_back(self, scale: Tensor, b: Tensor) -> Tensor | None:
        """Return the change of the gradient in the layer's input by the shift; None for none."""
        if not self.weight_trains:
            return None
        moved: Tensor = (scale * torch.linalg.vecdot(self.b, b))[:, None] * self.a
        return moved


class SparseGradSampler(LinearGradSampler):
    """A first Linear whose inputs ``a`` are a `SparseBatch`."""

    a: SparseBatch  # type: ignore[assignment]  # which is no tensor

    def __init__(self, module: nn.Linear, a: Any, b: Tensor) -> None:
        super().__init__(module, a, b)

    def masked(self, finite: Tensor) -> SparseGradSampler:
        """Return the grad sampler in which records that are not finite have no gradient."""
        return SparseGradSampler(self.module, self.a.masked(finite), masked(self.b, finite))

    def norm2(self, examples: Examples) -> Tensor:
        """Return the squared norms of sums over each example's rows."""
        return self._norm2_of_sums(examples)

    def _input_lengths(self) -> Tensor:
        return self.a.lengths(self.b)

    def _squares_of_sums(self, examples: Examples) -> Tensor:
        norm2 = self.b.new_zeros(len(examples), dtype=torch.float64)
        if self.weight_trains:
            norm2 += self.a.squares_of_sums(self.b, examples.of_rows(self.b.device), len(examples))
        if self.bias_trains:
            norm2 += examples.sum(self.b.double()).square_().sum(1)
        return norm2

    def add(self, weight: Tensor, views: Views) -> None:
        """Weigh b."""
        if self.weight_trains:
            self.a.add_outer_(self.b * weight[:, None], views[self.module.weight])
        if self.bias_trains:
            views[self.module.bias].addmv_(self.b.t(), weight)

    def factor(self, scale: Tensor, x: Any) -> Tensor:
        """Return the numbers (batch,) by which ``b`` is added to the output on ``x``."""
        if not self.weight_trains:
            return scale
        product = self.a.dot(x)
        return scale * (product + 1.0 if self.bias_trains else product)


class SequenceGradSampler(LinearGradSampler):
    """A Linear along further axes: Gram matrices if these are short, else instantiated."""

    def __init__(self, module: nn.Linear, a: Tensor, b: Tensor) -> None:
        super().__init__(module, a.flatten(1, -2), b.flatten(1, -2))
        if self.bias_trains:
            self.bias_rows = self.b.sum(1)

    def norm2(self, examples: Examples) -> Tensor:
        """Return the squared norms of sums over positions, and over the rows of examples."""
        return self._norm2_of_sums(examples)

    def add(self, weight: Tensor, views: Views) -> None:
        """Weigh b, then sum over records and positions at once."""
        if self.weight_trains:
            weighted = (self.b * weight[:, None, None]).flatten(0, 1)
            views[self.module.weight].addmm_(weighted.t(), self.a.flatten(0, 1))
        if self.bias_trains:
            views[self.module.bias].addmv_(self.bias_rows.t(), weight)
