"""Every parameter acts as given: in the plan, in the first step, in the fitted model."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from skorch.callbacks import Callback, LRScheduler

from skdpfair import MLP, DPFairClassifier, DPFairRegressor, Factory, Persons, get_method
from skdpfair.augmentations import Views
from skdpfair.methods import METHODS
from skdpfair.methods.dpsgd import DPSGD
from skdpfair.model_selection import DPRandomizedSearch, forecast, sweep
from skdpfair.privacy import compute_epsilon
from skdpfair.testing import example_records
from skdpfair.training import defaults
from skdpfair.training.loop import TrainingLoop
from skdpfair.training.plan import plan
from skdpfair.training.spec import FitSpec
from tests.entrances import ENTRANCES, SWEEP

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning"),
    pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning"),
]

N = 240
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, 3)).astype(np.float32)
X[:, 2] = np.arange(N) % 2  # a group, or one of two persons
Y = (X[:, 0] + RNG.normal(size=N) > 0).astype(int)
QUICK = {"method": "dpsgd", "epsilon": 3.0, "module": "logistic", "accountant": "rdp"}


@pytest.fixture
def first(monkeypatch):
    """The parts of the first step of the next fits."""
    seen, plain = {}, TrainingLoop.release

    def release(loop, index):
        if not seen:
            names = "state", "plan", "chunk", "n_views", "attack", "engine", "noise"
            seen.update({name: getattr(loop, name) for name in names})
            seen["mechanism"] = loop.scaled_mechanism
            seen.update(loop.optimizer.param_groups[0], theta=loop.flat.detach().clone())
            seen["batch"], seen["device"] = loop.batches.select(index), str(loop.flat.device)
        return plain(loop, index)

    monkeypatch.setattr(TrainingLoop, "release", release)
    return seen


class Counts(Callback):
    n = 0

    def on_epoch_end(self, net, **kwargs):
        type(self).n += 1


def half(x):
    return x / 2


def nothing(module, x, y):
    return x


def weights_of(seen, code):
    """Return the weights of the records of a class, over the largest."""
    batch = seen["batch"]
    return set(batch.weight[batch.y == code].tolist())


def epsilon_of(plan):
    return compute_epsilon(plan.releases, plan.delta, accountant="rdp")


def starts_warm(model, seen):
    return seen.clear() or bool(model.fit(X, model.y) and seen["theta"].any())


def by_class(model, seen):
    return [weights_of(seen, 0), weights_of(seen, 1)]


CLOSE = pytest.approx(2.5, rel=1e-3)
GIVEN = {  # a value, what is found of the model and of the first step, what must be; else the value
    "method": (DPSGD(max_grad_norm=0.7), lambda m, f: m.method_.max_grad_norm, 0.7),
    "epsilon": (2.5, lambda m, f: epsilon_of(f["plan"]), CLOSE),
    "delta": (2e-4, lambda m, f: f["plan"].delta),
    "noise_multiplier": (6.5, lambda m, f: f["mechanism"].noise_multiplier),
    "group_col": (2, lambda m, f: f["mechanism"].task.n_groups),
    "persons": (Persons(2, max_records=N), lambda m, f: f["mechanism"].task.n_samples, 2),
    "module": (MLP((5,)), lambda m, f: m.net_.module_[0].out_features, 5),
    "optimizer": (Factory("SGD", lr=0.4), lambda m, f: {f["lr"], m.lr_}, {0.4}),
    "lr": (0.3, lambda m, f: {f["lr"], m.lr_}, {0.3}),
    "batch_size": (70, lambda m, f: f["mechanism"].task.sample_rate, 1 / 4),
    "max_epochs": (5, lambda m, f: m.n_steps_, 15),
    "max_steps": (7, lambda m, f: {f["plan"].n_steps, m.n_steps_}, {7}),
    "iterate_average": (0.25, lambda m, f: f["plan"].averaged_fraction),
    "max_physical_batch_size": (9, lambda m, f: f["chunk"]),
    "augment": (Views(half, n=3), lambda m, f: f["n_views"], 3),
    "max_sample_weight": (8.0, lambda m, f: weights_of(f, 1), {0.25}),
    "warm_start": (True, starts_warm),
    "accountant": ("rdp", lambda m, f: m.privacy_.accountant),
    "noise_sampler": ("gaussian_sum", lambda m, f: f["noise"].kind),
    "keep_reference": (True, lambda m, f: hasattr(m, "reference_")),
    "callbacks": ([Counts()], lambda m, f: Counts.n > 0, True),
    "device": ("cpu", lambda m, f: f["device"]),
    "random_state": (3, lambda m, f: m.privacy_.seeded, True),
    "verbose": (1, lambda m, f: "progress" in dict(m.net_.callbacks_), True),
    "pos_label": (0, lambda m, f: m.pos_label_),
    "classes": ([0, 1, 4], lambda m, f: m.classes_.tolist()),
    "logit_scale": (0.6, lambda m, f: m.logit_scale_),
    "attack": (nothing, lambda m, f: f["attack"] is not None, True),
    "class_weight": ({0: 1.0, 1: 4.0}, by_class, [{0.25}, {1.0}]),
    "validation_data": ((X[:9], Y[:9]), lambda m, f: "valid_loss" in m.net_.history[-1], True),
    "y_range": ((-3.0, 9.0), lambda m, f: m.y_range_),
    "loss": ("huber", lambda m, f: f["engine"].loss.name),
}
ALSO = {  # parameters beside it
    "noise_multiplier": {"epsilon": None},
    "persons": {"delta": 0.1},
    "max_epochs": {"max_steps": None, "batch_size": 80},
    "warm_start": {"random_state": 0},
}
PARAMETERS = [
    (kind, name)
    for kind in (DPFairClassifier, DPFairRegressor)
    for name in kind().get_params(deep=False)
    if name != "distributed"  # see test_processes.py
]


@pytest.mark.parametrize(("kind", "name"), PARAMETERS)
def test_each_parameter_of_an_estimator_acts(kind, name, first):
    value, found, *expected = GIVEN[name]
    needed = {"max_steps": 6} | ({} if kind is DPFairClassifier else {"y_range": (0, 1)})
    model = kind(**QUICK | needed | {name: value} | ALSO.get(name, {}))
    model.y = Y.astype(float) if kind is DPFairRegressor else Y
    weights = {"sample_weight": np.full(N, 2.0)} if name == "max_sample_weight" else {}
    model.fit(X, model.y, **weights)
    assert found(model, first) == (expected or [value])[0]


OWN = {  # values other than 2.5 and 0
    "feasible_set": ["box"],
    "ratio": ["group_mean"],
    "schedule": [(5.0, 7.0)],
    "group_probabilities": [(0.7, 0.3)],
    "max_sample_rate": [0.9],
    "target_share": [0.3],
    "strict_max_grad_norm": [2.5, 3e4, 2e-5],
    "max_grad_norm": [2.5, 3e4, 2e-5],
    "group_max_grad_norm": [2.5, 0.3],
}


def is_allowed(name, field, value):
    try:
        get_method(name, **{field: value})._validate_params()
    except ValueError:
        return False
    return True


FIELDS = [
    (name, field.name, value)
    for name, method in sorted(METHODS.items())
    for field in fields(method)
    for value in OWN.get(field.name, [2.5, 0.0])
    if is_allowed(name, field.name, value)
]
COUNTS = {"naive": [500.0, 500.0], "dpsgd_f": [0.0, 0.0, 9.0, 9.0]}


class Step:
    """The first step as a fit sets it up, where gradients are of a scale of 1.7."""

    def __init__(self, name, module, **given):
        noise = 1.5 if METHODS[name].takes_noise else None
        clf = DPFairClassifier(
            get_method(name, **given), epsilon=None, noise_multiplier=noise, module=module
        )
        self.plan = plan(FitSpec.of(clf, has_groups=True), 4000, 2)
        self.method, _ = self.plan.mechanism.method.at_scale(1.7, self.plan.norm_growth)
        self.mechanism = replace(self.plan.mechanism, method=self.method)
        self.task, self.queries = self.mechanism.task, self.mechanism.queries
        self.state = self.method.start(self.task)

    def clip(self, *norms):
        counts = torch.tensor(COUNTS.get(self.method.name, [0.0]))
        return self.method.clip(example_records(norms), self.state, {"counts": counts})

    def bound(self):
        """Return C."""
        if self.method.name == "asc":
            return (self.state.bound * self.state.factor)[0]
        return getattr(self.state, "z", self.clip(1e9).bound)

    def after(self, above):
        """Return the threshold after a noisy count."""
        return self.method.update(self.state, {"above_z": torch.tensor([above])}).z

    def is_counted(self, norm):
        """Return whether a norm, in thresholds, is counted as above."""
        return bool(self.queries[0].rows(example_records([norm * self.state.z]), self.state))


# what a number does in the first step, or right after it
ACTS = {
    "max_grad_norm": lambda s, v: (
        (s.clip(1e9).bound if s.method.name == "global_adapt" else s.bound()) / v
    ),
    "strict_max_grad_norm": lambda s, v: (
        s.clip(v / 1.01).weight / s.clip(v / 4).weight
        if s.clip(1.01 * v).weight < s.clip(v / 1.01).weight
        else 0
    ),
    "min_strict_max_grad_norm": lambda s, v: (1 + s.after(-1e9)) / (1 + max(v, s.state.z / math.e)),
    "min_grad_norm": lambda s, v: s.after(-1e9) / max(v, s.state.z / math.e),
    "target_share": lambda s, v: s.after(v * s.task.n_samples * s.task.sample_rate) / s.state.z,
    "threshold": lambda s, v: s.is_counted(1.01 * v) and not s.is_counted(v / 1.01),
    "lr_z": lambda s, v: -s.state.decay / v,
    "z_gain": lambda s, v: s.state.gain * s.task.n_samples * s.task.sample_rate / v,
    "count_noise_multiplier": lambda s, v: s.queries[0].noise_multiplier / v,
    "group_count_noise_multiplier": lambda s, v: (
        s.plan.one_time_releases["group counts"].noise_multipliers[0] / v
    ),
    "group_probabilities": lambda s, v: (s.method.group_fractions(s.task) / torch.tensor(v)).mean(),
    "max_sample_rate": lambda s, v: s.plan.max_sample_rate / v,
    "rate_range": lambda s, v: s.task.strata[-1][0] / s.task.strata[0][0] / v**2,
    "group_max_grad_norm": lambda s, v: s.method.group_bound(1.0) / v,
    "largest_factor": lambda s, v: s.bound() / s.method.max_grad_norm / v,
    "gamma": lambda s, v: 1 / s.clip(0.0).weight / v,
    "radius": lambda s, v: s.method.project({"w": torch.tensor([1e9])}, None)["w"] / v,
    "schedule": lambda s, v: s.method.step_size(0) / (v[0] / (v[1] + 1)),
}


@pytest.mark.parametrize("module", ["logistic", MLP((4,))])
@pytest.mark.parametrize(("name", "field", "value"), FIELDS)
def test_each_parameter_of_a_method_acts(name, field, value, module):
    step = Step(name, module, **{field: value})
    assert getattr(step.plan.mechanism.method, field) == value
    assert getattr(step.method, field) == value
    if field in ACTS and value:
        assert float(ACTS[field](step, value)) == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_all_parameters_of_a_method_act_in_a_fit(name, first):
    values = {field: value for owner, field, value in reversed(FIELDS) if owner == name}
    noise = {"epsilon": None, "noise_multiplier": 1.5 if METHODS[name].takes_noise else None}
    model = DPFairClassifier(get_method(name, **values), module=MLP((4,)), **noise, max_steps=3)
    model.set_params(batch_size=60, accountant="rdp", max_physical_batch_size=50)
    model.fit(X[:, :2], Y, sensitive_features=X[:, 2])
    assert first["mechanism"].method.get_params() | values == first["mechanism"].method.get_params()
    assert model.method_.get_params() | values == model.method_.get_params()
    if "z" in getattr(first["state"], "_fields", ()):
        z = values.get("strict_max_grad_norm", values["max_grad_norm"])
        assert float(first["state"].z) == pytest.approx(z)


@pytest.mark.parametrize("module", ["auto", "logistic", MLP((4,))])
@pytest.mark.parametrize("n", [300, 5_000, 48_842])
@pytest.mark.parametrize("kind", [DPFairClassifier, DPFairRegressor])
def test_batch_and_steps_are_the_same_at_any_noise(kind, n, module):
    found, ratios = set(), set()
    for noise in (0.0, 1e-3, 0.4, 2.0, 5.0, 5.5, 6.0, 40.0):
        clf = kind("dpsgd", epsilon=None, noise_multiplier=noise, module=module)
        settings = defaults.resolve(FitSpec.of(clf), n, 1e-6)
        found.add((settings["steps_per_epoch"], settings["n_steps"], settings["warm_up"]))
        ratios.add(round(noise * settings["signal_to_noise"], 6) if noise else None)
    assert len(found) == 1 and len(ratios) == 2


def test_a_floor_of_a_threshold_follows_what_was_measured_only():
    measured, given = (
        get_method("global_adapt", **p).at_scale(2.0, 4.0, 0.75)[0]
        for p in ({}, {"strict_max_grad_norm": 50.0})
    )
    assert measured.min_strict_max_grad_norm == measured.strict_max_grad_norm
    assert measured.strict_max_grad_norm == pytest.approx(0.7 * 4.0 * 0.75 * 2.0)
    assert (given.min_strict_max_grad_norm, given.strict_max_grad_norm) == (0.0, 50.0)


@pytest.mark.parametrize("first", [3e4, 2e-5])
@pytest.mark.parametrize("name", ["global_adapt", "soft_adaclip", "bounded_adapt"])
def test_a_threshold_starts_at_its_parameter_where_no_count_moves_it(name, first):
    field = "strict_max_grad_norm" if name == "global_adapt" else "max_grad_norm"
    step = Step(name, "logistic", **{field: first})
    assert float(step.after(float(-step.state.decay / step.state.gain))) == pytest.approx(first)


class Halves(Callback):
    def on_epoch_begin(self, net, **kwargs):
        for group in net.optimizer_.param_groups:
            group["lr"] /= 2


STEPPED = LRScheduler("StepLR", step_size=1, gamma=1e-9)
RATE = {"lr": 0.5, "batch_size": 80, "max_epochs": 4}


@pytest.mark.parametrize("callback", [STEPPED, ("named", STEPPED), LRScheduler, Halves()])
def test_callbacks_or_the_schedule_of_a_method_set_the_rate(callback):
    params = QUICK | RATE | {"callbacks": [callback]}
    one, other = (
        DPFairClassifier(**params | {"method": method})
        .fit(X, Y)
        .net_.optimizer_.param_groups[0]["lr"]
        for method in ("dpsgd", "pcsgd")
    )
    assert one == other and (one < 0.1 or callback is LRScheduler)
    scheduled = get_method("pcsgd", schedule=(10.0, 99.0), max_grad_norm=1.0)
    with pytest.raises(ValueError, match=r"learning rate.* schedule"):
        DPFairClassifier(**params | {"method": scheduled}).fit(X, Y)


def test_a_rate_among_the_arguments_of_the_optimizer_is_that_of_the_fit(first):
    for make in ("SGD", "auto", "Adam"):
        first.clear()
        clf = DPFairClassifier(**QUICK, max_steps=4, optimizer=Factory(make, lr=0.4)).fit(X, Y)
        assert clf.lr_ == first["lr"] == 0.4
        assert clf.net_.plan.averaged_fraction == 0.0  # as with lr=0.4


NESTED = [
    ({"module": "logistic"}, "module__hidden_layer_sizes", "MLP"),
    ({"module": MLP}, "module__activation", r"MLP"),
    ({"attack": None}, "attack__radius", "PGD"),
    ({"attack": nothing}, "attack__radius", "PGD"),
    ({"method": DPSGD}, "method__max_grad_norm", r"DPSGD\(\)"),
    ({"augment": half}, "augment__augment__shift", "augment to an object"),
    ({"lr": 0.1}, "lr__nothing", "lr to an object"),
]


def grid(clf, name):
    return GridSearchCV(clf, {name: [1]}, cv=2, error_score="raise")


def swept(clf, **params):
    own = {k: v for k, v in vars(clf).items() if v is not vars(DPFairClassifier())[k]}
    groups = {"sensitive_features": X[:, 2]}
    sweep(X, Y, **groups, **SWEEP, **{k: own[k] for k in own if k != "method"} | params)


SETTERS = {  # of a parameter to 1
    "set_params": lambda clf, name: clf.set_params(**{name: 1}),
    "grid": lambda clf, name: grid(clf, name).fit(X, Y),
    "forecast": lambda clf, name: forecast(grid(clf, name), N),
    "private search": lambda clf, name: DPRandomizedSearch(clf, {name: [1]}).fit(X, Y),
    "sweep": lambda clf, name: swept(clf, **{name: 1}),
}


@pytest.mark.parametrize(
    ("given", "name", "remedy", "setter"),
    [
        (*nested, setter)
        for nested in NESTED
        for setter in SETTERS
        if (setter, *nested[0]) != ("sweep", "method")
    ],
)
def test_parameters_of_values_without_parameters_are_refused(given, name, remedy, setter, first):
    match = rf"{name.rpartition('__')[2]}.* has no parameters.*{remedy}"
    with pytest.raises(ValueError, match=match):
        SETTERS[setter](DPFairClassifier(**given), name)
    assert not first


@pytest.mark.parametrize("place", ["fit", "regressor", "threshold", "forecast", "search", "sweep"])
def test_more_than_a_billion_steps_are_refused(place, first):
    params = {"module": "logistic", "max_epochs": 10**9, "batch_size": 60}
    clf = DPFairClassifier("dpsgd", **params)
    others = {
        "regressor": lambda: DPFairRegressor("dpsgd", y_range=(0, 1), **params).fit(X, Y),
        "forecast": lambda: forecast(clf, N),
        "sweep": lambda: swept(clf),
    }
    with pytest.raises(ValueError, match=r"^max_epochs .* at most 1000000000 steps, at [34]"):
        others.get(place, lambda: ENTRANCES[place](clf, X, Y))()
    assert not first
