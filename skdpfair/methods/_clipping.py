"""Clipping rule, thresholds that follow the norms, and group counts, for several methods."""

import abc
from dataclasses import dataclass
from math import inf
from numbers import Real
from typing import NamedTuple

import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor

from skdpfair.engine.mechanism import (
    COUNT_NOISE,
    Clip,
    Method,
    NoisySums,
    PerSample,
    Query,
    State,
    Task,
)
from skdpfair.engine.warmup import Z_MAX, Z_MIN, updated_scale

ADAPTIVE_GAIN = 0.2
NOT_NEGATIVE = [Interval(Real, 0, None, closed="left")]


def clip_to(bound: Tensor, norm: Tensor) -> Tensor:
    """Return min(1, bound / norm); a zero gradient keeps weight 1."""
    return bound / torch.maximum(norm, bound)


@dataclass(kw_only=True, repr=False, eq=False)
class ClippedMethod(Method, abc.ABC):
    """A method whose gradient sum is that of DP-SGD.

    Parameters
    ----------
    max_grad_norm : float > 0 or "auto", default="auto"
        Clipping bound C.  ``"auto"``: the estimator finds it in a private warm-up; 1 elsewhere.
    """

    max_grad_norm: float | str = "auto"

    def clip(self, sample: PerSample, state: State, release: NoisySums) -> Clip:
        bound = sample.norm.new_full((), self.number("max_grad_norm", 1.0))
        return Clip(clip_to(bound, sample.norm), bound)


@dataclass(kw_only=True, repr=False, eq=False)
class UnclippedMethod(Method, abc.ABC):
    """A method that is not private: one record moves the gradient sum without bound.

    Parameters
    ----------
    gradient_noise : float >= 0, default=0.0
        Standard deviation of noise on the mean gradient; buys no epsilon.
    """

    gradient_noise: float = 0.0

    private = False
    _parameter_constraints = {"gradient_noise": NOT_NEGATIVE}

    def weight(self, sample: PerSample, state: State, release: NoisySums) -> Tensor:
        """Return the weight of each record, 1 by default; nothing bounds it."""
        return torch.ones_like(sample.norm)

    def clip(self, sample: PerSample, state: State, release: NoisySums) -> Clip:
        return Clip(self.weight(sample, state, release), sample.norm.new_full((), inf))


@dataclass(kw_only=True, repr=False, eq=False)
class CountingMethod(Method, abc.ABC):
    """A method that counts records, with noise.

    Parameters
    ----------
    count_noise_multiplier : float > 0 or "auto", default="auto"
        Noise of the counts, over their sensitivity; ``"auto"`` is 5 times the noise multiplier
        (papers: 10).
    """

    count_noise_multiplier: float | str = "auto"

    def count_noise(self, noise_multiplier: float) -> float:
        """Return the noise multiplier of the counts, from that of the gradient sum."""
        return float(self.number("count_noise_multiplier", COUNT_NOISE * noise_multiplier))


class Threshold(NamedTuple):
    """A threshold z that follows a quantile of the norms, released; the others are public."""

    z: Tensor
    gain: Tensor
    decay: Tensor
    lowest: Tensor
    highest: Tensor


def first_threshold(
    first: float, task: Task, gain: float, target_quantile: float, floor: float = 0.0
) -> Threshold:
    """Return the first threshold, which settles where ``target_quantile`` of norms exceed it."""
    size = task.n_samples * task.sample_rate
    limits = max(min(Z_MIN, first), floor), max(Z_MAX, first, floor)
    return Threshold(*torch.tensor([first, gain / size, -gain * target_quantile, *limits]))


def count_above(noise_multiplier: float, factor: float = 1.0) -> Query:
    """Return the count of norms above ``factor`` times the threshold, of sensitivity 1."""

    def rows(sample: PerSample, state: Threshold) -> Tensor:
        return (sample.norm > (state.z if factor == 1.0 else state.z * factor)).unsqueeze(1)

    return Query("above_z", rows, 1.0, noise_multiplier)


def updated_threshold(state: Threshold, release: NoisySums) -> Threshold:
    """Return the next threshold, z exp(gain count - decay), from the noisy count."""
    exponent = torch.addcmul(state.decay, release["above_z"][0], state.gain)
    return state._replace(z=updated_scale(state.z, exponent, state.lowest, state.highest))


@dataclass(kw_only=True, repr=False, eq=False)
class AdaptiveMethod(ClippedMethod, CountingMethod, abc.ABC):
    """A method that learns its clipping bound C, by a noisy count of the norms above it.

    Parameters
    ----------
    target_share : float > 0, default=0.1
        q, the share of norms above C; 0.5 is the median of Andrew et al. (2021).
    """

    target_share: float = 0.1

    def start(self, task: Task) -> Threshold:
        first = self.number("max_grad_norm", 1.0)
        return first_threshold(first, task, gain=ADAPTIVE_GAIN, target_quantile=self.target_share)

    def queries(self, task: Task, noise_multiplier: float) -> tuple[Query, ...]:
        return (count_above(self.count_noise(noise_multiplier)),)

    def update(self, state: Threshold, release: NoisySums) -> Threshold:
        return updated_threshold(state, release)
