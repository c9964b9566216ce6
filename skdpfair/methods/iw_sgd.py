"""IW-SGD: weigh each group's loss by the inverse of its share; NOT private."""

from dataclasses import dataclass

import torch
from torch import Tensor

from skdpfair.engine.mechanism import NoisySums, PerSample, Task
from skdpfair.methods._clipping import UnclippedMethod
from skdpfair.methods._fractions import MethodByFractions


@dataclass(kw_only=True, repr=False, eq=False)
class IWSGD(MethodByFractions, UnclippedMethod, name="iw_sgd", reference="kulynych2022what"):
    r"""Weigh a record of group k by :math:`1 / (K q_k)`, with :math:`q_k` the group's share.

    Not private: one record moves the sum without bound.

    References
    ----------
    Kulynych et al., "What You See is What You Get: Principled Deep Learning via Distributional
    Generalization", NeurIPS 2022.

    Examples
    --------
    >>> from skdpfair.testing import example_records, example_task
    >>> method = IWSGD(group_probabilities=(0.8, 0.2))
    >>> sample, state = example_records(norm=[4.0, 0.5], group=[0, 1]), method.start(example_task())
    >>> method.clip(sample, state, {})
    Clip(weight=tensor([0.6250, 2.5000]), bound=tensor(inf))
    """

    private_alternative = "dp_is_sgd"

    def start(self, task: Task) -> Tensor:
        """Return the weight of each group."""
        fractions = self.group_fractions(task)
        return torch.ones(task.n_groups) if fractions is None else 1.0 / (task.n_groups * fractions)

    def weight(self, sample: PerSample, state: Tensor, release: NoisySums) -> Tensor:
        return state.to(sample.norm.dtype).index_select(0, sample.group)
