"""DPSGD-F: give groups with more clipped records a larger bound."""

from dataclasses import dataclass

import torch
from sklearn.utils._param_validation import StrOptions
from torch import Tensor

from skdpfair.engine.mechanism import (
    Clip,
    GroupRows,
    Method,
    NoisySums,
    PerSample,
    Query,
    State,
    Task,
)
from skdpfair.methods._clipping import ClippedMethod, CountingMethod, clip_to


@dataclass(kw_only=True, repr=False, eq=False)
class DPSGDF(ClippedMethod, CountingMethod, name="dpsgd_f", reference="xu2021removing"):
    r"""Clip group k to :math:`C_k = C (1 + (m_k / b_k) / (m / b))`.

    :math:`m_k` of the :math:`b_k` records of group k in the batch have norms above C; both are
    noisy, clamped at 0, and m, b are their sums over the groups.  Released each step: these 2K
    counts, jointly of sensitivity 1, with noise ``count_noise_multiplier``; and the gradient sum,
    of sensitivity :math:`\max_k C_k` over ALL groups, also those absent from the batch.

    Parameters
    ----------
    max_grad_norm : float > 0 or "auto", default="auto"
        Base bound C.  ``"auto"``: half the bound that "dpsgd" would use; 1 elsewhere.
    ratio : {"batch", "group_mean"}, default="batch"
        Divide by the clipped share of the batch, as printed, or by the mean over groups of their
        clipped shares, as in the published code.  Both are capped at :math:`C_k \le (1+K) C`; the
        print has no cap (:math:`C_k` up to :math:`(1 + b/b_k) C`), and divides m by the batch size.

    References
    ----------
    Xu, Du, Wu, "Removing Disparate Impact on Model Accuracy in Differentially Private Stochastic
    Gradient Descent", KDD 2021, Algorithm 2; Esipova et al., ICLR 2023, Algorithm 3.

    Examples
    --------
    >>> from skdpfair.testing import example_records
    >>> counts = torch.tensor([3.0, 1.0, 1.0, 3.0])  # clipped: 3, 1; unclipped: 1, 3
    >>> sample = example_records(norm=[4.0, 4.0], group=[0, 1])
    >>> DPSGDF(max_grad_norm=1.0).clip(sample, None, {"counts": counts})
    Clip(weight=tensor([0.6250, 0.3750]), bound=tensor(2.5000))
    """

    ratio: str = "batch"

    needs_groups = True
    _parameter_constraints = {"ratio": [StrOptions({"batch", "group_mean"})]}

    def queries(self, task: Task, noise_multiplier: float) -> tuple[Query, ...]:
        def rows(sample: PerSample, state: State) -> GroupRows:
            unclipped = sample.norm <= self.number("max_grad_norm", 1.0)
            code = torch.add(sample.group, unclipped, alpha=task.n_groups)
            return GroupRows(code, 2 * task.n_groups)

        noise = self.count_noise(noise_multiplier)
        return (Query("counts", rows, 1.0, noise),)

    def clip(self, sample: PerSample, state: State, release: NoisySums) -> Clip:
        """Clip to the bound of the record's group."""
        bounds = self.group_bounds(release["counts"].to(sample.norm.dtype))
        return Clip(clip_to(bounds.index_select(0, sample.group), sample.norm), bounds.max())

    def group_bounds(self, counts: Tensor) -> Tensor:
        """Return C_k of each group, shape (n_groups,), from the noisy counts alone."""
        clipped, unclipped = counts.relu().view(2, -1).unbind()
        size = clipped + unclipped
        share = clipped / size
        overall_share = clipped.sum() / size.sum() if self.ratio == "batch" else share.nanmean()
        # a group not seen counts as clipped like the batch; no clipping at all (0/0) leaves C
        ratio = (torch.where(size.bool(), share, overall_share) / overall_share).nan_to_num_()
        return ratio.clamp_(max=float(len(size))).add_(1.0).mul_(self.number("max_grad_norm", 1.0))

    def at_scale(
        self, scale: float, norm_growth: float, output_growth: float = 1.0
    ) -> tuple[Method, float]:
        """Set C to half of the scale, since a typical C_k is 2 C."""
        method = self.filled(max_grad_norm=0.5 * norm_growth * scale)
        return method, (2.0 * method.number("max_grad_norm", 1.0)) ** -2
