"""What our own files hold is on a closed list: nothing else passes, under whatever name."""

import copyreg
import io
import json
import pickle
from copy import deepcopy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.preprocessing import LabelEncoder
from torch import nn

from skdpfair import MLP, DPFairClassifier, Factory, Groups, Persons
from skdpfair.attacks import PGD
from skdpfair.audit import audit_artifact
from skdpfair.augmentations import FlipAndShift, Views
from skdpfair.datasets import make_two_groups
from skdpfair.model_selection import DPRandomizedSearch
from skdpfair.networks import CNN
from skdpfair.preprocessing import BoundedScaler, TableSchema
from skdpfair.release import _file
from skdpfair.release._encode import encode

pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")
rng = np.random.default_rng(0)
X = rng.normal(size=(90, 6)).astype(np.float32)
norms, drawn = np.abs(rng.normal(size=64)), rng.choice(600, 64, replace=False)


@cache
def private():
    data = make_two_groups(300, random_state=0)
    clf = DPFairClassifier("dp_is_sgd", epsilon=2.0, accountant="rdp", max_steps=2, module="mlp")
    return clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)


def with_attribute(path, value):
    clf = deepcopy(private())
    *owners, name = path.split(".")
    owner = clf
    for step in owners:
        owner = getattr(owner, step)
    object.__setattr__(owner, name, value)
    return clf


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("classes_", X),
        ("classes_", X[:, 0]),
        ("classes_", drawn),
        ("groups_", np.array(X.tolist(), dtype=object)),
        ("classes_", {0: norms.tolist(), 1: norms.tolist()}),
        ("groups_", {"a": norms.tolist(), "b": norms.tolist()}),
        ("groups_", [("a" * 999, "x"), ("b" * 999, "y")]),
        ("_ledger_fits", {"0" * 32: norms.tolist()}),
        ("_n_fits", 20_000),
        ("privacy_.assumptions", dict.fromkeys(["Alice"], norms.tolist())),
        ("feature_names_in_", X.astype(str)),
        ("feature_names_in_", np.array([str(row) for row in X], dtype=object)),
        ("class_weight", dict(enumerate(norms.tolist()))),
        ("module", MLP(tuple(norms.tolist()))),
        ("module", MLP(tuple(drawn.tolist()))),
        ("module", CNN(channels=X.tolist())),
        ("module", Factory("mlp", w=X.tolist())),
        ("optimizer", Factory("SGD", w=norms.tolist())),
        ("optimizer", Factory("Adam", betas=norms.tolist())),
        ("group_col", Groups(drawn.tolist())),
        ("group_col", Groups("sex", as_feature=X)),
        ("persons", Persons(norms.tolist())),
        ("persons", Persons("person", max_records=norms.tolist())),
        ("augment", FlipAndShift(shift=norms.tolist())),
        ("augment", Views(FlipAndShift(shift=norms.tolist()))),
        ("attack", PGD(norms.tolist())),
        ("augment", Views(FlipAndShift(), n=norms.tolist())),
        ("privacy_.assumptions", tuple(norms.tolist())),
        ("privacy_.assumptions", tuple(map(str, norms))),
        ("privacy_.group_epsilons", dict(enumerate(X[:, 0].tolist()))),
        ("method_.max_grad_norm", norms),
        ("_group_positions", drawn.tolist()),
        ("group_col", Groups(levels=X[:, 0].tolist())),
        ("lr_", norms),
        ("verbose", int.from_bytes(X[:2].tobytes(), "big")),
    ],
)
def test_attributes_of_ours(path, value):
    clf = with_attribute(path, value)
    assert audit_artifact(clf).findings
    assert audit_artifact(pickle.dumps(clf)).findings


def test_bounds_are_as_many_as_the_columns():
    pairs = [(float(a), float(a) + 1) for a in X[:, 0]]
    assert audit_artifact(BoundedScaler(pairs[:6]).fit(X)).is_clean
    scaler = BoundedScaler(pairs[:6]).fit(X)
    scaler.bounds = pairs
    assert audit_artifact(pickle.dumps(scaler)).findings


def test_rows_are_found_among_the_weights_of_a_network_of_ones_own():
    """These are not judged; whoever has the records can still find them."""
    clf = fitted(module=Factory(Remembering, values=torch.from_numpy(X)))
    assert "not judged" in {f.kind for f in audit_artifact(clf).findings}
    assert "rows" in {f.kind for f in audit_artifact(clf, rows=X).findings}


NAMES = [f"Ada{a} Doe{b}" for a in "abcdefgh" for b in "abcdefgh"]
ROWS = X[:60].tolist()


class Remembering(nn.Module):
    """A module whose buffers hold the largest value of each column."""

    def __init__(self, values=None):
        super().__init__()
        self.inner, self.outer = nn.Linear(6, 7), nn.Linear(7, 2)
        self.register_buffer("values", torch.arange(512)[None] if values is None else values)

    def forward(self, x):
        return self.outer(torch.tanh(self.inner(x)))


def forms(thing):
    file = io.BytesIO()
    torch.save(thing, file)
    return thing, pickle.dumps(thing), file.getvalue()


def normalised():
    module = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
    module(torch.from_numpy(X))
    return module


def statement(**more):
    return private().privacy_statement() | more


def ledger_of_rows():
    entry = statement()["ledger"][0]
    return [entry | {"sample_rate": abs(v) % 1} for row in ROWS for v in row]


PLANTS = {
    "rows in a statement": lambda: statement(cache=ROWS),
    "rows in a statement's ledger": lambda: statement(ledger=ROWS),
    "entries made of rows": lambda: statement(ledger=ledger_of_rows()),
    "rows in a statement's text": lambda: statement(statement=str(ROWS)),
    "rows in an assumption": lambda: statement(assumptions=[str(row) for row in ROWS]),
    "the keys of a statement": lambda: {
        "epsilon": 1.0,
        "delta": 1e-5,
        "accountant": "pld",
        "adjacency": "zero_out",
        "ledger": ROWS,
    },
    "metadata of a dtype": lambda: np.zeros(3, np.dtype("f4", metadata={"rows": ROWS})),
    "an encoder of people": lambda: LabelEncoder().fit(NAMES),
    "running statistics": normalised,
    "running statistics of a state": lambda: normalised().state_dict(),
    "largest values": lambda: Remembering(torch.from_numpy(X.max(0))),
    "largest values of a state": lambda: Remembering(torch.from_numpy(X.max(0))).state_dict(),
}


@pytest.mark.parametrize("name", PLANTS)
@pytest.mark.filterwarnings("ignore:metadata on a dtype")
def test_plants_are_found_beside_a_model_and_alone(name):
    plant = PLANTS[name]()
    for thing in (plant, {"model": private(), "more": plant}):
        for form in forms(thing):
            assert not audit_artifact(form).is_clean


def test_a_statement_is_clean_in_every_form(tmp_path):
    for form in (*forms(statement()), json.dumps(statement()).encode()):
        assert audit_artifact(form).is_clean, audit_artifact(form)
    assert not audit_artifact(json.dumps(statement(ledger=ROWS)).encode()).is_clean
    of_person = replace(private().privacy_, records_per_person=3).to_dict()
    assert "3 records" in of_person["statement"] and audit_artifact(of_person).is_clean
    for wrong in (4, -3, 10**6, 3.0):
        assert not audit_artifact(of_person | {"records_per_person": wrong}).is_clean


def tensor(name, values):
    return lambda facts, weights: weights.update({name: np.asarray(values)})


def fact(path, value):
    def plant(facts, weights):
        *outer, last = path.split("/")
        for key in outer:
            facts = facts[key]
        facts[last] = value

    return plant


IN_A_RELEASE = {
    "a tensor": tensor("more.weight", X),
    "largest values": tensor("maxima", X.max(0)),
    "a weight of another shape": tensor("0.weight", X),
    "a weight of another type": tensor("0.bias", np.zeros(256)),
    "a fact": fact("rows", ROWS),
    "a parameter": fact("parameters/rows", ROWS),
    "a fitted attribute": fact("fitted/rows_", ROWS),
    "rows as a parameter": fact("parameters/module", encode(MLP(ROWS))),
    "rows as a setting": fact("parameters/optimizer", encode(Factory("SGD", lr=ROWS))),
    "rows as groups": fact("parameters/group_col", encode(Groups(levels=ROWS))),
    "rows as persons": fact("parameters/persons", encode(Persons(max_records=ROWS))),
    "names of people": fact("fitted/feature_names_in_", {"array": ["|O", [64], NAMES]}),
    "a record as names": fact("fitted/feature_names_in_", {"array": ["|O", [6], ["0.5"] * 6]}),
    "a record as a number": fact("fitted/lr_", {"array": ["<f8", [6], ROWS[0]]}),
    "people as groups": fact("fitted/groups_", {"array": ["<f8", [60], [r[0] for r in ROWS]]}),
    "people as classes": fact("fitted/classes_", {"array": ["|O", [64], NAMES]}),
    "rows in the statement": fact("privacy_statement/ledger", ROWS),
    "another statement": fact("privacy_statement/epsilon", 0.1),
    "rows in the module's facts": fact("module/rows", ROWS),
    "rows as the module's name": fact("module/custom", str(ROWS)),
    "rows as a version": fact("skdpfair_version", str(ROWS)),
    "rows as a schema": fact("schema", str(ROWS)),
    "a value of no type": fact("fitted/n_iter_", {"rows": ROWS}),
}


def released(path, plant=None):
    private().save_release(path)
    facts, weights = _file.read(path)
    if plant is not None:
        plant(facts, weights)
    _file.write(path, facts, weights)
    return audit_artifact(path)


@pytest.mark.parametrize("name", IN_A_RELEASE)
def test_nothing_can_be_planted_in_a_release(name, tmp_path):
    report = released(tmp_path / "model.safetensors", IN_A_RELEASE[name])
    assert not report.is_clean


def test_a_release_written_again_is_clean(tmp_path):
    report = released(tmp_path / "model.safetensors")
    assert report.is_clean, report


def test_a_release_has_no_other_metadata(tmp_path):
    content = (private().save_release(tmp_path / "a"), (tmp_path / "a").read_bytes())[1]
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"]["note"] = "rows"
    text = json.dumps(header).encode()
    assert not audit_artifact(
        len(text).to_bytes(8, "little") + text + content[8 + length :]
    ).is_clean


def fitted(**params):
    data = make_two_groups(120, random_state=0)
    settings = {"epsilon": 2.0, "accountant": "rdp", "max_steps": 2}
    return DPFairClassifier("dpsgd", **settings | params).fit(data.data, data.target)


def test_a_vocabulary_and_a_schedule_are_clean(tmp_path):
    words = [f"word{a}{b}" for a in "abcdefghijklmnopqrst" for b in "abcdefghijklmnopqrst"]
    schema = TableSchema(target="y", classes=["0", "1"], categories={"word": words})
    X, y = np.eye(400, dtype="f4")[np.arange(1200) % 400], np.arange(1200) % 2
    clf = DPFairClassifier("dpsgd", epsilon=2.0, accountant="rdp", max_steps=2).fit(X, y)
    clf.save_release(tmp_path / "words.safetensors", schema=schema)
    rates = [0.5 * 0.9**i for i in range(20)]
    search = DPRandomizedSearch(clf, {"lr": rates}, mean_trials=2)
    for thing in (search, *sorted(tmp_path.iterdir())):
        made = (thing,) if hasattr(thing, "suffix") else (thing, pickle.dumps(thing))
        for form in made:
            report = audit_artifact(form)
            assert report.is_clean, report


class Planted:
    """Its pickle makes something of ours, and does more to it than its class does."""

    def __init__(self, thing, **more):
        self.thing, self.more = thing, more

    def __reduce_ex__(self, protocol):
        func, args, state, *_ = self.thing.__reduce_ex__(4)
        if func.__name__ == "__newobj__":  # which the pickler compares with the class
            func, args = copyreg._reconstructor, (args[0], object, None)
        found = [func, args, state, None, None]
        for name, value in self.more.items():
            found[("func", "args", "state", "items", "pairs").index(name)] = value
        return tuple(found)


@pytest.mark.parametrize("more", [{"items": ROWS}, {"pairs": list(enumerate(ROWS))}])
@pytest.mark.parametrize(
    "make", [private, lambda: private().privacy_, lambda: BoundedScaler((0, 1)), lambda: X]
)
def test_nothing_can_be_added_to_an_object(make, more):
    found = audit_artifact(_pickled(Planted(make(), **{k: iter(v) for k, v in more.items()})))
    assert not found.is_clean


def _pickled(planted):
    file = io.BytesIO()
    pickle._Pickler(file, protocol=4).dump(planted)
    return file.getvalue()


def test_nothing_can_be_added_to_an_array():
    clf = pickle.loads(pickle.dumps(private()))
    state = clf.__getstate__()
    state["_weights"] = {k: Planted(v, items=iter(ROWS)) for k, v in state["_weights"].items()}
    assert not audit_artifact(_pickled(Planted(clf, state=state))).is_clean
