"""FairLens as published: two fairness regularisers, read off the raw batch; NOT private."""

from dataclasses import dataclass, replace
from math import inf

from torch import Tensor

from skdpfair.mechanism import (
    Clip,
    Extra,
    Method,
    PerSample,
    PerSampleGradients,
    Query,
    Release,
    State,
    Task,
)
from skdpfair.methods._clipping import clip_to
from skdpfair.methods._fairlens_terms import (
    WEIGHTS,
    clipped_to,
    extra_of,
    group_rows,
    in_groups,
)


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
    binary = True
    _parameter_constraints = WEIGHTS

    def sees_gradients(self) -> bool:
        return True

    def queries(self, task: Task, noise_multiplier: float) -> tuple[Query, ...]:
        """Hand over, raw, what the regularisers need: this is why epsilon is infinite."""
        k = task.n_groups
        rows = {
            "groups": lambda sample, state: group_rows(sample, k),
            "gradients": lambda sample, state: in_groups(sample.gradient, sample, k),
            "clipped": lambda sample, state: clipped_to(self._bound(sample), sample),
        }
        return tuple(Query(name, f, inf, 0.0, early=True) for name, f in rows.items())

    def extra(self, sample: PerSampleGradients, state: State, release: Release) -> Extra:
        """Return the gradient of the regularisers, the same for all records."""
        groups, clipped = release["groups"], release["clipped"]
        size, _ = groups.view(2, -1)
        sums = release["gradients"].view(len(size), -1), clipped
        extra = extra_of(self, sample, groups, sums, size.sum().clamp(min=1.0))
        there = size.min().clamp(max=1.0)  # 0 if a group is absent: then neither is defined
        return replace(
            extra,
            logit_gradient=extra.logit_gradient * there,
            hvp_vectors=extra.hvp_vectors * there,
            averaged=True,
        )

    def clip(self, sample: PerSample, state: State, release: Release) -> Clip:
        return Clip(clip_to(self._bound(sample), sample.norm), self._bound(sample))

    def _bound(self, sample: PerSample) -> Tensor:
        return sample.norm.new_full((), self.number("max_grad_norm", 1.0))
