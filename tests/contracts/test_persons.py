"""What every method must keep in a step on persons with several records."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from skdpfair.engine import Batch, Streams, select_strategy
from skdpfair.engine.batch import Examples
from skdpfair.engine.step import clip_weights
from skdpfair.training.batches import PersonRows, records_at

from .method_steps import PRIVATE, mechanism_of, step_of


def batch_of(sizes, seed=0):
    """Return a batch of persons with so many records each."""
    generator = torch.Generator().manual_seed(seed)
    n = sum(sizes)
    x = 3.0 * torch.randn((n, 4), generator=generator)
    y = torch.randint(0, 2, (n,), generator=generator)
    group = torch.randint(0, 2, (len(sizes),), generator=generator)
    sizes = torch.tensor(sizes)
    return Batch(x, y, group.repeat_interleave(sizes), examples=Examples(sizes))


def without(batch, person):
    rest = batch.examples.example_of_row != person
    sizes = batch.examples.sizes[torch.arange(len(batch.examples)) != person]
    return replace(records_at(batch, torch.nonzero(rest)[:, 0]), examples=Examples(sizes))


@pytest.fixture
def linear():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Linear(4, 2)


@pytest.mark.parametrize("name", PRIVATE)
@given(sizes=st.lists(st.integers(1, 5), min_size=2, max_size=6), seed=st.integers(0, 9))
@settings(max_examples=8, deadline=None)
def test_one_person_moves_each_release_by_at_most_its_sensitivity(name, sizes, seed):
    batch, mechanism = batch_of(sizes, seed), mechanism_of(name)
    method, noise = mechanism.method, Streams.fresh().noise()
    state = method.start(mechanism.task)
    with select_strategy(nn.Linear(4, 2), batch.x, 2) as model:
        whole = clip_weights(model, batch, mechanism, state, noise, None)
        assert len(whole.weight) == len(sizes)
        gradients = torch.zeros(len(sizes), model.n_parameters)
        for u, row in enumerate(gradients):
            whole.add_weighted(torch.eye(len(sizes))[u], row)
        for u in range(len(sizes)):
            rest = clip_weights(model, without(batch, u), mechanism, state, noise, None)
            for query in mechanism.queries:
                moved = whole.release[query.name] - rest.release[query.name]
                assert moved.norm() <= query.sensitivity * (1 + 1e-5)
            # at the same released counts the others keep their weights
            again = method.clip(rest.sample, state, whole.release)
            others = torch.arange(len(sizes)) != u
            if not method.queries(mechanism.task, 1.0) or not mechanism.queries[0].early:
                torch.testing.assert_close(again.weight, whole.clip.weight[others])
            assert (whole.weight[u] * gradients[u].norm()) <= whole.clip.bound * (1 + 1e-5)


@pytest.mark.parametrize("name", PRIVATE)
def test_a_person_is_clipped_once_and_chunks_change_nothing(name, linear):
    module, batch = nn.Sequential(linear, nn.Tanh(), nn.Linear(2, 2)), batch_of([3, 1, 4, 2, 5])
    whole, *parts = (
        step_of(module, batch, mechanism_of(name), chunk_size=n) for n in (None, 1, 4, 7)
    )
    assert all(step.sound for step in (whole, *parts))
    for part in parts:
        torch.testing.assert_close(part.gradient, whole.gradient, rtol=1e-5, atol=1e-7)


def test_the_gradient_of_a_person_is_the_mean_of_those_of_the_records(linear):
    batch, mechanism, rows = batch_of([2, 3]), mechanism_of("dpsgd", max_grad_norm=1e9), []
    for x, y in zip(batch.x, batch.y, strict=True):
        loss = nn.functional.cross_entropy(linear(x[None]), y[None])
        grads = torch.autograd.grad(loss, linear.parameters())
        rows.append(torch.cat([g.flatten() for g in grads]))
    found = step_of(linear, batch, mechanism).gradient * mechanism.expected_batch_size
    expected = torch.stack(rows[:2]).mean(0) + torch.stack(rows[2:]).mean(0)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", PRIVATE)
def test_persons_with_one_record_take_the_step_of_records(name, linear):
    batch, mechanism = batch_of([1] * 9), mechanism_of(name, 1.0)
    records = Batch(batch.x, batch.y, batch.group)
    persons = PersonRows(records, np.arange(9)).select(torch.arange(9))
    assert torch.equal(*(step_of(linear, data, mechanism).gradient for data in (records, persons)))


@pytest.mark.parametrize("name", PRIVATE)
def test_a_batch_without_persons_is_a_step(name, linear):
    nobody = PersonRows(batch_of([2, 1]), np.array([0, 0, 1])).select(
        torch.tensor([], dtype=torch.int64)
    )
    step = step_of(linear, nobody, mechanism_of(name, 1.0, n_groups=20))  # wide rows of counts
    assert bool(step.gradient.any()) and step.max_bound_ratio is None


def test_a_person_with_a_record_without_a_finite_gradient_contributes_nothing(linear):
    batch, mechanism = batch_of([2, 3, 1]), mechanism_of("dpsgd")
    batch.x[1, 0] = torch.inf
    found, expected = (step_of(linear, b, mechanism).gradient for b in (batch, without(batch, 0)))
    torch.testing.assert_close(found, expected)
