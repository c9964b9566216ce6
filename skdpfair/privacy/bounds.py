"""How far one record can move what is released: total variation from the privacy loss."""

import math
from collections.abc import Iterable
from functools import lru_cache

import dp_accounting as dpa
import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld

from skdpfair._validate import number, one_of
from skdpfair.privacy.accounting import (
    LEAST_NOISE,
    MOST_MU,
    SampledGaussian,
    interval,
    joint_mu,
    merged,
)

RELATIONS = {
    "zero_out": dpa.NeighboringRelation.ADD_OR_REMOVE_ONE,  # the same dominating pair
    "add_remove": dpa.NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace_one": dpa.NeighboringRelation.REPLACE_ONE,
}
_SETTLED = 0.005
_MANY_STEPS = 10_000


def total_variation(runs: Iterable[SampledGaussian], adjacency: str = "add_remove") -> float:
    """Return an upper bound on the total variation between releases on neighbouring data.

    Parameters
    ----------
    runs : iterable of SampledGaussian
        Everything that was released, in any order.
    adjacency : {"add_remove", "zero_out", "replace_one"}, default="add_remove"
        Which data sets are neighbours: one record more or less; one record replaced by a null
        record, which has the same dominating pair; one record replaced by any other.

    Returns
    -------
    float
        In [0, 1]: delta at epsilon 0 of the composed privacy loss distribution, which the pair of
        largest privacy loss attains; 0 if nothing was released, 1 if a release had no noise.

    Notes
    -----
    The discretisation is pessimistic and refined as in `skdpfair.privacy.epsilon`: divided by 3
    until the value moves by less than 0.5 %, and the least value is returned.

    Examples
    --------
    >>> adult = SampledGaussian(sample_rate=1 / 92, noise_multiplier=1.0, steps=1840)
    >>> print(f"{total_variation([adult]):.3f}, {total_variation([adult], 'replace_one'):.3f}")
    0.235, 0.381
    """
    one_of("adjacency", adjacency, RELATIONS)
    runs = merged(runs)
    if any(run.noise_multiplier < LEAST_NOISE for run in runs) or joint_mu(runs) > MOST_MU:
        return 1.0
    return _settled(runs, RELATIONS[adjacency]) if runs else 0.0


def tv_from_epsilon(epsilon: float, delta: float) -> float:
    """Return the bound on total variation that epsilon and delta alone give.

    (e^epsilon - 1 + 2 delta) / (e^epsilon + 1), Proposition 2.6 of [kulynych2022]_, for the
    adjacency of epsilon. `total_variation` is far tighter where the releases are known.

    Parameters
    ----------
    epsilon : float
        At least 0, may be infinite.
    delta : float
        In [0, 1].

    Returns
    -------
    float
        In [0, 1].

    References
    ----------
    .. [kulynych2022] B. Kulynych et al., "What You See is What You Get: Principled Deep Learning
       via Distributional Generalization", NeurIPS 2022.

    Examples
    --------
    >>> print(f"{tv_from_epsilon(3.104, 1e-6):.3f}")
    0.914
    """
    epsilon = number("epsilon", epsilon, low=0)
    delta = number("delta", delta, low=0, high=1)
    # tanh(e/2) = (e^e - 1) / (e^e + 1), without the overflow
    return math.tanh(epsilon / 2) + 2 * delta * math.exp(-epsilon) / (1 + math.exp(-epsilon))


@lru_cache(maxsize=1024)
def _settled(runs, relation):
    values = [_delta_at_zero(runs, relation, 0)]
    while interval(runs, len(values)) < 0.9 * interval(runs, len(values) - 1):
        values.append(_delta_at_zero(runs, relation, len(values)))
        if not values[-2] - values[-1] > _SETTLED * values[-1]:
            break
    return float(np.clip(min(values), 0.0, 1.0))


def _delta_at_zero(runs, relation, level):
    width = interval(runs, level)
    with np.errstate(all="ignore"):
        whole = pld.identity(value_discretization_interval=width)
        for run in runs:
            whole = whole.compose(_distribution(run, relation, width))
        return float(whole.get_delta_for_epsilon(0.0))


def _distribution(run, relation, width):
    q, sigma, steps = run
    if q == 1:  # plain Gaussians compose exactly, before anything is discretised
        sigma, steps = sigma / math.sqrt(steps), 1
    step = pld.from_gaussian_mechanism(
        sigma,
        value_discretization_interval=width,
        sampling_prob=q,
        neighboring_relation=relation,
    )
    if steps <= _MANY_STEPS:
        return step.self_compose(steps)
    # the library's truncation lets the grid grow with the steps: compose in two stages
    root = math.isqrt(steps)
    whole = step.self_compose(root).self_compose(root)
    rest = steps - root**2
    return whole.compose(step.self_compose(rest)) if rest else whole
