"""What a fit says and keeps is the same whichever records its batches drew."""

import logging

import pytest

from skdpfair import DPFairClassifier, get_method
from skdpfair.engine import Streams

pytestmark = pytest.mark.filterwarnings(
    "ignore::skdpfair.exceptions.LowSignalWarning",
    "ignore::skdpfair.exceptions.InsecureSeedWarning",
)
PUBLIC = {"classes_", "levels_", "n_features_in_", "feature_names_in_", "batch_size_", "n_steps_"}
PUBLIC |= {"features_"}
RELEASED = {"method_", "privacy_", "lr_", "net_"}
SETTLED = {
    "n_iter_",
    "signal_to_noise_",
    "logit_scale_",
    "_has_scale",
    "_n_fits",
    "_group_positions",
    "_scale",
}
SETTLED |= {"_day", "_ledger_fits", "_variables"}


def fitted(two_groups, seed=0, **params):
    settings = {"epsilon": None, "noise_multiplier": 2.0, "accountant": "rdp"}
    settings |= {"max_steps": 8, "batch_size": 100}
    method = get_method("dpsgd_f", max_grad_norm=1.0)
    model = DPFairClassifier(method, lr=0.5, random_state=seed, **settings | params)
    X, y, groups = two_groups.data, two_groups.target, two_groups.sensitive_features
    return model.fit(X, y, sensitive_features=groups)


def plain(net):
    """Return the numbers, texts and lists that a net holds, but for times."""
    kinds = (int, float, str, list, tuple, dict, type(None))
    return {
        name: repr(value)
        for name, value in vars(net).items()
        if isinstance(value, kinds) and name not in ("history_", "callbacks_")
    }


def test_the_net_keeps_no_number_that_depends_on_the_batches(two_groups):
    nets = [fitted(two_groups, seed).net_ for seed in (0, 1)]
    assert plain(nets[0]) == plain(nets[1])
    for net in nets:
        assert [set(epoch) for epoch in net.history] == [{"batches", "epoch", "dur"}] * 2
        assert not any(batch for epoch in net.history for batch in epoch["batches"])


def test_the_estimator_keeps_what_is_documented(two_groups):
    model = fitted(two_groups)
    assert set(vars(model)) - set(model.get_params(deep=False)) == PUBLIC | RELEASED | SETTLED


def test_no_message_depends_on_the_batches(two_groups, caplog):
    caplog.set_level(logging.DEBUG)
    said = []
    for seed in (0, 1):
        fitted(two_groups, seed)
        said.append(caplog.messages)
        caplog.clear()
    assert said[0] == said[1]


@pytest.mark.parametrize("kind", ["standard", "gaussian_sum"])
def test_the_noise_is_of_the_kind_asked_for(kind, two_groups, monkeypatch):
    made, noise = [], Streams.noise
    monkeypatch.setattr(Streams, "noise", lambda *a: made.append(noise(*a)) or made[-1])
    fitted(two_groups, noise_sampler=kind)
    assert [one.kind for one in made] == [kind]
