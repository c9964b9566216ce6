"""FairLens' regularisers, record by record, from statistics of the two groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from skdpfair.mechanism import EarlySample, Extra, PerSample, PerSampleGradients
from skdpfair.methods._clipping import NOT_NEGATIVE, clip_to

if TYPE_CHECKING:
    from skdpfair.methods.fairlens import FairLens
    from skdpfair.methods.fairlens_dp import FairLensDP

WEIGHTS = dict.fromkeys(("gamma1", "gamma2"), NOT_NEGATIVE)


def group_rows(sample: PerSample, n_groups: int) -> Tensor:
    """Return per record: its group as 0/1 columns, then the second class's probability there.

    A row's norm is at most the root of 2.
    """
    member = one_hot(sample.group, n_groups).to(sample.probability.dtype)
    return torch.cat([member, member * sample.probability[:, 1:2]], dim=1)


def clipped_to(bound: Tensor, sample: PerSampleGradients) -> Tensor:
    """Return each record's gradient, shortened to ``bound``."""
    return sample.gradient * clip_to(bound, sample.norm)[:, None]


def in_groups(rows: Tensor, sample: PerSample, n_groups: int) -> Tensor:
    """Return each record's row in its group's columns, zeros in the others'."""
    member = one_hot(sample.group, n_groups).to(rows.dtype)
    return (member[:, :, None] * rows[:, None, :]).flatten(1)


def second(sample: PerSample, groups: Tensor, batch_size: Tensor | float) -> Tensor:
    r"""Return slopes whose sum is ``batch_size`` times the gradient of :math:`R_2`.

    ``groups`` holds the sums of :func:`group_rows`.
    """
    size, score = groups.view(2, -1)
    mean = (score / size.clamp(min=1.0)).clamp(0.0, 1.0)
    factor: Tensor = batch_size * (1.0 - 2.0 * mean) / (2.0 * size.clamp(min=1.0))
    p = sample.probability
    logit_gradient = -p[:, 1:2] * p  # of the second class's probability in all logits
    logit_gradient[:, 1] += p[:, 1]
    return factor.index_select(0, sample.group)[:, None] * logit_gradient


def first(
    sample: PerSampleGradients,
    groups: Tensor,
    gradients: Tensor,
    clipped: Tensor,
    bound: Tensor,
    batch_size: Tensor | float,
) -> Tensor:
    r"""Return vectors whose Hessian products sum to ``batch_size`` times the gradient of R_1.

    ``gradients`` (n_groups, n_parameters) and ``clipped`` (n_parameters,) are sums over the batch;
    the first two groups are compared.
    """
    size = groups.view(2, -1)[0].clamp(min=1.0)
    u = (clipped - gradients.sum(0)) / batch_size
    mean = gradients / size[:, None]
    v = mean[0] - mean[1]
    sides = torch.zeros_like(size)
    sides[:1].fill_(1.0)
    sides[1:2].fill_(-1.0)
    own = (batch_size / size * sides).index_select(0, sample.group)
    along_v, along_g = _through_clipping(sample, bound, v)
    vectors = torch.stack([own, along_v], dim=1) @ torch.stack([u, v])
    vectors.addcmul_(sample.gradient, along_g[:, None])
    return vectors.mul_(torch.sign(torch.dot(u, v)))


def _through_clipping(
    sample: PerSampleGradients, bound: Tensor, v: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Return factors of v and g in the vector whose Hessian product is grad <clip(g) - g, v>.

    For a clipped record it is :math:`(C / \|g\| - 1) v - C \langle g, v \rangle / \|g\|^3 g`.
    """
    norm = sample.norm.clamp(min=torch.finfo(sample.norm.dtype).tiny)
    share = bound / norm
    inward = share * (sample.gradient @ v) / norm / norm
    clipped = sample.norm > bound
    return torch.where(clipped, share - 1.0, 0.0), torch.where(clipped, -inward, 0.0)


def statistics(sample: PerSampleGradients, n_groups: int, c: Tensor, r: Tensor) -> Tensor:
    """Return the rows of all sums, both regularisers', of norm at most 2; see "fairlens_dp"."""
    grouped = in_groups(clipped_to(r, sample) / r, sample, n_groups)
    return torch.cat([group_rows(sample, n_groups), grouped, clipped_to(c, sample) / c], dim=1)


def extra_of(
    method: FairLens | FairLensDP,
    sample: EarlySample,
    groups: Tensor,
    sums: tuple[Tensor, Tensor] | None,
    batch_size: Tensor | float,
) -> Extra:
    """Return what both regularisers, weighted, add to each record's gradient.

    ``sums`` holds ``gradients`` and ``clipped`` of :func:`first`; None leaves R_1 out.
    """
    logit_gradient = method.gamma2 * second(sample, groups, batch_size)
    if sums is None:
        return Extra(logit_gradient)
    bound = sample.norm.new_full((), method.number("max_grad_norm", 1.0))
    hvp_vectors = first(sample, groups, *sums, bound, batch_size)
    return Extra(logit_gradient, method.gamma1 * hvp_vectors)
