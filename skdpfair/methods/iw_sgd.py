"""IW-SGD: weigh each group's loss by the inverse of its share; NOT private."""

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from skdpfair.mechanism import Clip, Method, NoisySums, PerSample, Task
from skdpfair.methods._clipping import NOT_NEGATIVE
from skdpfair.methods._fractions import SHARES, declared


@dataclass(kw_only=True, repr=False, eq=False)
class IWSGD(Method, name="iw_sgd", reference="kulynych2022what"):
    r"""Weigh a record of group k by :math:`1 / (K q_k)`, with :math:`q_k` the group's share.

    Not private: one record moves the sum without bound.

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
    >>> from skdpfair.testing import per_sample, task
    >>> method = IWSGD(group_probabilities=(0.8, 0.2))
    >>> method.clip(per_sample(norm=[4.0, 0.5], group=[0, 1]), method.start(task()), {})
    Clip(weight=tensor([0.6250, 2.5000]), bound=tensor(inf))
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

    def start(self, task: Task) -> Tensor:
        """Return the weight of each group."""
        shares = declared(self.group_probabilities, task.n_groups)
        shares = task.group_fractions if shares is None else shares
        if shares is None:
            return torch.ones(task.n_groups)
        return 1.0 / (task.n_groups * shares)

    def clip(self, sample: PerSample, state: Tensor, release: NoisySums) -> Clip:
        weight = state.to(sample.norm.dtype).index_select(0, sample.group)
        return Clip(weight, sample.norm.new_full((), inf))
