"""The public face on real and on awkward input."""

import io
import json
import math
import pickle
import random
import signal
import tracemalloc
import warnings
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from skorch.callbacks import (
    BatchScoring,
    Callback,
    Checkpoint,
    EarlyStopping,
    EpochScoring,
    Freezer,
    GradientNormClipping,
    InputShapeSetter,
    LRScheduler,
    PassthroughScoring,
    ProgressBar,
    TrainEndCheckpoint,
    Unfreezer,
)
from torch import nn

from skdpfair import MLP, DPFairClassifier, Factory, Groups, get_method
from skdpfair.analysis import GroupRecorder
from skdpfair.augmentations import PGD
from skdpfair.engine import contracts, record_hooks
from skdpfair.engine.mechanism import Clip, Method
from skdpfair.exceptions import (
    InsecureSeedWarning,
    LowSignalWarning,
    PrivacyAccountingError,
)
from skdpfair.methods import METHODS
from skdpfair.privacy import NoisyRelease, compute_epsilon
from skdpfair.privacy.statement import DEVICE_NOISE
from skdpfair.testing import verify_release
from skdpfair.training import train as _training
from skdpfair.training.loop import TrainingLoop

pytestmark = pytest.mark.filterwarnings(
    "ignore::skdpfair.exceptions.InsecureSeedWarning",
    "ignore::skdpfair.exceptions.LowSignalWarning",
)


def fast(method="dpsgd", **params):
    defaults = {"max_steps": 20, "batch_size": 100, "epsilon": 5.0, "random_state": 0}
    return DPFairClassifier(method).set_params(**defaults | params)


def weights(model):
    return np.concatenate([p.detach().numpy().ravel() for p in model.net_.module_.parameters()])


@pytest.fixture
def table(two_groups):
    return two_groups.frame.drop(columns="target"), two_groups.target.to_numpy()


def test_a_data_frame_with_its_group_column(table):
    X, y = table
    model = fast("dpsgd_f", group_col="group").fit(X, y)
    assert list(model.levels_) == ["a", "b"] and model.n_features_in_ == X.shape[1]
    assert list(model.feature_names_in_) == list(X.columns)
    with_column, without = model.predict_proba(X), model.predict_proba(X.drop(columns="group"))
    np.testing.assert_array_equal(with_column, without)
    assert model.net_.module_.in_features == X.shape[1] - 1


def test_sources_of_groups_agree(table):
    X, y = table
    features = X.drop(columns="group")
    by_column = fast("naive", group_col="group").fit(X, y)
    by_argument = fast("naive").fit(features, y, sensitive_features=X["group"])
    array = np.column_stack([features.to_numpy(), (X["group"] == "b").to_numpy()])
    by_index = fast("naive", group_col=features.shape[1]).fit(array, y)
    for model in (by_column, by_argument, by_index):
        assert len(model.levels_) == 2 and model.n_steps_ == 20
    assert by_index.predict(array).shape == by_index.predict(array[:, :-1]).shape == y.shape


def test_intersections_and_target_as_groups(table):
    X, y = table
    X = X.assign(region=np.where(np.arange(len(y)) % 3 == 0, "north", "south"))
    both = fast("dpsgd_f", group_col=["group", "region"]).fit(X, y)
    assert ("a", "north") in list(both.levels_) and len(both.levels_) == 4
    X = X.drop(columns="region")
    crossed = fast("dpsgd_f", group_col=["group", "target"]).fit(X, y)
    assert len(crossed.levels_) == 2 * len(np.unique(y))
    labels = fast("naive", group_col="target").fit(X.drop(columns="group"), y)
    np.testing.assert_array_equal(labels.levels_.astype(y.dtype), labels.classes_)


def test_declared_groups_and_classes_are_no_assumption(table):
    X, y = table
    declared = fast(group_col=Groups("group", ["a", "b", "c"]), classes=[0, 1, 2]).fit(X, y)
    assert list(declared.levels_) == ["a", "b", "c"] and len(declared.classes_) == 3
    assert not any("declare" in line for line in declared.privacy_.assumptions)
    assert any("declare" in line for line in fast().fit(X[["x0"]], y).privacy_.assumptions)


class Wide(nn.Module):
    def __init__(self, n_features, width=8):
        super().__init__()
        self.inner, self.drop = nn.Linear(n_features, width), nn.Dropout(0.2)
        self.out = nn.Linear(width, 2)

    def forward(self, x):
        return self.out(self.drop(torch.relu(self.inner(x))))


@pytest.mark.parametrize(
    "params",
    [
        {"module": "logistic"},
        {"module": MLP((5, 4), "relu")},
        {"module": Factory(Wide, n_features=6)},
        {"module": lambda: nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.Linear(4, 2))},
        {"optimizer": "adam"},
        {"optimizer": torch.optim.Adam, "lr": 0.01, "optimizer__betas": (0.8, 0.9)},
        {"noise_sampler": "gaussian_sum"},
        {"max_physical_batch_size": 7},
        {"class_weight": {0: 1.0, 1: 3.0}},
        {"accountant": "rdp"},
        {"accountant": "prv"},
        {"iterate_average": 1.0},
        {"max_steps": None, "max_epochs": 2},
    ],
    ids=lambda params: "-".join(params),
)
def test_options(params, table):
    X, y = table
    X = X.drop(columns="group")
    model, again = fast(**params).fit(X, y), fast(**params).fit(X, y)
    np.testing.assert_array_equal(weights(model), weights(again))
    assert np.isfinite(weights(model)).all() and 0 < model.privacy_.epsilon <= 5.0


def test_images_take_the_convolutional_net():
    rng = np.random.default_rng(0)
    X, y = rng.random((60, 1, 8, 8), dtype=np.float32), rng.integers(0, 3, 60)
    model = fast(module="cnn", epsilon=None, noise_multiplier=1.0).fit(X, y)
    assert model.predict_proba(X).shape == (60, 3)
    assert model.net_.engine_.name == "bookkeeping"


def test_equal_seeds_agree_bit_for_bit_and_no_seed_never_repeats(table):
    X, y = table
    X = X.drop(columns="group")
    first, second = (weights(fast().fit(X, y)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    other = [fast(random_state=1), fast(random_state=2**32), fast(epsilon=4.0)]
    other += [fast(random_state=None), fast(random_state=None)]
    runs = [first, *(weights(m.fit(X, y)) for m in other)]
    assert all((a != b).any() for i, a in enumerate(runs) for b in runs[:i])


@pytest.mark.parametrize("random_state", [0, None])
@pytest.mark.parametrize("module", ["mlp", Factory(Wide, n_features=6)], ids=["mlp", "Wide"])
def test_global_generators_are_left_alone(random_state, module, table):
    X, y = table
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    model = fast(module=module, random_state=random_state)
    pickle.loads(pickle.dumps(model.fit(X.drop(columns="group"), y)))
    assert torch.equal(before[0], torch.get_rng_state())
    np.testing.assert_array_equal(before[1], np.random.get_state()[1])
    assert before[2] == random.getstate()


def test_fit_does_not_change_its_input_or_thread_count(table):
    X, y = table
    copy, threads = X.copy(), torch.get_num_threads()
    fast(group_col="group").fit(X, y)
    pd.testing.assert_frame_equal(X, copy)
    assert torch.get_num_threads() == threads


def test_a_reference_has_no_privacy_and_stays_out_of_copies(table):
    X, y = table
    X = X.drop(columns="group")
    reference = fast(epsilon=None).fit(X, y)
    assert reference.method_.name == "sgd" and math.isinf(reference.privacy_.epsilon)
    assert not reference.privacy_.is_private and reference.privacy_.releases == ()
    model = fast(keep_reference=True).fit(X, y)
    assert model.reference_.method_.name == "sgd"
    assert model.reference_.n_steps_ == model.n_steps_  # a number that was given
    again = pickle.loads(pickle.dumps(model))
    assert not hasattr(again, "reference_") and again.privacy_.releasable
    assert (
        not model.privacy_.releasable
        and "the non-private reference model" in model.privacy_.statement
    )
    for copy in (again, model.release()):
        assert any("reference model" in line for line in copy.privacy_.not_accounted)


def test_the_reference_trains_as_it_would_by_itself_but_has_the_same_network(two_groups):
    """A budget decides how long it pays to train, and whether a hidden layer does."""
    data = [np.repeat(part.to_numpy(), 3, axis=0) for part in (two_groups.data, two_groups.target)]
    model = DPFairClassifier(epsilon=0.5, random_state=0, keep_reference=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(*data)
    alone = DPFairClassifier(module="logistic", epsilon=None, random_state=0).fit(*data)
    assert isinstance(model.reference_.net_.module_, type(model.net_.module_))
    assert len(weights(model)) == len(weights(alone))
    assert model.reference_.n_steps_ == alone.n_steps_ > model.n_steps_
    np.testing.assert_array_equal(weights(model.reference_), weights(alone))


@pytest.mark.parametrize("state", [None, 0, np.random.RandomState(0)])
def test_the_reference_starts_from_the_same_weights_and_shares_nothing_else(
    table, monkeypatch, state
):
    X, y = table
    made, train = [], _training.train

    def recorded(run, *args):
        made.append(run.streams)
        return train(run, *args)

    monkeypatch.setattr("skdpfair.estimators.base.train", recorded)
    still = {"lr": 1e-12, "max_steps": 1, "module": MLP((8,)), "random_state": state}
    models = [fast(keep_reference=True, **still) for _ in range(2)]
    for model in models:
        model.fit(X.drop(columns="group"), y)
        np.testing.assert_allclose(weights(model), weights(model.reference_), atol=1e-8)
        assert "_start" not in vars(model.reference_)
    one, reference, other, _ = made
    assert one.init_entropy == reference.init_entropy
    if state is None:
        assert len({streams.entropy for streams in made}) == 4
        assert one.init_entropy not in (one.entropy, other.init_entropy)
        assert made[2].init_entropy == made[3].init_entropy


def test_noise_instead_of_a_budget(table):
    X, y = table
    X = X.drop(columns="group")
    model = fast(epsilon=None, noise_multiplier=1.3, method=get_method("dpsgd", max_grad_norm=1.0))
    report = model.fit(X, y).privacy_
    assert report.noise_multiplier == 1.3 and report.is_private
    run = NoisyRelease("steps", 1 / 6, (1.3,), 20)
    assert report.epsilon == pytest.approx(compute_epsilon([run], report.delta), abs=1e-9)
    clipped = fast(epsilon=None, noise_multiplier=0).fit(X, y)
    assert clipped.method_.name == "dpsgd" and math.isinf(clipped.privacy_.epsilon)


UNIFORM = sorted(n for n, m in METHODS.items() if m.private and not m.needs_group_fractions)


@pytest.mark.parametrize("name", UNIFORM)
def test_the_ledger_counts_the_steps_that_were_taken(name, table):
    X, y = table
    group_col = "group"
    model = fast(name, group_col=group_col, max_steps=23, epsilon=2.0).fit(X, y)
    report = model.privacy_
    assert report.steps == model.n_steps_ == 23
    joint = report.releases[0].joint_noise_multiplier
    spent = compute_epsilon([NoisyRelease("steps", report.sample_rate, (joint,), 23)], report.delta)
    assert report.epsilon == pytest.approx(spent) and report.epsilon <= 2.0
    assert report.expected_batch_size == pytest.approx(report.sample_rate * len(y))


class Stop(Callback):
    def on_epoch_end(self, net, **kwargs):
        if len(net.history) == 2:
            raise KeyboardInterrupt


def test_a_callback_ends_a_fit_without_a_warning_and_costs_the_plan(table):
    X, y = table
    model = fast(callbacks=[Stop()], keep_reference=True).fit(X.drop(columns="group"), y)
    assert model.reference_.n_steps_ < model.reference_.net_.plan.n_steps  # stopped, too
    # whoever stops a fit may have seen released values: the plan is what the guarantee is of
    assert model.n_steps_ == 12 and model.privacy_.steps == 20
    assert model.privacy_.epsilon == fast().fit(X.drop(columns="group"), y).privacy_.epsilon
    assert "after 12 of 20 steps, as a callback ended the fit" in model.privacy_.statement
    assert "all planned steps" in model.privacy_.statement


def test_early_stopping_ends_fits_in_a_search_one_by_one(table):
    X, y = table
    X = X.drop(columns="group").to_numpy()
    stop = EarlyStopping(patience=1, threshold=10.0)  # nothing improves by so much
    model = fast(callbacks=[stop], validation_data=(X[:50], y[:50]))
    handler = signal.getsignal(signal.SIGINT)
    search = GridSearchCV(model, {"lr": [0.1, 0.2]}, cv=2, error_score="raise").fit(X, y)
    assert search.best_estimator_.n_steps_ < 20
    assert signal.getsignal(signal.SIGINT) is handler


def test_an_empty_batch_is_a_step(table):
    X, y = table
    model = fast(batch_size=1, max_steps=60, epsilon=50.0).fit(X.drop(columns="group"), y)
    assert model.privacy_.steps == 60 and model.privacy_.sample_rate == 1 / len(y)


def test_callbacks_and_public_validation(table):
    X, y = table
    X = X.drop(columns="group").to_numpy()
    model = fast(validation_data=(X[:50], y[:50])).fit(X, y)
    rows = model.net_.history[:, ("valid_acc", "valid_loss")]
    assert len(rows) == model.n_iter_ and all(0 <= acc <= 1 for acc, _ in rows)
    assert "train_loss" not in model.net_.history[-1]


@pytest.mark.parametrize(("averaged", "scale"), [(0.5, 0.5), (1.0, 1.0), (0.0, 0.7)])
@pytest.mark.parametrize("caching", [True, False])
def test_history_scores_the_model_that_is_handed_over(table, averaged, scale, caching, monkeypatch):
    X, y = table
    X = X.drop(columns="group").to_numpy()
    public = X[:200], y[:200]
    own = EpochScoring("neg_log_loss", name="own", use_caching=caching, lower_is_better=False)
    params = {"iterate_average": averaged, "logit_scale": scale, "lr": 5.0}
    model = fast(validation_data=public, callbacks=[own], **params).fit(X, y)
    last = model.net_.history[-1]
    expected = log_loss(y[:200], model.predict_proba(X[:200]))
    assert last["valid_loss"] == pytest.approx(expected, rel=1e-5)
    assert -last["own"] == pytest.approx(expected, rel=1e-5)
    assert last["valid_acc"] == pytest.approx(model.score(*public))
    # scoring moves no weight
    monkeypatch.setattr(TrainingLoop, "averaged", lambda self: nullcontext())
    again = fast(validation_data=public, callbacks=[clone(own)], **params).fit(X, y)
    assert np.array_equal(model.predict_proba(X), again.predict_proba(X))


def test_method_parameters_through_the_estimator(table):
    X, y = table
    model = fast("global_adapt").set_params(method__lr_z=0.05)
    assert model.method.lr_z == 0.05 and clone(model).method.lr_z == 0.05
    model.fit(X.drop(columns="group"), y)
    assert model.method_.lr_z == 0.05 and model.method.strict_max_grad_norm == "auto"
    grid = {"method__max_grad_norm": [0.1, 1.0], "epsilon": [1.0, None]}
    search = GridSearchCV(fast(), grid, cv=2, error_score="raise")
    search.fit(X.drop(columns="group"), y)
    assert len(search.cv_results_["params"]) == 4


SENTINEL = np.float32(0.7390851332)


def test_a_pickle_keeps_weights_and_public_facts_only(table):
    X, y = table
    X = X.drop(columns="group")
    X.iloc[:, :] = X.to_numpy(dtype=np.float32)
    X.iloc[5] = SENTINEL
    model = fast("global_adapt", callbacks=[Stop()], keep_reference=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    content = pickle.dumps(model)
    for dtype in (np.float16, np.float32, np.float64):
        assert np.full(2, SENTINEL).astype(dtype).tobytes() not in content
    for word in (b"torch.optim", b"skorch", b"history", b"Stop", b"Batches", b"Dataset"):
        assert word not in content
    again = pickle.loads(content)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X), atol=1e-12)
    assert again.random_state is None and again.privacy_.seeded
    assert again.privacy_.epsilon == model.privacy_.epsilon
    assert not hasattr(again.net_, "optimizer_") and not hasattr(again.net_, "history")
    torch.save(model, file := io.BytesIO())
    assert np.full(2, SENTINEL).tobytes() not in file.getvalue()


def test_nothing_private_is_left_on_the_live_net(table):
    X, y = table
    net = fast().fit(X.drop(columns="group"), y).net_
    assert all(p.grad is None for p in net.module_.parameters())
    assert net.run is None
    assert all(p.grad is None for group in net.optimizer_.param_groups for p in group["params"])
    assert net._loop is None  # which held the longest gradient, the noise and the batches
    held = [v for v in vars(net.engine_).values() if torch.is_tensor(v) and v.numel() > 4]
    assert not held and not getattr(net.engine_, "_calls", []) and not net.module_.training
    assert all(not m._forward_hooks for m in net.module_.modules())


def test_privacy_reads_well(table):
    X, y = table
    report = fast().fit(X.drop(columns="group"), y).privacy_
    assert "differentially private" in repr(report) and "not accounted" in report.details()
    assert "<b>The noise in the fitted weights limits" in report._repr_html_()
    assert json.loads(json.dumps(report.facts()))["steps"] == 20


def test_a_report_says_whose_generator_drew_noise_on_a_gpu(table, monkeypatch, tmp_path):
    X, y = table[0].drop(columns="group"), table[1]

    def reported(model):
        return DEVICE_NOISE in model.fit(X, y).privacy_.details()

    model = fast(warm_start=True)
    monkeypatch.setattr("skdpfair.training.privacy_report.is_cryptographic", lambda device: False)
    assert reported(model) and not reported(fast(epsilon=None))  # which is not private
    model.save_release(tmp_path / "model.safetensors")
    verify_release(tmp_path / "model.safetensors")
    monkeypatch.undo()
    assert reported(model) and not reported(fast())  # a continued fit keeps it


def test_a_notebook_shows_what_was_spent(table):
    X, y = table
    fitted = fast().fit(X.drop(columns="group"), y)
    for shown in (fitted._repr_html_(), fitted._repr_mimebundle_()["text/html"]):
        assert fitted.privacy_._repr_html_() in shown and "DPFairClassifier" in shown
    assert "differentially private" not in fast()._repr_html_()


class Grumpy(str):
    def __eq__(self, other):
        raise RuntimeError("compared")

    __hash__ = str.__hash__


def hooked():
    module = nn.Linear(6, 2)
    module.weight.register_hook(lambda gradient: 0 * gradient)
    return module


def masked(values):
    return np.ma.array(values, mask=np.arange(len(values)) == 3)


def with_cell(x, column, value):
    x = x.rename(columns="col {}".format)
    x.iloc[3, column] = value
    return x


def thin(x, columns):
    return x.astype(dict.fromkeys(columns, pd.SparseDtype(float)))


PER_STEP = LRScheduler("StepLR", step_size=1, gamma=0.5, step_every="batch")
AB = {"group_col": Groups("group", ["a", "b"])}
SCORES = r"callbacks holds .*private records are not .* valid"
FREEZES = r"holds \w*reezer.*where the module is made"
# parameters of a model, the arguments of fit from the features, labels and groups (or those of a
# table with its group column), and what is said
REFUSED = [
    ({"delta": 0.01}, None, "1/n_samples"),
    ({"noise_multiplier": 1.0}, None, "set epsilon=None"),
    ({"epsilon": 1e-9}, None, "sample_rate"),
    ({"method": get_method("dpsgd_f", count_noise_multiplier=0.5)}, None, r"multiplier=0\.5"),
    ({"method": "dpsdg"}, None, "Did you mean 'dpsgd'"),
    ({"method": "sgd"}, None, "not private"),
    ({"method": "dpsgd_f", "group_col": None}, None, "needs groups"),
    ({"group_col": "sex"}, None, "passthrough"),
    ({"group_col": 99}, None, "out of range"),
    ({"group_col": ["group", "group"]}, None, "twice"),
    ({"group_col": Groups("group", as_feature=True)}, None, "group"),
    ({"module": nn.Linear(6, 2)}, None, "class or a factory"),
    ({"module": lambda: nn.Linear(6, 3)}, None, r"\(batch, 2\)"),
    ({"module": lambda: nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 2))}, None, "GroupNorm"),
    ({"module": lambda: nn.Linear(99, 2)}, None, r"a batch of shape \(4, 6\)"),
    ({"module": lambda: nn.LazyLinear(2)}, None, "lazy layers"),
    ({"module": hooked}, None, "hook"),
    ({"optimizer": "sdg"}, None, "Did you mean 'sgd'"),
    ({"optimizer": torch.optim.LBFGS}, None, "LBFGS"),
    ({"class_weight": "balanced"}, None, "fixed public numbers"),
    ({"device": "meta"}, None, "device 'meta' is not a torch device that can be used here"),
    ({"random_state": -1}, None, r"random_state must be an int in the range \[0, 2\*\*128\]"),
    ({"random_state": "a"}, None, r"'numpy\.random\.Generator'"),
    ({"batch_size": 0}, None, r"batch_size must be an int in the range \[1, 2\*\*63\]"),
    ({"callbacks": [PER_STEP]}, None, 'lr="auto"'),
    *(
        ({"callbacks": [callback], "group_col": None}, lambda x, y, g: (x, y), SCORES)
        for callback in (
            EarlyStopping(),
            EarlyStopping(monitor="train_loss"),
            Checkpoint(),
            EarlyStopping,
            ("plateau", LRScheduler(policy="ReduceLROnPlateau")),
            EpochScoring("accuracy", on_train=True),
            EpochScoring("accuracy", on_train=True, use_caching=False),
            ("own", BatchScoring("accuracy", on_train=True)),
            PassthroughScoring("train_loss", on_train=True),
            ProgressBar(),
            ProgressBar,
            InputShapeSetter(),
            GradientNormClipping(1.0),
        )
    ),
    ({"callbacks": [Freezer("*")]}, None, FREEZES),
    ({"callbacks": [("own", Unfreezer("*"))]}, None, FREEZES),
    ({}, lambda x, y, g: (x.assign(job="zq"), y), r"job.*OneHotEncoder"),
    ({}, lambda x, y, g: (with_cell(x, 1, np.nan), y), "NaN.*col x1.*public_preprocessor"),
    ({}, lambda x, y, g: (with_cell(x, 2, np.inf).to_numpy(), y), "infinite values in column 2"),
    (
        {},
        lambda x, y, g: (torch.from_numpy(with_cell(x, 1, np.nan).to_numpy()), y),
        "in column 1",
    ),
    ({}, lambda x, y, g: (thin(x, x.columns), y), r"Sparse data.*x0.*are sparse.*to_dense"),
    ({}, lambda x, y, g: (thin(x, ["x0"]), y), r"Sparse data.*x0.*are sparse.*to_dense"),
    ({}, lambda x, y, g: (sparse.csr_array(with_cell(x, 2, np.inf)), y), "in column 2"),
    ({}, lambda x, y, g: (sparse.csr_array(x).astype(complex), y), "real numbers"),
    ({"group_col": 0}, lambda x, y, g: (sparse.csr_array(x), y), r"but X is sparse\. Give the"),
    ({"group_col": "target"}, lambda x, y, g: (x.assign(target=0), y), "target"),
    ({"group_col": "group"}, lambda x, y, g: (x.to_numpy(), y), "set_output"),
    ({"group_col": "group"}, lambda x, y, g: (x.assign(group=g), y, g), "not by both"),
    (AB, lambda x, y, g: (x.assign(group=g.replace("a", "zq")), y), "outside levels=, which"),
    (AB, lambda x, y, g: (x.assign(group=g.replace("a", None)), y), "add None to levels"),
    ({}, lambda x, y, g: (x, y, "group"), r"single str.*set group_col="),
    ({"classes": [5, 6]}, lambda x, y, g: (x, y), "outside classes"),
    ({}, lambda x, y, g: (x, masked(y)), "^y has masked values"),
    ({}, lambda x, y, g: (x, y, masked(g == "a")), "^sensitive_features has masked values"),
    ({}, lambda x, y, g: (x, Grumpy("no")), "y should be a 1d array"),
]


@pytest.mark.parametrize("params, data, match", REFUSED)
def test_what_cannot_be_fitted_is_refused_and_nothing_is_half_written(params, data, match, table):
    X, y = table
    model = fast(**({"group_col": "group"} if data is None else {}) | params)
    given = (X, y) if data is None else data(X.drop(columns="group"), y, X["group"])
    with pytest.raises((ValueError, TypeError), match=match) as caught:
        model.fit(*given[:2], sensitive_features=given[2] if len(given) > 2 else None)
    assert "zq" not in str(caught.value)  # a cell of the data
    assert not [name for name in vars(model) if name.endswith("_")]


def test_a_failed_refit_keeps_the_old_fit(table):
    X, y = table
    model = fast(group_col="group").fit(X, y)
    before, state = model.predict(X), sorted(vars(model))
    with pytest.raises(ValueError, match="one class"):
        model.fit(X[["group", "x0"]], np.zeros(len(y)))
    assert sorted(vars(model)) == state
    np.testing.assert_array_equal(model.predict(X), before)


def test_warnings(table):
    X, y = table
    features = X.drop(columns="group")
    with pytest.warns(InsecureSeedWarning, match="random_state=0"):
        fast().fit(features, y)
    with pytest.warns(LowSignalWarning, match="few for this privacy budget"):
        DPFairClassifier(epsilon=0.5).fit(features[:100], y[:100])


@pytest.mark.parametrize(
    ("module", "widths"), [(MLP((7,)), [7]), ("mlp", [256, 256]), ("auto", [])]
)
def test_the_reference_has_the_hidden_layers_of_the_model(module, widths, table):
    X, y = table
    model = fast(module=module, keep_reference=True, max_steps=1).fit(X.drop(columns="group"), y)
    for fitted in (model, model.reference_):
        made = [m.out_features for m in fitted.net_.module_.modules() if isinstance(m, nn.Linear)]
        assert made == [*widths, 2]


class Clamp(Callback):
    """Replace the weights' data, as constraints are often written."""

    def on_batch_end(self, net, **kwargs):
        for p in net.module_.parameters():
            p.data = p.data.clamp(-0.01, 0.01)


def test_weights_that_a_callback_replaced_are_trained_on(table):
    X, y = table
    model = fast("sgd", epsilon=None, callbacks=[Clamp()], iterate_average=0.0)
    model.fit(X.drop(columns="group"), y)
    assert 0.0 < np.abs(weights(model)).max() <= 0.01 + 1e-6


def test_an_interrupted_epoch_does_not_hide_a_broken_bound(table, monkeypatch):
    # as if the fault were one of this package's methods: others keep to the bound
    for module in (contracts, record_hooks):
        monkeypatch.setattr(module, "is_shipped", lambda method: True)

    @dataclass(kw_only=True, repr=False, eq=False)
    class Broken(Method, name="broken for a test", reference="none"):
        """Weigh beyond the bound."""

        max_grad_norm: float = 1.0

        def clip(self, sample, state, release):
            return Clip(-1e3 / sample.norm, sample.norm.new_tensor(1.0))

    class Stop(Callback):
        def on_batch_end(self, net, **kwargs):
            if net.n_steps_taken == 3:
                raise KeyboardInterrupt

    X, y = table
    try:
        with pytest.raises(PrivacyAccountingError):
            fast(Broken(), callbacks=[Stop()]).fit(X.drop(columns="group"), y)
    finally:
        del METHODS["broken for a test"]


def test_schedulers_change_a_learning_rate_of_yours(table):
    X, y = table
    scheduler = LRScheduler("StepLR", step_size=1, gamma=0.5, step_every="batch")
    model = fast(callbacks=[("schedule", scheduler)], lr=0.1).fit(X.drop(columns="group"), y)
    assert model.net_.optimizer_.param_groups[0]["lr"] < 1e-5


def test_the_reference_says_where_it_is(table):
    X, y = table
    model = fast().fit(X.drop(columns="group"), y)
    with pytest.raises(AttributeError, match="keep_reference=True"):
        _ = model.reference_
    assert not hasattr(model, "reference_") and not hasattr(model, "nothing_of_this_name")


def test_arrays_on_disk_and_tensors_train_like_arrays_in_memory(table, tmp_path):
    X, y = table
    x = np.ascontiguousarray(X.drop(columns="group"), dtype=np.float32)
    x[:, 0] = np.sign(x[:, 0])
    x.tofile(tmp_path / "x.bin")
    on_disk = np.memmap(tmp_path / "x.bin", np.float32, "r", shape=x.shape)
    memory = fast().fit(x, y)
    for other in (on_disk, torch.from_numpy(x)):
        model = fast().fit(other, y)
        np.testing.assert_array_equal(weights(model), weights(memory))
        np.testing.assert_array_equal(model.predict_proba(other), memory.predict_proba(x))
    with pytest.raises(ValueError, match="sensitive_features"):
        fast(group_col=0).fit(on_disk, y)


def test_arrays_on_disk_are_never_loaded_whole(tmp_path):
    n, d = 30_000, 250
    rng = np.random.default_rng(0)
    written = np.memmap(tmp_path / "x.bin", np.float64, "w+", shape=(n, d))
    for start in range(0, n, 1000):
        written[start : start + 1000] = rng.standard_normal((1000, d))
    y = (written[:, 0] > 0).astype(int)
    written.flush()
    on_disk = np.memmap(tmp_path / "x.bin", np.float64, "r", shape=(n, d))
    model = fast(max_steps=4, random_state=None, epsilon=None, noise_multiplier=0.0)
    model.fit(on_disk[:1000], y[:1000])  # warm caches
    tracemalloc.start()
    model.fit(on_disk, y)
    model.predict(on_disk)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < on_disk.nbytes / 4


def same_weights(*layers):
    """Return a factory of a network whose initial weights do not depend on the fit."""

    def make():
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return nn.Sequential(*(layer() for layer in layers))

    return make


def first():
    return nn.Linear(6, 4)


def last():
    return nn.Linear(4, 2)


@pytest.mark.parametrize(
    ("params", "container"),
    [
        ({"module": "logistic", "max_physical_batch_size": 7}, sparse.csr_matrix),
        (
            {
                "module": same_weights(first, nn.Tanh, last),
                "attack": PGD(0.1, input_range=None),
            },
            sparse.csc_array,
        ),
        ({"module": same_weights(first, lambda: nn.LayerNorm(4), last)}, sparse.coo_matrix),
        (
            {
                "method": "fairlens_dp",
                "module": same_weights(first, nn.Tanh, last),
                "callbacks": [GroupRecorder(terms=False)],
            },
            sparse.csr_array,
        ),
    ],
    ids=["chunks", "mlp", "own", "fairlens_dp"],
)
def test_sparse_rows_train_like_dense_ones(params, container, table):
    """All records take part in all steps, without noise."""
    X, y = table
    dense = X.drop(columns="group").to_numpy(np.float32, copy=True)
    dense[np.abs(dense) < 0.5] = 0.0
    given, groups = container(dense.astype(np.float64)), X["group"]
    models = []
    noiseless = {"epsilon": None, "noise_multiplier": 0.0, "batch_size": len(y)}
    for rows in (dense, given):
        model = fast(**params | noiseless, warm_start=True).set_params(max_steps=5)
        for _ in range(2):
            model.fit(rows, y, sensitive_features=groups)
        models.append(model)
    np.testing.assert_allclose(weights(models[0]), weights(models[1]), rtol=1e-4, atol=1e-6)
    assert models[0].n_features_in_ == models[1].n_features_in_ == 6
    both = [models[0].predict_proba(rows) for rows in (dense, given)]
    np.testing.assert_allclose(*both, atol=1e-6)
    np.testing.assert_array_equal(given.toarray(), dense)


def test_sparse_rows_have_as_many_features_as_in_fit(table):
    X, y = table
    rows = sparse.csr_array(X.drop(columns="group").to_numpy())
    by_label = fast("naive", group_col="target", validation_data=(rows[:50], y[:50])).fit(rows, y)
    with pytest.raises(ValueError, match="X has 5 features, but"):
        by_label.predict(rows[:, :5])


def test_sparse_rows_are_never_dense_at_once():
    n = d = 20_000
    rng = np.random.default_rng(0)
    places = rng.integers(0, d, size=(n, 5))
    X = sparse.csr_array((np.ones(5 * n), places.ravel(), np.arange(0, 5 * n + 1, 5)), (n, d))
    y = (places.min(axis=1) < d // 8).astype(int)
    model = fast(module="logistic", max_steps=3, random_state=None)
    model.set_params(epsilon=None, noise_multiplier=1.0, accountant="rdp")
    tracemalloc.start()
    model.fit(X, y)
    model.predict(X[:300])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * n * d / 16


def test_scores_name_what_is_wrong(table):
    X, y = table
    X = X.drop(columns="group")
    model = fast().fit(X, y)
    assert model.score(X, y) == np.mean(model.predict(X) == y)
    for wrong in (y[:-1], y[:, None] + np.zeros(2), np.full(len(y), np.nan)):
        with pytest.raises(ValueError, match=r"^(Input )?y |samples: \[\d"):
            model.score(X, wrong)


def test_a_warm_start_knows_its_columns(table):
    X, y = table
    X = X.drop(columns="group")
    model = fast(warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match="names of the features changed"):
        model.fit(X[X.columns[::-1]], y)


def test_checkpoints_need_no_batches(table, tmp_path):
    X, y = table
    saving = [Checkpoint(monitor=None, dirname=tmp_path), TrainEndCheckpoint(dirname=tmp_path)]
    assert fast(callbacks=saving).fit(X.drop(columns="group"), y).n_steps_ > 0
    assert {"params.pt", "train_end_params.pt"} <= {path.name for path in tmp_path.iterdir()}


def test_callbacks_that_score_public_or_disclosed_rows_are_not_refused(table):
    X, y = table
    X = X.drop(columns="group")
    watching = fast(callbacks=[EarlyStopping()], validation_data=(X[:50], y[:50]))
    assert watching.fit(X, y).n_steps_ > 0


def test_rows_that_a_fit_exposes_can_be_scored(table):
    X, y = table
    X, own = X.drop(columns="group"), EpochScoring("accuracy", on_train=True, use_caching=False)
    recorder = GroupRecorder(terms=False)
    for params in ({"epsilon": None}, {"callbacks": [own, recorder]}):
        history = fast(lr=0.1, **{"callbacks": [own]} | params).fit(X, y).net_.history
        assert all(0 <= score <= 1 for score in history[:, "accuracy"])
    with pytest.raises(ValueError, match="EpochScoring, which scores training rows"):
        fast(callbacks=[EpochScoring("accuracy", on_train=True), recorder]).fit(X, y)


@pytest.mark.parametrize("batch_size", [250, 500, 1000])
def test_callbacks_see_epochs_that_train_only(table, batch_size):
    X, y = table
    heard = []

    class Hears(Callback):
        def hear(self, net, training=True, **kwargs):
            if training:
                heard.append(net.optimizer_.param_groups[0]["lr"])

        on_epoch_begin = on_epoch_end = on_batch_begin = on_batch_end = hear

    steps = LRScheduler("StepLR", step_size=1, gamma=0.5)
    params = {"callbacks": [Hears(), steps], "validation_data": (X[:50], y[:50]), "lr": 1.0}
    model = fast(group_col="group", batch_size=batch_size, max_steps=20, **params).fit(X, y)
    per_epoch = -(-len(X) // batch_size)
    hidden = model.net_.plan.warm_up // per_epoch
    assert hidden > 0
    epochs = model.n_iter_ - hidden
    assert model.n_iter_ == -(-20 // per_epoch) and len(model.net_.history) == epochs
    assert len(heard) == 2 * (epochs + 20 - model.net_.plan.warm_up)
    assert heard[0] == 1.0 and heard[-1] == 0.5 ** (epochs - 1)
    assert model.net_.history[:, "epoch"] == list(range(1, epochs + 1))
    assert all(0 <= score <= 1 for score in model.net_.history[:, "valid_acc"])


def test_scores_of_public_records_and_callbacks_that_hear_batches_go_together(table):
    X, y = table
    X = X.drop(columns="group")
    heard = []

    class Hears(Callback):
        def on_batch_end(self, net, training, **kwargs):
            heard.append(training)

    fast(callbacks=[Hears()], validation_data=(X[:50], y[:50])).fit(X, y)
    assert True in heard


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
def test_what_torch_would_never_change_stays_as_it_was(params):
    words = np.random.default_rng(0).integers(0, 10, size=(200, 6))
    given = {"method": "dpsgd", "lr": 0.1, "max_steps": 8, "batch_size": 50, "accountant": "rdp"}
    model = DPFairClassifier(**given | {"module": Padded, "epsilon": 8.0} | params)
    module = model.fit(words, words.sum(1) > 27).net_.module_
    assert not module.table.weight[0].any() and (module.spare == 1).all()
