"""Projected clipped SGD: DP-SGD whose parameters never leave a ball or a box."""

from dataclasses import dataclass
from numbers import Real

import torch
from sklearn.utils._param_validation import Interval, StrOptions

from skdpfair._utils.validate import number, safe_repr
from skdpfair.engine.mechanism import Params, State
from skdpfair.methods._clipping import ClippedMethod, clip_to


@dataclass(kw_only=True, repr=False, eq=False)
class PCSGD(ClippedMethod, name="pcsgd", reference="li2024pcsgd"):
    r"""Clip to C, step, then project: :math:`\theta \gets P(\theta - \gamma_t \tilde g_t)`.

    P maps all trainable parameters jointly to the nearest point of the feasible set, and the
    learning rate is multiplied by :math:`c_0 / (c_1 + t)` at step t = 1, 2, ...  Projection and
    schedule see released values only, so they cost no privacy.  Released each step: the gradient
    sum, of sensitivity C, with noise ``noise_multiplier`` C.

    Parameters
    ----------
    radius : float > 0, default=100.0
        L2 norm that the ball allows, or absolute value that the box allows each parameter.
    feasible_set : {"ball", "box"}, default="ball"
        Both are centred at 0.
    schedule : tuple (c0, c1) of numbers > 0, or None, default=None
        Schedule of the learning rate, which callbacks must then not set; None does not change it.

    References
    ----------
    Li, Yemini and Wai, "Privacy-Efficacy Tradeoff of Clipped SGD with Decision-dependent Data",
    ICML Workshop on Humans, Algorithmic Decision-Making and Society, 2024, equation 5.

    Examples
    --------
    >>> from skdpfair.testing import example_records
    >>> method = PCSGD(max_grad_norm=1.0, radius=2.5, schedule=(10.0, 100.0))
    >>> method.clip(example_records(norm=[4.0, 0.5]), None, {})
    Clip(weight=tensor([0.2500, 1.0000]), bound=tensor(1.))
    >>> method.step_size(0), method.step_size(99)  # t = 1 and t = 100
    (0.09900990099009901, 0.05)
    >>> method.project({"weight": torch.tensor([3.0]), "bias": torch.tensor([-4.0])}, None)
    {'weight': tensor([1.5000]), 'bias': tensor([-2.])}
    """

    radius: float = 100.0
    feasible_set: str = "ball"
    schedule: tuple[float, float] | None = None

    _parameter_constraints = {
        "radius": [Interval(Real, 0, None, closed="neither")],
        "feasible_set": [StrOptions({"ball", "box"})],
        "schedule": [tuple, None],
    }

    def _validate_params(self) -> None:
        super()._validate_params()
        if self.schedule is not None and len(self.schedule) != 2:
            raise ValueError(
                f"schedule must be a pair (c0, c1) or None, got {safe_repr(self.schedule)}."
            )
        for value in self.schedule or ():
            number("schedule's c0 and c1", value, low=0, low_open=True)

    def project(self, params: Params, state: State) -> Params:
        if self.feasible_set == "box":
            return {name: p.clamp(-self.radius, self.radius) for name, p in params.items()}
        norm = torch.stack([p.norm() for p in params.values()]).norm()
        factor = clip_to(norm.new_full((), self.radius), norm)
        return {name: p * factor for name, p in params.items()}

    def step_size(self, t: int) -> float:
        if self.schedule is None:
            return 1.0
        c0, c1 = self.schedule
        return c0 / (c1 + t + 1)
