"""SGD: no clipping, no noise; the non-private reference for the cost of privacy."""

from dataclasses import dataclass
from math import inf

import torch

from skdpfair.mechanism import Clip, Method, NoisySums, PerSample, State
from skdpfair.methods._clipping import NOT_NEGATIVE


@dataclass(kw_only=True, repr=False, eq=False)
class SGD(Method, name="sgd", reference="robbins1951stochastic"):
    r"""Sum the gradients of the batch as they are, :math:`w_i = 1`.

    Not private: one record moves the sum without bound, so epsilon is infinite.

    Parameters
    ----------
    gradient_noise : float >= 0, default=0.0
        Standard deviation of noise on the mean gradient of every parameter, a regulariser; it
        buys no epsilon.

    References
    ----------
    Robbins and Monro, "A Stochastic Approximation Method", 1951.

    Examples
    --------
    >>> from skdpfair.testing import per_sample
    >>> SGD().clip(per_sample(norm=[4.0, 0.5]), None, {})
    Clip(weight=tensor([1., 1.]), bound=tensor(inf))
    """

    gradient_noise: float = 0.0

    private = False
    _parameter_constraints = {"gradient_noise": NOT_NEGATIVE}

    def clip(self, sample: PerSample, state: State, release: NoisySums) -> Clip:
        """Weigh every record by one."""
        return Clip(torch.ones_like(sample.norm), sample.norm.new_full((), inf))
