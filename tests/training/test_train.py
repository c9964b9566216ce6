"""Training of a fit: how it ends, and that it says and holds the same whatever was drawn."""

import logging

import pytest
from skorch.callbacks import Callback

from skdpfair import DPFairClassifier, get_method
from skdpfair.engine import Streams
from skdpfair.exceptions import InsecureSeedWarning
from tests.quick_fits import DATA, QUIET, X, Y, quick

pytestmark = QUIET


def by_groups(seed=0, **params):
    given = {"epsilon": None, "noise_multiplier": 2.0, "accountant": "rdp", "lr": 0.5}
    given |= {"max_steps": 8, "batch_size": 100, "random_state": seed} | params
    model = DPFairClassifier(get_method("dpsgd_f", max_grad_norm=1.0), **given)
    return model.fit(X, Y, sensitive_features=DATA.sensitive_features)


def test_train_ends_by_a_callback_without_a_warning_and_charges_the_plan():
    class Stop(Callback):
        def on_epoch_end(self, net, **kwargs):
            if len(net.history) == 2:
                raise KeyboardInterrupt

    model = quick(callbacks=[Stop()], keep_reference=True).fit(X, Y)
    assert model.reference_.n_steps_ < model.reference_.net_.plan.n_steps  # stopped, too
    # whoever stops a fit may have seen released values: the plan is what the guarantee is of
    report = model.privacy_
    assert (model.n_steps_, report.steps) == (12, 20)
    assert report.epsilon == quick().fit(X, Y).privacy_.epsilon
    assert report.releases[-1].what == "steps planned, not taken"
    assert report.stop.startswith("after 12 of 20 steps")


def test_train_warns_of_a_seed():
    with pytest.warns(InsecureSeedWarning, match="random_state=7"):
        quick(random_state=7).fit(X, Y)


def plain(net):
    """Return the numbers, texts and lists that a net holds, but for times."""
    kinds = (int, float, str, list, tuple, dict, type(None))
    return {
        name: repr(value)
        for name, value in vars(net).items()
        if isinstance(value, kinds) and name not in ("history_", "callbacks_")
    }


def test_train_logs_and_holds_nothing_of_the_batches(caplog):
    caplog.set_level(logging.DEBUG)
    nets, messages = [], []
    for seed in (0, 1):
        nets.append(by_groups(seed).net_)
        messages.append(caplog.messages)
        caplog.clear()
    assert messages[0] == messages[1] and plain(nets[0]) == plain(nets[1])
    for net in nets:
        assert [set(epoch) for epoch in net.history] == [{"batches", "epoch", "dur"}] * 2
        assert not any(batch for epoch in net.history for batch in epoch["batches"])


@pytest.mark.parametrize("kind", ["standard", "gaussian_sum"])
def test_train_draws_noise_of_the_kind_of_noise_sampler(kind, monkeypatch):
    made, noise = [], Streams.noise
    monkeypatch.setattr(Streams, "noise", lambda *a: made.append(noise(*a)) or made[-1])
    by_groups(noise_sampler=kind)
    assert [one.kind for one in made] == [kind]
