"""Poisson batches of a mechanism, with and without the weights of its method."""

from functools import cached_property

import numpy as np
import pandas as pd
import torch

from skdpfair.analysis._mechanisms import noiseless, weighed
from skdpfair.analysis._problem import Problem
from skdpfair.analysis._terms import cosine
from skdpfair.engine import PoissonSampler, Streams
from skdpfair.training.schedule import record_rates


class Batches:
    """What a mechanism makes of ``n_batches`` Poisson batches.

    Parameters
    ----------
    found : Problem
        The records.
    strategy : Strategy
        Their gradients.
    mechanism : Mechanism
        Rates, queries and weights.
    state : object
        What the method keeps.
    n_batches : int
        How many to draw.
    rng : numpy.random.Generator
        Of batches, and of the noise of counts.

    Attributes
    ----------
    plain, clipped : Tensor of shape (n_batches, n_parameters)
        Mean gradients over the expected size, without and with weights.
    frame : pandas.DataFrame
        One row per batch.
    by_group : dict of str to ndarray of shape (n_groups,)
        Share that is clipped, and norm above which one is; means over the batches.
    """

    def __init__(self, found: Problem, strategy, mechanism, state, n_batches, rng):
        self.mechanism = mechanism
        index = PoissonSampler(
            record_rates(mechanism, found.batch.group.cpu()), len(found.batch), rng
        ).draw(n_batches)
        streams = Streams.seeded(int(rng.integers(2**63)), digest=bytes(32))
        noise, quiet = streams.noise(found.batch.x.device), noiseless(mechanism)
        at = found.batch.y.device
        batches = [found.batch.select(one.to(at)) for one in index]
        steps = [weighed(strategy, b, quiet, state, noise, found.chunk) for b in batches]
        self.plain = torch.stack([step.plain for step in steps])
        self.clipped = torch.stack([step.gradient for step in steps])
        rows = [
            {
                "size": len(batch),
                "gradient_norm": _length(step.plain),
                "clipped_gradient_norm": _length(step.gradient),
                "cosine": cosine(step.plain, step.gradient),
                "sensitivity": step.sensitivity,
            }
            for batch, step in zip(batches, steps, strict=True)
        ]
        self.frame = pd.DataFrame(rows)
        shares = zip(*(step.by_group for step in steps), strict=True)
        means = [mean_of(np.array(values)) for values in shares]
        self.by_group = dict(zip(("clipped_share", "threshold"), means, strict=True))

    @cached_property
    def lengths(self) -> np.ndarray:
        """Length of the clipped gradient of each batch."""
        return self.frame["clipped_gradient_norm"].to_numpy()

    @property
    def fullest(self) -> float:
        """How much longer than the bound a mean over the expected size can have been."""
        expected = self.mechanism.expected_batch_size
        return max(1.0, float(self.frame["size"].max()) / expected)


def _length(vector):
    return float(torch.linalg.vector_norm(vector))


def mean_of(values):
    """Return the means over batches, the first axis, that are not NaN; NaN where all are."""
    there = ~np.isnan(values)
    total = np.where(there, values, 0.0).sum(axis=0)
    counts = there.sum(axis=0)
    return np.divide(total, counts, out=np.full(len(total), np.nan), where=counts > 0)
