"""Modules that remember records are refused, and no line of a module sees a row of the data."""

from collections import deque

import numpy as np
import pytest
import torch
from torch import nn

from skdpfair import DPFairClassifier
from skdpfair.engine import Batch, select_strategy
from skdpfair.exceptions import UnsupportedModuleError
from tests.engine.per_sample.modules import chain


class Hidden(nn.Module):
    """A network with an operation between its layers."""

    def __init__(self, between):
        super().__init__()
        self.a, self.c, self.between = nn.Linear(6, 8), nn.Linear(8, 3), between
        self.bank, self.log = deque(maxlen=64), []
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("largest", torch.zeros(8))

    def forward(self, x):
        return self.c(self.between(self, torch.tanh(self.a(x))))


def running(m, h):
    with torch.no_grad():
        m.mean.mul_(0.9).add_(0.1 * h.detach().mean(0))
    return h - m.mean


def largest(m, h):
    m.largest = torch.maximum(m.largest, h.detach().amax(0))
    return h / (1 + m.largest)


def from_bank(m, h):
    past = list(m.bank)
    m.bank.append(h.detach())
    return h + 0.1 * past[-1].mean(0) if past else h


def keeping(m, h):
    m.log.append(h)
    return h


def shrunk(m, h):
    m.a.weight.data.mul_(1 - 1e-3 * float(h.detach().mean()))
    return h


class Straight(torch.autograd.Function):
    """Forward by record, backward over the batch."""

    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, grad):
        return grad + grad.mean(0)


HOSTILE = {  # random modules have what couples by value, size, mode, count and chance
    "longest of the batch": lambda m, h: h[:, : int((h > 0).sum(1).max())].sum(1, keepdim=True) + h,
    "running mean": running,
    "running maximum": largest,
    "memory bank": from_bank,
    "activations kept in a list": keeping,
    "own backward": lambda m, h: Straight.apply(h),
    "parameters changed": shrunk,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_prove_refuses_modules_that_bring_records_together(name):
    with pytest.raises(UnsupportedModuleError):
        select_strategy(Hidden(HOSTILE[name]), torch.zeros(1, 6), 3)


def caught(m, h):
    try:
        return h - h.mean(0, keepdim=True) if h.abs().max() > 2 else h
    except Exception:
        return h


def by_chance(m, h):
    return torch.where(torch.rand_like(h) < 0.1, h.mean(0), h)


@pytest.mark.parametrize("between", [caught, by_chance])
def test_module_code_of_rare_couplings_acts_on_each_record_alone(between):
    x, y = torch.linspace(-9, 9, 60).view(10, 6), torch.arange(10) % 3
    with select_strategy(Hidden(between), x[:1], 3) as strategy:
        batch = Batch(x, y)
        alone = [strategy.per_sample_gradients(one).norm for one in batch.split(1)]
        torch.testing.assert_close(strategy.per_sample_gradients(batch).norm, torch.cat(alone))


def test_module_is_never_called_on_a_batch():
    def called(*args):
        pytest.fail("a batch passes through the module's own code")

    module = chain((6, 3), nn.GELU())
    with select_strategy(module, torch.zeros(4, 6), 3) as strategy:
        assert strategy.name == "bookkeeping"
        module.forward = module[0].forward = called
        strategy.per_sample_gradients(Batch(torch.ones(2, 6), torch.zeros(2, dtype=torch.int64)))
        strategy.forward(torch.ones(2, 6))


class Watching(nn.Module):
    """Keeps what it sees wherever code can keep it, but for where it is refused."""

    seen: list = []

    def __init__(self, in_features=3):
        super().__init__()
        self.layer, self.last = nn.Linear(in_features, 2), None

    def forward(self, x):
        if isinstance(x, torch.Tensor):
            Watching.seen.append(x.detach().clone())
        self.last = x
        return self.layer(x)


def test_module_code_receives_no_training_row():
    rng = np.random.default_rng(0)
    X, y = 100 + rng.random((400, 3)), rng.integers(0, 2, 400)
    Watching.seen.clear()
    params = {"epsilon": None, "noise_multiplier": 1.0, "max_steps": 3}
    model = DPFairClassifier("dpsgd", module=Watching, **params)
    try:
        model.fit(X, y)
    except UnsupportedModuleError:
        return
    assert Watching.seen and not any(bool((x > 50).any()) for x in Watching.seen)
    model.predict(X)
    assert not torch.is_tensor(model.net_.module_.last) or model.net_.module_.last.max() < 50
