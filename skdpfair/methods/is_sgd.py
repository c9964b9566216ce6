"""IS-SGD: draw records so that all groups come equally often; NOT private."""

from dataclasses import dataclass

from torch import Tensor

from skdpfair.engine.mechanism import Task
from skdpfair.methods._clipping import UnclippedMethod
from skdpfair.methods._fractions import MethodByFractions, balancing_rates


@dataclass(kw_only=True, repr=False, eq=False)
class ISSGD(MethodByFractions, UnclippedMethod, name="is_sgd", reference="kulynych2022what"):
    r"""Draw a record of group k with probability :math:`q / (K q_k)`, at most 1; weigh it by 1.

    q is the sample rate and :math:`q_k` the share of group k, counted if not given.  Not private:
    one record moves the sum without bound.  (The paper draws with replacement; the Poisson rates
    here are proportional to its probabilities.)

    References
    ----------
    Kulynych et al., "What You See is What You Get: Principled Deep Learning via Distributional
    Generalization", NeurIPS 2022.

    Examples
    --------
    >>> from skdpfair.testing import example_task
    >>> ISSGD(group_probabilities=(0.8, 0.2)).rates(example_task(sample_rate=0.1))
    tensor([0.0625, 0.2500], dtype=torch.float64)
    """

    private_alternative = "dp_is_sgd"

    def rates(self, task: Task) -> Tensor:
        fractions = self.group_fractions(task)
        return super().rates(task) if fractions is None else balancing_rates(task, fractions)
