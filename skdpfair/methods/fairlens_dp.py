"""FairLens made private: each record is regularised by noisy statistics of the groups."""

from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from skdpfair.mechanism import (
    EarlySample,
    GradientTerm,
    NoisySums,
    PerSample,
    Query,
    Task,
)
from skdpfair.methods._clipping import ClippedMethod, CountingMethod
from skdpfair.methods.fairlens import WEIGHTS, clipped_to, gradient_term_of, group_rows, in_groups

MOST_PARAMETERS = 1000


class Sizes(NamedTuple):
    """The expected batch size B and the number of groups K, both public."""

    batch_size: float
    n_groups: int


@dataclass(kw_only=True, repr=False, eq=False)
class FairLensDP(ClippedMethod, CountingMethod, name="fairlens_dp", reference="tran2021fairness"):
    r"""Clip the gradient of :math:`\ell_i + \gamma_1 r_{1i} + \gamma_2 r_{2i}` to C.

    The r are each record's share of FairLens' :math:`R_1` and :math:`R_2` (see "fairlens"), for
    group statistics as released, first in every step and with noise ``count_noise_multiplier``:
    sizes and score sums of both groups, each record's row of norm at most :math:`\sqrt 2`; if
    :math:`\gamma_1 > 0` also the groups' sums of gradients clipped to R, over R, and the sum
    clipped to C, over C: norm at most 2.  The gradient sum then has sensitivity C.

    Parameters
    ----------
    group_max_grad_norm : float > 0 or "auto", default="auto"
        R; ``"auto"``, or less than C, is C.
    gamma1 : float >= 0, default=0.0
        Weight of R1, which needs a noisy vector of three times the parameters: at most 1000.
    gamma2 : float >= 0, default=1.0
        Weight of R2, which costs 4 noisy numbers.

    References
    ----------
    Tran et al., "Differentially Private Empirical Risk Minimization under the Fairness Lens", 2021.

    Examples
    --------
    >>> from skdpfair.testing import per_sample
    >>> FairLensDP(max_grad_norm=1.0).clip(per_sample(norm=[4.0, 0.5]), None, {})
    Clip(weight=tensor([0.2500, 1.0000]), bound=tensor(1.))
    """

    group_max_grad_norm: float | str = "auto"
    gamma1: float = 0.0
    gamma2: float = 1.0

    needs_groups = True
    binary = True
    _parameter_constraints = WEIGHTS

    def start(self, task: Task) -> Sizes:
        return Sizes(task.n_samples * task.sample_rate, task.n_groups)

    @property
    def sees_gradients(self) -> bool:  # type: ignore[override]  # follows from a parameter
        """Whether noisy gradient sums of the groups are needed."""
        return self.gamma1 > 0

    def refusal(self, task: Task, n_parameters: int) -> str | None:
        if self.gamma1 > 0 and n_parameters > MOST_PARAMETERS:
            return (
                f"gamma1={self.gamma1:g} needs noisy gradient sums of both groups, which drown in "
                f"noise with {n_parameters} parameters (at most {MOST_PARAMETERS}); set gamma1=0"
            )
        return super().refusal(task, n_parameters)

    def queries(self, task: Task, noise_multiplier: float) -> tuple[Query, ...]:
        noise = self.count_noise(noise_multiplier)
        bound = 2.0 if self.sees_gradients else sqrt(2.0)
        return (Query("groups", self._rows, bound, noise, early=True),)

    def _rows(self, sample: EarlySample, state: Sizes) -> Tensor:
        rows = group_rows(sample, state.n_groups)
        if not self.sees_gradients:
            return rows
        c, r = self._bounds(sample)
        grouped = in_groups(clipped_to(r, sample) / r, sample, state.n_groups)
        return torch.cat([rows, grouped, clipped_to(c, sample) / c], dim=1)

    def gradient_term(self, sample: EarlySample, state: Sizes, release: NoisySums) -> GradientTerm:
        k, sums = state.n_groups, None
        released = release["groups"].to(sample.probability.dtype)
        c, r = self._bounds(sample)
        if self.sees_gradients:
            rows = released[2 * k :].view(k + 1, -1)
            sums = rows[:k] * r, rows[k] * c
        weights = self.gamma1, self.gamma2
        return gradient_term_of(weights, sample, released[: 2 * k], sums, c, state.batch_size)

    def _bounds(self, sample: PerSample) -> list[Tensor]:
        c = self.number("max_grad_norm", 1.0)
        bounds = c, max(c, self.number("group_max_grad_norm", c))
        return [sample.norm.new_full((), bound) for bound in bounds]
