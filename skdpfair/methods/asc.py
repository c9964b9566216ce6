"""ASC: sample groups with a large loss more often, at a lower bound and the same epsilon."""

from dataclasses import dataclass
from numbers import Real
from typing import NamedTuple

import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor

from skdpfair.engine.mechanism import Clip, GroupRows, NoisySums, PerSample, Query, State, Task
from skdpfair.methods._clipping import NOT_NEGATIVE, ClippedMethod, CountingMethod, clip_to
from skdpfair.methods._fractions import MethodByFractions


class ASCState(NamedTuple):
    """The state of each group, all public or released."""

    weight: Tensor  # of its mean loss, over its share, (n_groups,)
    stratum: Tensor  # (n_groups,)
    size: Tensor  # number of its records, (n_groups,)
    strata: Tensor  # rate and factor, (n_strata, 2)
    sample_rate: Tensor
    bound: Tensor  # of a factor of 1

    @property
    def factor(self) -> Tensor:
        """Factor of the sensitivities of each group, in (0, 1]."""
        return self.strata[self.stratum, 1]


@dataclass(kw_only=True, repr=False, eq=False)
class ASC(MethodByFractions, ClippedMethod, CountingMethod, name="asc", reference="cairney2026asc"):
    r"""Minimise :math:`\sum_k u_k L_k` by rates :math:`p_k = q u_k / q_k` and bounds :math:`C_k`.

    :math:`L_k` is the mean loss of group k, :math:`q_k` its share, q the sample rate, and
    :math:`u_k \leftarrow u_k e^{\eta (L_k - L)}`, which starts at :math:`q_k`, with L the mean over
    all. :math:`p_k` is the nearest of five rates from q / r to q r. :math:`C_k` makes all five cost
    the same, so that all groups have one epsilon; it is near :math:`C q / p_k` if noise is high.
    Released each step, with M the bound of the lowest rate: sums of the losses of the K groups, of
    sensitivity :math:`L_{max} C_k / M`, with noise ``count_noise_multiplier`` :math:`L_{max}`; and
    the gradient sum, of sensitivity :math:`C_k`, with noise ``noise_multiplier`` M. Once, before
    the first step: the counts of the groups, if their shares are not public.

    Parameters
    ----------
    max_grad_norm : float > 0 or "auto", default="auto"
        Bound C of a group at the sample rate.  ``"auto"``: the estimator finds it in a private
        warm-up; 1 elsewhere.
    rate_range : float >= 1, default=2.0
        r; the wider the range, the more noise.
    group_lr : float >= 0, default=0.01
        :math:`\eta`; 0 leaves all groups at the sample rate.
    max_loss : float > 0, default=2.0
        :math:`L_{max}`; larger losses count as this.
    group_count_noise_multiplier : float > 0 or "auto", default="auto"
        Noise of the counts (sensitivity 1, all records, once); ``"auto"`` takes 1/25 of the
        budget.

    References
    ----------
    Cairney-Leeming, Sanyal, Lampert, "Adaptive Sampling and Clipping for Private Worst-Case Group
    Optimization", arXiv 2602.10820, 2026. Rates and bounds are the paper's idea; the five rates and
    their accounting, proven in :func:`skdpfair.privacy.compute_epsilon`, are this library's.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from skdpfair.testing import example_records, example_task
    >>> method, strata = ASC(max_grad_norm=1.0), ((0.05, 1.0), (0.1, 0.5), (0.2, 0.25))
    >>> facts = replace(example_task(), group_fractions=torch.tensor([0.8, 0.2]), strata=strata)
    >>> state = method.start(facts)._replace(weight=torch.tensor([0.7, 2.2]))
    >>> state = method.update(state, {"losses": torch.tensor([20.0, 5.0])})  # means of 0.5
    >>> method.stratum(state)  # wanted are rates of 0.07 and 0.22
    tensor([0, 2])
    >>> method.clip(example_records(norm=[4.0, 4.0], group=[0, 1]), state, {})
    Clip(weight=tensor([0.5000, 0.1250]), bound=tensor(2.))
    """

    rate_range: float = 2.0
    group_lr: float = 0.01
    max_loss: float = 2.0
    group_count_noise_multiplier: float | str = "auto"

    _parameter_constraints = {
        "rate_range": [Interval(Real, 1, None, closed="left")],
        "group_lr": NOT_NEGATIVE,
    }

    def rate_choices(self, task: Task) -> tuple[float, ...]:
        # in steps of r^(1/2): within the range, the nearest is at most a factor of r^(1/4) from the
        # rate that is wanted, 1.19 by default
        powers = (self.rate_range ** (j / 2) for j in range(-2, 3))
        return tuple(min(1.0, task.sample_rate * power) for power in powers)

    def start(self, task: Task) -> ASCState:
        rate, fractions = torch.tensor(task.sample_rate), self.group_fractions(task)
        if fractions is None:
            fractions = torch.full((task.n_groups,), 1 / task.n_groups)
        fractions = fractions.to(rate)
        strata = torch.tensor(task.strata or [(task.sample_rate, 1.0)])
        bound = self.number("max_grad_norm", 1.0) / strata[_nearest(strata, rate), 1]
        weight = torch.ones_like(fractions)
        stratum = _nearest(strata, rate * weight)
        return ASCState(weight, stratum, task.n_samples * fractions, strata, rate, bound)

    def stratum(self, state: ASCState) -> Tensor:
        return state.stratum

    def queries(self, task: Task, noise_multiplier: float) -> tuple[Query, ...]:
        def rows(sample: PerSample, state: State) -> GroupRows:
            losses = sample.loss.clamp(0.0, self.max_loss)
            values = losses * state.factor.to(losses)[sample.group]
            return GroupRows(sample.group, task.n_groups, values, counts=False)

        return (Query("losses", rows, self.max_loss, self.count_noise(noise_multiplier)),)

    def clip(self, sample: PerSample, state: ASCState, release: NoisySums) -> Clip:
        bound = state.bound.to(sample.norm.dtype)
        of_group = (bound * state.factor.to(bound)).index_select(0, sample.group)
        return Clip(clip_to(of_group, sample.norm), bound)

    def update(self, state: ASCState, release: NoisySums) -> ASCState:
        rate, factor = state.strata[state.stratum].unbind(1)
        mean, share = release["losses"].to(rate), state.size / state.size.sum()
        mean = mean / (rate * factor * state.size)
        # noisy: a symmetric limit, which favours no group
        excess = (mean - share @ mean).clamp(-self.max_loss, self.max_loss)
        weight = state.weight * torch.exp(self.group_lr * excess)
        weight = weight / (share @ weight)
        return state._replace(
            weight=weight, stratum=_nearest(state.strata, state.sample_rate * weight)
        )


def _nearest(strata: Tensor, rate: Tensor) -> Tensor:
    """Return the positions of the strata whose rates are nearest to these, in logarithms."""
    return (rate.log()[..., None] - strata[:, 0].log()).abs().argmin(-1)
