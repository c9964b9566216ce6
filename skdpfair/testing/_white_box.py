"""White-box attack on a fit: canaries with gradients of their own, seen in every step."""

import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from skorch.callbacks import Callback

from skdpfair.testing._contracts import per_sample, released

_NORMS = np.geomspace(1e-3, 1e4, 701)
_N_BLANK = 1000  # entries that are noise only
_LEAST_VARIANCE = 1e-6
# exponent of a likelihood ratio
_MOST = 500.0


def recording(mechanism):
    """Return the mechanism, and a dict that gets what each of its steps releases first."""
    recorded, hooks, releases = replace(mechanism), copy.copy(mechanism.hooks), {}

    def clip(sample, state, release):
        releases.update(release)
        return mechanism.hooks.clip(sample, state, release)

    hooks.clip = clip
    vars(recorded)["hooks"] = hooks  # a cached property
    return recorded, releases


def clip_of(method, sample, state, task):
    """Return how a method clips gradients if its releases have no noise."""
    return method.clip(sample, state, released(method, sample, task, state))


class Canaries(Callback):
    """Give some records of a fit gradients that the attacker knows, and score what is released.

    ``canary_of`` (n_units,) is the canary that a record or person of the fit is, -1 for none, and
    ``group`` (n_canaries,) the group code of each, of those that do not take part, too.  ``score``
    (n_canaries,) is the log-likelihood ratio that it took part, summed over the steps.

    The released gradient gets one more entry for each canary, which is the only one that its
    gradient has, and 1000 that nobody has.  Sampler, queries, weights, noise and schedule are those
    of the fit.  With r its weighted norm over the declared bound, x the released entry over that
    bound, q its sampling rate and s the noise of the 1000 entries over that bound, a step adds
    ``log(1 - q + q exp((r x - r^2 / 2) / s^2))`` to the score of a canary.  What is done with noise
    that is too low, or missing, is thus what is best.
    """

    def __init__(self, canary_of, group):
        self.canary_of, self.group = torch.from_numpy(canary_of), torch.from_numpy(group)
        self.score = np.zeros(len(group))

    def on_epoch_begin(self, net, **kwargs):
        """Take the place of the private step, after the warm-up."""
        loop = net._running
        loop.release = partial(self._release, loop)

    def _release(self, loop, index):
        engine, mechanism, state = loop.engine, loop.settled, loop.state
        recorded, releases = recording(mechanism)
        norm = _telling_norm(mechanism, state)
        n_more = len(self.group) + _N_BLANK
        planted: Any = Planted(engine, self.canary_of[loop.in_order(index)], norm, n_more)
        step = loop.release_by(planted, recorded, index)
        n, size = engine.n_parameters, mechanism.expected_batch_size
        x = (step.gradient[n:].double() * size / step.bound).numpy()
        x, blank = np.split(x, [len(self.group)])
        groups = list(range(mechanism.task.n_groups))
        sample = per_sample([norm] * len(groups), group=groups)
        weighed = mechanism.method.clip(sample, state, releases)
        r = (weighed.weight * norm / weighed.bound).double()[self.group].numpy()
        q = np.minimum(mechanism.rates_at(state)[self.group].numpy(), 1 - 1e-12)
        variance = max(np.mean(blank**2), _LEAST_VARIANCE)
        exponent = np.clip((r * x - r**2 / 2) / variance, -_MOST, _MOST)
        self.score += np.logaddexp(np.log1p(-q), np.log(q) + exponent)
        return replace(step, gradient=loop.flat.grad.copy_(step.gradient[:n]))


# not a Strategy: it has no module of its own
class Planted:
    """A strategy in which some records have a gradient of a norm along an entry of their own.

    ``canary`` (batch,) is the canary that a record or person of the batch is, -1 for none; their
    entries are the first of ``n_more`` that follow those of the parameters.
    """

    def __init__(self, engine, canary, norm, n_more):
        self._engine, self._canary, self._norm = engine, canary, norm
        self._n_more, self._first = n_more, 0

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def flat(self):
        """Return a zero vector with one entry per parameter and canary."""
        flat = self._engine.flat()
        return flat.new_zeros(len(flat) + self._n_more)

    def moved(self, shift):
        """Move the parameters; canaries have none."""
        return self._engine.moved(shift[: self._engine.n_parameters])

    def per_sample_gradients(self, batch):
        """Return the gradients of the next examples of the batch, which may come in chunks."""
        gradients = self._engine.per_sample_gradients(batch)
        first = self._first % len(self._canary)
        self._first = first + len(gradients.norm)
        return self._with_canaries(gradients, self._canary[first : self._first])

    def _with_canaries(self, gradients, canary):
        n, mine = self._engine.n_parameters, canary >= 0

        def weighted_sum(weight, out, finite=None):
            gradients.weighted_sum(torch.where(mine, 0.0, weight), out[:n], finite)
            out[n:].index_add_(0, canary[mine], weight[mine] * self._norm)

        return replace(
            gradients,
            norm=torch.where(mine, self._norm, gradients.norm),
            weighted_sum=weighted_sum,
            ahead=lambda scale: self._with_canaries(gradients.ahead(scale), canary),
        )


def _telling_norm(mechanism, state):
    """Return the largest norm of a gradient that, weighted, is longest over its bound."""
    method, task = mechanism.method, mechanism.task
    sample = per_sample(_NORMS.tolist(), group=[task.n_groups - 1] * len(_NORMS))
    clip = clip_of(method, sample, state, task)
    share = (clip.weight.double().numpy() * _NORMS / float(clip.bound)).round(5)
    return float(_NORMS[share == share.max()].max())
