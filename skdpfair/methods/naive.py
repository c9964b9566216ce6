"""Naive reweighing: groups of any size weigh the same in the sum."""

from dataclasses import dataclass

from skdpfair.engine.mechanism import (
    Clip,
    GroupRows,
    Method,
    NoisySums,
    PerSample,
    Query,
    State,
    Task,
)
from skdpfair.methods._clipping import ClippedMethod, CountingMethod, clip_to


@dataclass(kw_only=True, repr=False, eq=False)
class Naive(ClippedMethod, CountingMethod, name="naive", reference="xu2021removing"):
    r"""Weigh record i of group k by :math:`\theta_k \min(1, C/\lVert g_i \rVert)`.

    :math:`\theta_k = (B/K)/b_k`, at most B/K, where :math:`b_k` is the noisy number of records of
    group k in the batch, B the expected batch size and K the number of groups.  Released each
    step: the K counts, of sensitivity 1, with noise ``count_noise_multiplier``; and the gradient
    sum, of sensitivity :math:`C \max_k \theta_k` over all groups.

    Parameters
    ----------
    largest_factor : float > 0 or "auto", default="auto"
        Rescale the factors of a step so that the largest is this: post-processing of the noisy
        counts that keeps the groups' proportions and makes the noise the same in all steps.
        ``"auto"``: 1 where the estimator finds C; else no rescaling, as in the paper.

    References
    ----------
    Xu, Du, Wu, "Removing Disparate Impact on Model Accuracy in Differentially Private Stochastic
    Gradient Descent", KDD 2021, Algorithm 3.

    Examples
    --------
    >>> import torch
    >>> from skdpfair.testing import example_records, example_task
    >>> method, sample = Naive(max_grad_norm=1.0), example_records(norm=[2.0, 0.5], group=[0, 1])
    >>> state = method.start(example_task(n_samples=100, n_groups=2, sample_rate=0.4))  # B/K = 20
    >>> method.clip(sample, state, {"counts": torch.tensor([40.0, 10.0])})
    Clip(weight=tensor([0.2500, 2.0000]), bound=tensor(2.))
    """

    largest_factor: float | str = "auto"

    needs_groups = True

    def start(self, task: Task) -> float:
        """Return B/K, the size each group would have in a balanced batch; public."""
        return task.n_samples * task.sample_rate / task.n_groups

    def queries(self, task: Task, noise_multiplier: float) -> tuple[Query, ...]:
        """Count the records per group."""

        def rows(sample: PerSample, state: State) -> GroupRows:
            return GroupRows(sample.group, task.n_groups)

        noise = self.count_noise(noise_multiplier)
        return (Query("counts", rows, 1.0, noise),)

    def clip(self, sample: PerSample, state: float, release: NoisySums) -> Clip:
        """Clip to C, then weigh by the group's factor."""
        factor = state / release["counts"].to(sample.norm.dtype).clamp(min=1.0)
        bound = sample.norm.new_full((), self.number("max_grad_norm", 1.0))
        if not self.is_auto("largest_factor"):
            factor = factor * (self.number("largest_factor", 1.0) / factor.max())
        weight = factor.index_select(0, sample.group) * clip_to(bound, sample.norm)
        return Clip(weight, bound * factor.max())

    def at_scale(
        self, scale: float, norm_growth: float, output_growth: float = 1.0
    ) -> tuple[Method, float]:
        """Set C to the scale, and the largest factor to 1 so that all steps are alike."""
        steady = self.filled(largest_factor=1.0) if self.is_auto("max_grad_norm") else self
        return super(Naive, steady).at_scale(scale, norm_growth, output_growth)
