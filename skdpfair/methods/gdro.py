"""Group DRO: raise the weight of the groups with the largest loss; NOT private."""

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from skdpfair.engine.mechanism import GroupRows, NoisySums, PerSample, Query, State, Task
from skdpfair.methods._clipping import NOT_NEGATIVE, UnclippedMethod


@dataclass(kw_only=True, repr=False, eq=False)
class GDRO(UnclippedMethod, name="gdro", reference="sagawa2020distributionally"):
    r"""Minimise :math:`\sum_k u_k L_k` after the update :math:`u_k \leftarrow u_k e^{\eta L_k}`.

    :math:`L_k` is the mean loss of group k in the batch and u sums to 1: record i of group k
    weighs :math:`u_k B / b_k`, with :math:`b_k` the group's records in the batch and B the
    expected batch size.  Not private: counts and losses are used as they are.

    Parameters
    ----------
    group_lr : float >= 0, default=0.01
        :math:`\eta`.

    References
    ----------
    Sagawa et al., "Distributionally Robust Neural Networks for Group Shifts", ICLR 2020,
    Algorithm 1; Kulynych et al., NeurIPS 2022.

    Examples
    --------
    >>> from skdpfair.testing import example_records, example_task
    >>> method = GDRO(group_lr=0.0)
    >>> sample, state = example_records(norm=[4.0, 0.5], group=[0, 1]), method.start(example_task())
    >>> sums = torch.tensor([10.0, 40.0, 5.0, 60.0])  # counts, then sums of losses
    >>> method.clip(sample, state, {"groups": sums}).weight  # B = 100
    tensor([5.0000, 1.2500])
    """

    group_lr: float = 0.01

    private_alternative = "asc"
    needs_groups = True
    _parameter_constraints = {"group_lr": NOT_NEGATIVE}

    def start(self, task: Task) -> tuple[Tensor, Tensor]:
        weight = torch.full((task.n_groups,), 1.0 / task.n_groups)
        return weight, torch.tensor(task.n_samples * task.sample_rate)

    def queries(self, task: Task, noise_multiplier: float) -> tuple[Query, ...]:
        def rows(sample: PerSample, state: State) -> GroupRows:
            return GroupRows(sample.group, task.n_groups, sample.loss)

        return (Query("groups", rows, inf, 0.0),)

    def _raised(self, state: tuple[Tensor, Tensor], release: NoisySums) -> tuple[Tensor, Tensor]:
        count, loss = release["groups"].view(2, -1)
        mean = loss / count.clamp(min=1.0)
        return torch.softmax(torch.log(state[0]) + self.group_lr * mean, dim=0), count

    def weight(self, sample: PerSample, state: tuple[Tensor, Tensor], release: NoisySums) -> Tensor:
        weight, count = self._raised(state, release)
        each = (weight * state[1] / count.clamp(min=1.0)).to(sample.norm.dtype)
        return each.index_select(0, sample.group)

    def update(self, state: tuple[Tensor, Tensor], release: NoisySums) -> tuple[Tensor, Tensor]:
        return self._raised(state, release)[0], state[1]
