"""Hooks of methods act on each record by itself, whatever their code does."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from skdpfair import DPFairClassifier, get_method
from skdpfair.engine import Batch, record_hooks
from skdpfair.engine.contracts import with_gradients
from skdpfair.engine.mechanism import Clip, GroupRows, Mechanism, Method, Query
from skdpfair.engine.record_hooks import RecordHooks, is_shipped
from skdpfair.methods import METHODS
from skdpfair.testing import example_records, example_task, noiseless_releases
from skdpfair.training.batches import records_at
from tests.engine.per_sample.modules import sums

N = 1000


def sample_of(n, n_groups):
    draw = torch.Generator().manual_seed(0)
    norm = torch.empty(n).log_normal_(0.0, 2.0, generator=draw)
    group = torch.randint(0, n_groups, (n,), generator=draw)
    columns = torch.rand(n, generator=draw), group, torch.rand(n, 2, generator=draw)
    return example_records(norm, *columns)


def tensors_of(result):
    parts = {} if result is None else vars(result)
    return {name: part for name, part in parts.items() if isinstance(part, torch.Tensor)}


@pytest.mark.parametrize("name", sorted(name for name, m in METHODS.items() if m.private))
def test_record_hooks_of_shipped_methods_equal_their_traces(name, monkeypatch):
    method = get_method(name)
    assert is_shipped(method.planned(0.2).at_scale(1.0, 1.0)[0])
    n_groups = 2 if method.binary else 3
    rates = method.rate_choices(small := example_task(n_groups=n_groups))
    strata = tuple((rate, min(rates) / rate) for rate in rates)
    shares = torch.full((n_groups,), 1 / n_groups)
    mechanism = Mechanism(method, replace(small, strata=strata, group_fractions=shares), 1.0)
    own = mechanism.hooks
    monkeypatch.setattr(record_hooks, "is_shipped", lambda method: False)
    traced, state = RecordHooks(mechanism), method.start(mechanism.task)
    sample = sample_of(20, n_groups)
    sample = with_gradients(sample) if method.sees_gradients else sample
    for _ in range(2):
        release = noiseless_releases(method, sample, mechanism.task, state)
        for query, other in zip(own.queries, traced.queries, strict=True):
            rows = query.matrix(sample, state), other.matrix(sample, state)
            torch.testing.assert_close(*rows)
        for name in ("gradient_term", "clip"):
            results = (getattr(hooks, name)(sample, state, release) for hooks in (own, traced))
            torch.testing.assert_close(*map(tensors_of, results))
        gradient = torch.tensor([3.0, 0.0, -4.0])
        state = method.update(state, {**release, "gradient": gradient})
    assert traced.are_traced


class Clipped(Method):
    def clip(self, sample, state, release):
        return Clip(1 / sample.norm.clamp(min=1.0), 1.0)


class ByNumber(Clipped):
    """Looks sound in small batches."""

    def clip(self, sample, state, release):
        sign = -1.0 if len(sample.norm) % 2 and len(sample.norm) > 64 else 1.0
        return Clip(sign / sample.norm.clamp(min=1.0), 1.0)


class Remembering(Clipped):
    longest = 0.0

    def clip(self, sample, state, release):
        if len(sample.norm) > 64:
            self.longest = max(self.longest, float(sample.norm.max()))
        return Clip((self.longest < 50) / sample.norm.clamp(min=1.0), 1.0)


class Overwriting(Clipped):
    """Writes into what the engine measured, which no trace allows."""

    def clip(self, sample, state, release):
        sample.norm.clamp_(max=1.0)
        return Clip(torch.ones_like(sample.norm), 1.0)


class Counting(Clip):
    """Its own code would see the whole batch."""

    def __post_init__(self):
        super().__post_init__()
        if len(self.weight) % 2 == 0 and len(self.weight) > 64:
            object.__setattr__(self, "weight", -self.weight)


class OwnResult(Clipped):
    def clip(self, sample, state, release):
        return Counting(**vars(super().clip(sample, state, release)))


class Unbounded(Clipped):
    def clip(self, sample, state, release):
        return Clip(torch.where(sample.norm > 1e2, torch.nan, 1 / sample.norm.clamp(min=1.0)), 1.0)

    def queries(self, task, noise_multiplier):
        rows = lambda sample, state: GroupRows((sample.norm > 1e2).long() * 7, 2)  # noqa: E731
        return (Query("cells", rows, 1.0, 0.0), Query("norm", self.row, 1.0, 0.0))

    def row(self, sample, state):
        return sample.norm[:, None]


@pytest.mark.parametrize(
    "method", [Clipped, ByNumber, Remembering, Overwriting, OwnResult, Unbounded]
)
def test_record_hooks_let_one_record_move_a_step_by_its_bound_at_most(method):
    x = torch.rand(N, 6, generator=torch.Generator().manual_seed(0))
    x[0] *= 3e3
    batch = Batch(x, torch.zeros(N, dtype=torch.int64))
    mechanism = Mechanism(method(), example_task(n_samples=N, n_groups=1, sample_rate=1.0), 0.0)
    pair = batch, records_at(batch, torch.arange(1, N))
    one, other = sums(nn.Linear(6, 2), pair, mechanism, 2)
    assert (one - other).norm() <= 1.0001


def test_record_hooks_cut_rows_of_queries_to_their_sensitivity():
    hooks = Mechanism(Unbounded(), example_task(), 1.0).hooks
    sample = example_records([0.5, 3.0, 200.0, torch.inf, torch.nan])
    cells, norm = (query.matrix(sample, None) for query in hooks.queries)
    # a code beyond the cells, and what is not finite, count for nothing
    assert cells.tolist() == [[1, 0], [1, 0], [0, 0], [0, 0], [1, 0]]
    assert norm[:, 0].tolist() == [0.5, 1.0, 1.0, 0.0, 0.0]


class Picky(Method):
    def clip(self, sample, state, release):
        places = (sample.norm > 1).long()
        weight = sample.probability.gather(1, places[:, None] * 7)[:, 0]
        return Clip(weight / (1 + sample.norm), 1.0)


def test_record_hooks_give_no_weight_where_an_operation_fails():
    hooks = Mechanism(Picky(), example_task(), 1.0).hooks
    clip = hooks.clip(example_records([1e-6, 2.0]), None, {})
    assert clip.weight.tolist() == pytest.approx([0.5, 0.0], rel=1e-4)


class Annealed(Clipped):
    """What it reads changes from step to step."""

    bound = 1.0

    def clip(self, sample, state, release):
        return Clip(self.bound / sample.norm.clamp(min=self.bound), self.bound)

    def step_size(self, t):
        self.bound = 1.0 / (1 + t)
        return 1.0


class AnnealedTensor(Annealed):
    def clip(self, sample, state, release):
        return Clip(self.bound / torch.maximum(sample.norm, self.bound), self.bound)

    def step_size(self, t):
        if t % 2:
            self.bound.mul_(t / (1 + t))  # in place
        else:
            self.bound = torch.tensor(1.0 / (1 + t))
        return 1.0


class AnnealedList(Annealed):
    bounds = None

    def clip(self, sample, state, release):
        bound = self.bounds[-1]["bound"]
        return Clip(bound / sample.norm.clamp(min=bound), bound)

    def step_size(self, t):
        self.bounds = self.bounds or [None]
        self.bounds[-1] = {"bound": 1.0 / (1 + t)}
        return 1.0


@pytest.mark.parametrize("kind", [Annealed, AnnealedTensor, AnnealedList])
def test_record_hooks_follow_attributes_that_change(kind):
    method = kind()
    hooks = Mechanism(method, example_task(), 1.0).hooks
    for t in range(6):
        method.step_size(t)
        clip = hooks.clip(example_records([0.1, 2.0]), None, {})
        torch.testing.assert_close(clip.bound, torch.tensor(1 / (1 + t)))
        torch.testing.assert_close(clip.weight[1], torch.tensor(0.5 / (1 + t)))


class Indexed(Clipped):
    """What cannot be traced: the number of places depends on values."""

    def clip(self, sample, state, release):
        weight = torch.ones_like(sample.norm)
        long = sample.norm > 1
        weight[long] = 1 / sample.norm[long]
        return Clip(weight, 1.0)


@pytest.mark.parametrize(("method", "is_assumed"), [(Clipped, False), (Indexed, True)])
def test_record_hooks_without_a_trace_are_an_assumption_of_the_statement(method, is_assumed):
    model = DPFairClassifier(method(), epsilon=3.0, max_steps=2, classes=[0, 1])
    model.fit(np.eye(N, 4), np.arange(N) % 2)
    assumptions = model.privacy_statement()["assumptions"]
    assert any("the method makes" in text for text in assumptions) == is_assumed
