"""Linear layers: gradients of rank one, never made for each record."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from skdpfair.engine.per_sample.layers.grad_sampler import (
    GradSampler,
    UnitGradSampler,
    UnitRowsGradSampler,
    Views,
    lengths_of,
    register_grad_sampler,
    rounding,
    underflow,
)
from skdpfair.engine.units import Units


@register_grad_sampler(nn.Linear, takes=lambda module, n_axes: n_axes >= 2)
def linear_grad_sampler(module: nn.Linear, a: Tensor, b: Tensor) -> LinearGradSampler:
    """Return the grad sampler of a Linear on vectors or on sequences."""
    return (LinearGradSampler if a.dim() == 2 else SequenceGradSampler)(module, a, b)


class LinearGradSampler(GradSampler):
    """A Linear on vectors: the gradient of record i is ``b_i a_i^T``, of rank one."""

    def norm2(self) -> Tensor:
        """Return the squared norm |b|^2 (|a|^2 + 1)."""
        norm2: Tensor = torch.linalg.vecdot(self.b, self.b).add_(underflow(self.b))
        if self.weight_trains:
            a2 = torch.linalg.vecdot(self.a, self.a)
            norm2.mul_(a2.add_(1.0 if self.bias_trains else underflow(self.a)))
        return norm2

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

    def by_unit(self, units: Units) -> GradSampler:
        """Add up the gradients where each person's sum is no larger than her inputs."""
        if self.b.shape[1] > units.most:
            return UnitGradSampler(self, units)
        rows = units.outer_sum(self.b, self.a).flatten(1) if self.weight_trains else None
        bias_rows = units.sum(self.b) if self.bias_trains else None
        return UnitRowsGradSampler(self, units, rows, bias_rows, self._unit_slack(units))

    def _unit_slack(self, units: Units) -> Tensor:
        """Return what keeps the squared norm above the errors of sums that cancel."""
        a, b = self.a, self.b
        slack = rounding(max(a.shape[1], b.shape[1]), b)
        # squares that underflow, of sums that cancel, must not hide what is large
        least = (max(a.shape[1], b.shape[1]) * torch.finfo(b.dtype).tiny / slack) ** 0.5
        length = lengths_of(b.shape[1])(b).add_(least)
        if self.weight_trains:
            long_a = lengths_of(a.shape[1])(a)
            length.mul_(long_a.add_(1.0 if self.bias_trains else least))
        return units.sum(length).square_().mul_(slack)

    def unit_norm2(self, units: Units) -> Tensor:
        """Return the sum over a person's records i, j of (a_i.a_j + 1) b_i.b_j."""
        found = []
        for records, each in units.runs(max(self.a.shape[1], self.b.shape[1])):
            gram = _gram(self.b[records], each)
            if self.weight_trains:
                products = _gram(self.a[records], each)
                gram.mul_(products.add_(1.0) if self.bias_trains else products)
            found.append(gram.sum((1, 2)))
        return torch.cat(found).clamp_(min=0.0).add_(self._unit_slack(units))

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


def _gram(rows: Tensor, each: int) -> Tensor:
    """Return the products of the rows of each person, in float64."""
    rows = rows.double().view(-1, each, rows.shape[1])
    return torch.bmm(rows, rows.transpose(1, 2))


class SequenceGradSampler(LinearGradSampler):
    """A Linear along further axes: Gram matrices if these are short, else instantiated."""

    by_unit = GradSampler.by_unit

    def __init__(self, module: nn.Linear, a: Tensor, b: Tensor) -> None:
        super().__init__(module, a.flatten(1, -2), b.flatten(1, -2))
        if self.bias_trains:
            self.bias_rows = self.b.sum(1)

    def norm2(self) -> Tensor:
        """Return the squared norm of sum_t b_t a_t^T, and of sum_t b_t."""
        return self._norm2(self.a.shape[1], self.b)

    def unit_norm2(self, units: Units) -> Tensor:
        """Return that over the positions of all records of a person."""
        wide: SequenceGradSampler = self.as_sequences(units, torch.float64)
        return wide._norm2(self.a.shape[1], self.b)

    def _norm2(self, n_positions: int, like: Tensor) -> Tensor:
        """Return the squared norms, above the errors of sums in the type of ``like``."""
        a, b = self.a, self.b
        norm2 = b.new_zeros(len(b))
        if self.bias_trains:
            norm2 = norm2 + self.bias_rows.square().sum(1)
        if not self.weight_trains:
            return norm2
        if 2 * a.shape[1] ** 2 <= a.shape[2] * b.shape[2]:
            gram = torch.bmm(a, a.transpose(1, 2)) * torch.bmm(b, b.transpose(1, 2))
            norm2 = norm2 + gram.sum((1, 2)).clamp(min=0.0)
        else:
            norm2 = norm2 + torch.bmm(b.transpose(1, 2), a).square().sum((1, 2))
        # `add` sums positions and records in one go, where large positions that cancel leave an
        # error: the norm stays above gradient and error, so that no weighted part grows large
        long_a, long_b = torch.linalg.vector_norm(a, dim=2), torch.linalg.vector_norm(b, dim=2)
        terms: int = max(n_positions, a.shape[2], b.shape[2])
        norm2 = norm2 + rounding(terms, like) * (long_a * long_b).sum(1).square()
        # nor may squares that underflow on one side hide what is large on the other
        norm2 = norm2 + underflow(b) * long_a.sum(1).square()
        guarded: Tensor = norm2 + underflow(a) * long_b.sum(1).square()
        return guarded

    def add(self, weight: Tensor, views: Views) -> None:
        """Weigh b, then sum over records and positions at once."""
        if self.weight_trains:
            weighted = (self.b * weight[:, None, None]).flatten(0, 1)
            views[self.module.weight].addmm_(weighted.t(), self.a.flatten(0, 1))
        if self.bias_trains:
            views[self.module.bias].addmv_(self.bias_rows.t(), weight)
