"""Hooks of methods act on each record by itself, whatever their code does."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from skdpfair import DPFairClassifier, get_method
from skdpfair.budget import PrivacyLedger
from skdpfair.engine import Batch, Streams, private_step, record_hooks, select_strategy
from skdpfair.engine.contracts import with_gradients
from skdpfair.engine.mechanism import Clip, GradientTerm, GroupRows, Mechanism, Method, Query
from skdpfair.engine.record_hooks import RecordHooks, is_shipped
from skdpfair.exceptions import PrivacyAccountingError
from skdpfair.methods import METHODS
from skdpfair.testing import example_records, example_task, noiseless_releases
from skdpfair.training.batches import records_at

PRIVATE = sorted(name for name, method in METHODS.items() if method.private)
N = 1000
DATA = np.eye(N, 4), np.arange(N) % 2


def sample_of(n, n_groups):
    draw = torch.Generator().manual_seed(0)
    norm = torch.empty(n).log_normal_(0.0, 2.0, generator=draw)
    group = torch.randint(0, n_groups, (n,), generator=draw)
    columns = torch.rand(n, generator=draw), group, torch.rand(n, 2, generator=draw)
    return example_records(norm, *columns)


def tensors_of(result):
    parts = {} if result is None else vars(result)
    return {name: part for name, part in parts.items() if isinstance(part, torch.Tensor)}


@pytest.mark.parametrize("name", PRIVATE)
def test_methods_of_the_package_are_what_their_traces_say(name, monkeypatch):
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
        for results in (
            [hooks.gradient_term(sample, state, release) for hooks in (own, traced)],
            [hooks.clip(sample, state, release) for hooks in (own, traced)],
        ):
            torch.testing.assert_close(*map(tensors_of, results))
        gradient = torch.tensor([3.0, 0.0, -4.0])
        state = method.update(state, {**release, "gradient": gradient})
    assert traced.are_traced


class Clipped(Method):
    def clip(self, sample, state, release):
        return Clip(1 / sample.norm.clamp(min=1.0), 1.0)


class MeanOfTheBatch(Clipped):
    def clip(self, sample, state, release):
        mean = sample.norm.mean() if len(sample.norm) else sample.norm.sum()
        return Clip(torch.minimum(1 / (sample.norm + 1e-6), 1 / (mean + 1e-6)), 1.0)


class Ranked(Clipped):
    def clip(self, sample, state, release):
        return Clip(sample.norm.argsort().argsort() / (1 + sample.norm) / 1e3, 1.0)


class Counted(Clipped):
    def queries(self, task, noise_multiplier):
        rows = lambda sample, state: sample.norm[:, None] > sample.norm.sum() / 3  # noqa: E731
        return (Query("long", rows, 1.0, 5.0),)


class PerRecord(Clipped):
    """Gives one number for all outputs."""

    def gradient_term(self, sample, state, release):
        return GradientTerm(sample.loss - 0.7)


class Wrapped(Clipped):
    """Looks like `Method` itself, by what it says of itself."""

    @functools.wraps(Method.gradient_term)
    def gradient_term(self, sample, state, release):
        return GradientTerm(sample.probability - sample.probability.mean(0))


# its module is that of abc, by what it says of itself
CalledType = type("CalledType", (Method,), {"clip": MeanOfTheBatch.clip})


class Keeping(Clipped):
    def clip(self, sample, state, release):
        self.longest = sample.norm.sum()
        return super().clip(sample, state, release)


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        (MeanOfTheBatch, "depends on other records"),
        (Ranked, "depends on other records"),
        (Counted, "depends on other records"),
        (Keeping, "sets longest"),
        (PerRecord, "no number for each output"),
        (Wrapped, "depends on other records"),
        (CalledType, "depends on other records"),
    ],
)
def test_a_method_that_brings_records_together_is_refused_before_it_is_paid(
    method, fault, tmp_path
):
    with PrivacyLedger(tmp_path / "ledger.jsonl", epsilon=5.0, delta=1e-4) as ledger:
        with pytest.raises(ValueError, match=f"^method={method.__name__}.*{fault}"):
            DPFairClassifier(method(), epsilon=3.0, max_steps=2).fit(*DATA)
        assert len(ledger.frame()) == 0


class QuietLater(Clipped):
    """Less noise by a bound that the warm-up releases."""

    needs_scale = False

    def __init__(self, max_grad_norm="auto"):
        self.max_grad_norm = max_grad_norm

    def queries(self, task, noise_multiplier):
        bound = self.number("max_grad_norm", 1.0)
        rows = lambda sample, state: sample.norm.clamp(max=bound)[:, None]  # noqa: E731
        return (Query("norms", rows, bound, 2 * noise_multiplier * bound),)


class OftenLater(Clipped):
    """Rates by the shares of groups that a fit releases."""

    needs_groups = needs_group_fractions = True
    _parameter_constraints = {"group_probabilities": [tuple, None]}

    def __init__(self, group_probabilities=None, group_count_noise_multiplier="auto"):
        self.group_probabilities = group_probabilities
        self.group_count_noise_multiplier = group_count_noise_multiplier

    def rates(self, task):
        shares = torch.ones(task.n_groups, dtype=torch.float64) / task.n_groups
        if task.group_fractions is not None:
            shares = task.group_fractions.double()
        return (task.sample_rate / (task.n_groups * shares)).clamp(max=1.0)


@pytest.mark.parametrize("method", [QuietLater(), OftenLater()], ids=str)
def test_what_was_planned_is_neither_quieter_nor_drawn_more_often(method):
    groups = np.where(np.arange(N) % 20 == 0, "few", "many")
    settings = {"epsilon": 3.0, "max_steps": 60, "batch_size": 40}
    with pytest.raises(PrivacyAccountingError, match="after these were planned"):
        DPFairClassifier(method, **settings).fit(*DATA, sensitive_features=groups)


class Capped(Clipped):
    def queries(self, task, noise_multiplier):
        rows = lambda sample, state: sample.norm.clamp(max=1.0)[:, None]  # noqa: E731
        return (Query("norms", rows, 1.0, min(noise_multiplier, 1.5)),)


def test_noise_that_does_not_follow_the_budget_is_refused():
    with pytest.raises(ValueError, match="neither constant nor a multiple of noise_multiplier"):
        DPFairClassifier(Capped(), epsilon=1.0, max_steps=40).fit(*DATA)


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
def test_one_record_moves_a_step_by_its_bound_at_most(method):
    x = torch.rand(N, 6, generator=torch.Generator().manual_seed(0))
    x[0] *= 3e3
    batch = Batch(x, torch.zeros(N, dtype=torch.int64))
    mechanism = Mechanism(method(), example_task(n_samples=N, n_groups=1, sample_rate=1.0), 0.0)
    others, noise = torch.arange(1, N), Streams.fresh().noise()
    with select_strategy(nn.Linear(6, 2), x[:1], 2) as strategy:
        steps = [
            private_step(strategy, rows, mechanism, None, noise)
            for rows in (batch, records_at(batch, others))
        ]
    assert (steps[0].gradient - steps[1].gradient).norm() * N <= 1.0001


def test_rows_of_queries_are_no_longer_than_their_sensitivity():
    hooks = Mechanism(Unbounded(), example_task(), 1.0).hooks
    sample = example_records([0.5, 3.0, 200.0, torch.inf, torch.nan])
    cells, norm = (query.matrix(sample, None) for query in hooks.queries)
    # a code beyond the cells, and what is not finite, count for nothing
    assert cells.tolist() == [[1, 0], [1, 0], [0, 0], [0, 0], [1, 0]]
    assert norm[:, 0].tolist() == [0.5, 1.0, 1.0, 0.0, 0.0]


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
def test_an_attribute_that_changes_between_steps_is_followed(kind):
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
def test_what_is_assumed_of_a_method_is_stated(method, is_assumed):
    model = DPFairClassifier(method(), epsilon=3.0, max_steps=2, classes=[0, 1]).fit(*DATA)
    assumptions = model.privacy_statement()["assumptions"]
    assert any("what the method makes of a record" in a for a in assumptions) == is_assumed
