"""AUTO-S: scale every gradient to a length just below 1, so that no bound is chosen."""

from dataclasses import dataclass

from skdpfair.engine.mechanism import Clip, Method, NoisySums, PerSample, State


@dataclass(kw_only=True, repr=False, eq=False)
class AutoS(Method, name="auto_s"):
    r"""Weigh record i by :math:`w_i = 1 / (\lVert g_i \rVert + \gamma)`.

    There is no clipping bound, as it would only multiply the learning rate.  All long gradients
    count with a length near 1; those shorter than :math:`\gamma` keep their relative lengths.
    Released each step: the gradient sum, of sensitivity 1, since :math:`w_i \lVert g_i \rVert < 1`,
    with noise ``noise_multiplier``.

    Parameters
    ----------
    gamma : float > 0, default=0.01
        :math:`\gamma`.

    References
    ----------
    Bu, Wang, Zha and Karypis, "Automatic Clipping: Differentially Private Deep Learning Made
    Easier and Stronger", NeurIPS 2023, AUTO-S.

    Examples
    --------
    >>> from skdpfair.testing import example_records
    >>> AutoS(gamma=0.5).clip(example_records(norm=[4.5, 0.5]), None, {})
    Clip(weight=tensor([0.2000, 1.0000]), bound=tensor(1.))
    """

    gamma: float = 0.01

    needs_gradient_scale = True
    logit_scales = 0.25, 0.3

    def clip(self, sample: PerSample, state: State, release: NoisySums) -> Clip:
        return Clip(1.0 / (sample.norm + self.gamma), sample.norm.new_ones(()))

    def at_scale(
        self, scale: float, norm_growth: float, output_growth: float = 1.0
    ) -> tuple[Method, float]:
        """Return itself; a unit step is the inverse of the gradient scale, as sums have none."""
        return self, 1.0 / (norm_growth * scale)
