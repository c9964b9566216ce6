"""The net of a fit: what callbacks see, what the history holds, and what is left of a fit."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.metrics import log_loss
from skorch.callbacks import Callback, Checkpoint, EpochScoring, LRScheduler, TrainEndCheckpoint

from skdpfair.training.loop import TrainingLoop
from tests.quick_fits import QUIET, TABLE, X, Y, quick

pytestmark = QUIET
ROWS = X.to_numpy()


def test_net_of_a_fit_holds_no_gradient_batch_or_seed():
    net = quick().fit(X, Y).net_
    of_optimizer = [p for group in net.optimizer_.param_groups for p in group["params"]]
    assert all(p.grad is None for p in (*net.module_.parameters(), *of_optimizer))
    assert (net.run, net._loop) == (None, None)  # seeds; the longest gradient, noise, batches
    held = [v for v in vars(net.engine_).values() if torch.is_tensor(v) and v.numel() > 4]
    assert not held and not net.module_.training
    assert all(not m._forward_hooks for m in net.module_.modules())


def test_net_refuses_to_train_without_its_estimator():
    net = quick(max_steps=2).fit(X, Y).net_
    for train in (net.fit, net.partial_fit, net.fit_loop):
        with pytest.raises(ValueError, match=r"net_ .*warm_start=True"):
            train(X, Y)


@pytest.mark.parametrize(("averaged", "scale"), [(0.5, 0.5), (1.0, 1.0), (0.0, 0.7)])
@pytest.mark.parametrize("caching", [True, False])
def test_history_scores_the_averaged_model(averaged, scale, caching, monkeypatch):
    public = ROWS[:200], Y[:200]
    own = EpochScoring("neg_log_loss", name="own", use_caching=caching, lower_is_better=False)
    params = {"iterate_average": averaged, "logit_scale": scale, "lr": 5.0}
    model = quick(validation_data=public, callbacks=[own], **params).fit(ROWS, Y)
    history = model.net_.history
    assert len(history) == model.n_iter_ and "train_loss" not in history[-1]
    loss = pytest.approx(log_loss(public[1], model.predict_proba(public[0])), rel=1e-5)
    assert history[-1]["valid_loss"] == loss == -history[-1]["own"]
    assert history[-1]["valid_acc"] == pytest.approx(model.score(*public))
    # scoring moves no weight
    monkeypatch.setattr(TrainingLoop, "averaged_weights", lambda self: nullcontext())
    again = quick(validation_data=public, callbacks=[clone(own)], **params).fit(ROWS, Y)
    assert np.array_equal(model.predict_proba(ROWS), again.predict_proba(ROWS))


def test_checkpoints_save_where_no_callback_acts_on_batches(tmp_path):
    saving = [Checkpoint(monitor=None, dirname=tmp_path), TrainEndCheckpoint(dirname=tmp_path)]
    assert quick(callbacks=saving).fit(X, Y).n_steps_ > 0
    assert {"params.pt", "train_end_params.pt"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("batch_size", [250, 500, 1000])
def test_callbacks_are_called_in_epochs_that_train_only(batch_size):
    rates = []

    class Recording(Callback):
        def record(self, net, training=True, **kwargs):
            if training:
                rates.append(net.optimizer_.param_groups[0]["lr"])

        on_epoch_begin = on_epoch_end = on_batch_begin = on_batch_end = record

    steps = LRScheduler("StepLR", step_size=1, gamma=0.5)
    params = {"callbacks": [Recording(), steps], "validation_data": (TABLE[:50], Y[:50]), "lr": 1.0}
    model = quick(group_col="group", batch_size=batch_size, **params).fit(TABLE, Y)
    warm_up, per_epoch = model.net_.plan.warm_up, -(-len(X) // batch_size)
    hidden = warm_up // per_epoch
    assert hidden > 0
    epochs = model.n_iter_ - hidden
    assert model.n_iter_ == -(-20 // per_epoch)
    assert len(rates) == 2 * (epochs + 20 - warm_up)
    assert rates[0] == 1.0 and rates[-1] == 0.5 ** (epochs - 1)
    assert model.net_.history[:, "epoch"] == list(range(1, epochs + 1))
    assert all(0 <= score <= 1 for score in model.net_.history[:, "valid_acc"])
