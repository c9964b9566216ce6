"""Callbacks, modules, attacks and optimizers of users see no rows and change no claim."""

import copy
import json
import os
import pickle
import types

import cloudpickle
import numpy as np
import pytest
import torch
from skorch.callbacks import Callback, EarlyStopping
from torch import nn

from skdpfair import DPFairClassifier, Factory, get_method
from skdpfair.analysis import GroupRecorder
from skdpfair.augmentations import PGD
from skdpfair.budget import PrivacyLedger
from skdpfair.engine import Streams
from skdpfair.exceptions import UnsupportedModuleError
from skdpfair.training.callbacks import WITHHELD
from skdpfair.training.inference import weights_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning"),
    pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning"),
]
RNG = np.random.default_rng(0)
X, Y = RNG.random((300, 4)).astype(np.float32), RNG.integers(0, 2, 300)
PUBLIC = RNG.random((20, 4)), RNG.integers(0, 2, 20)
SHARED = types.ModuleType("shared")  # what modules and attacks of these tests remember


def fit(rows=X, **params):
    settings = {"epsilon": None, "noise_multiplier": 1.0, "max_steps": 6, "batch_size": 60}
    clf = DPFairClassifier(get_method("dpsgd", max_grad_norm=1.0), lr=0.1, **settings | params)
    return clf.fit(rows, Y)


def callback(**events):
    """Return a callback of functions (net, self), by event."""

    def method(function):
        return lambda self, net, **kwargs: function(net, self)

    return type("Acting", (Callback,), {e: method(f) for e, f in events.items()})()


# what callbacks receive


EVENTS = ["on_train_begin", "on_epoch_begin", "on_epoch_end", "on_batch_begin", "on_batch_end"]


def test_callbacks_of_a_private_fit_receive_no_rows():
    received = []
    events = dict.fromkeys([*EVENTS, "on_train_end"], lambda self, net, **kw: received.append(kw))
    recording = type("Recording", (Callback,), events)()
    fit(callbacks=[recording])
    kinds = {type(value) for part in received for value in part.values()}
    assert len(received) > 6 and kinds == {type(WITHHELD), type(None), bool}
    with pytest.raises(ValueError, match="training rows"):
        len(WITHHELD)
    received.clear()
    fit(callbacks=[recording, GroupRecorder(terms=False)])
    assert not any(WITHHELD is value for part in received for value in part.values())


def test_callbacks_that_are_ledgers_are_refused(tmp_path):
    ledger = PrivacyLedger(tmp_path / "ledger.jsonl", delta=1e-5)
    for ledgers in ([ledger], [("ledger", ledger)]):
        with pytest.raises(TypeError, match="with ledger"):
            fit(callbacks=ledgers)


def test_copies_of_a_running_net_hold_neither_seeds_nor_rows():
    def copies_of(net, self):
        self.entropy = net.run.streams.entropy
        self.copies = copy.deepcopy(net), copy.deepcopy(net.run)
        self.bytes = cloudpickle.dumps(net) + pickle.dumps(net.run.streams)

    copies = callback(on_epoch_end=copies_of)
    fit(callbacks=[copies])
    (number,) = copies.entropy
    assert number.bit_length() > 200
    net, run = copies.copies
    assert run.streams.entropy != copies.entropy and not hasattr(net, "run")
    assert net.predict_proba(X[:2]).shape == (2, 2)
    for secret in (number.to_bytes(32, "little"), str(number).encode(), X[7].tobytes()):
        assert secret not in copies.bytes


# fits that stop early


def interrupt(net, self):
    if len(net.history) == 2:
        raise KeyboardInterrupt


def fail(net, self):
    raise RuntimeError("of a callback")


class StopsInTrain(nn.Linear):
    """A module that ends the fit by the weights that it sees at the beginning of an epoch."""

    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.sums = set()

    def train(self, mode=True):
        if self.__dict__.get("_parameters"):
            self.sums.add(float(self.weight.detach().sum()))
        if len(self.sums) > 3:
            raise KeyboardInterrupt
        return super().train(mode)


class StopsByValue(torch.optim.SGD):
    """An optimizer that ends the fit by what it sees released."""

    def step(self, closure=None):
        SHARED.n_steps += 1
        if SHARED.n_steps == 9:
            raise KeyboardInterrupt
        return super().step(closure)


STOPS = {
    "callback": lambda: {"callbacks": [callback(on_epoch_end=interrupt)]},
    "score": lambda: {
        "callbacks": [EarlyStopping(patience=2, threshold=9.0)],
        "validation_data": PUBLIC,
    },
    "module": lambda: {"module": Factory(StopsInTrain, in_features=4, out_features=2)},
    "optimizer": lambda: {"optimizer": StopsByValue},
    "error": lambda: {"callbacks": [callback(on_epoch_end=fail)]},
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", STOPS)
def test_fits_whose_stop_may_depend_on_values_cost_the_plan(name, tmp_path):
    SHARED.n_steps, model = 0, None
    with PrivacyLedger(tmp_path / "ledger", delta=1e-5) as ledger:
        try:
            model = fit(max_steps=40, **STOPS[name]())
        except RuntimeError as error:
            assert name == "error" and str(error) == "of a callback"
    assert list(ledger.frame().steps) == [40]
    if model is not None:
        whole = fit(max_steps=40).privacy_
        assert model.n_steps_ < 40 and model.privacy_.epsilon == whole.epsilon
        assert "after all" in whole.stop and "all planned steps" in model.privacy_.stop
        assert {"stop", "proof", "adjacency"} <= whole.facts().keys()


@pytest.mark.parametrize("at", [1, 8])  # of 8 epochs
def test_fit_continued_by_a_forked_process_is_refused(at, tmp_path):
    """Its model would have the noise of the other, from which it differs by the data alone."""
    report = tmp_path / "report"

    def fork(net, self):
        if len(net.history) == at:
            child = os.fork()
            self.is_copy = child == 0
            if child:
                os.waitpid(child, 0)

    forks = callback(on_epoch_end=fork)
    report.touch()
    with PrivacyLedger(tmp_path / "ledger", delta=1e-5) as ledger:
        try:
            fit(max_steps=40, callbacks=[forks])
        except RuntimeError as error:
            report.write_text(str(error))
        finally:
            if forks.is_copy:
                os._exit(0)
    assert "forked" in report.read_text()
    lines = [json.loads(line) for line in (tmp_path / "ledger").read_text().splitlines()]
    assert [line["state"] for line in lines if "state" in line] == ["planned", "done"]
    assert list(ledger.frame().steps) == [40]


# code that sees records


class Watching(nn.Module):
    """Keeps what it sees, where no look at the module finds it."""

    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.Linear(4, 2), None
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        if type(x) is torch.Tensor:
            SHARED.is_row.append(bool((x > 500).any()))
            if SHARED.is_row[-1]:
                self.last = x
                self.mean += x.mean(0)
        return self.layer(x)


def test_modules_see_no_training_row_and_keep_no_prediction():
    SHARED.is_row = []
    model = fit(X + 1000, module=Watching)
    assert SHARED.is_row and not any(SHARED.is_row)
    assert model.privacy_.proof == "per-record by vmap"
    model.predict(X + 1000)
    assert any(SHARED.is_row)
    assert model.net_.module_.last is None and not model.net_.module_.mean.any()
    assert not pickle.loads(pickle.dumps(model)).net_.weights["mean"].any()


def sometimes(module, x, y):
    SHARED.n_calls += 1
    return x.flip(0) if SHARED.n_calls > 20 else x


def remembered(module, x, y):
    past, SHARED.past = getattr(SHARED, "past", x), x.detach().clone()
    return (x + past.mean()) / 2


def longer(module, x, y):
    return x - x.mean(0) if len(x) > 2 else x


@pytest.mark.parametrize("attack", [sometimes, remembered, longer])
def test_attacks_bring_no_records_together(attack):
    SHARED.n_calls, kept = 0, []
    SHARED.__dict__.pop("past", None)

    def keep(net, self):
        kept.append((net._loop.attack, net.engine_, net.engine_.generator))

    try:
        fit(attack=attack, callbacks=[callback(on_epoch_end=keep)])
    except ValueError:
        return  # it was seen to bring them together
    run, engine, engine.generator = kept[0]
    for n in (3, 9, 40):
        x = torch.rand(n, 4, generator=torch.Generator().manual_seed(n))
        y = torch.zeros(n, dtype=torch.int64)
        found = run(None, x, y)
        others = torch.cat([x[:1], 1 - x[1:]])
        assert torch.equal(run(None, others, y)[0], found[0])


def test_attacks_that_decide_by_values_are_refused():
    def attack(module, x, y):
        return x / x.max() if x.max() > 1 else x

    with pytest.raises(ValueError, match=r"attack.*line \d+"):
        fit(attack=attack)


class Number(float):
    """A number that looks at what it is multiplied by."""

    def __rmul__(self, other):
        SHARED.n_calls += 1
        return float(self) * other

    __mul__ = __rmul__


def test_numbers_of_an_attack_see_no_row():
    attack, SHARED.n_calls = PGD(Number(0.1), Number(0.1), n_steps=2, input_range=None), 0
    fit(attack=attack)
    before = SHARED.n_calls
    fit(attack=attack, max_steps=30)
    assert SHARED.n_calls == 2 * before  # as often, before the first step, as in a short fit


# changes within a fit


def test_parameters_that_change_places_are_refused():
    def network():
        return nn.Sequential(
            nn.Linear(4, 4, bias=False), nn.GELU(), nn.Linear(4, 4), nn.Linear(4, 2)
        )

    def swap(net, self):
        a, b = net.module_[0], net.module_[2]
        a._parameters["weight"], b._parameters["weight"] = b.weight, a.weight

    with pytest.raises(UnsupportedModuleError, match="replaced"):
        fit(module=network, callbacks=[callback(on_epoch_end=swap)], max_steps=20)


class Cooled(nn.Module):
    """A network of which numbers are attributes, buffers and those of its layers and class."""

    scale = 1.0

    def __init__(self):
        super().__init__()
        self.first, self.act, self.last = nn.Linear(4, 3), nn.LeakyReLU(0.1), nn.Linear(3, 2)
        self.temperature, self.options = 1.0, {"shift": 0.0}
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        x = self.act(self.first((x - self.mean) * self.scale))
        return self.last(x) / self.temperature + self.options["shift"]


REFUSED = {
    "attribute": lambda net: setattr(net.module_, "temperature", 0.5),
    "layer's": lambda net: setattr(net.module_.act, "negative_slope", 0.5),
    "contents": lambda net: net.module_.options.update(shift=1.0),
    "buffer": lambda net: net.module_.mean.add_(1.0),
    "class": lambda net: setattr(type(net.module_), "scale", type(net.module_).scale + 1),
    "code": lambda net: setattr(net.module_, "forward", net.module_.first),
    "layer": lambda net: setattr(net.module_, "act", nn.ReLU()),
    "hook": lambda net: net.module_.act.register_forward_hook(lambda *seen: seen[-1] * 2),
    "module": lambda net: setattr(net, "module_", copy.deepcopy(net.module_)),
    "optimizer": lambda net: setattr(net, "optimizer_", torch.optim.Adam(net.module_.parameters())),
}
ACCEPTED = {
    "weights": lambda net: net.module_.last.bias.clamp_(-0.1, 0.1),
    "data": lambda net: setattr(net.module_.last.bias, "data", torch.zeros(2)),
    "rate": lambda net: net.set_params(lr=0.05),
    "mode": lambda net: net.module_.eval(),
    "predictions": lambda net: net.predict(X),
    "gradients": lambda net: net.module_.zero_grad(),
    "steps": lambda net: net.optimizer_.zero_grad(),
}


def fit_with(change, *events, **params):
    """Fit with a callback that changes something at events."""
    changes = callback(**dict.fromkeys(events, lambda net, self: change(net)))
    params = {"module": Cooled, "max_steps": 10, "random_state": 0} | params
    with torch.no_grad():
        return fit(callbacks=[changes], **params)


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("change", REFUSED)
def test_changes_of_a_module_that_training_would_not_follow_are_refused(change, event):
    with pytest.raises(UnsupportedModuleError, match=r"callbacks.*traced once"):
        fit_with(REFUSED[change], event)


def test_changes_of_a_module_cannot_end_the_fit():
    def change_and_end(net):
        net.module_.temperature = 0.5
        raise KeyboardInterrupt

    with pytest.raises(UnsupportedModuleError, match=r"callbacks.*traced once"):
        fit_with(change_and_end, "on_epoch_end")


@pytest.mark.parametrize("change", ACCEPTED)
def test_changes_that_training_follows_are_accepted(change):
    fit_with(ACCEPTED[change], *EVENTS)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.Rprop])
def test_changes_of_gradients_change_no_step(optimizer):
    def weights():
        net = fit_with(clear, *EVENTS[1:], optimizer=optimizer).net_
        return np.concatenate([p.ravel() for p in weights_of(net).values()])

    # seeds mix in the code of callbacks, which therefore is the same
    def clear(net):
        if SHARED.is_cleared:
            net.module_.zero_grad()
            net.optimizer_.zero_grad()

    SHARED.is_cleared = False
    expected = weights()
    SHARED.is_cleared = True
    assert np.array_equal(weights(), expected)


TRAINING = {
    "partial_fit": lambda net: net.partial_fit({"x": X, "group": np.zeros(300, np.int64)}, Y),
    "fit_loop": lambda net: net.fit_loop({"x": X, "group": np.zeros(300, np.int64)}, Y),
    "initialize": lambda net: net.initialize(),
}


@pytest.mark.parametrize("event", [*EVENTS, "on_train_end"])
@pytest.mark.parametrize("call", TRAINING)
def test_callbacks_that_train_the_net_within_its_fit_are_refused(call, event, monkeypatch):
    drawn, noise = [], Streams.noise
    monkeypatch.setattr(Streams, "noise", lambda *args: drawn.append(args) or noise(*args))
    with pytest.raises(ValueError, match=r"callbacks .*trains"):
        fit_with(TRAINING[call], event)
    assert len(drawn) <= 1  # by the fit itself
