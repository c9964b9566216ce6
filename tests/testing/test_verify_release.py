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
from skdpfair.privacy.privacy_report import NOT_ACCOUNTED
from skdpfair.privacy.renyi import ORDERS
from skdpfair.release import _file
from skdpfair.release._file import decode, encode
from skdpfair.testing import verify_release

pytestmark = [
    pytest.mark.filterwarnings(f"ignore::skdpfair.exceptions.{name}Warning")
    for name in ("InsecureSeed", "LowSignal", "PrivacyLeak")
]
data = make_two_groups(300, random_state=0)
X, y, groups = np.asarray(data.data, dtype=np.float32), data.target, data.sensitive_features
rng = np.random.default_rng(0)
norms, drawn = np.abs(rng.normal(size=64)).tolist(), rng.choice(600, 64, replace=False).tolist()
whole = int.from_bytes(X[:2].tobytes(), "big")
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
    augment, persons = Views(FlipAndShift(shift=1), n=2), Persons(max_records=3)
    model = classifier(module=CNN(channels=(4,)), augment=augment, persons=persons)
    return model.fit(np.zeros((40, 8, 8), "f4"), y[:40], persons=np.arange(40) // 2)


def long_names():
    steps = [(f"{i}. my long step {'x' * 40}", BoundedScaler((-9, 9))) for i in range(9)]
    return Pipeline([*steps, ("last", classifier())]).fit(X, pd.Series(y, name="0.75"))[-1]


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
    "weights of classes": lambda: classifier(class_weight=dict(enumerate([1.0, 2.0, 3.0]))).fit(
        X, np.arange(300) % 3
    ),
    "codes": lambda: classifier().fit(X, 37 * (np.arange(300) % 25) ** 2),
    "flags": lambda: classifier(attack=PGD(0.1, input_range=None)).fit(X, y == 1),
    "pictures": pictures,
    "search": chosen,
    "names of steps and of a target": long_names,
}


@pytest.mark.parametrize("name", CLEAN)
def test_verify_release_takes_what_save_release_writes(name, tmp_path):
    CLEAN[name]().save_release(tmp_path / "model.safetensors")
    verify_release(tmp_path / "model.safetensors")


def test_verify_release_takes_a_schema_of_many_words(tmp_path):
    words = [f"word{a}{b}" for a in "abcdefghijklmnopqrst" for b in "abcdefghijklmnopqrst"]
    schema = TableSchema(target="y", classes=["0", "1"], categories={"word": words})
    table = np.eye(400, dtype="f4")[np.arange(1200) % 400]
    model = classifier().fit(table, np.arange(1200) % 2)
    model.save_release(tmp_path / "words.safetensors", schema=schema)
    verify_release(tmp_path / "words.safetensors")


long = pd.DataFrame(X, columns=["a" * 101, *(f"x{i}" for i in range(1, X.shape[1]))])
shares = {"sensitive_features": np.resize([0.25, 0.75], 300)}
REFUSED = {
    "levels_": lambda: classifier().fit(X, y, **shares),
    "group_col": lambda: classifier(group_col=Groups(levels=[0.25, 0.75])).fit(X, y, **shares),
    "classes_": lambda: classifier().fit(X, np.where(y, "a" * 101, "b")),
    "feature_names_in_": lambda: classifier().fit(long, y),
}


@pytest.mark.parametrize("name", REFUSED)
def test_save_release_refuses_what_would_not_be_verified(name, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_text("as before")
    with pytest.raises(ValueError, match=name):
        REFUSED[name]().save_release(path)
    assert path.read_text() == "as before"


@cache
def released():
    return fitted("dp_is_sgd", module=MLP((8,)))


def planted(path, plant):
    """Write a release with something planted, whose digest is right."""
    released().save_release(path)
    facts, weights = _file.opened(path)[:2]
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


def rates(name, values):
    """Plant sampling rates of groups in the ledger of the report."""

    def plant(facts, weights):
        entry, *others = released().privacy_.releases
        entry = replace(entry, group_rates=tuple(v / max(values) for v in values))
        report(name, (entry, *others))(facts, weights)

    return plant


def method(name, value):
    def plant(facts, weights):
        facts["fitted"]["method_"]["method"][1]["dict"][0].append([name, encode(value)])

    return plant


TENSORS = {"more.weight": [X], "maxima": [X.max(0)], "0.weight": [X], "0.bias": [np.zeros(8)]}
FACTS = {  # that no release has
    **{name: [ROWS] for name in ("rows", "parameters/rows", "fitted/rows_", "module/rows")},
    "module/params/initial_logits": [encode(tuple(norms))],
    "module/params/rows": [ROWS],
    "fitted/n_iter_": [{"rows": ROWS}],  # of no type
    **{name: [str(ROWS)] for name in ("module/custom", "skdpfair_version", "schema")},
    "privacy_statement/ledger": [ROWS],
    "privacy_statement/mu": [0.1],
}
PARAMETERS = {
    "random_state": [42],
    "callbacks": [ROWS],
    "module": [
        *(MLP(sizes) for sizes in (ROWS, tuple(norms), tuple(drawn), (7,))),
        CNN(channels=ROWS),
        Factory("mlp", w=ROWS),
    ],
    "optimizer": [Factory("SGD", w=norms), Factory("Adam", betas=norms), Factory("SGD", lr=ROWS)],
    "group_col": [
        *(Groups(drawn), Groups("sex", as_feature=ROWS)),
        *(Groups(levels=levels) for levels in (X[:, 0].tolist(), ROWS)),
        Groups(levels=[(f"name {i}", "F", "Zurich") for i in range(60)]),
        Groups(levels=[(18 + i * 7 % 73, 100 + i * 11 % 120) for i in range(300)]),
    ],
    "persons": [Persons(norms), Persons("person", max_records=norms)],
    "augment": [
        *(FlipAndShift(shift=norms), Views(FlipAndShift(shift=norms))),
        Views(FlipAndShift(), n=norms),
    ],
    "attack": [PGD(norms)],
    "class_weight": [dict(enumerate(norms))],
    "classes": [drawn],
    "verbose": [whole],
    "lr": [norms],
}
ATTRIBUTES = {
    "classes_": [X, X[:, 0], np.array(drawn), {0: norms, 1: norms}, np.array(NAMES, dtype=object)],
    "levels_": [
        *([tuple(row) for row in ROWS], X[:, 0], {"a": norms, "b": norms}),
        [("a" * 999, "x"), ("b" * 999, "y")],
    ],
    "_ledger_fits": [{"0" * 32: norms}],
    "_n_fits": [20_000],
    "feature_names_in_": [np.array(names, dtype=object) for names in (NAMES, ["0.5"] * 6)],
    "_group_positions": [drawn],
    "_variables": [tuple(map(str, norms[:3]))],
    "lr_": [np.array(ROWS[0])],
}
REPORT = {
    "assumptions": [dict.fromkeys(["Alice"], norms), tuple(map(str, norms))],
    "group_epsilons": [dict(enumerate(X[:, 0].tolist()))],
    "not_accounted": [
        (str(ROWS),),
        (*NOT_ACCOUNTED, *NOT_ACCOUNTED[:2]),  # bits as repeated texts
    ],
    **{name: ["Alice and Bob"] for name in ("what", "proof", "method")},
    "releases": [(NoisyRelease("Alice and Bob", 0.1, (1.0,), 60),)],
    "stop": ["after all 60 planned steps of Alice and Bob"],
    "selection_curve": [tuple(norms), tuple(np.resize(norms, len(ORDERS)))],
    "features": [str(ROWS)],
    "epsilon": [float("inf")],
    **{name: [whole] for name in ("max_grad_norm", "max_sample_weight")},
}
PLANTED = {
    f"{plant.__name__}-{name}-{i}": plant(name, value)
    for plant, table in {
        tensor: TENSORS,
        fact: FACTS,
        parameter: PARAMETERS,
        attribute: ATTRIBUTES,
        report: REPORT,
        rates: {"releases": [norms]},
        method: {"max_grad_norm": [norms]},
    }.items()
    for name, values in table.items()
    for i, value in enumerate(values)
}


@pytest.mark.parametrize("name", PLANTED)
def test_verify_release_finds_what_is_planted(name, tmp_path):
    path = planted(tmp_path / "model.safetensors", PLANTED[name])
    with pytest.raises(ValueError, match=r"model\.safetensors") as error:
        verify_release(path)
    assert len(str(error.value)) < 700


def test_verify_release_refuses_bytes_beside_the_facts(tmp_path):
    """The first byte of a page, other metadata, another order, and what follows the weights."""
    path = planted(tmp_path / "model.safetensors", lambda facts, weights: None)
    verify_release(path)  # as it was written again
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, rest = json.loads(content[8 : 8 + length]), content[8 + length :]
    noted = header | {"__metadata__": header["__metadata__"] | {"note": "rows"}}
    headers = [json.dumps(h).encode() for h in (noted, dict(reversed(header.items())))]
    for changed in (
        *(len(text).to_bytes(8, "little") + text + rest for text in headers),
        *(b"<" + content[1:], content + X.tobytes(), content[:-1], b"", X.tobytes()),
    ):
        path.write_bytes(changed)
        with pytest.raises(ValueError, match=r"model\.safetensors"):
            verify_release(path)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        # no code of a file is run, so nothing tells which weights of its network are data
        (lambda: fitted(module=Factory(nn.Linear, in_features=6, out_features=2)), "'Linear'"),
        (lambda: classifier(epsilon=None, accountant="pld").fit(X, y), "epsilon is infinite"),
    ],
)
def test_verify_release_refuses_what_it_cannot_judge(make, message, tmp_path):
    make().save_release(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=message):
        verify_release(tmp_path / "model.safetensors")
