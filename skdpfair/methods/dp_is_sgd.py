"""DP-IS-SGD: draw records so that all groups come equally often, then DP-SGD."""

from dataclasses import dataclass
from numbers import Real

import torch
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor

from skdpfair.engine.mechanism import Task
from skdpfair.methods._clipping import ClippedMethod
from skdpfair.methods._fractions import MethodByFractions, balancing_rates

CAP_FACTOR = 3.0


@dataclass(kw_only=True, repr=False, eq=False)
class DPISSGD(MethodByFractions, ClippedMethod, name="dp_is_sgd", reference="kulynych2022what"):
    r"""Draw a record of group k with probability :math:`p_k = \min(p^*, q / (K q_k))`, clip to C.

    q is the sample rate and :math:`q_k` the share of group k, public or counted with noise once,
    before the first step.  Released each step: the gradient sum, of sensitivity C, with noise
    ``noise_multiplier`` C. Epsilon is that at :math:`p^*`; ``privacy_.group_epsilons`` has that of
    each group at :math:`p_k`, higher for minorities, which are drawn more often.

    Parameters
    ----------
    group_count_noise_multiplier : float > 0 or "auto", default="auto"
        Noise of the counts (sensitivity 1, all records, once); ``"auto"`` takes 1/25 of the
        budget.
    max_sample_rate : float in (0, 1] or "auto", default="auto"
        :math:`p^*`, at least q.  ``"auto"``: the largest :math:`p_k` if the shares are public, else
        3 q: groups below 1/(3 K) of the records are drawn less often.

    References
    ----------
    Kulynych et al., "What You See is What You Get: Principled Deep Learning via Distributional
    Generalization", NeurIPS 2022, Algorithm 1 (whose noise stands outside the mean by misprint).

    Examples
    --------
    >>> from skdpfair.testing import example_task
    >>> method = DPISSGD(group_probabilities=(0.8, 0.2), max_sample_rate=0.2)
    >>> method.rates(example_task(sample_rate=0.1))
    tensor([0.0625, 0.2000], dtype=torch.float64)
    """

    group_count_noise_multiplier: float | str = "auto"
    max_sample_rate: float | str = "auto"

    logit_scales = 0.7, 1.0
    _parameter_constraints = {
        "max_sample_rate": [Interval(Real, 0, 1, closed="right"), StrOptions({"auto"})]
    }

    def rates(self, task: Task) -> Tensor:
        is_public = self.group_probabilities is not None
        largest = 1.0 if is_public else min(1.0, CAP_FACTOR * task.sample_rate)
        cap = self.number("max_sample_rate", largest)
        if cap < task.sample_rate:
            raise ValueError(
                f"max_sample_rate={cap:g} is below the sample rate {task.sample_rate:.4g} (batch "
                "size over n). Raise it, or lower batch_size."
            )
        fractions = self.group_fractions(task)
        if fractions is None:
            return torch.full((task.n_groups,), cap, dtype=torch.float64)
        return balancing_rates(task, fractions, cap)
