"""Bounded adaptive clipping: the bound follows a quantile of the norms, down to a floor."""

from dataclasses import dataclass

from skdpfair.engine.mechanism import Clip, NoisySums, PerSample, Task
from skdpfair.methods._clipping import (
    ADAPTIVE_GAIN,
    AdaptiveMethod,
    Threshold,
    clip_to,
    first_threshold,
)


@dataclass(kw_only=True, repr=False, eq=False)
class BoundedAdapt(AdaptiveMethod, name="bounded_adapt"):
    r"""Weigh record i by :math:`\min(1, C / \lVert g_i \rVert)`, and learn C.

    Released: the count b of norms above C, of sensitivity 1, and the gradient sum, of sensitivity
    C; then :math:`C \leftarrow \max(C_{\min}, C \exp(0.2 (\tilde b / B - q)))`.

    Parameters
    ----------
    max_grad_norm : float > 0 or "auto", default="auto"
        First C.  ``"auto"``: the estimator finds it in a private warm-up; 1 elsewhere.
    min_grad_norm : float > 0 or "auto", default="auto"
        :math:`C_{\min}`; ``"auto"`` is half of the first C (the paper tunes it).

    References
    ----------
    Zhao et al., "Mitigating Disparate Impact of Differentially Private Learning through Bounded
    Adaptive Clipping", 2025, arXiv:2506.01396.

    Examples
    --------
    >>> from skdpfair.testing import example_records, example_task
    >>> method = BoundedAdapt(max_grad_norm=1.0)
    >>> method.clip(example_records(norm=[4.0, 0.5]), method.start(example_task()), {})
    Clip(weight=tensor([0.2500, 1.0000]), bound=tensor(1.))
    """

    min_grad_norm: float | str = "auto"

    def start(self, task: Task) -> Threshold:
        first = self.number("max_grad_norm", 1.0)
        floor = self.number("min_grad_norm", first / 2)
        return first_threshold(first, task, ADAPTIVE_GAIN, self.target_share, floor)

    def clip(self, sample: PerSample, state: Threshold, release: NoisySums) -> Clip:
        bound = state.z.to(sample.norm.dtype)
        return Clip(clip_to(bound, sample.norm), bound)
