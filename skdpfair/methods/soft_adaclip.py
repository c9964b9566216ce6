"""SoftAdaClip: clip smoothly, by a hyperbolic tangent, to a bound that follows the norms."""

from dataclasses import dataclass

import torch

from skdpfair.engine.mechanism import Clip, NoisySums, PerSample
from skdpfair.methods._clipping import AdaptiveMethod, Threshold


@dataclass(kw_only=True, repr=False, eq=False)
class SoftAdaClip(AdaptiveMethod, name="soft_adaclip"):
    r"""Weigh record i by :math:`C \tanh(\lVert g_i \rVert / C) / \lVert g_i \rVert`, and learn C.

    Longer gradients stay longer, but below C.  Released: the count b of norms above C, of
    sensitivity 1, and the gradient sum, of sensitivity C; then
    :math:`C \leftarrow C \exp(0.2 (\tilde b / B - q))`, the rule of Andrew et al. (2021).

    Parameters
    ----------
    max_grad_norm : float > 0 or "auto", default="auto"
        First C.  ``"auto"``: the estimator finds it in a private warm-up; 1 elsewhere.

    References
    ----------
    Soleymani et al., "SoftAdaClip: A Smooth Clipping Strategy for Fair and Private Model
    Training", 2025, arXiv:2510.01447.

    Examples
    --------
    >>> from skdpfair.testing import example_records, example_task
    >>> method = SoftAdaClip(max_grad_norm=1.0)
    >>> method.clip(example_records(norm=[4.0, 0.5]), method.start(example_task()), {})
    Clip(weight=tensor([0.2498, 0.9242]), bound=tensor(1.))
    """

    def clip(self, sample: PerSample, state: Threshold, release: NoisySums) -> Clip:
        bound = state.z.to(sample.norm.dtype)
        ratio = (sample.norm / bound).clamp(min=1e-6)
        return Clip(torch.tanh(ratio) / ratio, bound)
