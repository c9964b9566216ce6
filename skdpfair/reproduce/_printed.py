"""Algorithms as the papers print them, where that is not what holds; NOT private."""

from dataclasses import dataclass

from skdpfair.mechanism import Clip
from skdpfair.methods._clipping import clip_to
from skdpfair.methods.dpsgd_f import DPSGDF


@dataclass(kw_only=True, repr=False, eq=False)
class PrintedDPSGDF(DPSGDF):
    """DPSGD-F with noise for C although a record may weigh C_k: Esipova et al., Algorithm 3.

    Counts are rounded down and clamped at 0.  It is in no registry, and no fit with it reports a
    finite epsilon: a reproduction works out what its noise is worth.

    Examples
    --------
    >>> from skdpfair.testing import per_sample
    >>> import torch
    >>> counts = torch.tensor([3.0, 1.0, 1.0, 3.0])
    >>> PrintedDPSGDF(max_grad_norm=1.0).clip(
    ...     per_sample(norm=[4.0, 4.0], group=[0, 1]), None, {"counts": counts})
    Clip(weight=tensor([0.6250, 0.3750]), bound=tensor(1.))
    """

    private = False
    takes_noise = True

    def clip(self, sample, state, release):
        """Clip to the bound of the record's group; the noise is for the base bound."""
        bounds = self.group_bounds(release["counts"].floor().to(sample.norm.dtype))
        weight = clip_to(bounds.index_select(0, sample.group), sample.norm)
        return Clip(weight, sample.norm.new_full((), self.number("max_grad_norm", 1.0)))
