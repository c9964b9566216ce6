"""Linear layers: gradients of rank one, never made for each record."""

import torch
from torch import nn

from skdpfair.engine.per_sample.layers.book import Book, register, rounding


@register(nn.Linear)
def linear_book(module, a, b):
    """Return the book of a Linear on vectors or on sequences."""
    return (LinearBook if a.dim() == 2 else SequenceBook)(module, a, b)


class LinearBook(Book):
    """A Linear on vectors: the gradient of record i is ``b_i a_i^T``, of rank one."""

    def norm2(self):
        """Return |b|^2 (|a|^2 + 1)."""
        norm2 = torch.linalg.vecdot(self.b, self.b)
        if self.weight_trains:
            a2 = torch.linalg.vecdot(self.a, self.a)
            norm2.mul_(a2.add_(1.0) if self.bias_trains else a2)
        return norm2

    def add(self, weight, views):
        """Weigh the narrower of a and b."""
        a, b, module = self.a, self.b, self.module
        if self.weight_trains:
            if a.shape[1] < b.shape[1]:
                views[module.weight].addmm_(b.t(), a * weight[:, None])
            else:
                views[module.weight].addmm_((b * weight[:, None]).t(), a)
        if self.bias_trains:
            views[module.bias].addmv_(b.t(), weight)

    def factor(self, scale, x):
        """Return the numbers (batch,) by which ``b`` is added to the output on ``x``."""
        if not self.weight_trains:
            return scale
        product = torch.linalg.vecdot(self.a, x)
        return scale * (product + 1.0 if self.bias_trains else product)

    def shift(self, scale, x):
        """Return scale b (a.x + 1)."""
        return self.factor(scale, x)[:, None] * self.b

    def shift_back(self, scale, b):
        """Return what the gradient in the layer's input gains by the shift, None for nothing."""
        if not self.weight_trains:
            return None
        return (scale * torch.linalg.vecdot(self.b, b))[:, None] * self.a


class SequenceBook(LinearBook):
    """A Linear along further axes: Gram matrices if these are short, else instantiated."""

    def __init__(self, module, a, b):
        super().__init__(module, a.flatten(1, -2), b.flatten(1, -2))

    def norm2(self):
        """Return the squared norm of sum_t b_t a_t^T, and of sum_t b_t."""
        a, b, norm2 = self.a, self.b, self.b.new_zeros(len(self.b))
        if self.bias_trains:
            norm2 = norm2 + b.sum(1).square().sum(1)
        if self.weight_trains and 2 * a.shape[1] ** 2 <= a.shape[2] * b.shape[2]:
            gram = torch.bmm(a, a.transpose(1, 2)) * torch.bmm(b, b.transpose(1, 2))
            norm2 = norm2 + gram.sum((1, 2)).clamp(min=0.0)
            # what cancels leaves an error of this order: stay above it, for the bound must hold
            lengths = torch.linalg.vector_norm(a, dim=2) * torch.linalg.vector_norm(b, dim=2)
            norm2 = norm2 + rounding(max(a.shape[2], b.shape[2]), b) * lengths.sum(1).square()
        elif self.weight_trains:
            norm2 = norm2 + torch.bmm(b.transpose(1, 2), a).square().sum((1, 2))
        return norm2

    def add(self, weight, views):
        """Weigh b, then sum over records and positions at once."""
        weighted = (self.b * weight[:, None, None]).flatten(0, 1)
        if self.weight_trains:
            views[self.module.weight].addmm_(weighted.t(), self.a.flatten(0, 1))
        if self.bias_trains:
            views[self.module.bias].add_(weighted.sum(0))

    def shift(self, scale, x):
        """Return scale (x a^T b + sum_t b_t)."""
        out = self.b.new_zeros(())
        if self.weight_trains:
            out = torch.bmm(torch.bmm(x.flatten(1, -2), self.a.transpose(1, 2)), self.b)
        if self.bias_trains:
            out = out + self.b.sum(1, keepdim=True)
        out = (scale[:, None, None] * out).expand(-1, x[0].numel() // x.shape[-1], -1)
        return out.reshape(*x.shape[:-1], self.b.shape[-1])
