"""The gradient of one step, as a method weighs a batch, and which records it clips."""

from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from skdpfair._utils.torch_internals import tree_map_only
from skdpfair.engine.mechanism import Mechanism, PerSample
from skdpfair.engine.step import clip_weights

# a norm that any method clips
_LONG = 1e12


@dataclass(frozen=True)
class _Noiseless(Mechanism):
    """A mechanism without noise on the gradient; the noise of its queries is that of training."""

    noisy: Mechanism

    @property
    def queries(self):
        """The queries of the mechanism in training."""
        return self.noisy.queries


def noiseless(mechanism: Mechanism) -> Mechanism:
    """Return the mechanism without noise on the gradient; its queries keep theirs."""
    return _Noiseless(mechanism.method, mechanism.task, 0.0, mechanism)


@dataclass(frozen=True)
class WeighedStep:
    """A batch's mean gradient, the weighted one, its sensitivity, and clipping by group.

    ``unclipped`` is the mean of the method's own gradients, which may be those of other parameters.
    """

    plain: Tensor
    unclipped: Tensor
    gradient: Tensor
    sensitivity: float
    by_group: tuple[np.ndarray, np.ndarray]  # share that is clipped, norm above which one is


def weighed(strategy, batch, mechanism, state, noise, chunk) -> WeighedStep:
    """Let a method weigh a batch as in training, and add up."""
    method, like = mechanism.method, strategy.flat()
    state = tree_map_only(
        Tensor, lambda t: t.to(like.device, like.dtype if t.is_floating_point() else None), state
    )
    shift = method.parameter_perturbation(state)
    # whether the method's gradients are those of the loss at the parameters
    is_moved = shift is not None or method.per_sample_perturbation_radius()
    is_plain = not (is_moved or method.changes_gradients)
    with torch.no_grad(), nullcontext() if shift is None else strategy.perturbed_parameters(shift):
        step = clip_weights(strategy, batch, mechanism, state, noise, chunk)
        size = mechanism.expected_batch_size
        gradient, unclipped = strategy.flat(), strategy.flat()
        step.add_weighted(step.weight / size, gradient)
        step.add_weighted(torch.full_like(step.weight, 1 / size), unclipped)
    plain = unclipped if is_plain else _mean_gradient(strategy, batch, chunk, size)
    bound = float(step.clip.bound)
    return WeighedStep(plain, unclipped, gradient, bound, _by_group(step, mechanism, state, bound))


def _by_group(step, mechanism, state, bound):
    """Probe the method with a record of no norm and one of an endless norm in each group."""
    n_groups, sample = mechanism.task.n_groups, step.sample
    probes = [_probe(sample, n_groups, norm) for norm in (0.0, _LONG)]
    full_weight, end = (mechanism.method.clip(p, state, step.release).weight for p in probes)
    # the weighted norm of an endless gradient: C_k, C, or 0 if it is dropped
    reach = end * _LONG
    threshold = torch.where(reach > 0, reach, torch.full_like(reach, bound)) / full_weight
    clipped = step.weight < full_weight[sample.group] * (1 - 1e-6)
    counts = torch.bincount(sample.group, minlength=n_groups)
    share = torch.bincount(sample.group, clipped.to(counts.dtype), minlength=n_groups) / counts
    if not mechanism.method.private and bound == np.inf:
        threshold = torch.full_like(reach, np.inf)
    return share.double().cpu().numpy(), threshold.double().cpu().numpy()


def _probe(sample: PerSample, n_groups, norm):
    """Return one record of a norm in each group."""
    like, n_classes = sample.norm, sample.probability.shape[1]
    group = torch.arange(n_groups, device=like.device)
    probability = like.new_full((n_groups, n_classes), 1 / max(n_classes, 1))
    return PerSample(like.new_full((n_groups,), norm), like.new_zeros(n_groups), group, probability)


def _mean_gradient(strategy, batch, chunk, size) -> Tensor:
    """Return the sum of the records' gradients over ``size``."""
    total = strategy.flat()
    for part in batch.split(chunk) if len(batch) else []:
        gradients = strategy.per_sample_gradients(part)
        gradients.weighted_sum(torch.full_like(gradients.norm, 1 / size), total)
    return total
