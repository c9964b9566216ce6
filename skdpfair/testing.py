"""Checks of the contracts of methods, for this package and for third parties."""

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from skdpfair.engine import Batch, Streams, select_strategy
from skdpfair.engine.per_sample.batch_statistics import hold_statistics
from skdpfair.engine.step import noisy_sums
from skdpfair.mechanism import Method, NoisySums, PerSample, PerSampleGradients, State, Task

__all__ = ["check_engine", "check_method", "per_sample", "released", "task"]

Values: TypeAlias = Sequence[float] | Tensor


def task(n_samples: int = 1000, n_groups: int = 2, sample_rate: float = 0.1) -> Task:
    """Return a small task for examples and tests.

    Parameters
    ----------
    n_samples, n_groups : int, default=1000 and 2
        Number of records and of groups.
    sample_rate : float in (0, 1], default=0.1
        Probability that a record is in a batch.

    Returns
    -------
    Task
        A task without shares of the groups.

    Examples
    --------
    >>> task(sample_rate=0.5)
    Task(n_samples=1000, n_groups=2, sample_rate=0.5, group_fractions=None)
    """
    return Task(n_samples, n_groups, sample_rate)


def per_sample(
    norm: Values,
    loss: Values | None = None,
    group: Sequence[int] | Tensor | None = None,
    probability: Sequence[Sequence[float]] | Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> PerSample:
    """Return a :class:`~skdpfair.mechanism.PerSample` from lists.

    Parameters
    ----------
    norm : sequence of float, length n
        Norm of each record's gradient.
    loss : sequence of float or None, default=None
        Loss of each record; None is 0 for all.
    group : sequence of int or None, default=None
        Group codes; None is 0 for all.
    probability : sequence of shape (n, n_classes) or None, default=None
        Predicted class probabilities; None is 0.5 for each of two classes.
    dtype : torch.dtype, default=torch.float32
        Type of all tensors except the groups.

    Returns
    -------
    PerSample
        The records.

    Examples
    --------
    >>> per_sample(norm=[1.0, 2.0]).group
    tensor([0, 0])
    """
    norm = torch.as_tensor(norm, dtype=dtype)
    n = len(norm)
    loss = norm.new_zeros(n) if loss is None else torch.as_tensor(loss, dtype=dtype)
    group = torch.as_tensor([0] * n if group is None else group, dtype=torch.int64)
    if probability is None:
        probability = norm.new_full((n, 2), 0.5)
    return PerSample(norm, loss, group, torch.as_tensor(probability, dtype=dtype))


def released(
    method: Method, sample: PerSample, task: Task, state: State = None
) -> dict[str, Tensor]:
    """Return the releases of the method's queries on a batch, without noise.

    Parameters
    ----------
    method : Method
        The method with the queries.
    sample : PerSample
        The batch; gradients that are missing follow from the norms if the method needs them.
    task : Task
        Public facts about the fit.
    state : object or None, default=None
        State of the method; None is the state before the first step.

    Returns
    -------
    dict of str to Tensor
        The sum of the rows of each query, by its name.

    Examples
    --------
    >>> from skdpfair import get_method
    >>> released(get_method("global_adapt"), per_sample(norm=[4.0, 0.5]), task())
    {'above_z': tensor([1.])}
    """
    state = method.start(task) if state is None else state
    finite = torch.ones_like(sample.norm, dtype=torch.bool)
    if method.sees_gradients() and not isinstance(sample, PerSampleGradients):
        sample = with_gradients(sample)
    queries = tuple(replace(q, noise_multiplier=0.0) for q in method.queries(task, 0.0))
    return noisy_sums(queries, sample, finite, state, Streams.fresh().noise())


def with_gradients(sample: PerSample, n_parameters: int = 3) -> PerSampleGradients:
    """Return the sample with gradients that have its norms and depend only on the norms.

    Parameters
    ----------
    sample : PerSample
        The batch.
    n_parameters : int, default=3
        Length of a gradient.

    Returns
    -------
    PerSampleGradients
        The same records.
    """
    angle = sample.norm[:, None] + torch.arange(n_parameters, dtype=sample.norm.dtype)
    direction = torch.nn.functional.normalize(torch.cos(angle), dim=1)
    columns = sample.norm, sample.loss, sample.group, sample.probability
    return PerSampleGradients(*columns, sample.norm[:, None] * direction)


def check_method(method: Method, *, n_groups: int = 3, n_batches: int = 20, seed: int = 0) -> None:
    """Raise AssertionError if a private method breaks a contract that its epsilon relies on.

    Parameters
    ----------
    method : Method
        A private method, as a user would create it.
    n_groups : int, default=3
        Number of groups of the simulated task.
    n_batches : int, default=20
        Number of random batches, in addition to the adversarial batches.
    seed : int, default=0
        Seed of the batches.

    Raises
    ------
    AssertionError
        If a contract is broken, or the method is not private.

    Notes
    -----
    For batches with random and extreme norms, batches without some groups, and empty batches:

    * no weighted gradient is longer than the declared bound;
    * a row of a query is at most as long as its sensitivity, and depends only on its own record;
    * given the release, the weight of a record does not depend on other records;
    * given the release, removing a record changes the gradient sum by at most the bound;
    * given the release, the addition to a record's gradient does not depend on other records;
    * the next state is finite and depends on the batch only through the release.

    Examples
    --------
    >>> from skdpfair import get_method
    >>> check_method(get_method("dpsgd_f"))
    """
    assert method.private, f"{method.name} is not private, so it has no bound to keep"
    generator = torch.Generator().manual_seed(seed)
    small = task(n_groups=2 if method.binary else n_groups)
    n_groups = small.n_groups
    for sample in _batches(n_groups, n_batches, generator):
        if method.sees_gradients():
            sample = with_gradients(sample)
        for state in _states(method, sample, small):
            _check_batch(method, sample, small, state)


def check_engine(
    module: nn.Module, example: Tensor, n_classes: int, *, n_records: int = 8, seed: int = 0
) -> str:
    """Raise AssertionError if the engine's gradients of a module differ from autograd's.

    Parameters
    ----------
    module : torch.nn.Module
        Maps (batch, ...) to logits (batch, n_classes); a float64 copy is used, in the same mode,
        frozen batch normalisation in evaluation mode.  A module with dropout must be in evaluation
        mode.
    example : Tensor of shape (1, ...)
        An example with the shape of a record.
    n_classes : int
        Number of classes.
    n_records : int, default=8
        Size of the random batch.
    seed : int, default=0
        Seed of the batch.

    Returns
    -------
    str
        The name of the strategy: "closed_form", "bookkeeping" or "vmap".

    Raises
    ------
    UnsupportedModuleError
        If no strategy supports the module.
    AssertionError
        If a gradient differs.

    Notes
    -----
    Norms and a random weighted sum must agree to 1e-10 with one backward pass per record.

    Examples
    --------
    >>> from torch import nn
    >>> module = nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2))
    >>> check_engine(module, torch.zeros(1, 1, 6), n_classes=2)
    'bookkeeping'
    """
    module = hold_statistics(copy.deepcopy(module)).double()
    generator = torch.Generator().manual_seed(seed)
    shape = (n_records, *example.shape[1:])
    x = torch.rand(shape, generator=generator, dtype=torch.float64)
    y = torch.randint(0, n_classes, (n_records,), generator=generator)
    weight = torch.rand(n_records, generator=generator, dtype=torch.float64)
    with select_strategy(module, x, n_classes) as strategy:
        gradients, total = strategy.per_sample_gradients(Batch(x, y)), strategy.flat()
        gradients.weighted_sum(weight, total)
    rows = []
    for i in range(n_records):
        loss = cross_entropy(module(x[i : i + 1]), y[i : i + 1])
        parts = torch.autograd.grad(
            loss, strategy.parameters, allow_unused=True, materialize_grads=True
        )
        rows.append(torch.cat([part.flatten() for part in parts]))
    expected = torch.stack(rows)
    torch.testing.assert_close(gradients.norm, expected.norm(dim=1), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(total, weight @ expected, rtol=1e-10, atol=1e-10)
    return strategy.name


def _batches(n_groups: int, n_batches: int, generator: torch.Generator) -> Iterator[PerSample]:
    extreme: list[list[float]] = [[], [0.0], [1e-30, 1e30], [0.0, 1.0, 1e6], [1.0] * 5, [1e6] * 4]
    for norms in extreme:
        yield per_sample(norms, group=[i % max(n_groups - 1, 1) for i in range(len(norms))])
    for _ in range(n_batches):
        n = int(torch.randint(1, 40, (), generator=generator))
        norm = torch.empty(n).log_normal_(0.0, 3.0, generator=generator)
        group = torch.randint(0, n_groups, (n,), generator=generator)
        probability = torch.rand((n, 2), generator=generator)
        yield per_sample(norm, torch.rand(n, generator=generator), group, probability)


def _states(method: Method, sample: PerSample, task: Task) -> Iterator[State]:
    """Yield the first state and one that a few updates led to."""
    state = method.start(task)
    yield state
    for _ in range(3):
        state = method.update(state, _release(method, sample, task, state))
    yield state


def _check_batch(method: Method, sample: PerSample, task: Task, state: State) -> None:
    for query in method.queries(task, 1.0):
        rows = query.rows(sample, state)
        assert rows.shape[0] == len(sample.norm), f"{query.name}: one row per record"
        longest = rows.norm(dim=1).max() if len(rows) else 0.0
        assert longest <= query.sensitivity * (1 + 1e-5), f"{query.name}: row beyond sensitivity"
        for i in range(min(len(rows), 5)):
            alone = query.rows(_rows(sample, slice(i, i + 1)), state)[0]
            assert torch.equal(alone, rows[i]), f"{query.name}: a row depends on other records"
    exact = _release(method, sample, task, state)
    shifted = {k: v + torch.linspace(-9.0, 9.0, len(v)) for k, v in exact.items()}
    for release in (exact, shifted):
        _check_extra(method, sample, state, release)
        _check_clip(method, sample, state, release)


def _release(method: Method, sample: PerSample, task: Task, state: State) -> dict[str, Tensor]:
    return released(method, sample, task, state) | {"gradient": torch.tensor([3.0, 0.0, -4.0])}


def _check_extra(method: Method, sample: PerSample, state: State, release: NoisySums) -> None:
    whole = method.extra(sample, state, release)
    if whole is None:
        return
    assert not whole.averaged, "a mean over the batch mixes the records"
    for i in range(min(len(sample.norm), 5)):
        alone = method.extra(_rows(sample, slice(i, i + 1)), state, release)
        assert alone is not None, "what is added depends on other records"
        for part, every in (
            (alone.logit_gradient, whole.logit_gradient),
            (alone.hvp_vectors, whole.hvp_vectors),
        ):
            if every is not None:
                assert part is not None, "what is added depends on other records"
                torch.testing.assert_close(part[0], every[i], rtol=1e-5, atol=1e-6)


def _check_clip(method: Method, sample: PerSample, state: State, release: NoisySums) -> None:
    clip = method.clip(sample, state, release)
    bound = float(clip.bound)
    assert math.isfinite(bound) and bound >= 0, f"bound {bound} is not a sensitivity"
    assert clip.weight.shape == sample.norm.shape, "one weight per record"
    assert bool((clip.weight >= 0).all()), "a negative weight"
    length = (clip.weight.double() * sample.norm.double()).max() if len(sample.norm) else 0.0
    assert length <= bound * (1 + 1e-5), f"a weighted gradient of {length} exceeds {bound}"
    for i in range(min(len(sample.norm), 5)):
        alone = method.clip(_rows(sample, slice(i, i + 1)), state, release)
        torch.testing.assert_close(alone.weight[0], clip.weight[i], rtol=1e-6, atol=0.0)
        torch.testing.assert_close(alone.bound, clip.bound, rtol=1e-6, atol=0.0)
    empty = method.clip(_rows(sample, slice(0)), state, release)
    torch.testing.assert_close(empty.bound, clip.bound, rtol=1e-6, atol=0.0)
    after = method.update(state, release)
    numbers = after if isinstance(after, tuple) else (after,)
    assert all(torch.isfinite(torch.as_tensor(v)).all() for v in numbers if v is not None)


def _rows(sample: PerSample, rows: slice) -> PerSample:
    return type(sample)(*(getattr(sample, field.name)[rows] for field in fields(sample)))
