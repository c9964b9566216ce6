"""Steps on padded batches; recordings by a recorder that runs them again."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from skdpfair import METHODS, get_method
from skdpfair.engine import Batch, Streams, private_step, select_strategy
from skdpfair.engine.flat import FlatSGD
from skdpfair.engine.losses import CrossEntropy
from skdpfair.engine.per_sample import BookKeeping, ClosedForm, chain_of
from skdpfair.engine.per_sample.graph import record
from skdpfair.engine.replay import Replay, padded, write_over
from skdpfair.mechanism import Mechanism, Task


class Again:
    """Records a step as the function itself, and counts."""

    def __init__(self, *_, fails=None):
        self.warmed, self.recorded, self.replayed, self.fails = 0, 0, 0, fails

    def warm_up(self, run):
        self.warmed += 1
        run()

    def record(self, run):
        if self.fails:
            raise RuntimeError(self.fails)
        self.recorded += 1

        def replay():
            self.replayed += 1
            run()

        return replay


MODULES = {
    "closed_form": lambda: nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)),
    "bookkeeping": lambda: nn.Sequential(nn.Linear(5, 6), nn.GELU(), nn.Linear(6, 3)),
    "vmap": lambda: nn.Sequential(nn.Linear(5, 6), nn.PReLU(), nn.Linear(6, 3)),
}


def records(n, dtype=torch.float64):
    rng = torch.Generator().manual_seed(0)
    x = torch.rand((n, 5), generator=rng, dtype=dtype)
    weight = (torch.arange(n) % 4).to(dtype)
    return Batch(x, torch.arange(n) % 3, torch.arange(n) % 2, weight=weight)


def check_padding(name, strategy, sizes, first):
    """Compare steps with those on batches filled up by the first record, as padding is."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = MODULES[strategy]().double()
    every = records(30)
    every.x[0] = first
    mechanism = Mechanism(get_method(name), Task(30, 2, 0.3), 0.0)
    mechanism = replace(mechanism, noise_multiplier=0.0 if name == "sgd" else 1.0)
    start = mechanism.method.start(mechanism.task)
    with select_strategy(module, every.x[1:2], 3) as engine:
        for size in sizes:
            index = torch.arange(3, 3 + size)
            filled = torch.cat([index, torch.full((9 - size,), -1)])
            plain, padded = (
                private_step(engine, batch, mechanism, start, Streams.seeded(0, digest=b"").noise())
                for batch in (every.select(index), every.select_padded(filled))
            )
            torch.testing.assert_close(plain.gradient, padded.gradient, rtol=1e-10, atol=1e-12)
            for a, b in zip(tree_leaves(plain.state), tree_leaves(padded.state), strict=True):
                torch.testing.assert_close(a, b)
            assert padded.sound


@pytest.mark.parametrize("strategy", MODULES)
@pytest.mark.parametrize("name", sorted(METHODS))
def test_padding_counts_for_nothing(name, strategy):
    check_padding(name, strategy, [0, 1, 7], float("nan"))


@pytest.mark.parametrize("name", sorted(METHODS))
def test_padding_with_a_good_record_counts_for_nothing(name):
    check_padding(name, "closed_form", [1], 0.5)


def test_batches_are_filled_to_few_sizes_and_never_cut():
    rng = np.random.default_rng(0)
    indices = [torch.arange(n) for n in rng.poisson(256, 500)] + [torch.arange(0)]
    filled = padded(indices, 256.0)
    assert len({len(f) for f in filled}) <= 10
    for index, f in zip(indices, filled, strict=True):
        assert torch.equal(f[: len(index)], index) and bool((f[len(index) :] == -1).all())


def test_each_size_runs_once_before_it_is_recorded():
    taken, recorder = [], Again()
    replay = Replay(lambda index: taken.append(index.tolist()), recorder, most=1)
    for index in ([1, 2], [3, 4], [5, 6], [7], [8]):
        replay(torch.tensor(index))
    assert taken == [[1, 2], [3, 4], [5, 6], [7], [8]]
    assert (recorder.warmed, recorder.recorded, recorder.replayed) == (3, 1, 2)
    replay.forget()
    replay(torch.tensor([9, 9]))
    assert recorder.warmed == 4


def test_what_cannot_be_recorded_is_run():
    taken = []
    replay = Replay(lambda index: taken.append(index.tolist()), Again(fails="it waits"))
    for index in ([1], [2], [3]):
        replay(torch.tensor(index))
    assert taken == [[1], [2], [3]] and "it waits" in replay.refusal


def test_a_state_is_written_over_only_where_it_fits():
    old = (torch.zeros(2), 3.0)
    kept = write_over(old, (torch.ones(2), 3.0))
    assert kept is old and bool((old[0] == 1).all())
    for other in ((torch.ones(3), 3.0), (torch.ones(2), 4.0), None, (torch.ones(2).double(), 3.0)):
        assert write_over(old, other) is other
    assert bool((old[0] == 1).all())


class Strict(TorchDispatchMode):
    """Refuses numbers from the host, for a graph would hold the first of them forever."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func is not torch.ops.aten.lift_fresh.default, "a tensor made of host numbers"
        return func(*args, **(kwargs or {}))


class FakeNoise:
    def fill_(self, out, sensitivity, noise_multiplier=1.0):
        return out.normal_().mul_(sensitivity * noise_multiplier)

    def total_(self, sums):
        return sums


@pytest.mark.parametrize("strategy", ["closed_form", "bookkeeping"])
@pytest.mark.parametrize("name", sorted(set(METHODS) - {"fairlens"}))  # it is traced by torch
def test_a_step_neither_waits_for_the_device_nor_copies_to_it(name, strategy):
    method, real = get_method(name), MODULES[strategy]()
    graph = record(real, torch.rand(2, 5))
    mechanism = Mechanism(method, Task(30, 2, 0.3), 1.0 if method.private else 0.0)
    assert mechanism.expected_batch_size > 0  # computed on the host, before the first step
    with FakeTensorMode():  # where a value is asked for, it raises
        module, every = MODULES[strategy](), records(30, torch.float32)
        if strategy == "closed_form":
            engine = ClosedForm(module, CrossEntropy(3), chain_of(module, torch.empty(1, 5)))
        else:
            engine = BookKeeping(module, CrossEntropy(3), graph.on(module, real))
        state, index = method.start(mechanism.task), torch.empty(9, dtype=torch.int64)
        out = engine.flat()

        def step(state):
            batch = every.select_padded(index)
            return private_step(engine, batch, mechanism, state, FakeNoise(), out=out).state

        with engine:
            state = step(step(state))  # fills caches, as a warm-up does
            with Strict():
                step(state)


def test_a_learning_rate_on_the_device_gives_the_same_steps():
    results = []
    for lr in (0.1, torch.tensor(0.1)):
        p = nn.Parameter(torch.ones(3))
        optimizer = FlatSGD([p], lr=lr, momentum=0.9, dampening=0.9)
        for _ in range(3):
            p.grad = torch.arange(3.0)
            optimizer.step()
        results.append(p.detach())
    torch.testing.assert_close(*results)
