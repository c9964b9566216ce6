"""How long to train and in which steps, and the batches of an epoch."""

from dataclasses import dataclass

from skdpfair.engine import Batch, PoissonSampler, ScaleSearch


@dataclass(frozen=True)
class Schedule:
    """How long to train, and how the steps are sized and averaged.

    Parameters
    ----------
    n_steps : int
        Steps on the data, the warm-up's among them.
    steps_per_epoch : int
        Steps between two epoch callbacks.
    search : ScaleSearch or None
        The warm-up, if the gradient scale is to be found.
    warm_up : int
        Its number of steps.
    unit : float or None
        Learning rate in units of the method's own; None to take the optimizer's as given.
    headroom : float
        See :meth:`skdpfair.mechanism.Method.at_scale`.
    averaged : float
        Share, in [0, 1], of the last steps whose parameters are averaged.
    """

    n_steps: int
    steps_per_epoch: int
    search: ScaleSearch | None = None
    warm_up: int = 0
    unit: float | None = None
    headroom: float = 1.0
    averaged: float = 0.0


class PoissonBatches:
    """The data on the device and its sampler; iterating draws one epoch, afresh each time."""

    def __init__(self, data: Batch, sampler: PoissonSampler, steps_left):
        self.data, self.sampler, self.steps_left = data, sampler, steps_left

    def __iter__(self):
        for index in self.sampler.draw(self.steps_left()):
            yield self.data.take(index.to(self.data.x.device))
