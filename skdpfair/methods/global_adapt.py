"""DPSGD-Global-Adapt: scale what is short, clip what is long, learn the threshold."""

from collections import namedtuple
from dataclasses import dataclass

import torch

from skdpfair.mechanism import Clip, Method, Query, count_noise

FACTS = {"releases": "gradient sum; count above Z", "sensitivity": "C; 1"}
Threshold = namedtuple("Threshold", "z gain decay")  # released; public; public


@dataclass(kw_only=True, repr=False, eq=False)
class GlobalAdapt(Method, name="global_adapt", reference="esipova2023disparate", **FACTS):
    r"""Weigh record i by :math:`w_i = C / \max(Z, \lVert g_i \rVert)`, and learn Z.

    Released: the gradient sum, of sensitivity C, and the count b of norms above :math:`\tau Z`,
    of sensitivity 1; then :math:`Z \leftarrow Z \exp(\kappa \tilde b / B - \eta)`.

    Parameters
    ----------
    max_grad_norm : float > 0 or "auto", default="auto"
        Clipping bound C.  ``"auto"``: :math:`1 / \max(Z, Z_0/2)`, for steps free of scale.
    strict_max_grad_norm : float > 0 or "auto", default="auto"
        First threshold :math:`Z_0`.  ``"auto"``: found in a private warm-up; 1 elsewhere.
    threshold : float > 0, default=1.0
        :math:`\tau`.
    lr_z : float > 0 or "auto", default="auto"
        :math:`\eta`.  ``"auto"``: set by the estimator from public facts; 0.1 elsewhere.
    z_gain : float > 0 or "auto", default="auto"
        :math:`\kappa`.  ``"auto"``: 0.15 where the estimator chooses ``lr_z``; 1 elsewhere.
    count_noise_multiplier : float > 0 or "auto", default="auto"
        Noise of the count; ``"auto"`` is 5 times the noise multiplier (the paper: 10).

    References
    ----------
    Esipova et al., "Disparate Impact in DP from Gradient Misalignment", ICLR 2023, Algorithm 2.

    Examples
    --------
    >>> from skdpfair.testing import per_sample, task
    >>> method = GlobalAdapt(max_grad_norm=1.0, strict_max_grad_norm=10.0)
    >>> method.clip(per_sample(norm=[4.0, 20.0]), method.start(task()), {})
    Clip(weight=tensor([0.1000, 0.0500]), bound=tensor(1.))
    """

    max_grad_norm: float | str = "auto"
    strict_max_grad_norm: float | str = "auto"
    threshold: float = 1.0
    lr_z: float | str = "auto"
    z_gain: float | str = "auto"
    count_noise_multiplier: float | str = "auto"
    scale_fields = ("strict_max_grad_norm",)

    def start(self, task):
        gain = self.number("z_gain", 1.0) / (task.n_samples * task.sample_rate)
        z, decay = self.number("strict_max_grad_norm", 1.0), self.number("lr_z", 0.1)
        return Threshold(*torch.tensor([z, gain, -decay]))

    def queries(self, task, noise_multiplier):
        noise = count_noise(self.count_noise_multiplier, noise_multiplier)
        return (Query("above_z", self._above, 1.0, noise),)

    def _above(self, sample, state):
        above = sample.norm > (state.z if self.threshold == 1.0 else state.z * self.threshold)
        return above.to(sample.norm.dtype).unsqueeze(1)

    def clip(self, sample, state, release):
        z, c = state.z.to(sample.norm.dtype), self.max_grad_norm
        lowest = self.number("strict_max_grad_norm", 1.0) / 2
        bound = 1.0 / z.clamp(min=lowest) if c == "auto" else torch.full_like(z, c)
        return Clip(bound / torch.maximum(sample.norm, z), bound)

    def update(self, state, release):
        exponent = torch.addcmul(state.decay, release["above_z"][0], state.gain).clamp(-1.0, 1.0)
        return state._replace(z=(state.z * exponent.exp()).clamp(1e-4, 1e4))

    def at_scale(self, scale, headroom):
        method, c = self.filled(strict_max_grad_norm=scale), self.max_grad_norm
        return method, 1.0 if c == "auto" else 1.0 / (c * method.strict_max_grad_norm)
