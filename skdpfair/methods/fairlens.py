"""FairLens as published: two fairness regularisers, read off the raw batch; NOT private."""

from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from skdpfair.mechanism import (
    Clip,
    EarlySample,
    GradientTerm,
    Method,
    NoisySums,
    PerSample,
    PerSampleGradients,
    Query,
    State,
    Task,
)
from skdpfair.methods._clipping import NOT_NEGATIVE, clip_to

WEIGHTS = dict.fromkeys(("gamma1", "gamma2"), NOT_NEGATIVE)


@dataclass(kw_only=True, repr=False, eq=False)
class FairLens(Method, name="fairlens", reference="tran2021fairness"):
    r"""Clip gradients of :math:`\ell_i + \gamma_1 R_1 + \gamma_2 R_2` to C, for two groups a, b.

    :math:`R_1 = |\langle g_a - g_b, \bar g - g \rangle|`, with the mean gradients of groups and
    batch, and of the batch clipped; :math:`R_2 = \frac12 (f_a (1 - f_a) + f_b (1 - f_b))`, with
    the mean probabilities of the second class.  Both are raw statistics of the batch, so one
    record moves every other record's clipped gradient: epsilon is infinite, whatever the noise.
    "fairlens_dp" is the sound variant.  Memory is batch size times parameters.

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
    >>> from skdpfair.testing import per_sample
    >>> FairLens(max_grad_norm=1.0).clip(per_sample(norm=[4.0, 0.5]), None, {})
    Clip(weight=tensor([0.2500, 1.0000]), bound=tensor(1.))
    """

    max_grad_norm: float | str = "auto"
    gamma1: float = 1.0
    gamma2: float = 1.0

    private = False
    private_alternative = "fairlens_dp"
    takes_noise = True  # as published, though it buys no epsilon
    needs_groups = True
    takes_units = False
    sees_gradients = True
    binary = True
    _parameter_constraints = WEIGHTS

    def queries(self, task: Task, noise_multiplier: float) -> tuple[Query, ...]:
        """Hand over, raw, what the regularisers need: this is why epsilon is infinite."""
        k = task.n_groups
        rows = {
            "groups": lambda sample, state: group_rows(sample, k),
            "gradients": lambda sample, state: in_groups(sample.gradient, sample, k),
            "clipped": lambda sample, state: clipped_to(self._bound(sample), sample),
        }
        return tuple(Query(name, f, inf, 0.0, early=True) for name, f in rows.items())

    def gradient_term(
        self, sample: PerSampleGradients, state: State, release: NoisySums
    ) -> GradientTerm:
        """Return the gradient of the regularisers, the same for all records."""
        groups, clipped = release["groups"], release["clipped"]
        size, _ = groups.view(2, -1)
        sums = release["gradients"].view(len(size), -1), clipped
        n, weights = size.sum().clamp(min=1.0), (self.gamma1, self.gamma2)
        term = gradient_term_of(weights, sample, groups, sums, self._bound(sample), n)
        there = size.min().clamp(max=1.0)  # 0 if a group is absent: then neither is defined
        return replace(
            term,
            logit_gradient=term.logit_gradient * there,
            hvp_vectors=term.hvp_vectors * there,
            averaged=True,
        )

    def clip(self, sample: PerSample, state: State, release: NoisySums) -> Clip:
        return Clip(clip_to(self._bound(sample), sample.norm), self._bound(sample))

    def _bound(self, sample: PerSample) -> Tensor:
        return sample.norm.new_full((), self.number("max_grad_norm", 1.0))


def group_rows(sample: PerSample, n_groups: int) -> Tensor:
    """Return per record: its group as 0/1 columns, then the second class's probability there.

    A row's norm is at most the root of 2.
    """
    member = one_hot(sample.group, n_groups).to(sample.probability.dtype)
    return torch.cat([member, member * sample.probability[:, 1:2]], dim=1)


def clipped_to(bound: Tensor, sample: PerSampleGradients) -> Tensor:
    """Return each record's gradient, shortened to ``bound``."""
    return sample.gradient * clip_to(bound, sample.norm)[:, None]


def in_groups(rows: Tensor, sample: PerSample, n_groups: int) -> Tensor:
    """Return each record's row in its group's columns, zeros in the others'."""
    member = one_hot(sample.group, n_groups).to(rows.dtype)
    return (member[:, :, None] * rows[:, None, :]).flatten(1)


def gradient_term_of(
    weights: tuple[float, float],
    sample: EarlySample,
    groups: Tensor,
    sums: tuple[Tensor, Tensor] | None,
    bound: Tensor,
    batch_size: Tensor | float,
) -> GradientTerm:
    """Return the term of both regularisers, weighted, in each record's gradient.

    ``sums`` holds ``gradients`` and ``clipped`` of :func:`first`; None leaves R_1 out.
    """
    logit_gradient = weights[1] * second(sample, groups, batch_size)
    if sums is None:
        return GradientTerm(logit_gradient)
    return GradientTerm(
        logit_gradient, weights[0] * first(sample, groups, *sums, bound, batch_size)
    )


def second(sample: PerSample, groups: Tensor, batch_size: Tensor | float) -> Tensor:
    r"""Return slopes whose sum is ``batch_size`` times the gradient of :math:`R_2`.

    ``groups`` holds the sums of :func:`group_rows`.
    """
    size, score = groups.view(2, -1)
    mean = (score / size.clamp(min=1.0)).clamp(0.0, 1.0)
    factor: Tensor = batch_size * (1.0 - 2.0 * mean) / (2.0 * size.clamp(min=1.0))
    p = sample.probability
    logit_gradient = -p[:, 1:2] * p  # of the second class's probability in all logits
    logit_gradient[:, 1] += p[:, 1]
    return factor.index_select(0, sample.group)[:, None] * logit_gradient


def first(
    sample: PerSampleGradients,
    groups: Tensor,
    gradients: Tensor,
    clipped: Tensor,
    bound: Tensor,
    batch_size: Tensor | float,
) -> Tensor:
    r"""Return vectors whose Hessian products sum to ``batch_size`` times the gradient of R_1.

    ``gradients`` (n_groups, n_parameters) and ``clipped`` (n_parameters,) are sums over the batch;
    the first two groups are compared.
    """
    size = groups.view(2, -1)[0].clamp(min=1.0)
    u = (clipped - gradients.sum(0)) / batch_size
    mean = gradients / size[:, None]
    v = mean[0] - mean[1]
    sides = torch.zeros_like(size)
    sides[:1].fill_(1.0)
    sides[1:2].fill_(-1.0)
    of_group = (batch_size / size * sides).index_select(0, sample.group)
    along_v, along_g = _through_clipping(sample, bound, v)
    vectors = torch.stack([of_group, along_v], dim=1) @ torch.stack([u, v])
    vectors.addcmul_(sample.gradient, along_g[:, None])
    return vectors.mul_(torch.sign(torch.dot(u, v)))


def _through_clipping(
    sample: PerSampleGradients, bound: Tensor, v: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Return factors of v and g in the vector whose Hessian product is grad <clip(g) - g, v>.

    For a clipped record it is :math:`(C / \|g\| - 1) v - C \langle g, v \rangle / \|g\|^3 g`.
    """
    norm = sample.norm.clamp(min=torch.finfo(sample.norm.dtype).tiny)
    share = bound / norm
    inward = share * (sample.gradient @ v) / norm / norm
    clipped = sample.norm > bound
    return torch.where(clipped, share - 1.0, 0.0), torch.where(clipped, -inward, 0.0)
