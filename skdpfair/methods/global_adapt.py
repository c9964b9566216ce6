"""DPSGD-Global-Adapt: scale what is short, clip what is long, learn the threshold."""

from dataclasses import dataclass
from numbers import Real
from typing import NamedTuple

import torch
from sklearn.utils._param_validation import Interval, StrOptions

from skdpfair.mechanism import Clip, Method, Query, count_noise
from skdpfair.methods._clipping import POSITIVE, POSITIVE_OR_AUTO


class Threshold(NamedTuple):
    """The threshold Z (released) and the expected batch size B (public)."""

    z: torch.Tensor
    expected_batch_size: float


@dataclass(kw_only=True, repr=False, eq=False)
class GlobalAdapt(Method, name="global_adapt", reference="esipova2023disparate"):
    r"""Weigh record i by :math:`w_i = C / \max(Z, \lVert g_i \rVert)`, and learn Z.

    That is C/Z for gradients up to Z, which keep their relative lengths, and clipping to C above.
    Released each step: the gradient sum, of sensitivity C, with noise ``noise_multiplier`` C,
    and the count :math:`b = \#\{\lVert g_i \rVert > \tau Z\}`, of sensitivity 1, with noise
    ``count_noise_multiplier``; then :math:`Z \leftarrow Z \exp(\kappa (\tilde b / B - \eta))`,
    whose fixed point leaves the share :math:`\eta` of the norms above :math:`\tau Z`.

    Parameters
    ----------
    max_grad_norm : float > 0 or "auto", default="auto"
        Clipping bound C.  ``"auto"``: :math:`1 / \max(Z, Z_0/2)`, which makes the learning rate
        free of the gradients' scale.
    strict_max_grad_norm : float > 0 or "auto", default="auto"
        First threshold :math:`Z_0`.  ``"auto"``: found in a private warm-up; 1 elsewhere.
    threshold : float > 0, default=1.0
        :math:`\tau`.
    lr_z : float > 0 or "auto", default="auto"
        :math:`\kappa \eta`, the rate at which Z falls when no norm lies above it.
        ``"auto"``: set by the estimator from public facts; 0.1 elsewhere.
    z_gain : float > 0 or "auto", default="auto"
        :math:`\kappa`.  ``"auto"``: 1 as in the paper; the estimator takes 0.15 where it also
        chooses ``lr_z``.
    count_noise_multiplier : float > 0 or "auto", default="auto"
        Noise of the count; ``"auto"`` is 5 times the noise multiplier (the paper: 10).

    References
    ----------
    Esipova, Ghomi, Luo, Cresswell, "Disparate Impact in Differential Privacy from Gradient
    Misalignment", ICLR 2023, Algorithm 2.

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
    Z_MIN, Z_MAX = 1e-4, 1e4
    _parameter_constraints = {
        "max_grad_norm": POSITIVE_OR_AUTO,
        "strict_max_grad_norm": POSITIVE_OR_AUTO,
        "threshold": POSITIVE,
        "lr_z": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
        "z_gain": POSITIVE_OR_AUTO,
        "count_noise_multiplier": POSITIVE_OR_AUTO,
    }

    def start(self, task):
        """Return Z0 and the batch size that counts are divided by."""
        z = torch.tensor(float(self.number("strict_max_grad_norm", 1.0)))
        return Threshold(z, task.n_samples * task.sample_rate)

    def queries(self, task, noise_multiplier):
        """Count the norms above tau Z."""

        def rows(sample, state):
            return (sample.norm > self.threshold * state.z).to(sample.norm.dtype)[:, None]

        noise = count_noise(self.count_noise_multiplier, noise_multiplier)
        return (Query("above_z", rows, 1.0, noise),)

    def clip(self, sample, state, release):
        """Scale by C/Z up to Z, clip to C above."""
        z = state.z.to(sample.norm.dtype)
        bound = torch.ones_like(z) * self.number("max_grad_norm", 1.0)
        if self.is_auto("max_grad_norm"):
            bound = 1.0 / z.clamp(min=0.5 * self.number("strict_max_grad_norm", 1.0))
        return Clip(bound / torch.maximum(sample.norm, z), bound)

    def update(self, state, release):
        """Move Z towards the target quantile; post-processing of the noisy count."""
        share = release["above_z"][0] / state.expected_batch_size
        gain = self.number("z_gain", 1.0)
        exponent = (gain * share - self.number("lr_z", 0.1)).clamp(-1.0, 1.0)
        return state._replace(z=(state.z * exponent.exp()).clamp(self.Z_MIN, self.Z_MAX))

    def at_scale(self, scale, headroom):
        """Start at Z0 = the scale; the learning rate of a normalised step is 1."""
        method = self.filled(strict_max_grad_norm=scale)
        z = method.strict_max_grad_norm
        return method, 1.0 if method.is_auto("max_grad_norm") else 1.0 / (method.max_grad_norm * z)
