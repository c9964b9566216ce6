"""DPSGD-Global-Adapt: scale short gradients, clip long ones, learn the threshold."""

from dataclasses import dataclass

import torch
from sklearn.utils._param_validation import StrOptions

from skdpfair.engine.mechanism import Clip, Method, NoisySums, PerSample, Query, Task
from skdpfair.methods._clipping import (
    NOT_NEGATIVE,
    CountingMethod,
    Threshold,
    count_above,
    first_threshold,
    updated_threshold,
)

# where the estimator chooses the rate of the threshold
PLANNED_GAIN = 0.15
# over the norm to expect of two classes: a lower one, of a majority that is learned well, clips
# rare classes away
LOWEST_THRESHOLD = 0.7


@dataclass(kw_only=True, repr=False, eq=False)
class GlobalAdapt(CountingMethod, name="global_adapt", reference="esipova2023disparate"):
    r"""Weigh record i by :math:`w_i = C / \max(Z, \lVert g_i \rVert)`, and learn Z.

    Released: the gradient sum, of sensitivity C, and the count b of norms above :math:`\tau Z`,
    of sensitivity 1; then :math:`Z \leftarrow Z \exp(\kappa \tilde b / B - \eta)`.

    Parameters
    ----------
    max_grad_norm : float > 0 or "auto", default="auto"
        Clipping bound C. ``"auto"``: :math:`1 / Z`, so that steps do not depend on the gradient
        scale.
    strict_max_grad_norm : float > 0 or "auto", default="auto"
        First threshold :math:`Z_0`.  ``"auto"``: found in a private warm-up, and not below the
        floor; 1 elsewhere.
    min_strict_max_grad_norm : float >= 0 or "auto", default="auto"
        Floor of Z after the first step, so that Z does not follow a majority that is learned well
        ("bounded_adapt"). ``"auto"``: if :math:`Z_0` and C are also "auto", 0.7 of the expected
        norm, which is larger with hidden layers, times :math:`\sqrt{K / (2 (K - 1))}` for K
        classes; else 0.
    threshold : float > 0, default=1.0
        :math:`\tau`.
    lr_z : float > 0 or "auto", default="auto"
        :math:`\eta`.  ``"auto"``: set by the estimator from public facts; 0.1 elsewhere.
    z_gain : float > 0 or "auto", default="auto"
        :math:`\kappa`. ``"auto"``: 0.15 if the estimator chooses ``lr_z``, else 1.

    References
    ----------
    Esipova et al., "Disparate Impact in DP from Gradient Misalignment", ICLR 2023, Algorithm 2.

    Examples
    --------
    >>> from skdpfair.testing import example_records, example_task
    >>> method = GlobalAdapt(max_grad_norm=1.0, strict_max_grad_norm=10.0)
    >>> method.clip(example_records(norm=[4.0, 20.0]), method.start(example_task()), {})
    Clip(weight=tensor([0.1000, 0.0500]), bound=tensor(1.))
    """

    max_grad_norm: float | str = "auto"
    strict_max_grad_norm: float | str = "auto"
    min_strict_max_grad_norm: float | str = "auto"
    threshold: float = 1.0
    lr_z: float | str = "auto"
    z_gain: float | str = "auto"

    scale_fields = ("strict_max_grad_norm",)
    _parameter_constraints = {"min_strict_max_grad_norm": [*NOT_NEGATIVE, StrOptions({"auto"})]}

    def planned(self, target_quantile: float) -> Method:
        method = self.filled(z_gain=PLANNED_GAIN if self.is_auto("lr_z") else 1.0)
        return method.filled(lr_z=target_quantile * method.number("z_gain", 1.0))

    def start(self, task: Task) -> Threshold:
        z, gain = self.number("strict_max_grad_norm", 1.0), self.number("z_gain", 1.0)
        floor = self.number("min_strict_max_grad_norm", 0.0)
        return first_threshold(z, task, gain, self.number("lr_z", 0.1) / gain, floor)

    def queries(self, task: Task, noise_multiplier: float) -> tuple[Query, ...]:
        noise = self.count_noise(noise_multiplier)
        return (count_above(noise, self.threshold),)

    def clip(self, sample: PerSample, state: Threshold, release: NoisySums) -> Clip:
        z, c = state.z.to(sample.norm.dtype), self.max_grad_norm
        bound = z.reciprocal() if isinstance(c, str) else torch.full_like(z, float(c))
        return Clip(bound / torch.maximum(sample.norm, z), bound)

    def update(self, state: Threshold, release: NoisySums) -> Threshold:
        return updated_threshold(state, release)

    def at_scale(
        self, scale: float, norm_growth: float, output_growth: float = 1.0
    ) -> tuple[Method, float]:
        c, is_measured = self.max_grad_norm, self.is_auto("strict_max_grad_norm")
        follows = is_measured and isinstance(c, str)
        lowest = LOWEST_THRESHOLD * norm_growth * output_growth * scale if follows else 0.0
        method = self.filled(min_strict_max_grad_norm=lowest)
        first = max(scale, method.number("min_strict_max_grad_norm", 0.0))
        method = method.filled(strict_max_grad_norm=first)
        unit = 1.0 if isinstance(c, str) else 1.0 / (c * method.number("strict_max_grad_norm", 1.0))
        return method, unit
