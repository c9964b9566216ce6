"""Threads, precision, callbacks, stops, copies and attacks break neither bound nor claim."""

import copy
import json
import os
import pickle
import threading
import types
import warnings
from contextlib import ExitStack, contextmanager

import cloudpickle
import numpy as np
import pytest
import torch
from skorch.callbacks import Callback, EarlyStopping, EpochScoring
from torch import nn

from skdpfair import DPFairClassifier, Factory, get_method, load_release
from skdpfair.analysis import GroupRecorder
from skdpfair.augmentations import PGD
from skdpfair.budget import PrivacyLedger
from skdpfair.engine import Batch, Streams, private_step, select_strategy
from skdpfair.engine.batch import Examples
from skdpfair.engine.losses import CrossEntropy
from skdpfair.engine.mechanism import Mechanism, Task
from skdpfair.engine.per_sample import ClosedForm, capped, layers, linear_layers
from skdpfair.engine.precision import full_precision
from skdpfair.exceptions import UnsupportedModuleError
from skdpfair.features import FrozenFeatures, Scattering2D
from skdpfair.model_selection import DPRandomizedSearch, DPThresholdClassifier
from skdpfair.training.callbacks import WITHHELD
from skdpfair.training.inference import weights_of

RNG = np.random.default_rng(0)
X, Y = RNG.random((300, 4)).astype(np.float32), RNG.integers(0, 2, 300)
C = 0.01


pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")


def quick(**params):
    given = {"epsilon": None, "noise_multiplier": 1.0, "max_steps": 6, "batch_size": 60, "lr": 0.1}
    return DPFairClassifier(get_method("dpsgd", max_grad_norm=1.0), **(given | params))


def weighed(strategy, x, *, chunk_size=None):
    """Return the sum of the clipped gradients of all records."""
    mechanism = Mechanism(get_method("dpsgd", max_grad_norm=C), Task(1, 1, 1.0), 0.0)
    zeros = torch.zeros(len(x), dtype=torch.int64)
    noise = Streams.fresh().noise()
    step = private_step(
        strategy, Batch(x, zeros, zeros), mechanism, None, noise, chunk_size=chunk_size
    )
    return step.gradient


def drawing(last):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 50), nn.Dropout(0.5), nn.Linear(50, 3), last())


LAST = {"book-keeping": nn.Identity, "vmap": lambda: nn.PReLU()}


@pytest.mark.parametrize("name", LAST)
def test_a_second_pass_with_other_masks_moves_no_sum_beyond_the_bound(name):
    with select_strategy(drawing(LAST[name]), torch.rand(2, 6), 3) as strategy:
        strategy.set_rng_state = lambda rng_state: None  # the second pass draws other masks
        for _ in range(10):
            one = weighed(strategy, 9 * torch.rand(1, 6), chunk_size=1)
            two = weighed(strategy, 9 * torch.rand(2, 6), chunk_size=1)
            assert one.norm() <= C * (1 + 1e-6) and two.norm() <= 2 * C * (1 + 1e-6)


@pytest.mark.parametrize("chunk_size", [None, 1])
@pytest.mark.parametrize("name", LAST)
def test_both_passes_draw_the_same_masks_whoever_else_draws(name, chunk_size):
    busy, x = threading.Event(), 9 * torch.rand(2, 6)
    y = torch.zeros(2, dtype=torch.int64)
    mechanism = Mechanism(get_method("dpsgd", max_grad_norm=1e9), Task(1, 1, 1.0), 0.0)

    def draw():
        while not busy.is_set():
            torch.rand(64)

    other = threading.Thread(target=draw)
    with select_strategy(drawing(LAST[name]), x, 3) as strategy:
        other.start()
        try:
            for _ in range(5):
                state, expected = strategy.generator.get_state(), strategy.flat()
                noise = Streams.fresh().noise()
                batch = Batch(x, y, y)
                step = private_step(strategy, batch, mechanism, None, noise, chunk_size=chunk_size)
                strategy.generator.set_state(state)
                for part in batch.split(chunk_size or 2):
                    gradients = strategy.per_sample_gradients(part)
                    gradients.weighted_sum(torch.ones(len(part)), expected)
                torch.testing.assert_close(step.gradient, expected, rtol=1e-4, atol=1e-6)
        finally:
            busy.set()
            other.join()


def test_weights_only_shrink():
    weight, then = torch.tensor([0.5, 0.5, 0.5, 0.5, 0.5]), torch.tensor([2.0, 2.0, 2.0, 0.0, 2.0])
    now = torch.tensor([1.0, 2.0, 8.0, 1.0, torch.inf])
    assert capped(weight, then, now).tolist() == [0.5, 0.5, 0.125, 0.0, 0.0]


@pytest.mark.parametrize("size", [2.0**k for k in (10, 20, 34, 40, 50, 60)])
def test_values_that_cancel_neither_break_the_bound_nor_erase_noise(size):
    class Along(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.out = nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.out(self.a(x).mean(1))

    with torch.random.fork_rng():
        torch.manual_seed(0)
        module, part, rest = Along(), torch.randn(1, 20, 6), torch.randn(1, 40, 6)
    x = torch.cat([size * part, -size * part], dim=1) + rest
    with select_strategy(module, x, 3) as strategy:
        assert weighed(strategy, x).norm() <= C * (1 + 1e-6)
        records = strategy.per_sample_gradients(Batch(x, torch.zeros(1, dtype=torch.int64)))
        weight = (1 / records.norm).clamp(max=1.0).nan_to_num(0.0)
        noise = torch.randn(strategy.n_parameters, generator=torch.Generator().manual_seed(0))
        records.weighted_sum(weight, with_noise := noise.clone())
        records.weighted_sum(weight, alone := strategy.flat())
    assert ((with_noise - alone) - noise).norm() < 1e-4


def test_squares_that_underflow_hide_no_gradient():
    layer = nn.Linear(6, 3, bias=False)
    for a, b in ((1e-23, 1e18), (1e18, 1e-23), (1e-21, 1e15), (1.0, 1e-22)):
        sampler = layers.sampler_of(layer)(layer, torch.full((1, 6), a), torch.full((1, 3), b))
        sampler.add(torch.ones(1), {layer.weight: (total := torch.zeros(3, 6))})
        assert float(sampler.norm2(Examples(1, 1))[0]) ** 0.5 >= float(total.double().norm()) * (
            1 - 1e-5
        )
        chain = nn.Sequential(layer, nn.ReLU())
        closed = ClosedForm(chain, CrossEntropy(3), linear_layers(chain, torch.zeros(1, 6)))
        assert float(closed._norm([sampler])[0]) >= float(total.double().norm()) * (1 - 1e-5)


@pytest.mark.parametrize("size", [1e10, 1e18])
def test_a_sure_prediction_of_a_large_record_is_measured(size):
    module = nn.Linear(2, 3, bias=False)
    nn.init.zeros_(module.weight)
    module.weight.data[0, 1] = 1.0
    x, y = torch.tensor([[size, 46.0], [size, 90.0]]), torch.tensor([0, 0])
    with select_strategy(module, x, 3) as strategy:
        records = strategy.per_sample_gradients(Batch(x, y))
        for i in range(2):
            records.weighted_sum(torch.eye(2)[i], total := strategy.flat())
            assert float(records.norm[i]) >= float(total.double().norm()) * (1 - 1e-5)


def test_steps_run_in_full_precision_whatever_the_process_prefers():
    module, x = nn.Sequential(nn.Linear(6, 200), nn.GELU(), nn.Linear(200, 3)), torch.rand(9, 6)
    with select_strategy(module, x, 3) as strategy:
        exact, seen = weighed(strategy, x), []

    def look(strategy):
        records = strategy.per_sample_gradients

        def noted(*args):
            seen.append(torch.backends.mkldnn.matmul.fp32_precision)
            assert seen == ["ieee"] and not torch.is_autocast_enabled("cpu")
            return records(*args)

        strategy.per_sample_gradients = noted

    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu"), select_strategy(module, x, 3) as strategy:
            look(strategy)
            found = weighed(strategy, x)
            assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"  # as it was before
    finally:
        torch.set_float32_matmul_precision("highest")
    assert seen == ["ieee"]
    torch.testing.assert_close(found, exact, rtol=1e-6, atol=1e-9)
    with full_precision("cpu"):
        assert not torch.is_autocast_enabled("cpu")


@contextmanager
def set_to(change, value, before):
    change(value)
    try:
        yield
    finally:
        change(before)


AROUND = {
    "bfloat16": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "float16": lambda: torch.autocast("cpu", dtype=torch.float16),
    "inference_mode": torch.inference_mode,
    "no_grad": torch.no_grad,
    "anomaly": lambda: set_to(torch.autograd.set_detect_anomaly, True, False),
    "deterministic": lambda: set_to(torch.use_deterministic_algorithms, True, False),
    "matmul": lambda: set_to(torch.set_float32_matmul_precision, "medium", "highest"),
    "double": lambda: set_to(torch.set_default_dtype, torch.float64, torch.float32),
    "half": lambda: set_to(torch.set_default_dtype, torch.bfloat16, torch.float32),
    "device": lambda: torch.device("meta"),
}
PICTURES = RNG.random((3, 8, 8)).astype(np.float32)
FROZEN = nn.Sequential(nn.Flatten(), nn.Linear(64, 5)).requires_grad_(False)


class Rectified(nn.Sequential):
    """A network whose gradients come from vmap."""

    def __init__(self):
        super().__init__(nn.Linear(4, 5), nn.PReLU(), nn.Linear(5, 2))


def file_of(model, folder):
    model.save_release(folder / "model.release")
    return load_release(folder / "model.release")


WAYS = {
    "predict": lambda model, _: model.predict_proba(X),
    "private": lambda model, _: model.net_.private_logits(X),
    "release": lambda model, folder: file_of(model, folder).predict_proba(X),
    "pickle": lambda model, _: pickle.loads(pickle.dumps(model)).decision_function(X),
    "scattering": lambda *_: Scattering2D().fit_transform(PICTURES),
    "frozen": lambda *_: FrozenFeatures(FROZEN).fit_transform(PICTURES),
}
FITS = {
    "mlp": lambda: quick(module="mlp", random_state=0),
    "vmap": lambda: quick(module=Rectified, random_state=0),
    "thresholds": lambda: DPThresholdClassifier(quick(random_state=0), random_state=0),
}

OF_FITS = [name for name in AROUND if name != "inference_mode"]
ALL_AT_ONCE = ("vmap", OF_FITS), ("thresholds", OF_FITS)


@pytest.fixture(scope="module")
def model():
    return quick(module="mlp").fit(X, Y)


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("way", WAYS)
def test_predictions_are_the_same_whatever_surrounds_them(way, around, model, tmp_path):
    expected = WAYS[way](model, tmp_path)
    with AROUND[around]():
        found = WAYS[way](model, tmp_path)
    np.testing.assert_array_equal(found, expected)
    assert torch.get_default_dtype() == torch.float32 and not torch.is_inference_mode_enabled()


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")
@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning")
@pytest.mark.parametrize("name, around", [*(("mlp", [a]) for a in OF_FITS), *ALL_AT_ONCE])
def test_fits_are_the_same_whatever_surrounds_them(name, around):
    with ExitStack() as stack:
        for one in around:
            stack.enter_context(AROUND[one]())
        model = FITS[name]().fit(X, Y)
        inside = model.predict_proba(X)
    np.testing.assert_array_equal(inside, model.predict_proba(X))
    np.testing.assert_array_equal(inside, FITS[name]().fit(X, Y).predict_proba(X))


@pytest.mark.parametrize("make", FITS.values(), ids=FITS)
def test_a_fit_in_inference_mode_is_refused_before_it_costs(make, tmp_path):
    search = DPRandomizedSearch(quick(), {"lr": [0.1, 0.2]})
    with PrivacyLedger(tmp_path / "ledger", delta=1e-5) as ledger, torch.inference_mode():
        for model in (make(), search):
            with pytest.raises(ValueError, match="inference_mode"):
                model.fit(X, Y)
    assert ledger.frame().empty


# ---- callbacks and stops ------------------------------------------------------------------------


class Curious(Callback):
    """Keeps all that skorch tells it."""

    def __init__(self):
        self.told = []

    def keep(self, net, **seen):
        self.told.append(dict(seen))

    on_train_begin = on_train_end = on_epoch_begin = on_epoch_end = keep
    on_batch_begin = on_batch_end = keep


def held(value):
    """Yield the arrays in what a callback was told."""
    if value is WITHHELD:
        return
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from held(part)
    elif isinstance(value, dict):
        yield from held(list(value.values()))
    elif isinstance(value, (np.ndarray, torch.Tensor)):
        yield value
    elif hasattr(type(value), "__dict__") and hasattr(value, "X"):
        yield from held([value.X, value.y])


def test_callbacks_of_a_private_fit_get_no_rows():
    curious = Curious()
    quick(callbacks=[curious]).fit(X, Y)
    assert len(curious.told) > 6
    with pytest.raises(ValueError, match="training rows"):
        [len(seen["dataset_train"]) for seen in curious.told if "dataset_train" in seen]
    assert not [array for seen in curious.told for array in held({**seen, "dataset_train": None})]
    curious = Curious()
    quick(callbacks=[curious, GroupRecorder(terms=False)]).fit(X, Y)
    assert [array for seen in curious.told for array in held(seen)]


@pytest.mark.parametrize("watched", [False, True])
def test_scores_of_training_rows_are_refused(watched):
    scores = EpochScoring("accuracy", on_train=True, use_caching=False, name="own")
    public = RNG.random((20, 4)), RNG.integers(0, 2, 20)
    callbacks = [scores, EarlyStopping("own")] if watched else [scores]
    with pytest.raises(ValueError, match="training rows"):
        quick(callbacks=callbacks, validation_data=public).fit(X, Y)


class Stops(Callback):
    """Stops after a number of epochs."""

    def on_epoch_end(self, net, **kwargs):
        if len(net.history) == 2:
            raise KeyboardInterrupt


def stopped(**params):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return quick(max_steps=40, **params).fit(X, Y)


def test_a_stop_that_may_depend_on_values_costs_the_plan(tmp_path):
    whole = quick(max_steps=40).fit(X, Y).privacy_
    with PrivacyLedger(tmp_path / "ledger", delta=1e-5) as ledger:
        model = stopped(callbacks=[Stops()])
    assert model.n_steps_ < 40 and model.privacy_.epsilon == whole.epsilon
    assert list(ledger.frame().steps) == [40]
    assert "all planned steps" in model.privacy_.stop and "after all" in whole.stop
    public = RNG.random((20, 4)), RNG.integers(0, 2, 20)
    scored = stopped(validation_data=public, callbacks=[EarlyStopping(patience=2, threshold=9.0)])
    assert scored.n_steps_ < 40 and scored.privacy_.epsilon == whole.epsilon


class StopsInTrain(nn.Linear):
    """A module that ends the fit by the weights that it sees at the beginning of an epoch."""

    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.seen = set()

    def train(self, mode=True):
        if self.__dict__.get("_parameters"):
            self.seen.add(float(self.weight.detach().sum()))
        if len(self.seen) > 3:
            raise KeyboardInterrupt
        return super().train(mode)


def test_a_module_that_stops_costs_the_plan():
    model = stopped(module=Factory(StopsInTrain, in_features=4, out_features=2))
    assert model.n_steps_ < 40
    assert model.privacy_.epsilon == quick(max_steps=40).fit(X, Y).privacy_.epsilon


class Forks(Callback):
    """Lets a copy of the process go on with the fit, from the end of an epoch on."""

    def __init__(self, at):
        self.at, self.is_copy = at, False

    def on_epoch_end(self, net, **kwargs):
        if len(net.history) == self.at:
            child = os.fork()
            self.is_copy = child == 0
            if child:
                os.waitpid(child, 0)


@pytest.mark.parametrize("at", [1, 8])  # of 8 epochs
def test_a_forked_process_cannot_go_on_with_a_fit(at, tmp_path):
    """Its model would have the noise of the other, from which it differs by the data alone."""
    forks, report = Forks(at), tmp_path / "report"
    report.touch()
    with PrivacyLedger(tmp_path / "ledger", delta=1e-5) as ledger:
        try:
            quick(max_steps=40, callbacks=[forks]).fit(X, Y)
        except RuntimeError as error:
            report.write_text(str(error))
        finally:
            if forks.is_copy:
                os._exit(0)
    assert "forked in the middle of a fit" in report.read_text()
    lines = [json.loads(line) for line in (tmp_path / "ledger").read_text().splitlines()]
    assert [line["state"] for line in lines if "state" in line] == ["planned", "done"]
    assert list(ledger.frame().steps) == [40]


def test_an_error_of_a_callback_costs_the_plan(tmp_path):
    class Fails(Callback):
        def on_epoch_end(self, net, **kwargs):
            raise RuntimeError("of a callback")

    with (
        PrivacyLedger(tmp_path / "ledger", delta=1e-5) as ledger,
        pytest.raises(RuntimeError, match="of a callback"),
    ):
        quick(max_steps=40, callbacks=[Fails()]).fit(X, Y)
    assert list(ledger.frame().steps) == [40]


# ---- copies, memory, attacks --------------------------------------------------------------------


class Copies(Callback):
    """Copies the net in the middle of a fit."""

    def on_epoch_end(self, net, **kwargs):
        self.entropy = net.run.streams.entropy
        self.copies = [copy.deepcopy(net), copy.deepcopy(net.run)]
        self.bytes = cloudpickle.dumps(net) + pickle.dumps(net.run.streams)


def test_copies_of_a_running_net_hold_neither_seeds_nor_rows():
    copies = Copies()
    quick(callbacks=[copies]).fit(X, Y)
    (number,) = copies.entropy
    assert number.bit_length() > 200
    net, run = copies.copies
    assert run.streams.entropy != copies.entropy and not hasattr(net, "run")
    assert number.to_bytes(32, "little") not in copies.bytes
    assert str(number).encode() not in copies.bytes
    assert net.predict_proba(X[:2]).shape == (2, 2)
    assert X[7].tobytes() not in copies.bytes


SINK = types.ModuleType("sink")


class Watching(nn.Module):
    """Keeps what it sees, where no look at the module finds it."""

    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.Linear(4, 2), None
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        if type(x) is torch.Tensor:
            SINK.seen = [*getattr(SINK, "seen", []), x.detach().clone()]
            if bool((x > 500).any()):
                self.last = x
                self.mean += x.mean(0)
        return self.layer(x)


def test_no_line_of_a_module_sees_a_training_row_and_no_prediction_stays():
    SINK.seen = []
    model = quick(module=Watching).fit(X + 1000, Y)
    assert SINK.seen and not any(bool((x > 500).any()) for x in SINK.seen)
    assert model.privacy_.proof == "per-record by vmap"
    model.predict(X + 1000)
    assert any(bool((x > 500).any()) for x in SINK.seen)
    assert model.net_.module_.last is None and not model.net_.module_.mean.any()
    assert not pickle.loads(pickle.dumps(model)).net_.weights["mean"].any()


def sometimes(module, x, y):
    return x.flip(0) if SINK.calls(len(x)) > 20 else x


def remembered(module, x, y):
    past, SINK.past = getattr(SINK, "past", x), x.detach().clone()
    return (x + past.mean()) / 2


def longer(module, x, y):
    return x - x.mean(0) if len(x) > 2 else x


@pytest.mark.parametrize("attack", [sometimes, remembered, longer])
def test_attacks_that_bring_records_together_do_not(attack):
    counted = []
    SINK.calls = lambda n: counted.append(n) or len(counted)
    SINK.__dict__.pop("past", None)
    kept = []

    class Keeps(Callback):
        def on_epoch_end(self, net, **kwargs):
            kept.append((net._loop.attack, net.engine_, net.engine_.generator))

    try:
        quick(attack=attack, callbacks=[Keeps()]).fit(X, Y)
    except ValueError:
        return  # it was seen to bring them together
    run, engine, engine.generator = kept[0]
    for n in (3, 9, 40):
        x = torch.rand(n, 4, generator=torch.Generator().manual_seed(n))
        y = torch.zeros(n, dtype=torch.int64)
        found = run(None, x, y)
        others = torch.cat([x[:1], 1 - x[1:]])
        assert torch.equal(run(None, others, y)[0], found[0])


def test_an_attack_that_decides_by_values_is_refused():
    def attack(module, x, y):
        return x / x.max() if x.max() > 1 else x

    with pytest.raises(ValueError, match=r"one record at a time: .*line \d+"):
        quick(attack=attack).fit(X, Y)


def test_reports_name_adjacency_stop_and_proof():
    report = quick().fit(X, Y).privacy_
    assert "zero_out adjacency" in report.statement
    assert "Training stopped after all 6 planned steps." in report.statement
    assert "Gradients are per-record by formulas." in report.statement
    assert {"stop", "proof", "adjacency"} <= set(report.facts())
    scaled = quick(module=Own).fit(X, Y).privacy_
    assert scaled.proof == "per-record by vmap"


class Own(nn.Module):
    """A layer with a scale of its own."""

    def __init__(self):
        super().__init__()
        self.layer, self.scale = nn.Linear(4, 2), nn.Parameter(torch.ones(2))

    def forward(self, x):
        return self.layer(x) * self.scale


@pytest.mark.parametrize("n", [8, 1024, 4096])
def test_many_equal_records_do_not_add_up_their_rounding(n):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module, x = nn.Linear(60, 2), 10 * torch.randn(1, 60).repeat(n, 1)
    codes = torch.zeros(n, dtype=torch.int64)
    mechanism = Mechanism(get_method("dpsgd", max_grad_norm=1.0), Task(n, 1, 1.0), 0.0)
    with select_strategy(module, x, 2) as strategy:
        sums = [
            private_step(
                strategy,
                Batch(x[i:], codes[i:], codes[i:]),
                mechanism,
                None,
                Streams.fresh().noise(),
            ).gradient
            for i in (0, 1)
        ]
    assert n * float((sums[0].double() - sums[1].double()).norm()) <= 1 + 1e-6


@pytest.mark.parametrize("width", [4096, 49152, 2**18])
def test_norms_of_wide_rows_do_not_add_up_their_rounding(width):
    module = nn.Linear(width, 2)
    nn.init.zeros_(module.weight)
    nn.init.zeros_(module.bias)
    for k in range(6, 18, 2):  # squares whose running sums are always rounded down
        x = torch.full((1, width), (1 + 2.0**-k - 2.0**-22) ** 0.5)
        assert weighed_of(module, x, 2).double().norm() <= C * (1 + 1e-6)


def weighed_of(module, x, n_classes):
    codes = torch.zeros(len(x), dtype=torch.int64)
    mechanism = Mechanism(get_method("dpsgd", max_grad_norm=C), Task(1, 1, 1.0), 0.0)
    with select_strategy(module, x, n_classes) as strategy:
        return private_step(
            strategy, Batch(x, codes, codes), mechanism, None, Streams.fresh().noise()
        ).gradient


@pytest.mark.parametrize("gate", [-40.0, -42.0, -44.0, -46.0])
def test_slopes_that_underflow_along_a_sequence_hide_nothing(gate):
    layer = nn.Linear(128, 64)
    a, b = torch.full((1, 20, 128), 1.2e18), torch.full((1, 20, 64), 1e-6 * float(np.exp(gate)))
    sampler = layers.sampler_of(layer)(layer, a, b)
    totals = {layer.weight: torch.zeros(64, 128), layer.bias: torch.zeros(64)}
    sampler.add(torch.ones(1), totals)
    true = sum(float(t.double().square().sum()) for t in totals.values()) ** 0.5
    assert float(sampler.norm2(Examples(1, 1))[0]) ** 0.5 >= true * (1 - 1e-5)


class StopsByValue(torch.optim.SGD):
    """An optimizer that ends the fit by what it sees released."""

    seen = 0

    def step(self, closure=None):
        StopsByValue.seen += 1
        if StopsByValue.seen == 9:
            raise KeyboardInterrupt
        return super().step(closure)


def test_an_optimizer_that_stops_costs_the_plan():
    StopsByValue.seen = 0
    model = stopped(optimizer=StopsByValue)
    assert model.n_steps_ < 40
    assert model.privacy_.epsilon == quick(max_steps=40).fit(X, Y).privacy_.epsilon


class Number(float):
    """A number that looks at what it is multiplied by."""

    def __rmul__(self, other):
        SINK.seen.append(other)
        return float(self) * other

    __mul__ = __rmul__


def test_numbers_of_an_attack_see_no_row():
    attack, SINK.seen = PGD(Number(0.1), Number(0.1), n_steps=2, input_range=None), []
    attack.check = lambda: SINK.seen.append("called")
    quick(attack=attack).fit(X, Y)
    before = len(SINK.seen)
    quick(attack=attack, max_steps=30).fit(X, Y)
    assert len(SINK.seen) == 2 * before  # as many looks, before the first step, as in a short fit


class Swaps(Callback):
    """Lets one layer's name lead to another's parameter."""

    def on_epoch_end(self, net, **kwargs):
        a, b = net.module_[0], net.module_[2]
        a._parameters["weight"], b._parameters["weight"] = b.weight, a.weight


def test_parameters_that_change_places_are_refused():
    def twice():
        return nn.Sequential(
            nn.Linear(4, 4, bias=False), nn.GELU(), nn.Linear(4, 4), nn.Linear(4, 2)
        )

    with pytest.raises(UnsupportedModuleError, match="replaced"):
        quick(module=twice, callbacks=[Swaps()], max_steps=20).fit(X, Y)


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


def moved(layer, name, value):
    setattr(layer, name, value)


CHANGES = {
    "attribute": lambda net: moved(net.module_, "temperature", 0.5),
    "layer's": lambda net: moved(net.module_.act, "negative_slope", 0.5),
    "contents": lambda net: net.module_.options.update(shift=1.0),
    "buffer": lambda net: net.module_.mean.add_(1.0),
    "class": lambda net: moved(type(net.module_), "scale", type(net.module_).scale + 1),
    "code": lambda net: moved(net.module_, "forward", net.module_.first),
    "layer": lambda net: moved(net.module_, "act", nn.ReLU()),
    "hook": lambda net: net.module_.act.register_forward_hook(lambda *seen: seen[-1] * 2),
    "module": lambda net: moved(net, "module_", copy.deepcopy(net.module_)),
    "optimizer": lambda net: moved(net, "optimizer_", torch.optim.Adam(net.module_.parameters())),
}
KEPT = {
    "weights": lambda net: net.module_.last.bias.clamp_(-0.1, 0.1),
    "data": lambda net: moved(net.module_.last.bias, "data", torch.zeros(2)),
    "rate": lambda net: net.set_params(lr=0.05),
    "mode": lambda net: net.module_.eval(),
    "predictions": lambda net: net.predict(X),
    "gradients": lambda net: net.module_.zero_grad(),
    "steps": lambda net: net.optimizer_.zero_grad(),
}
EVENTS = ["on_train_begin", "on_epoch_begin", "on_epoch_end", "on_batch_begin", "on_batch_end"]


def at(event, change, **params):
    """Fit with a callback that changes something at an event."""
    act = {event: lambda self, net, **kwargs: change(net)}
    params = {"module": Cooled, "callbacks": [type("Changes", (Callback,), act)()]} | params
    with torch.no_grad():
        return quick(max_steps=15, random_state=0, **params).fit(X, Y)


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning")
@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_a_module_that_training_would_not_follow_are_refused(change, event):
    with pytest.raises(UnsupportedModuleError, match=r"callbacks.*traced once"):
        at(event, CHANGES[change])


class Ends(Callback):
    def on_epoch_end(self, net, **kwargs):
        net.module_.temperature = 0.5
        raise KeyboardInterrupt


def test_a_callback_that_changes_the_module_cannot_end_the_fit():
    with pytest.raises(UnsupportedModuleError, match=r"callbacks.*traced once"):
        stopped(module=Cooled, callbacks=[Ends()])


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning")
@pytest.mark.parametrize("change", KEPT)
def test_changes_that_training_follows_are_taken(change):
    for event in EVENTS:
        at(event, KEPT[change])


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning")
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.Rprop])
def test_cleared_gradients_change_no_step(optimizer):
    def weights(change):
        fitted = [at(event, change, optimizer=optimizer).net_ for event in EVENTS[1:]]
        return np.concatenate([p.ravel() for net in fitted for p in weights_of(net).values()])

    # seeds mix in the code of callbacks
    def both(net, clear=[False]):  # noqa: B006
        if clear[0]:
            net.module_.zero_grad(), net.optimizer_.zero_grad()

    expected = weights(both)
    both.__defaults__[0][0] = True
    assert np.array_equal(weights(both), expected)


AGAIN = {
    "partial_fit": lambda net: net.partial_fit({"x": X, "group": np.zeros(300, np.int64)}, Y),
    "fit_loop": lambda net: net.fit_loop({"x": X, "group": np.zeros(300, np.int64)}, Y),
    "initialize": lambda net: net.initialize(),
}


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning")
@pytest.mark.parametrize("event", [*EVENTS, "on_train_end"])
@pytest.mark.parametrize("call", AGAIN)
def test_no_callback_trains_the_net_within_its_fit(call, event, monkeypatch):
    drawn, noise = [], Streams.noise
    monkeypatch.setattr(Streams, "noise", lambda *args: drawn.append(args) or noise(*args))
    with pytest.raises(ValueError, match="callbacks holds one that trains the net"):
        at(event, AGAIN[call])
    assert len(drawn) <= 1  # by the fit itself


def test_a_net_trains_within_the_fit_of_its_estimator_only(model):
    for call in (AGAIN["partial_fit"], AGAIN["fit_loop"], lambda net: net.fit(X, Y)):
        with pytest.raises(ValueError, match="inside the fit of its estimator only"):
            call(model.net_)


def test_fits_take_settings_of_torch_that_are_frozen(monkeypatch):
    monkeypatch.setattr(torch.backends, "__allow_nonbracketed_mutation_flag", True)  # afterwards
    torch.backends.disable_global_flags()
    assert quick(module=Rectified).fit(X, Y).privacy_.proof == "per-record by vmap"
    assert torch.backends.cudnn.enabled and torch.backends.flags_frozen()
