"""The loop of a fit: weights that callbacks change, broken bounds, numbers that never move."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from skorch.callbacks import Callback, LRScheduler
from torch import nn

from skdpfair import DPFairClassifier, Factory
from skdpfair.engine import contracts, record_hooks
from skdpfair.engine.mechanism import Clip, Method
from skdpfair.exceptions import PrivacyAccountingError
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
