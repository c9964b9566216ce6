"""What our classifiers are made to leave with is explained, to the last array."""

import io
import json
import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder
from torch import nn

from skdpfair import METHODS, MLP, DPFairClassifier, Factory, Groups, Persons, get_method
from skdpfair.analysis import GroupRecorder
from skdpfair.audit import audit_artifact
from skdpfair.augmentations import FlipAndShift, Views
from skdpfair.datasets import ADULT_BOUNDS, ADULT_CATEGORIES, load_adult, make_two_groups
from skdpfair.model_selection import DPRandomizedSearch, PrivacyLedger
from skdpfair.networks import CNN
from skdpfair.preprocessing import BoundedScaler, DPQuantileScaler, public_preprocessor

pytestmark = [
    pytest.mark.filterwarnings(f"ignore::skdpfair.exceptions.{name}Warning")
    for name in ("InsecureSeed", "LowSignal", "PrivacyLeak")
]
data = make_two_groups(300, random_state=0)
X, y, groups = np.asarray(data.data, dtype=np.float32), data.target, data.sensitive_features


class Scaled(nn.Module):
    """A module of a user's own, with a parameter of an unusual name."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(6, 7), nn.Linear(7, 2)
        self.stretch = nn.Parameter(torch.ones(7))

    def forward(self, x):
        return self.outer(torch.tanh(self.inner(x)) * self.stretch)


def classifier(method="dpsgd", **params):
    settings = {"epsilon": 2.0, "accountant": "rdp", "max_steps": 2}
    return DPFairClassifier(method, **settings).set_params(**params)


def fitted(method="dpsgd", **params):
    return classifier(method, **params).fit(X, y, sensitive_features=groups)


def warm():
    clf = fitted(warm_start=True)
    return clf.fit(X, y, sensitive_features=groups)


def image():
    records = np.random.default_rng(0).normal(size=(60, 8, 8)).astype(np.float32)
    return classifier(module="cnn", random_state=1).fit(records, np.arange(60) % 2)


def adult():
    table = load_adult(subset="test")
    rows, target = table.data.iloc[:400], table.target.iloc[:400]
    steps = public_preprocessor(ADULT_BOUNDS, ADULT_CATEGORIES, passthrough=["sex", "race"])
    return make_pipeline(steps, classifier("global_adapt", group_col=["sex", "race"])).fit(
        rows, target
    )


def columns():
    steps = [("a", BoundedScaler((-4, 4)), [0, 1]), ("b", FunctionTransformer(np.abs), [2])]
    return make_pipeline(ColumnTransformer(steps, remainder="passthrough"), classifier()).fit(X, y)


def search():
    choices = {"lr": list(np.linspace(0.1, 2, 12)), "module__hidden_layer_sizes": [(4,), (8, 4)]}
    return DPRandomizedSearch(classifier(), choices, mean_trials=2, shape=1.0, random_state=0).fit(
        X, y
    )


CLEAN = {
    **{f"method {m}": (lambda m=m: fitted(m)) for m in ("naive", "dpsgd_f", "bam", "dp_is_sgd")},
    "mlp": lambda: fitted("global_adapt", module=MLP((8, 4)), random_state=3),
    "frame": lambda: classifier().fit(data.data, y),
    "cnn": image,
    "warm": warm,
    "adam": lambda: fitted(optimizer=Factory("Adam", betas=(0.8, 0.9)), lr=0.01),
    "ten classes": lambda: classifier().fit(X, np.arange(300) % 10),
    "declared": lambda: fitted(
        class_weight={0: 1.0, 1: 2.0}, classes=[0, 1], group_col=Groups(levels=["a", "b"])
    ),
    "adult": adult,
    "columns": columns,
    "search": search,
    "unfitted": lambda: classifier(random_state=0, module=MLP((64, 32, 16, 8))),
    "unfitted pipeline": lambda: make_pipeline(
        public_preprocessor(ADULT_BOUNDS, ADULT_CATEGORIES), classifier(random_state=0)
    ),
    "methods": lambda: [get_method(m) for m in sorted(METHODS)],
    "scaler": lambda: BoundedScaler(np.array([[-5.0, 5.0]] * 6)).fit(X),
    "privacy": lambda: fitted("dp_is_sgd").privacy_,
    "many classes": lambda: classifier(class_weight={k: 1.0 + k for k in range(20)}).fit(
        X, np.arange(300) % 20
    ),
    "codes": lambda: classifier().fit(X, 37 * (np.arange(300) % 25) ** 2),
    "many layers": lambda: fitted(module=MLP((4,) * 10)),
    "objects": lambda: classifier(
        module=CNN(channels=(4,)),
        augment=Views(FlipAndShift(shift=1), n=2),
        persons=Persons(max_records=3),
    ).fit(np.zeros((40, 8, 8), "f4"), y[:40], units=np.arange(40) // 2),
    "channels": lambda: classifier(module="cnn").fit(np.zeros((40, 3, 6, 6), "f4"), y[:40]),
    "quantiles": lambda: make_pipeline(DPQuantileScaler(bounds=(-5, 5)), classifier()).fit(X, y),
}


def forms(thing):
    """Return the thing itself and what pickle, joblib and torch make of it."""
    out = [thing, *(pickle.dumps(thing, protocol=p) for p in range(6))]
    for compress in (0, 3, ("gzip", 3), ("bz2", 3), ("xz", 2)):
        file = io.BytesIO()
        joblib.dump(thing, file, compress=compress)
        out.append(file.getvalue())
    for new in (True, False):
        file = io.BytesIO()
        torch.save(thing, file, _use_new_zipfile_serialization=new)
        out.append(file.getvalue())
    return out


@pytest.mark.parametrize("name", CLEAN)
def test_nothing_is_found_in_what_is_made_to_be_released(name):
    thing = CLEAN[name]()
    for form in forms(thing) if name == "mlp" else (thing, pickle.dumps(thing)):
        report = audit_artifact(form)
        assert report.is_clean, report


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("reference", {"keep_reference": True}),
        ("diagnostics", {"callbacks": [GroupRecorder(terms=False)]}),
    ],
)
def test_what_only_the_live_object_holds_is_found_in_it_alone(name, params):
    live, *files = forms(fitted(**params))
    assert any(f.where.startswith(f"{name}_") for f in audit_artifact(live).findings)
    for form in files:
        report = audit_artifact(form)
        assert report.is_clean, report


def test_groups_that_cross_are_clean():
    crossed = pd.DataFrame({"a": np.arange(300) % 2, "b": np.arange(300) % 5})
    bands = pd.Series(pd.cut(np.arange(300) / 7, 6))
    for groups in (crossed, crossed.astype(str).replace("1", "e"), bands):
        clf = classifier("dpsgd_f").fit(X, y, sensitive_features=groups)
        for form in (clf, pickle.dumps(clf)):
            report = audit_artifact(form)
            assert report.is_clean, report


def test_declared_intersections_of_many_levels_are_clean(tmp_path):
    regions = [f"Région {i}" for i in range(12)] + [""]
    crossed = pd.DataFrame(
        {"a": np.where(np.arange(300) % 2, "F", "H"), "b": np.resize(regions, 300)}
    )
    levels = [(a, b) for a in "FH" for b in regions]
    clf = classifier(group_col=Groups(levels=levels)).fit(X, y, sensitive_features=crossed)
    clf.save_release(tmp_path / "model.safetensors")
    for form in (clf, pickle.dumps(clf), tmp_path / "model.safetensors"):
        report = audit_artifact(form)
        assert report.is_clean, report


@pytest.mark.parametrize(
    "rows",
    [
        [(f"name {i}", "F", "Zurich", "yes") for i in range(60)],
        [(f"n{i % 59}", f"street {i % 53}", f"d{i % 47}", 18 + i % 60) for i in range(230)],
        [(18 + i * 7 % 73, 100 + i * 11 % 120) for i in range(300)],
        [*((a, b) for a in range(9) for b in "abcdef"), "x"],
    ],
    ids=["names", "people", "numbers", "ragged"],
)
def test_rows_of_people_are_no_groups(rows):
    clf = classifier(group_col=Groups(levels=rows))
    assert not audit_artifact(clf).is_clean


def test_a_declared_cross_of_codes_is_clean():
    clf = classifier(group_col=Groups(levels=[(a, b) for a in range(5) for b in "abcd"]))
    assert audit_artifact(clf).is_clean


def test_the_file_of_a_ledger_is_clean_unless_something_is_added(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = PrivacyLedger(path, epsilon=90.0, delta=1e-4)
    with ledger:
        for method in ("global_adapt", "dpsgd_f", "dp_is_sgd"):
            fitted(method)
        search()
    grid = GridSearchCV(classifier(), {"lr": [0.1, 0.2]}, cv=2)
    ledger.fit(grid, X, y)
    report = audit_artifact(path)
    assert report.is_clean, report
    path.write_text(path.read_text() + json.dumps({"fit": "a", "losses": [0.7, 0.6]}) + "\n")
    assert {f.kind for f in audit_artifact(path).findings} == {"not part of a release"}


def test_the_weights_of_a_network_of_ones_own_are_not_judged():
    """No code is run, so nothing can tell which of them hold data."""
    cloudpickle = pytest.importorskip("cloudpickle")
    by_value = fitted(module=lambda: nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 2)))
    for form in (*forms(fitted(module=Scaled)), by_value, cloudpickle.dumps(by_value)):
        report = audit_artifact(form)
        assert "not judged" in {f.kind for f in report.findings}
        assert {f.kind for f in report.findings} <= {
            "not judged",
            "code",
            "not part of a release",
        }, report


def test_weights_are_explained_beside_their_classifier_alone():
    clf = fitted(module=MLP((8,)))
    for thing in (clf.net_.module_, clf.net_.module_.state_dict()):
        assert {f.kind for f in audit_artifact(thing).findings} == {"unexplained array"}
        assert audit_artifact({"model": clf, "copy": thing}).is_clean


@pytest.mark.parametrize(
    "fit",
    [
        lambda: OneVsRestClassifier(classifier()).fit(X, np.arange(300) % 3),
        lambda: OneHotEncoder(categories=[["a", "b"]]).fit([["a"]]),
    ],
)
def test_what_others_estimators_keep_is_found_however_little(fit):
    for form in forms(fit()):
        assert {f.kind for f in audit_artifact(form).findings} == {"fitted values"}


def test_folders_are_clean(tmp_path):
    clf = fitted(module=MLP((8,)))
    torch.save(clf, tmp_path / "model.pt")
    joblib.dump(clf, tmp_path / "model.joblib")
    (tmp_path / "privacy.json").write_text(json.dumps(clf.privacy_statement()))
    report = audit_artifact(tmp_path)
    assert report.is_clean, report


def test_a_model_without_finite_epsilon_is_named():
    clf = classifier(epsilon=None, accountant="pld").fit(X, y)
    assert [f.kind for f in audit_artifact(clf).findings] == ["reference model"]


def test_a_released_file_is_clean(tmp_path):
    pytest.importorskip("safetensors")
    fitted().save_release(tmp_path / "model.safetensors")
    assert audit_artifact(tmp_path / "model.safetensors").is_clean
