"""A loop keeps to what was planned and charged, and holds no rows at its end."""

import gc
import weakref

import numpy as np
import pytest
import torch

from skdpfair import DPFairClassifier
from skdpfair.datasets import make_two_groups
from skdpfair.engine.mechanism import Clip, Method, Query
from skdpfair.exceptions import PrivacyAccountingError
from skdpfair.training import loop

N = 1000
DATA = np.eye(N, 4), np.arange(N) % 2


class Clipped(Method):
    def clip(self, sample, state, release):
        return Clip(1 / sample.norm.clamp(min=1.0), 1.0)


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
def test_loop_refuses_less_noise_and_higher_rates_than_planned(method):
    groups = np.where(np.arange(N) % 20 == 0, "few", "many")
    settings = {"epsilon": 3.0, "max_steps": 60, "batch_size": 40}
    with pytest.raises(PrivacyAccountingError, match="planned"):
        DPFairClassifier(method, **settings).fit(*DATA, sensitive_features=groups)


class Capped(Clipped):
    def queries(self, task, noise_multiplier):
        rows = lambda sample, state: sample.norm.clamp(max=1.0)[:, None]  # noqa: E731
        return (Query("norms", rows, 1.0, min(noise_multiplier, 1.5)),)


def test_plan_refuses_noise_that_does_not_follow_the_budget():
    with pytest.raises(ValueError, match=r"Capped.*noise_multiplier"):
        DPFairClassifier(Capped(), epsilon=1.0, max_steps=40).fit(*DATA)


def test_loop_leaves_no_cycle_that_holds_the_rows(monkeypatch):
    data = make_two_groups(900, random_state=0)
    x, held = torch.tensor(np.asarray(data.data, np.float32)), []
    plain = loop.TrainingLoop.next_epoch

    def next_epoch(loop):
        held[:] = map(weakref.ref, (loop, loop.batches, loop.batches.data))
        return plain(loop)

    monkeypatch.setattr(loop.TrainingLoop, "next_epoch", next_epoch)
    gc.collect()
    gc.disable()
    try:
        model = DPFairClassifier(epsilon=9.0, batch_size=50, max_epochs=3).fit(x, data.target)
        assert model.n_steps_ > 0 and [ref() for ref in held] == [None] * 3
    finally:
        gc.enable()
