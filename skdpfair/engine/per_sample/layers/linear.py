"""Linear layers: gradients of rank one, never made for each record."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from skdpfair.engine.batch import Examples
from skdpfair.engine.per_sample.layers.grad_sampler import (
    GradSampler,
    lengths,
    register_grad_sampler,
    rounding,
    sum_of,
    underflow,
)
from skdpfair.engine.sparse_rows import SparseBatch


@register_grad_sampler(nn.Linear, takes=lambda module, n_axes: n_axes >= 2)
def linear_grad_sampler(module: nn.Linear, a: Tensor, b: Tensor) -> LinearGradSampler:
    """Return the grad sampler of a Linear on vectors or on sequences."""
    return (VectorGradSampler if a.dim() == 2 else SequenceGradSampler)(module, a, b)


class LinearGradSampler(GradSampler):
    """A Linear: the gradient of a row is ``b_i a_i^T``, of rank one, summed over positions."""

    def __init__(self, module: nn.Linear, a: Any, b: Tensor) -> None:
        super().__init__(module, a, b)
        self.bias_rows = b

    def norm2(self, examples: Examples) -> Tensor:
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
        # two Gram matrices of T positions, or the gradient of d x p numbers: what is smaller (ghost
        # norms of Li et al., "Large Language Models Can Be Strong Differentially Private Learners",
        # ICLR 2022; mixed by Bu et al., "Scalable and Efficient Training of Large Convolutional
        # Neural Networks with Differential Privacy", NeurIPS 2022)
        if 2 * a.shape[1] ** 2 > a.shape[2] * b.shape[2]:
            norm2 = torch.bmm(b.transpose(1, 2), a).square_().sum((1, 2))
            return norm2.add_(b.sum(1).square_().sum(1)) if self.bias_trains else norm2
        gram, products = torch.bmm(b, b.transpose(1, 2)), torch.bmm(a, a.transpose(1, 2))
        gram.mul_(products.add_(1.0) if self.bias_trains else products)
        return gram.sum((1, 2))

    def add_weight(self, weight: Tensor, out: Tensor) -> None:
        a, b = self.a, self.b
        # the narrower of both is weighed
        if a.shape[1] < b.shape[1]:
            out.addmm_(b.t(), a * weight[:, None])
        else:
            out.addmm_((b * weight[:, None]).t(), a)

    def shift(self, scale: Tensor, x: Any) -> Tensor:
        """Return the change scale b (a.x + 1) of the output on ``x``."""
        if self.weight_trains:
            product = self._products(x)
            scale = scale * (product + 1.0 if self.bias_trains else product)
        return scale[:, None] * self.b

    def _products(self, x: Any) -> Tensor:
        product: Tensor = torch.linalg.vecdot(self.a, x)
        return product

    def shift_back(self, scale: Tensor, b: Tensor) -> Tensor | None:
        """Return the change of the gradient in the layer's input by the shift; None for none."""
        if not self.weight_trains:
            return None
        change: Tensor = (scale * torch.linalg.vecdot(self.b, b))[:, None] * self.a
        return change


class VectorGradSampler(LinearGradSampler):
    """A Linear on vectors: of records with one row, no sum is made."""

    def weight_rows(self) -> Tensor:
        rows: Tensor = (self.b[:, :, None] * self.a[:, None]).flatten(1)
        return rows

    def norm2(self, examples: Examples) -> Tensor:
        if examples.rows_per_example != 1:
            return super().norm2(examples)
        norm2: Tensor = torch.linalg.vecdot(self.b, self.b).add_(underflow(self.b))
        if self.weight_trains:
            a2 = torch.linalg.vecdot(self.a, self.a)
            norm2.mul_(a2.add_(1.0 if self.bias_trains else underflow(self.a)))
        return norm2


class SparseGradSampler(LinearGradSampler):
    """A first Linear whose inputs ``a`` are a `SparseBatch`."""

    a: SparseBatch

    def _input_lengths(self) -> Tensor:
        return self.a.lengths(self.b)

    def _squares_of_sums(self, examples: Examples) -> Tensor:
        norm2 = self.b.new_zeros(len(examples), dtype=torch.float64)
        if self.weight_trains:
            of = examples.spread(torch.arange(len(examples), device=self.b.device))
            norm2 += self.a.squares_of_sums(self.b, of, len(examples))
        if self.bias_trains:
            norm2 += examples.sum(self.b.double()).square_().sum(1)
        return norm2

    def add_weight(self, weight: Tensor, out: Tensor) -> None:
        self.a.add_outer_(self.b * weight[:, None], out)

    def _products(self, x: Any) -> Tensor:
        return self.a.dot(x)


class SequenceGradSampler(LinearGradSampler):
    """A Linear along further axes: Gram matrices if these are short, else instantiated."""

    def __init__(self, module: nn.Linear, a: Tensor, b: Tensor) -> None:
        super().__init__(module, a.flatten(1, -2), b.flatten(1, -2))
        if self.bias_trains:
            self.bias_rows = self.b.sum(1)

    def add_weight(self, weight: Tensor, out: Tensor) -> None:
        weighted = (self.b * weight[:, None, None]).flatten(0, 1)
        out.addmm_(weighted.t(), self.a.flatten(0, 1))
