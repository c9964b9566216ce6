"""Grad samplers: norms and weighted sums of per-record gradients, from what these are made of."""

from __future__ import annotations

import abc
import copy
from collections.abc import Callable, Mapping
from functools import partial, reduce
from types import MappingProxyType
from typing import Any, Self, TypeAlias, cast

import torch
from torch import Tensor

from skdpfair.engine.batch import Examples
from skdpfair.engine.sparse_rows import SparseBatch

_MAX_SUM = 2**14  # numbers of an example's gradient that is summed up: 64 KiB
_MAX_PAIRS = 2**24  # numbers of pairs of positions that are in memory at a time: 128 MiB
Views: TypeAlias = dict[Tensor, Tensor]
Optional: TypeAlias = Tensor | None
vecdot: Callable[[Tensor, Tensor], Tensor] = torch.linalg.vecdot


def masked(rows: Any, finite_mask: Tensor) -> Any:
    """Return the rows with those of records that are not finite set to zero."""
    if isinstance(rows, SparseBatch):
        return rows.masked(finite_mask)
    return torch.where(finite_mask.view(-1, *[1] * (rows.dim() - 1)), rows, 0)


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
    return lambda rows: vecdot(rows, rows).sqrt_()


def lengths(rows: Tensor) -> Tensor:
    """Return the L2 norm of each row."""
    return lengths_of(rows.shape[-1])(rows)


def underflow(like: Tensor) -> float:
    """Return a bound on what a row's sum of squares loses to underflow."""
    return like.shape[-1] * torch.finfo(like.dtype).tiny


class GradSampler(abc.ABC):
    """The gradients of a batch's rows in a parameter, or a part of them, as what they are made of.

    ``sums`` holds the sum of each example's gradients (n_examples, n), by parameter, where `norm2`
    makes it.
    """

    sums: Mapping[Tensor, Tensor] = MappingProxyType({})
    of_rows: tuple[str, ...] = ("a", "b")  # attributes with a row for each of the batch

    @abc.abstractmethod
    def norm2(self, examples: Examples) -> Tensor:
        """Return the squared norm of the sum of each example's gradients, (n_examples,).

        Gradients that cancel leave an error where `add` sums them up: the norm stays above both.
        What it adds for that follows from the example's own rows.
        """

    @abc.abstractmethod
    def add(self, weight: Tensor, views: Views) -> None:
        """Add the gradients' sum, weighted by (n_rows,) numbers, to views of the flat gradient."""

    def masked(self, finite_mask: Tensor) -> Self:
        """Return the grad sampler in which records that are not finite have no gradient."""
        sampler = copy.copy(self)
        for name in self.of_rows:
            setattr(sampler, name, masked(getattr(self, name), finite_mask))
        return sampler

    def rows(self) -> dict[Tensor, Tensor]:
        """Return the gradient of each row (n_rows, n), by parameter; none where they are long."""
        return {}


class RowsGradSampler(GradSampler):
    """The gradients (n_rows, ...) in one parameter."""

    of_rows = ("gradients",)

    def __init__(self, gradients: Tensor, parameter: Tensor) -> None:
        self.gradients = gradients.reshape(len(gradients), parameter.numel())
        self.parameter = parameter

    def norm2(self, examples: Examples) -> Tensor:
        gradients = self.gradients
        if examples.rows_per_example != 1:
            gradients = examples.sum(gradients)
            self.sums = {self.parameter: gradients}
        return lengths(gradients).square_().add_(underflow(gradients))

    def add(self, weight: Tensor, views: Views) -> None:
        views[self.parameter].view(-1).addmv_(self.gradients.t(), weight)

    def rows(self) -> dict[Tensor, Tensor]:
        return {self.parameter: self.gradients}


class ProductGradSampler(GradSampler):
    """The gradient of a row is ``b_i a_i^T``, of rank one, in a weight, and ``b_i`` in a bias.

    One of both may be None. ``places`` says where in a longer weight its numbers are, by rows.
    Without a bias, factors may be (n, positions, d): the gradient is the sum over positions.
    """

    def __init__(
        self, a: Any, b: Tensor, weight: Optional, bias: Optional = None, places: Optional = None
    ) -> None:
        self.a, self.b = a, b
        self.weight, self.bias, self.places = weight, bias, places

    def norm2(self, examples: Examples) -> Tensor:
        norm2 = self._squares_of_sums(examples)
        # `add` sums all up in one go, where long parts that cancel leave an error: the norm stays
        # above gradient and error, so that no weighted part grows long
        slack = rounding(max(*self.a.shape[1:], self.b.shape[-1]), self.b)
        # nor may squares that underflow on one side hide what is long on the other
        least = (max(underflow(self.a), underflow(self.b)) / slack) ** 0.5
        length = lengths(self.b).add_(least)
        if self.weight is not None:
            of_inputs = lengths(self.a) if isinstance(self.a, Tensor) else self.a.lengths(self.b)
            length.mul_(of_inputs.add_(least if self.bias is None else 1.0))
        length = length if length.dim() == 1 else length.sum(1)
        return norm2.clamp_(min=0.0).add_(examples.sum(length).square_().mul_(slack))

    def _squares_of_sums(self, examples: Examples) -> Tensor:
        # not by the sizes of others, whose sum would be rounded otherwise without the largest
        # or of few outputs: sums of an example then take about as much memory as its inputs
        n_few = max(4, _MAX_SUM // max(1, self.a.shape[-1]))
        if self.b.dim() == 2 and self.b.shape[1] <= n_few and self.places is None:
            self.sums = sums = {}
            if self.weight is not None:
                sums[self.weight] = examples.outer_sum(self.b, self.a).flatten(1)
            if self.bias is not None:
                sums[self.bias] = examples.sum(self.b)
            return reduce(torch.add, (lengths(rows).square_() for rows in sums.values()))
        return torch.cat([self._squares(*block) for block in examples.blocks(self.a, self.b)])

    def _squares(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the squared norms of the sums of b_t (a_t, 1)^T over positions t, (n,).

        They are sums of (a_s.a_t + 1) b_s.b_t over positions s, t, unless these are many.
        """
        if self.weight is None:
            return b.sum(1).square_().sum(1)
        # two Gram matrices of T positions, or the gradient of d x p numbers: what is smaller (ghost
        # norms of Li et al., "Large Language Models Can Be Strong Differentially Private Learners",
        # ICLR 2022; mixed by Bu et al., "Scalable and Efficient Training of Large Convolutional
        # Neural Networks with Differential Privacy", NeurIPS 2022)
        if 2 * a.shape[1] ** 2 > a.shape[2] * b.shape[2]:
            norm2 = torch.bmm(b.transpose(1, 2), a).square_().sum((1, 2))
            return norm2 if self.bias is None else norm2.add_(b.sum(1).square_().sum(1))
        gram, products = torch.bmm(b, b.transpose(1, 2)), torch.bmm(a, a.transpose(1, 2))
        gram.mul_(products if self.bias is None else products.add_(1.0))
        return gram.sum((1, 2))

    def add(self, weight: Tensor, views: Views) -> None:
        if self.weight is not None:
            out = views[self.weight]
            if self.places is None:
                self.add_weight(weight, out.view(self.b.shape[-1], -1))
            else:
                total = out.new_zeros(self.b.shape[-1], self.a.shape[-1])
                self.add_weight(weight, total)
                out.view(-1).index_add_(0, self.places, total.view(-1))
        if self.bias is not None:
            views[self.bias].addmv_(self.b.t(), weight)

    def add_weight(self, weight: Tensor, out: Tensor) -> None:
        """Add the weighted sum of the products to a matrix."""
        a, b, weight = self.a, self.b, weight.view(-1, *[1] * (self.b.dim() - 1))
        # the narrower of both is weighed
        if a.shape[-1] < b.shape[-1]:
            a = a * weight
        else:
            b = b * weight
        out.addmm_(b.flatten(0, -2).t(), a.flatten(0, -2))

    def shift(self, scale: Tensor, x: Any) -> Tensor:
        """Return the change scale b (a.x + 1) of the output on ``x``."""
        if self.weight is not None:
            product = vecdot(self.a, x) if isinstance(self.a, Tensor) else self.a.dot(x)
            scale = scale * (product if self.bias is None else product + 1.0)
        return scale[:, None] * self.b

    def shift_back(self, scale: Tensor, b: Tensor) -> Tensor | None:
        """Return the change of the gradient in the layer's input by the shift; None for none."""
        if self.weight is None:
            return None
        return (scale * vecdot(self.b, b))[:, None] * cast("Tensor", self.a)


class VectorGradSampler(ProductGradSampler):
    """Factors of one position: of records with one row, no sum is made."""

    def norm2(self, examples: Examples) -> Tensor:
        if examples.rows_per_example != 1:
            return super().norm2(examples)
        norm2 = vecdot(self.b, self.b).add_(underflow(self.b))
        return norm2.mul_(vecdot(self.a, self.a).add_(underflow(self.a)))

    def rows(self) -> dict[Tensor, Tensor]:
        if self.weight is None or self.places is not None:
            return {}
        return {self.weight: (self.b[:, :, None] * self.a[:, None]).flatten(1)}


class SparseGradSampler(ProductGradSampler):
    """Factors of a first linear layer whose inputs ``a`` are a `SparseBatch`."""

    a: SparseBatch

    def _squares_of_sums(self, examples: Examples) -> Tensor:
        norm2 = self.b.new_zeros(len(examples), dtype=torch.float64)
        if self.weight is not None:
            of = examples.spread(torch.arange(len(examples), device=self.b.device))
            norm2 += self.a.squares_of_sums(self.b, of, len(examples))
        if self.bias is not None:
            norm2 += examples.sum(self.b.double()).square_().sum(1)
        return norm2

    def add_weight(self, weight: Tensor, out: Tensor) -> None:
        self.a.add_outer_(self.b * weight[:, None], out)


class LookupGradSampler(GradSampler):
    """Gradients ``b`` (n_rows, positions, d) in the rows ``a`` (n_rows, positions) of a table.

    Equal numbers within a record share a row.  All sums are of float64: a code that is frequent
    would add up its rounding.
    """

    def __init__(self, a: Tensor, b: Tensor, table: Tensor) -> None:
        self.a, self.b, self.table = a, b, table

    def norm2(self, examples: Examples) -> Tensor:
        if examples.rows_per_example == self.a.shape[1] == 1:
            return lengths(self.b[:, 0]).square_().add_(underflow(self.b))
        parts = []
        for a, b in examples.blocks(self.a[..., None], self.b):
            size = max(1, _MAX_PAIRS // max(1, min(a.shape[1] ** 2, self.table.numel())))
            pairs = zip(a[..., 0].split(size), b.double().split(size), strict=True)
            parts += [self._norm2(*pair) for pair in pairs]
        return torch.cat(parts).add_(underflow(self.b))

    def _norm2(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the squared norms: sums of b_s.b_t over positions s, t of one row, or of rows."""
        if a.shape[1] ** 2 <= self.table.numel():
            products, length = torch.bmm(b, b.transpose(1, 2)), lengths(b)
            # above the error of products that cancel
            products += rounding(b.shape[2], b) * length[:, :, None] * length[:, None]
            is_same = a[:, :, None] == a[:, None]
            return torch.where(is_same, products, 0.0).sum((1, 2)).clamp_(min=0.0)
        n = self.table.numel() // b.shape[2]
        places = a + n * torch.arange(len(a), device=a.device)[:, None]
        sums = b.new_zeros(len(a) * n, b.shape[2])
        sums.index_add_(0, places.flatten(), b.flatten(0, 1))
        return sums.square_().view(len(a), -1).sum(1)

    def add(self, weight: Tensor, views: Views) -> None:
        rows = (self.b.double() * weight[:, None, None]).flatten(0, 1)
        out, index = views[self.table].view(-1, rows.shape[1]), self.a.reshape(-1)
        if len(index) >= len(out):
            # rounded before it is added, as below: how many rows there are changes no sum
            out.add_(rows.new_zeros(out.shape).index_add_(0, index, rows).to(out.dtype))
            return
        places, index = index.unique(return_inverse=True)
        sums = rows.new_zeros(len(places), rows.shape[1]).index_add_(0, index, rows)
        out.index_add_(0, places, sums.to(out.dtype))
