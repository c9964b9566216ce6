"""The loop of a fit: changed weights, broken bounds, what was planned, and no rows at its end."""

import gc
import weakref
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from skorch.callbacks import Callback, LRScheduler
from torch import nn

from skdpfair import DPFairClassifier, Factory, get_method, load_release
from skdpfair.datasets import make_two_groups
from skdpfair.engine import contracts, record_hooks
from skdpfair.engine.mechanism import Clip, Method, Query
from skdpfair.exceptions import PrivacyAccountingError
from skdpfair.privacy.privacy_report import AT_LIMIT
from skdpfair.testing import verify_release
from skdpfair.training import loop
from tests.quick_fits import QUIET, X, Y, quick, weights

pytestmark = QUIET


def test_rejoin_trains_on_the_weights_that_a_callback_replaced():
    class Clamp(Callback):
        def on_batch_end(self, net, **kwargs):
            for p in net.module_.parameters():
                p.data = p.data.clamp(-0.01, 0.01)

    model = quick("sgd", epsilon=None, callbacks=[Clamp()], iterate_average=0.0).fit(X, Y)
    assert 0.0 < np.abs(weights(model)).max() <= 0.01 + 1e-6


def test_lr_scheduler_changes_the_lr_of_the_user():
    scheduler = LRScheduler("StepLR", step_size=1, gamma=0.5, step_every="batch")
    model = quick(callbacks=[("schedule", scheduler)], lr=0.1).fit(X, Y)
    assert model.net_.optimizer_.param_groups[0]["lr"] < 1e-5


def test_check_bound_finds_a_broken_bound_in_an_interrupted_epoch(monkeypatch):
    # as if the fault were one of this package's methods: others keep to the bound
    for module in (contracts, record_hooks):
        monkeypatch.setattr(module, "is_shipped", lambda method: True)

    @dataclass(kw_only=True, repr=False, eq=False)
    class Broken(Method):
        """Weigh beyond the bound."""

        max_grad_norm: float = 1.0

        def clip(self, sample, state, release):
            return Clip(-1e3 / sample.norm, sample.norm.new_tensor(1.0))

    class Interrupt(Callback):
        def on_batch_end(self, net, **kwargs):
            if net.n_steps_taken == 3:
                raise KeyboardInterrupt

    with pytest.raises(PrivacyAccountingError):
        quick(Broken(), callbacks=[Interrupt()]).fit(X, Y)


class Padded(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(10, 4, padding_idx=0), nn.Linear(4, 2)
        self.spare = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.out(self.table(x.long()).mean(1))


@pytest.mark.parametrize(
    "params",
    [
        {"optimizer": Factory("Adam", weight_decay=0.1), "iterate_average": 0.5},
        {"method": "dp_sat", "optimizer": Factory("auto", weight_decay=0.1, momentum=0.9)},
        {"optimizer": torch.optim.Rprop},
        {"lr": "auto", "epsilon": None},
    ],
)
def test_fixed_places_of_the_weights_stay_as_torch_would_leave_them(params):
    words = np.random.default_rng(0).integers(0, 10, size=(200, 6))
    given = {"method": "dpsgd", "lr": 0.1, "max_steps": 8, "batch_size": 50, "accountant": "rdp"}
    model = DPFairClassifier(**given | {"module": Padded, "epsilon": 8.0} | params)
    module = model.fit(words, words.sum(1) > 27).net_.module_
    assert not module.table.weight[0].any() and (module.spare == 1).all()


@pytest.mark.parametrize("name", ["dpsgd", "naive", "global_adapt", "dpsgd_f"])
def test_the_bound_of_a_report_is_that_of_the_steps(name):
    model = quick(name).fit(X, Y, sensitive_features=Y)
    moves = name in ("global_adapt", "dpsgd_f")
    bound = None if moves else pytest.approx(model.method_.max_grad_norm, rel=1e-6)
    assert model.privacy_.max_grad_norm == bound


@pytest.mark.parametrize(("limit", "share"), [(1e-3, 0.0), (1e6, 1.0)])
def test_choices_say_at_how_many_steps_a_threshold_was_at_its_lower_limit(tmp_path, limit, share):
    method = get_method("global_adapt", min_strict_max_grad_norm=limit)
    model, (what, least) = quick(method), AT_LIMIT
    for _ in range(2):
        model.set_params(warm_start=True).fit(X, Y)
        assert model.privacy_.choices == ((what, share, least),)
        assert (what in model.privacy_.summary.get("chosen", "")) == (share > least)
    model.set_params(random_state=None, warm_start=False).fit(X, Y)
    model.save_release(path := tmp_path / "model.safetensors")
    verify_release(path)
    assert load_release(path).privacy_.choices == model.privacy_.choices


class Clipped(Method):
    def clip(self, sample, state, release):
        return Clip(1 / sample.norm.clamp(min=1.0), 1.0)


class Rescaled(Clipped):
    """A hook that was written before it was told how far gradients can grow."""

    needs_scale = True

    def at_scale(self, scale, norm_growth):
        return self, 0.1


def test_loop_takes_hooks_of_two_numbers():
    y = np.arange(len(X)) % 3
    assert quick(Rescaled()).fit(X, y).net_.lr > 0


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
    x, y = np.eye(1000, 4), np.arange(1000) % 2
    groups = np.where(np.arange(1000) % 20 == 0, "few", "many")
    settings = {"epsilon": 3.0, "max_steps": 60, "batch_size": 40}
    with pytest.raises(PrivacyAccountingError, match="planned"):
        DPFairClassifier(method, **settings).fit(x, y, sensitive_features=groups)


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
