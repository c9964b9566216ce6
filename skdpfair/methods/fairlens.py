"""FairLens: two fairness regularisers, as published (NOT private) and by noisy sums (private)."""

import abc
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor

from skdpfair.engine.mechanism import (
    EarlySample,
    GradientTerm,
    GroupRows,
    NoisySums,
    PerSample,
    PerSampleGradients,
    Query,
    Task,
)
from skdpfair.methods._clipping import NOT_NEGATIVE, ClippedMethod, CountingMethod, clip_to

MAX_PARAMETERS = 1000


class Sizes(NamedTuple):
    """The batch size B, as expected or as a raw count, and the number of groups K."""

    batch_size: Any
    n_groups: int


@dataclass(kw_only=True, repr=False, eq=False)
class RegularisedMethod(ClippedMethod, abc.ABC):
    """A method that regularises the loss by sums over two groups, which are released first."""

    gamma1: float = 1.0
    gamma2: float = 1.0

    needs_groups = True
    binary = True
    _parameter_constraints = dict.fromkeys(("gamma1", "gamma2"), NOT_NEGATIVE)

    def start(self, task: Task) -> Sizes:
        return Sizes(task.n_samples * task.sample_rate, task.n_groups)

    def group_bound(self, bound: float) -> float | None:
        """Return the bound R of the gradients in the sums of the groups, or None for none."""
        return None

    def _bounds(self, sample: PerSample) -> tuple[Tensor, Tensor | None]:
        c = self.number("max_grad_norm", 1.0)
        r = self.group_bound(c)
        return sample.norm.new_full((), c), None if r is None else sample.norm.new_full((), r)

    def _rows(self, sample: EarlySample, state: Sizes) -> Tensor | GroupRows:
        r"""Return each record's group and its score there, together of norm :math:`\sqrt 2`.

        If gradients are needed, then also that clipped to R, over R, in its group's columns, and
        that clipped to C, over C: together of norm 2, unless there is no R.
        """
        rows = GroupRows(sample.group, state.n_groups, sample.probability[:, 1])
        if not self.sees_gradients:
            return rows
        c, r = self._bounds(sample)
        unit = sample.gradient if r is None else _unit(sample, r)
        sums = rows.dense(torch.ones_like(sample.loss))
        in_groups = sums[:, : state.n_groups, None] * unit[:, None, :]
        return torch.cat([sums, in_groups.flatten(1), _unit(sample, c)], dim=1)

    def gradient_term(self, sample: EarlySample, state: Sizes, release: NoisySums) -> GradientTerm:
        k, (c, r) = state.n_groups, self._bounds(sample)
        sums = release["groups"].to(sample.probability.dtype)
        size, score = sums[: 2 * k].view(2, -1)
        logit_gradient = self.gamma2 * _score_term(sample, size, score, state.batch_size)
        if not self.sees_gradients:
            return GradientTerm(logit_gradient)
        rows = sums[2 * k :].view(k + 1, -1)
        gradients = rows[:k] if r is None else rows[:k] * r
        vectors = _alignment_term(sample, size, gradients, rows[k] * c, c, state.batch_size)
        return GradientTerm(logit_gradient, self.gamma1 * vectors)


@dataclass(kw_only=True, repr=False, eq=False)
class FairLens(RegularisedMethod, name="fairlens", reference="tran2021fairness"):
    r"""Clip gradients of :math:`\ell_i + \gamma_1 R_1 + \gamma_2 R_2` to C, for two groups a, b.

    :math:`R_1 = |\langle g_a - g_b, \bar g - g \rangle|`, with the mean gradients of groups and
    batch, and of the batch clipped; :math:`R_2 = \frac12 (f_a (1 - f_a) + f_b (1 - f_b))`, with the
    mean probabilities of the second class.  Both are raw statistics of the batch, so one record
    moves every other record's clipped gradient: epsilon is infinite for any noise.  "fairlens_dp"
    is the sound variant.  Memory is batch size times parameters.

    Parameters
    ----------
    max_grad_norm : float > 0 or "auto", default="auto"
        Clipping bound C.  ``"auto"``: the estimator finds it in a warm-up; 1 elsewhere.
    gamma1, gamma2 : float >= 0, default=1.0
        Weights of the regularisers.

    References
    ----------
    Tran, Dinh, Fioretto, "Differentially Private Empirical Risk Minimization under the Fairness
    Lens", NeurIPS 2021; Esipova et al., ICLR 2023, Algorithm 4.

    Examples
    --------
    >>> from skdpfair.testing import example_records
    >>> FairLens(max_grad_norm=1.0).clip(example_records(norm=[4.0, 0.5]), None, {})
    Clip(weight=tensor([0.2500, 1.0000]), bound=tensor(1.))
    """

    private = False
    private_alternative = "fairlens_dp"
    # as published, though it buys no epsilon
    takes_noise = True
    takes_persons = False
    sees_gradients = True

    def queries(self, task: Task, noise_multiplier: float) -> tuple[Query, ...]:
        """Return the sums that the regularisers need, without noise: so epsilon is infinite."""
        return (Query("groups", self._rows, inf, 0.0, early=True),)

    def gradient_term(self, sample: EarlySample, state: Sizes, release: NoisySums) -> GradientTerm:
        """Return the gradient of the regularisers, the same for all records."""
        size = release["groups"][: state.n_groups]
        n = size.sum().clamp(min=1.0)
        term = super().gradient_term(sample, state._replace(batch_size=n), release)
        assert term.hvp_vectors is not None
        # 0 if a group is absent: then neither is defined
        all_present = size.min().clamp(max=1.0)
        return GradientTerm(
            term.logit_gradient * all_present, term.hvp_vectors * all_present, averaged=True
        )


@dataclass(kw_only=True, repr=False, eq=False)
class FairLensDP(
    RegularisedMethod, CountingMethod, name="fairlens_dp", reference="tran2021fairness"
):
    r"""Clip the gradient of :math:`\ell_i + \gamma_1 r_{1i} + \gamma_2 r_{2i}` to C.

    The r are each record's share of :math:`R_1` and :math:`R_2` of "fairlens". They follow from
    group statistics that each step releases first, with noise ``count_noise_multiplier``: sizes and
    score sums of both groups, each record's row of norm at most :math:`\sqrt 2`; if
    :math:`\gamma_1 > 0` also the groups' sums of gradients clipped to R, over R, and the sum
    clipped to C, over C: norm at most 2.  The gradient sum then has sensitivity C.

    Parameters
    ----------
    group_max_grad_norm : float > 0 or "auto", default="auto"
        R; ``"auto"`` is C.
    gamma1 : float >= 0, default=0.0
        Weight of R1, which needs a noisy vector of three times the parameters: at most 1000.
    gamma2 : float >= 0, default=1.0
        Weight of R2, which costs 4 noisy numbers.

    References
    ----------
    Tran et al., "Differentially Private Empirical Risk Minimization under the Fairness Lens", 2021.

    Examples
    --------
    >>> from skdpfair.testing import example_records
    >>> FairLensDP(max_grad_norm=1.0).clip(example_records(norm=[4.0, 0.5]), None, {})
    Clip(weight=tensor([0.2500, 1.0000]), bound=tensor(1.))
    """

    group_max_grad_norm: float | str = "auto"
    gamma1: float = 0.0

    logit_scales = 0.7, 1.0

    @property
    def sees_gradients(self) -> bool:  # type: ignore[override]  # follows from a parameter
        """Whether noisy gradient sums of the groups are needed."""
        return self.gamma1 > 0

    def refusal(self, task: Task, n_parameters: int) -> str | None:
        if self.gamma1 > 0 and n_parameters > MAX_PARAMETERS:
            return (
                f"gamma1={self.gamma1:g} needs noisy gradient sums of both groups, which drown in "
                f"noise with {n_parameters} parameters (at most {MAX_PARAMETERS}); set gamma1=0"
            )
        return super().refusal(task, n_parameters)

    def queries(self, task: Task, noise_multiplier: float) -> tuple[Query, ...]:
        bound = 2.0 if self.sees_gradients else sqrt(2.0)
        noise = self.count_noise(noise_multiplier)
        return (Query("groups", self._rows, bound, noise, early=True),)

    def group_bound(self, bound: float) -> float:
        return float(self.number("group_max_grad_norm", bound))


def _unit(sample: PerSampleGradients, bound: Tensor) -> Tensor:
    """Return each record's gradient, clipped to a bound and divided by it."""
    return sample.gradient * (clip_to(bound, sample.norm) / bound)[:, None]


def _score_term(sample: PerSample, size: Tensor, score: Tensor, batch_size: Any) -> Tensor:
    r"""Return output gradients whose sum is ``batch_size`` times the gradient of :math:`R_2`."""
    mean = (score / size.clamp(min=1.0)).clamp(0.0, 1.0)
    factor: Tensor = batch_size * (1.0 - 2.0 * mean) / (2.0 * size.clamp(min=1.0))
    p = sample.probability
    logit_gradient = -p[:, 1:2] * p  # of the second class's probability in all logits
    logit_gradient[:, 1] += p[:, 1]
    return factor.index_select(0, sample.group)[:, None] * logit_gradient


def _alignment_term(
    sample: PerSampleGradients,
    size: Tensor,
    gradients: Tensor,
    clipped: Tensor,
    bound: Tensor,
    batch_size: Any,
) -> Tensor:
    r"""Return vectors whose Hessian products sum to ``batch_size`` times the gradient of R_1.

    ``gradients`` (n_groups, n_parameters) and ``clipped`` (n_parameters,) are sums over the batch;
    the first two groups are compared.
    """
    size = size.clamp(min=1.0)
    u = (clipped - gradients.sum(0)) / batch_size
    mean = gradients / size[:, None]
    v = mean[0] - mean[1]
    sides = torch.zeros_like(size)
    sides[:1].fill_(1.0)
    sides[1:2].fill_(-1.0)
    of_group = (batch_size / size * sides).index_select(0, sample.group)
    # grad <clip(g) - g, v> of a clipped record is the Hessian's product with
    # (C / |g| - 1) v - C <g, v> / |g|^3 g
    norm = sample.norm.clamp(min=torch.finfo(sample.norm.dtype).tiny)
    share, is_clipped = bound / norm, sample.norm > bound
    along_v = torch.where(is_clipped, share - 1.0, 0.0)
    along_g = torch.where(is_clipped, -share * (sample.gradient @ v) / norm / norm, 0.0)
    vectors = torch.stack([of_group, along_v], dim=1) @ torch.stack([u, v])
    vectors.addcmul_(sample.gradient, along_g[:, None])
    return vectors.mul_(torch.sign(torch.dot(u, v)))
