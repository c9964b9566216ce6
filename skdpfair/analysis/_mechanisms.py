"""Steps of a mechanism without noise on the gradient, and the mechanism of an estimator."""

from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from skdpfair import _validate
from skdpfair.engine.step import weigh
from skdpfair.mechanism import Mechanism, Method, PerSample, Task

_LONG = 1e12  # a norm that any method clips


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
    release: dict[str, Tensor]
    by_group: tuple[np.ndarray, np.ndarray]  # share that is clipped, norm above which one is


def weighed(strategy, batch, mechanism, state, noise, chunk) -> WeighedStep:
    """Let a method weigh a batch as in training, and add up."""
    method = mechanism.method
    shift = method.parameter_perturbation(state)
    # whether the method's gradients are those of the loss at the parameters
    is_plain = (
        shift is None
        and not method.per_sample_perturbation_radius()
        and not method.changes_gradients
    )
    with torch.no_grad(), nullcontext() if shift is None else strategy.moved(shift):
        step = weigh(strategy, batch, mechanism, state, noise, chunk)
        size = mechanism.expected_batch_size
        gradient, unclipped = strategy.flat(), strategy.flat()
        step.add_weighted(step.weight / size, gradient)
        step.add_weighted(torch.full_like(step.weight, 1 / size), unclipped)
    plain = unclipped if is_plain else _mean_gradient(strategy, batch, chunk, size)
    bound = float(step.clip.bound)
    by_group = _by_group(step, mechanism, state, bound)
    return WeighedStep(plain, unclipped, gradient, bound, step.release, by_group)


def _by_group(step, mechanism, state, bound):
    """Probe the method with a record of no norm and one of an endless norm in each group."""
    n_groups, sample = mechanism.task.n_groups, step.sample
    probes = [_probe(sample, n_groups, norm) for norm in (0.0, _LONG)]
    whole, end = (mechanism.method.clip(p, state, step.release).weight for p in probes)
    reach = end * _LONG  # the weighted norm of an endless gradient: C_k, C, or 0 if it is dropped
    threshold = torch.where(reach > 0, reach, torch.full_like(reach, bound)) / whole
    clipped = step.weight < whole[sample.group] * (1 - 1e-6)
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


def mechanism_of(model, mechanism, lr, state, problem):
    """Return mechanism, learning rate and state: those passed, else the estimator's own."""
    if isinstance(model, nn.Module):
        missing = [name for name, value in (("mechanism", mechanism), ("lr", lr)) if value is None]
        if missing:
            raise ValueError(
                f"{' and '.join(missing)} must be given if model is a module. Pass "
                "Mechanism(get_method(...), Task(n_samples, n_groups, sample_rate), "
                "noise_multiplier) and lr=."
            )
    elif mechanism is None:
        mechanism, state_of_fit = _of_estimator(model, problem)
        state = state_of_fit if state is None else state
    if not isinstance(mechanism, Mechanism):
        raise TypeError(
            f"mechanism must be a Mechanism, got {_validate.safe_repr(mechanism)}. A method alone "
            "does not determine the sampling rate and the noise."
        )
    if mechanism.task.n_groups != problem.n_groups:
        raise ValueError(
            f"mechanism is for {mechanism.task.n_groups} groups, but sensitive_features has "
            "another number of groups. Pass sensitive_features that match its task."
        )
    if mechanism.task.n_samples != len(problem.batch):
        raise ValueError(
            f"mechanism is for {mechanism.task.n_samples} records, but X has "
            f"{len(problem.batch)}, which would change the batch size. Pass a Task with "
            "n_samples=len(X)."
        )
    lr = _next_lr(model) if lr is None else _validate.number("lr", lr, low=0, low_open=True)
    if state is None:
        state = mechanism.method.start(mechanism.task)
    return mechanism, lr, as_numbers_of(problem.parameters[0], state)


def as_numbers_of(like, state):
    """Return a method's state with its numbers as in the tensor ``like``."""

    def as_here(tensor):
        return tensor.to(like.device, like.dtype if tensor.is_floating_point() else None)

    return tree_map_only(torch.Tensor, as_here, state)


def _of_estimator(model, problem):
    """Return the mechanism that the estimator was trained by, for these records, and its state."""
    check_is_fitted(model, "net_")
    net, n = model.net_, len(problem.batch)
    if hasattr(net, "next_release"):
        mechanism, state = net.next_release()
        return replace(mechanism, task=replace(mechanism.task, n_samples=n)), state
    method, privacy = model.method_, model.privacy_
    if type(method).start is not Method.start or type(method).rates is not Method.rates:
        raise ValueError(
            f"The estimator was loaded from a file without the state of method={method.name!r}, "
            "so its next step is unknown. Analyse it in the process that fitted it, or pass "
            "mechanism= and state=."
        )
    rate = min(1.0, privacy.expected_batch_size / privacy.n_samples)
    return Mechanism(method, Task(n, problem.n_groups, rate), privacy.noise_multiplier), None


def _next_lr(model):
    """Return the learning rate of the step that would come next."""
    if hasattr(model.net_, "current_lr"):
        return model.net_.current_lr
    return model.lr_ * model.method_.step_size(model.n_steps_)
