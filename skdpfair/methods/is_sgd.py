"""IS-SGD: draw records so that all groups come equally often; NOT private."""

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from skdpfair.mechanism import Clip, Method, NoisySums, PerSample, State, Task
from skdpfair.methods._clipping import NOT_NEGATIVE
from skdpfair.methods._fractions import SHARES, balancing_rates, declared


@dataclass(kw_only=True, repr=False, eq=False)
class ISSGD(Method, name="is_sgd", reference="kulynych2022what"):
    r"""Draw a record of group k with probability :math:`q / (K q_k)`, at most 1; weigh it by 1.

    q is the sample rate and :math:`q_k` the share of group k, counted if not given.  Not private:
    one record moves the sum without bound.  (The paper draws with replacement; the Poisson rates
    here are proportional to its probabilities.)

    Parameters
    ----------
    group_probabilities : sequence of float or None, default=None
        Shares :math:`q_k`, in the order of the groups; None counts them.
    gradient_noise : float >= 0, default=0.0
        Standard deviation of noise on the mean gradient; buys no epsilon.

    References
    ----------
    Kulynych et al., "What You See is What You Get: Principled Deep Learning via Distributional
    Generalization", NeurIPS 2022.

    Examples
    --------
    >>> from skdpfair.testing import task
    >>> ISSGD(group_probabilities=(0.8, 0.2)).rates(task(sample_rate=0.1))
    tensor([0.0625, 0.2500], dtype=torch.float64)
    """

    group_probabilities: object = None
    gradient_noise: float = 0.0

    private = False
    private_alternative = "dp_is_sgd"
    needs_groups = True
    needs_group_fractions = True
    _parameter_constraints = {
        "group_probabilities": SHARES,
        "gradient_noise": NOT_NEGATIVE,
    }

    def rates(self, task: Task) -> Tensor:
        shares = declared(self.group_probabilities, task.n_groups)
        shares = task.group_fractions if shares is None else shares
        return super().rates(task) if shares is None else balancing_rates(task, shares)

    def clip(self, sample: PerSample, state: State, release: NoisySums) -> Clip:
        return Clip(torch.ones_like(sample.norm), sample.norm.new_full((), inf))
