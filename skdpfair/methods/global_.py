"""DPSGD-Global: scale short gradients alike, discard long ones."""

from dataclasses import dataclass

import torch

from skdpfair.engine.mechanism import Clip, Method, NoisySums, PerSample, State


@dataclass(kw_only=True, repr=False, eq=False)
class Global(Method, name="global", reference="bu2021convergence"):
    r"""Weigh record i by :math:`w_i = C/Z` if :math:`\lVert g_i \rVert \le Z`, else by 0.

    All gradients up to Z keep their relative lengths, so the sum keeps its direction.
    Released each step: the gradient sum, of sensitivity C, with noise
    ``noise_multiplier`` C.

    Parameters
    ----------
    max_grad_norm : float > 0 or "auto", default="auto"
        Clipping bound C; only the product of C and the learning rate matters.  ``"auto"``: 1.
    strict_max_grad_norm : float > 0 or "auto", default="auto"
        Threshold Z. ``"auto"``: the estimator sets it to twice the expected norm, from the gradient
        scale that a private warm-up finds; 1 elsewhere.

    References
    ----------
    Bu et al., "On the Convergence and Calibration of Deep Learning with Differential Privacy",
    2021; Esipova et al., ICLR 2023, Algorithm 2.

    Examples
    --------
    >>> from skdpfair.testing import example_records
    >>> method = Global(max_grad_norm=1.0, strict_max_grad_norm=10.0)
    >>> method.clip(example_records(norm=[4.0, 20.0]), None, {})
    Clip(weight=tensor([0.1000, 0.0000]), bound=tensor(1.))
    """

    max_grad_norm: float | str = "auto"
    strict_max_grad_norm: float | str = "auto"

    scale_fields = ("strict_max_grad_norm",)
    logit_scales = 1.0, 1.0
    # what lies above Z is lost, so Z must lie above nearly all norms to come
    Z_MARGIN = 2.0

    def clip(self, sample: PerSample, state: State, release: NoisySums) -> Clip:
        """Scale by C/Z up to Z, drop the rest."""
        bound = self.number("max_grad_norm", 1.0)
        z = self.number("strict_max_grad_norm", 1.0)
        scale = sample.norm.new_full((), bound / z)
        return Clip(torch.where(sample.norm <= z, scale, 0.0), sample.norm.new_full((), bound))

    def at_scale(
        self, scale: float, norm_growth: float, output_growth: float = 1.0
    ) -> tuple[Method, float]:
        """Set Z above the scale; a unit step is 1 / (C Z)."""
        method = self.filled(
            max_grad_norm=1.0, strict_max_grad_norm=self.Z_MARGIN * norm_growth * scale
        )
        c, z = (method.number(name, 1.0) for name in ("max_grad_norm", "strict_max_grad_norm"))
        return method, 1.0 / (c * z)
