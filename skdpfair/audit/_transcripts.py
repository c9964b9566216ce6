"""Steps taken again and again on one batch, and what an attacker sees of each."""

import copy
from dataclasses import replace

import numpy as np
import torch

from skdpfair.engine import private_step
from skdpfair.mechanism import PerSample

_FEW = 16  # numbers of a vector that the attack sees one by one
_CHUNK = 1000  # outputs held in memory at once


class Transcripts:
    """Takes the steps, and writes down what an attacker sees of each.

    Parameters
    ----------
    engine : Strategy
        Of the module.
    mechanism : Mechanism
        What is audited.
    batch : Batch
        With the record, which is the last.
    noise : Noise
        The stream of the noise.
    """

    def __init__(self, engine, mechanism, batch, noise):
        self.engine, self.mechanism, self.noise = engine, mechanism, noise
        self.state = mechanism.method.start(mechanism.task)
        last = torch.arange(len(batch)) == len(batch) - 1
        self.directions = torch.stack([self._direction(batch, kept) for kept in (last, ~last)])
        measured = engine.records(batch.x, batch.y)
        facts = measured.norm, measured.loss, batch.group, measured.probability
        self.record = PerSample(*(fact[-1:] for fact in facts))

    def _direction(self, batch, kept):
        """Return the direction of the sum of some records' gradients."""
        total = self.engine.flat()
        self.engine.records(batch.x, batch.y).weighted_sum(kept.float(), total)
        return (total / total.norm().clamp(min=1e-30)).double()

    def draws(self, batch, n_draws, callback=None):
        """Return what is seen of so many steps, (n_draws, n_seen); tell how many, as they pass."""
        seen = []
        for first in range(0, n_draws, _CHUNK):
            size = min(_CHUNK, n_draws - first)
            outputs, ratios = zip(*(self._output(batch) for _ in range(size)), strict=True)
            parts = [torch.stack(part).double() for part in zip(*outputs, strict=True)]
            columns = [_seen(part, self.directions) for part in parts]
            seen.append(np.hstack([*columns, np.array(ratios)[:, None]]))
            if callback is not None:
                callback(size)
        return np.vstack(seen)

    def _output(self, batch):
        """Return all vectors that leave a step, and the ratio by the method's own rule."""
        method, heard = copy.copy(self.mechanism.method), {}

        def clip(sample, state, release):
            heard.update(release)
            return self.mechanism.method.clip(sample, state, release)

        method.clip = clip
        mechanism = replace(self.mechanism, method=method)
        step = private_step(self.engine, batch, mechanism, self.state, self.noise)
        states = step.state if isinstance(step.state, tuple) else (step.state,)
        total = step.gradient * mechanism.expected_batch_size
        kept = [*(heard[name] for name in sorted(heard)), total, *states]
        vectors = [part.flatten().clone() for part in kept if torch.is_tensor(part)]
        return vectors, self._ratio(total, heard)

    def _ratio(self, total, release):
        """Return the log-likelihood ratio of the gradient sum, given what else was released."""
        clip = self.mechanism.method.clip(self.record, self.state, release)
        length = float(clip.weight[0] * self.record.norm[0])
        scale = self.mechanism.noise_multiplier * float(clip.bound)
        along = float(self.directions[0].float() @ total)
        return float(np.clip((along - length / 2) * length / max(scale**2, 1e-30), -1e6, 1e6))


def _seen(vectors, directions):
    """Return what the attack sees of vectors (n, d): all of a few numbers, else three."""
    if vectors.shape[1] <= _FEW:
        return vectors.numpy()
    if vectors.shape[1] != directions.shape[1]:
        return vectors.norm(dim=1, keepdim=True).clamp(min=1e-300).log().numpy()
    along = vectors @ directions.T
    rest = (vectors - along @ directions).norm(dim=1, keepdim=True)
    return torch.cat([along, rest.clamp(min=1e-300).log()], dim=1).numpy()
