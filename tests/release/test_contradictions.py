"""A file that contradicts itself, or declares more than it holds, is refused by every reader."""

import json
import math
import tracemalloc
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from torch import nn

from skdpfair import MLP, DPFairClassifier, DPFairRegressor, Factory, Persons, load_release
from skdpfair.preprocessing import TableSchema
from skdpfair.privacy import NoisyRelease, accounting
from skdpfair.privacy.renyi import ORDERS
from skdpfair.privacy.statement import PrivacyReport
from skdpfair.release import _file
from skdpfair.release._file import decode, encode
from skdpfair.release._read_statement import check_report, read_statement
from skdpfair.testing import verify_release

pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")
DOORS = [load_release, read_statement, verify_release]
X, Y = np.linspace(-1, 1, 1200).reshape(400, 3), np.arange(400) % 2
GROUPS = np.where(np.arange(400) % 8, "a", "b")


def private(method="dpsgd", kind=DPFairClassifier, columns=(), **params):
    return kind(method, epsilon=2.0, accountant="rdp", max_steps=4, **params).fit(
        X, Y, **dict(columns)
    )


FITS = {
    "groups": lambda: private(
        "dp_is_sgd", batch_size=50, module=MLP((4,)), columns={"sensitive_features": GROUPS}
    ),
    "persons": lambda: private(
        persons=Persons(max_records=2), columns={"persons": np.arange(400) // 2}
    ),
    "regressor": lambda: private(kind=DPFairRegressor, y_range=(0, 1)),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """``saved(name)``: the facts and weights of a fit."""
    known = {}

    def facts_and_weights(name):
        if name not in known:
            path = tmp_path_factory.mktemp("saved") / "model.safetensors"
            FITS[name]().save_release(path)
            known[name] = _file.read(path)
        facts, weights = known[name]
        return deepcopy(facts), weights

    return facts_and_weights


def half(values):
    return {name: value / 2 for name, value in values.items()}


def fewer(releases):
    *first, last = releases
    return (*first, replace(last, steps=1))


def changed(**changes):
    """Return a function that changes fields; those that are functions take the old value."""
    return lambda report: {
        name: change(getattr(report, name)) if callable(change) else change
        for name, change in changes.items()
    }


REPORTS = {
    "a smaller epsilon": changed(epsilon=0.1),
    "an epsilon that is a little smaller": changed(epsilon=lambda value: 0.99 * value),
    "a larger epsilon": changed(epsilon=lambda value: 2 * value),
    "no number as epsilon": changed(epsilon=math.nan),
    "a negative epsilon": changed(epsilon=-1.0),
    "a text as epsilon": changed(epsilon="1"),
    "not private": changed(is_private=False),
    "private at any price": changed(epsilon=math.inf),
    "delta of 0": changed(delta=0.0),
    "delta of 1": changed(delta=1.0),
    "another delta": changed(delta=lambda value: value / 100),
    "no number as delta": changed(delta=math.nan),
    "no number as noise": changed(noise_multiplier=math.nan),
    "more noise": changed(noise_multiplier=lambda value: 2 * value),
    "a batch beyond all records": changed(n_samples=10),
    "a rate above 1": changed(sample_rate=1.5),
    "a lower rate": changed(sample_rate=lambda value: value / 2),
    "negative steps": changed(steps=-4),
    "fewer steps": changed(steps=1),
    "fewer steps in the releases": changed(releases=fewer),
    "fewer steps in both": changed(releases=fewer, steps=lambda value: value - 3),
    "no releases": changed(releases=()),
    "no releases, no steps": changed(releases=(), steps=0),
    "no tuple as releases": changed(releases=[]),
    "another unit": changed(adjacency="zero_out_person"),
    "records of persons": changed(max_records=2),
    "another relation": changed(adjacency="swap"),
    "another accountant": changed(accountant="pld"),
    "no accountant": changed(accountant="none"),
    "smaller epsilons of groups": changed(group_epsilons=half),
    "no epsilons of groups": changed(group_epsilons=None),
    "a curve beside a ledger": changed(selection_curve=(0.01,) * len(ORDERS)),
    "a curve alone": changed(selection_curve=(0.01,) * len(ORDERS), releases=()),
    "a short curve": changed(selection_curve=(0.01,), releases=()),
    "no flag": changed(seeded="no"),
    "numbers as assumptions": changed(assumptions=(1,)),
}


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_that_contradicts_itself_is_refused(name, saved, tmp_path):
    facts, weights = saved("groups")
    report = decode(facts["fitted"]["privacy_"])
    changes = REPORTS[name](report)
    facts["fitted"]["privacy_"] = encode(replace(report, **changes))
    facts["privacy_statement"] |= {name: encode(value) for name, value in changes.items()}
    path = tmp_path / "model.safetensors"
    _file.write(path, facts, weights)
    for door in DOORS:
        with pytest.raises(ValueError, match=r"model\.safetensors"):
            door(path)


STATED = {"epsilon": 0.1, "mu": 0.01, "steps": 1, "sample_rate": 0.001, "n_samples": 10**6}


@pytest.mark.parametrize("name", STATED)
def test_a_statement_is_that_of_the_report(name, saved, tmp_path):
    facts, weights = saved("persons")
    facts["privacy_statement"][name] = STATED[name]
    _file.write(tmp_path / "model.safetensors", facts, weights)
    for door in DOORS:
        with pytest.raises(ValueError, match=name):
            door(tmp_path / "model.safetensors")


FITTED = {
    "logit_scale_": [math.nan, math.inf, -1.0, 0],
    "classes_": [np.array([0, 0]), np.array([0, 1, 2]), np.array([[0, 1]])],
    "n_features_in_": [4, 10**18],
    "levels_": [np.array(["a", "b", "c"]), None],
    "method_": [None],
    "features_": [3],
    "lr_": [math.nan, -1.0],
    "_group_positions": [[10**18]],
    "_n_fits": [2],
    "n_steps_": [10**6],
    "_cut": [math.nan],
    "_schema": ["target = 'y'"],
}


@pytest.mark.parametrize("name", FITTED)
def test_fitted_attributes_that_contradict_others_are_refused(name, saved, tmp_path):
    for value in FITTED[name]:
        facts, weights = saved("groups")
        facts["fitted"][name] = encode(value)
        _file.write(tmp_path / "model.safetensors", facts, weights)
        with pytest.raises(ValueError, match=r"model\.safetensors cannot be loaded"):
            load_release(tmp_path / "model.safetensors")


def leaves(value, path=()):
    """Yield the paths of numbers, of None, and of types and shapes of arrays."""
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        is_text = isinstance(value, str) and not value.startswith(("<", "|"))
        if not is_text and not isinstance(value, bool):
            yield path
        return
    for key, part in items:
        yield from leaves(part, (*path, key))


@pytest.mark.parametrize("name", FITS)
def test_sizes_follow_from_values_never_from_declared_numbers(name, saved, tmp_path):
    facts, weights = saved(name)
    path, n_loaded = tmp_path / "model.safetensors", 0
    tracemalloc.start()
    try:
        for place in [p for p in leaves(facts) if p[0] != "privacy_statement"]:
            forged = deepcopy(facts)
            *outer, last = place
            part = forged
            for key in outer:
                part = part[key]
            part[last] = "<U100000000" if isinstance(part[last], str) else 10**15
            _file.write(path, forged, weights)
            try:
                load_release(path)
                n_loaded += 1
            except ValueError as error:
                assert str(path) in str(error)
        assert tracemalloc.get_traced_memory()[1] < 5e7 and n_loaded
    finally:
        tracemalloc.stop()


def test_texts_in_arrays_are_as_wide_as_they_are_long():
    short = decode({"array": ["<U100000000", [2], ["a", "bcd"]]})
    assert short.dtype == "<U3" and encode(short)["array"][0] == "<U3"
    assert encode(np.array(["a"], "<U50")) == encode(np.array(["a"]))
    for forged in (
        ["<U1", [1000], ["a"] * 999 + ["b" * 10_000]],
        ["<U1", [10**15, 0], []],
        ["<U1", [1], [3]],
        ["V100000000", [1], [""]],
    ):
        with pytest.raises((TypeError, ValueError)):
            decode({"array": forged})


class Wide(nn.Module):
    def __init__(self, width=5, depth=1):
        super().__init__()
        self.inner = nn.ModuleList(nn.Linear(3, width) for _ in range(depth))
        self.last = nn.Linear(width, 2)

    def forward(self, x):
        return self.last(sum(layer(x) for layer in self.inner))


@pytest.mark.parametrize("change", [{"width": 10**10}, {"depth": 10**9}], ids=["width", "depth"])
def test_arguments_of_a_custom_module_take_no_more_memory_than_its_weights(change, tmp_path):
    path = tmp_path / "model.safetensors"
    private(module=Factory(Wide, width=5)).save_release(path)
    facts, weights = _file.read(path)
    assert load_release(path, module=Wide).n_features_in_ == 3
    facts["module"]["params"] |= change
    _file.write(path, facts, weights)
    with pytest.raises(ValueError, match="larger than its weights"):
        load_release(path, module=Wide)


def test_a_schema_makes_no_more_features_than_the_model_takes(tmp_path):
    schema = TableSchema(
        target="y",
        classes=["0", "1"],
        bounds={f"x{i}": (-1, 1) for i in range(3)},
        log_columns=[],
        n_intervals=0,
    )
    path = tmp_path / "model.safetensors"
    private().save_release(path, schema=schema)
    facts, weights = _file.read(path)
    assert load_release(path).schema_ == schema
    facts["schema"] = facts["schema"].replace("n_intervals = 0", "n_intervals = 1000")
    _file.write(path, facts, weights)
    with pytest.raises(ValueError, match="makes more than 3 features"):
        load_release(path)


def step(i=0, **changes):
    fields = {"what": "gradient sum", "sample_rate": 0.5, "noise_multipliers": (3.0 + i,)}
    return NoisyRelease(**fields | changes)


WORK = {
    "many kinds": [step(i / 1000) for i in range(2000)],
    "many strata": [step(strata=tuple((0.5, 1 / (i + 1)) for i in range(2000)))],
    "many steps": [step(steps=10**9)],
    "wide losses": [step(i, noise_multipliers=(0.1 + i / 100,), steps=10**4) for i in range(64)],
}


@pytest.mark.parametrize("releases", WORK.values(), ids=WORK)
def test_a_ledger_that_takes_minutes_is_refused_at_once(releases, monkeypatch):
    monkeypatch.setattr(accounting, "epsilon_of_runs", lambda *_: pytest.fail("accounted for"))
    first = releases[0]
    report = PrivacyReport(
        method="dpsgd",
        epsilon=1.0,
        delta=1e-5,
        accountant="pld",
        noise_multiplier=first.noise_multipliers[0],
        sample_rate=first.sample_rate,
        steps=sum(release.steps for release in releases),
        expected_batch_size=10.0,
        is_private=True,
        seeded=False,
        releases=tuple(releases),
    )
    with pytest.raises(ValueError, match="would take minutes"):
        check_report(report)


def test_rates_of_intersections_are_loaded(tmp_path):
    columns = np.stack([GROUPS, np.where(np.arange(400) % 3, "x", "y")], axis=1)
    private("dp_is_sgd", batch_size=50, columns={"sensitive_features": columns}).save_release(
        tmp_path / "model"
    )
    assert len(load_release(tmp_path / "model").privacy_.group_epsilons) == 4


def test_a_fit_of_many_parts_is_loaded(tmp_path):
    """Several fits to different numbers of records, each with steps of its own."""
    model, path = DPFairClassifier(epsilon=1.0, max_steps=3, warm_start=True), tmp_path / "model"
    for n in (400, 300, 200):
        model.fit(X[:n], Y[:n])
    model.save_release(path)
    loaded = load_release(path)
    assert loaded.privacy_ == model.privacy_
    assert json.loads(json.dumps(read_statement(path)))["epsilon"] == model.privacy_.epsilon
