"""A release holds what is on the closed list: nothing else passes, under whatever name."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import Pipeline
from torch import nn

from skdpfair import MLP, DPFairClassifier, Factory, Groups, Persons
from skdpfair._networks import CNN
from skdpfair.augmentations import PGD, FlipAndShift, Views
from skdpfair.datasets import make_two_groups
from skdpfair.model_selection import DPRandomizedSearch
from skdpfair.preprocessing import BoundedScaler, TableSchema
from skdpfair.privacy import NoisyRelease
from skdpfair.privacy.renyi import ORDERS
from skdpfair.privacy.statement import NOT_ACCOUNTED
from skdpfair.release import _file
from skdpfair.release._file import decode, encode
from skdpfair.testing import verify_release
from skdpfair.training.privacy_report import STEPS_BEFORE

pytestmark = [
    pytest.mark.filterwarnings(f"ignore::skdpfair.exceptions.{name}Warning")
    for name in ("InsecureSeed", "LowSignal", "PrivacyLeak")
]
data = make_two_groups(300, random_state=0)
X, y, groups = np.asarray(data.data, dtype=np.float32), data.target, data.sensitive_features
rng = np.random.default_rng(0)
norms, drawn = np.abs(rng.normal(size=64)).tolist(), rng.choice(600, 64, replace=False).tolist()
ROWS, NAMES = X[:60].tolist(), [f"Ada{a} Doe{b}" for a in "abcdefgh" for b in "abcdefgh"]


def classifier(method="dpsgd", **params):
    settings = {"epsilon": 2.0, "accountant": "rdp", "max_steps": 2}
    return DPFairClassifier(method, **settings).set_params(**params)


def fitted(method="dpsgd", **params):
    return classifier(method, **params).fit(X, y, sensitive_features=groups)


def crossed(**params):
    regions = [f"Région {i}" for i in range(12)] + [""]
    table = pd.DataFrame({"a": np.resize(["F", "H"], 300), "b": np.resize(regions, 300)})
    levels = [(a, b) for a in "FH" for b in regions]
    return classifier(group_col=Groups(levels=levels)).fit(X, y, sensitive_features=table)


def chosen():
    choices = {"lr": [0.1, 0.2], "module__hidden_layer_sizes": [(4,), (8, 4)]}
    search = DPRandomizedSearch(classifier(), choices, mean_trials=2, trials="geometric")
    return search.fit(X, y).best_estimator_


def pictures():
    return classifier(
        module=CNN(channels=(4,)),
        augment=Views(FlipAndShift(shift=1), n=2),
        persons=Persons(max_records=3),
    ).fit(np.zeros((40, 8, 8), "f4"), y[:40], persons=np.arange(40) // 2)


CLEAN = {
    **{f"method {m}": (lambda m=m: fitted(m)) for m in ("naive", "dpsgd_f", "bam", "dp_is_sgd")},
    "mlp": lambda: fitted("global_adapt", module=MLP((8, 4)), random_state=3),
    "names": lambda: classifier().fit(data.data, y),
    "two fits": lambda: fitted(warm_start=True).fit(X, y, sensitive_features=groups),
    "adam": lambda: fitted(optimizer=Factory("Adam", betas=(0.8, 0.9)), lr=0.01),
    "declared": lambda: fitted(
        class_weight={0: 1.0, 1: 2.0}, classes=[0, 1], group_col=Groups(levels=["a", "b"])
    ),
    "intersections": crossed,
    "intervals": lambda: fitted("dpsgd_f").fit(
        X, y, sensitive_features=pd.Series(pd.cut(np.arange(300) / 7, 6))
    ),
    "weights of classes": lambda: classifier(class_weight={0: 1.0, 1: 2.0, 2: 3.0}).fit(
        X, np.arange(300) % 3
    ),
    "codes": lambda: classifier().fit(X, 37 * (np.arange(300) % 25) ** 2),
    "flags": lambda: classifier(attack=PGD(0.1, input_range=None)).fit(X, y == 1),
    "pictures": pictures,
    "search": chosen,
}


@pytest.mark.parametrize("name", CLEAN)
def test_what_save_release_writes_is_verified(name, tmp_path):
    CLEAN[name]().save_release(tmp_path / "model.safetensors")
    verify_release(tmp_path / "model.safetensors")


def test_a_schema_of_many_words_is_verified(tmp_path):
    words = [f"word{a}{b}" for a in "abcdefghijklmnopqrst" for b in "abcdefghijklmnopqrst"]
    schema = TableSchema(target="y", classes=["0", "1"], categories={"word": words})
    table = np.eye(400, dtype="f4")[np.arange(1200) % 400]
    model = classifier().fit(table, np.arange(1200) % 2)
    model.save_release(tmp_path / "words.safetensors", schema=schema)
    verify_release(tmp_path / "words.safetensors")


long = pd.DataFrame(X, columns=["a" * 101, *(f"x{i}" for i in range(1, X.shape[1]))])
REFUSED = {
    "levels_": lambda: classifier().fit(X, y, sensitive_features=np.resize([0.25, 0.75], 300)),
    "group_col": lambda: classifier(group_col=Groups(levels=[0.25, 0.75])).fit(
        X, y, sensitive_features=np.resize([0.25, 0.75], 300)
    ),
    "classes_": lambda: classifier().fit(X, np.where(y, "a" * 101, "b")),
    "feature_names_in_": lambda: classifier().fit(long, y),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_not_be_verified_is_not_saved(name, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_text("as before")
    with pytest.raises(ValueError, match=name):
        REFUSED[name]().save_release(path)
    assert path.read_text() == "as before"


def test_names_of_steps_and_columns_never_stand_against_a_release(tmp_path):
    steps = [(f"{i}. my long step {'x' * 40}", BoundedScaler((-9, 9))) for i in range(9)]
    model = Pipeline([*steps, ("last", classifier())]).fit(X, pd.Series(y, name="0.75"))[-1]
    model.save_release(tmp_path / "model.safetensors")
    verify_release(tmp_path / "model.safetensors")


@cache
def released():
    return fitted("dp_is_sgd", module=MLP((8,)))


def planted(path, plant):
    """Write a release with something planted, whose digest is right."""
    released().save_release(path)
    facts, weights = _file.read(path)
    plant(facts, weights)
    _file.write(path, facts, weights)
    return path


def tensor(name, values):
    return lambda facts, weights: weights.update({name: np.asarray(values)})


def fact(path, value):
    def plant(facts, weights):
        *outer, last = path.split("/")
        for key in outer:
            facts = facts[key]
        facts[last] = value

    return plant


def parameter(name, value):
    return fact(f"parameters/{name}", encode(value))


def attribute(name, value):
    return fact(f"fitted/{name}", encode(value))


def report(name, value):
    """Plant a value in the privacy report, and state it."""

    def plant(facts, weights):
        privacy = decode(facts["fitted"]["privacy_"])
        object.__setattr__(privacy, name, value)
        facts["fitted"]["privacy_"] = encode(privacy)
        facts["privacy_statement"] = json.loads(json.dumps(privacy.facts(), default=encode))

    return plant


def rates(values):
    """Plant sampling rates of groups in the ledger of the report."""

    def plant(facts, weights):
        entry, *others = released().privacy_.releases
        entry = replace(entry, group_rates=tuple(v / max(values) for v in values))
        report("releases", (entry, *others))(facts, weights)

    return plant


def method(name, value):
    def plant(facts, weights):
        facts["fitted"]["method_"]["method"][1]["dict"][0].append([name, encode(value)])

    return plant


IN_A_RELEASE = {
    # among the weights
    "a tensor": tensor("more.weight", X),
    "largest values": tensor("maxima", X.max(0)),
    "a weight of another shape": tensor("0.weight", X),
    "a weight of another type": tensor("0.bias", np.zeros(8)),
    # facts that no release has
    "a fact": fact("rows", ROWS),
    "a parameter": fact("parameters/rows", ROWS),
    "a fitted attribute": fact("fitted/rows_", ROWS),
    "a fact of the module": fact("module/rows", ROWS),
    "logits of the module": fact("module/params/initial_logits", encode(tuple(norms))),
    "a parameter of the module": fact("module/params/rows", ROWS),
    "a value of no type": fact("fitted/n_iter_", {"rows": ROWS}),
    "the name of a custom module": fact("module/custom", str(ROWS)),
    "a version": fact("skdpfair_version", str(ROWS)),
    "a schema": fact("schema", str(ROWS)),
    "a seed": parameter("random_state", 42),
    "a callback": parameter("callbacks", ROWS),
    "rows in the statement": fact("privacy_statement/ledger", ROWS),
    "another statement": fact("privacy_statement/mu", 0.1),
    # parameters
    "module of rows": parameter("module", MLP(ROWS)),
    "module of norms": parameter("module", MLP(tuple(norms))),
    "module of indices": parameter("module", MLP(tuple(drawn))),
    "module of other sizes": parameter("module", MLP((7,))),
    "channels": parameter("module", CNN(channels=ROWS)),
    "factory of a module": parameter("module", Factory("mlp", w=ROWS)),
    "argument of an optimizer": parameter("optimizer", Factory("SGD", w=norms)),
    "betas": parameter("optimizer", Factory("Adam", betas=norms)),
    "rate of an optimizer": parameter("optimizer", Factory("SGD", lr=ROWS)),
    "columns of groups": parameter("group_col", Groups(drawn)),
    "groups as features": parameter("group_col", Groups("sex", as_feature=ROWS)),
    "levels": parameter("group_col", Groups(levels=X[:, 0].tolist())),
    "levels of rows": parameter("group_col", Groups(levels=ROWS)),
    "levels of people": parameter(
        "group_col", Groups(levels=[(f"name {i}", "F", "Zurich") for i in range(60)])
    ),
    "levels of ages": parameter(
        "group_col", Groups(levels=[(18 + i * 7 % 73, 100 + i * 11 % 120) for i in range(300)])
    ),
    "column of persons": parameter("persons", Persons(norms)),
    "records of persons": parameter("persons", Persons("person", max_records=norms)),
    "shift": parameter("augment", FlipAndShift(shift=norms)),
    "shift of views": parameter("augment", Views(FlipAndShift(shift=norms))),
    "number of views": parameter("augment", Views(FlipAndShift(), n=norms)),
    "radius of an attack": parameter("attack", PGD(norms)),
    "class weights": parameter("class_weight", dict(enumerate(norms))),
    "declared classes": parameter("classes", drawn),
    "a large number": parameter("verbose", int.from_bytes(X[:2].tobytes(), "big")),
    "a list for a number": parameter("lr", norms),
    # fitted attributes
    "rows as classes": attribute("classes_", X),
    "measurements as classes": attribute("classes_", X[:, 0]),
    "indices as classes": attribute("classes_", np.array(drawn)),
    "a dict as classes": attribute("classes_", {0: norms, 1: norms}),
    "people as classes": attribute("classes_", np.array(NAMES, dtype=object)),
    "rows as groups": attribute("levels_", [tuple(row) for row in ROWS]),
    "measurements as groups": attribute("levels_", X[:, 0]),
    "a dict as groups": attribute("levels_", {"a": norms, "b": norms}),
    "long texts as groups": attribute("levels_", [("a" * 999, "x"), ("b" * 999, "y")]),
    "a dict as fits": attribute("_ledger_fits", {"0" * 32: norms}),
    "a number of fits": attribute("_n_fits", 20_000),
    "names of people": attribute("feature_names_in_", np.array(NAMES, dtype=object)),
    "a record as names": attribute("feature_names_in_", np.array(["0.5"] * 6, dtype=object)),
    "positions of groups": attribute("_group_positions", drawn),
    "names of variables": attribute("_variables", tuple(map(str, norms[:3]))),
    "a record as a rate": attribute("lr_", np.array(ROWS[0])),
    "a parameter of the method": method("max_grad_norm", norms),
    # the privacy report
    "people as assumptions": report("assumptions", dict.fromkeys(["Alice"], norms)),
    "norms as assumptions": report("assumptions", tuple(map(str, norms))),
    "epsilons of rows": report("group_epsilons", dict(enumerate(X[:, 0].tolist()))),
    "rows not accounted": report("not_accounted", (str(ROWS),)),
    "people in its subject": report("what", "Alice and Bob"),
    "people in its proof": report("proof", "Alice and Bob"),
    "people as its method": report("method", "Alice and Bob"),
    "people as a release": report("releases", (NoisyRelease("Alice and Bob", 0.1, (1.0,), 60),)),
    "people in its stop": report("stop", "after all 60 planned steps of Alice and Bob"),
    "a row as a step before": report("not_accounted", (STEPS_BEFORE.format(repr(str(ROWS[0]))),)),
    "steps before for each row": report(
        "not_accounted", tuple(STEPS_BEFORE.format(repr(f"row {i}")) for i in range(9))
    ),
    "bits as repeated texts": report("not_accounted", (*NOT_ACCOUNTED, *NOT_ACCOUNTED[:2])),
    "a curve of norms": report("selection_curve", tuple(norms)),
    "another curve of norms": report("selection_curve", tuple(np.resize(norms, len(ORDERS)))),
    "rates of norms": rates(norms),
    "rows as features": report("features", str(ROWS)),
    "no privacy": report("epsilon", float("inf")),
}


@pytest.mark.parametrize("name", IN_A_RELEASE)
def test_nothing_can_be_planted_in_a_release(name, tmp_path):
    path = planted(tmp_path / "model.safetensors", IN_A_RELEASE[name])
    with pytest.raises(ValueError, match=r"model\.safetensors") as error:
        verify_release(path)
    assert len(str(error.value)) < 700


def test_a_release_whose_first_byte_is_that_of_a_page_is_no_page(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"<" + planted(path, lambda facts, weights: None).read_bytes()[1:])
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        verify_release(path)


def test_a_release_written_again_is_verified(tmp_path):
    verify_release(planted(tmp_path / "model.safetensors", lambda facts, weights: None))


def test_bytes_beside_the_facts_are_refused(tmp_path):
    """Other metadata, another order of the header, and what follows the weights."""
    path = tmp_path / "model.safetensors"
    content = planted(path, lambda facts, weights: None).read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, rest = json.loads(content[8 : 8 + length]), content[8 + length :]
    noted = header | {"__metadata__": header["__metadata__"] | {"note": "rows"}}
    for changed in (noted, dict(reversed(header.items()))):
        text = json.dumps(changed).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + rest)
        with pytest.raises(ValueError, match=r"model\.safetensors"):
            verify_release(path)
    for changed in (content + X.tobytes(), content[:-1], b"", X.tobytes()):
        path.write_bytes(changed)
        with pytest.raises(ValueError, match=r"model\.safetensors"):
            verify_release(path)


def test_what_cannot_be_judged_is_refused(tmp_path):
    """No code of a file is run, so nothing tells which weights of its network are data."""
    path = tmp_path / "model.safetensors"
    fitted(module=Factory(nn.Linear, in_features=6, out_features=2)).save_release(path)
    with pytest.raises(ValueError, match="weights of the custom module 'Linear'"):
        verify_release(path)


def test_a_model_without_privacy_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    classifier(epsilon=None, accountant="pld").fit(X, y).save_release(path)
    with pytest.raises(ValueError, match="epsilon is infinite"):
        verify_release(path)
