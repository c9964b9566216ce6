"""Embeddings: gradients as long as the record, not as the table."""

import torch
from torch import Tensor, nn

from skdpfair.engine.batch import Examples
from skdpfair.engine.per_sample.layers.grad_sampler import (
    GradSampler,
    register_grad_sampler,
    rounding,
)


def _plain_embedding(module: nn.Embedding) -> bool:
    return module.max_norm is None and not module.scale_grad_by_freq


@register_grad_sampler(
    nn.Embedding, fits=_plain_embedding, takes=lambda module, n_axes: n_axes >= 1
)
class EmbeddingGradSampler(GradSampler):
    """An Embedding: ``a`` holds indices; equal ones within a record share a row of the table."""

    def __init__(self, module: nn.Embedding, a: Tensor, b: Tensor) -> None:
        # gradients of codes that the table lacks are NaN
        a = a.reshape(len(a), -1).clamp(0, len(module.weight) - 1)
        b = b.reshape(len(b), a.shape[1], -1)
        if module.padding_idx is not None:
            b = torch.where((a == module.padding_idx)[..., None], 0.0, b)
        super().__init__(module, a, b)

    def norm2(self, examples: Examples) -> Tensor:
        # the sum of b_s.b_t over an example's positions s, t with equal indices
        blocks = examples.blocks(self.a[..., None], self.b)
        return torch.cat([self._norm2(a, b) for a, b in blocks])

    def _norm2(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the squared norms, above the errors of sums in the type of the gradients."""
        equal = a == a.transpose(1, 2)
        products = torch.bmm(b, b.transpose(1, 2))
        length = torch.linalg.vector_norm(b, dim=2)
        longest = torch.where(equal, length[:, :, None] * length[:, None, :], 0.0).sum((1, 2))
        norm2 = torch.where(equal, products, 0.0).sum((1, 2)).clamp(min=0.0)
        guarded: Tensor = norm2 + rounding(b.shape[2], self.b) * longest
        return guarded

    def add_weight(self, weight: Tensor, out: Tensor) -> None:
        rows = (self.b * weight[:, None, None]).flatten(0, 1)
        out.index_add_(0, self.a.reshape(-1), rows)
