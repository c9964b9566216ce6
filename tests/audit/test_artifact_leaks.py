"""What must not leave with a model is found, whatever it is called and wherever it lies."""

import functools
import gzip
import io
import json
import pathlib
import pickle
import random
import types
import warnings
import zipfile

import joblib
import numpy as np
import pandas as pd
import pytest
import skorch
import torch
from fairlearn.postprocessing import ThresholdOptimizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, TunedThresholdClassifierCV
from torch import nn

from skdpfair import DPFairClassifier, Factory
from skdpfair.audit import audit_artifact
from skdpfair.datasets import make_two_groups

rng = np.random.default_rng(0)
X = rng.normal(size=(80, 6)).astype(np.float32)
y = rng.integers(0, 2, size=80)
records = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(y))
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::skdpfair.exceptions.{name}Warning")
    for name in ("InsecureSeed", "LowSignal", "PrivacyLeak")
]


def network():
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))


def trained():
    module = network()
    optimizer = torch.optim.Adam(module.parameters())
    nn.functional.cross_entropy(module(records.tensors[0]), records.tensors[1]).backward()
    optimizer.step()
    return module, optimizer


def hook(*args):
    return None


def hooked():
    module = network()
    module[0].register_forward_hook(hook)
    return module


class Keeper(skorch.callbacks.Callback):
    def __init__(self):
        self.seen = records[:16]


def closure():
    kept = X.copy()
    return lambda row: row - kept.mean()


def zipped(content):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model.pkl", content)
    return file.getvalue()


@functools.cache
def private():
    data = make_two_groups(300, random_state=0)
    clf = DPFairClassifier("dpsgd", epsilon=2.0, accountant="rdp", max_steps=2)
    return clf.fit(data.data, data.target)


@functools.cache
def reference():
    data = make_two_groups(300, random_state=0)
    return DPFairClassifier("dpsgd", epsilon=None, max_steps=2).fit(data.data, data.target)


def memmap(folder):
    kept = np.memmap(folder / "rows.dat", dtype="f4", mode="w+", shape=X.shape)
    kept[:] = X
    return kept


LEAKS = {
    "per-record gradients": lambda: torch.randn(16, 5, 6),
    "summed gradient": lambda: torch.randn(5, 6),
    "optimizer state": lambda: trained()[1].state_dict(),
    "optimizer": lambda: torch.optim.SGD(network().parameters(), lr=0.1),
    "data loader": lambda: torch.utils.data.DataLoader(records, batch_size=4),
    "data set": lambda: torch.utils.data.Subset(records, [1, 2, 3]),
    "records": lambda: X,
    "records as a tensor": lambda: torch.from_numpy(X),
    "records as lists": lambda: X.tolist(),
    "records as objects": lambda: [types.SimpleNamespace(a=float(a), b=float(b)) for a, b, *_ in X],
    "records as bytes": lambda: X.tobytes(),
    "records as text": lambda: str(X.tolist()),
    "records in hex": lambda: X.tobytes().hex(),
    "records by column": lambda: {f"f{j}": X[:, j] for j in range(6)},
    "a table": lambda: pd.DataFrame(X),
    "labels": lambda: y,
    "labels as words": lambda: [("no", "yes")[v] for v in y],
    "float64 copy": lambda: X.astype(np.float64),
    "losses": lambda: [0.7 * 0.9**i for i in range(20)],
    "losses by epoch": lambda: [{"epoch": i, "train_loss": 0.5} for i in range(9)],
    "norms": lambda: np.abs(X[:, 0]),
    "indices": lambda: torch.arange(40),
    "torch's generator": lambda: torch.Generator().manual_seed(1),
    "torch's generator state": lambda: torch.Generator().get_state(),
    "numpy's generator": lambda: np.random.default_rng(1),
    "numpy's generator state": lambda: np.random.default_rng(1).bit_generator.state,
    "Python's generator": lambda: random.Random(1),
    "entropy": lambda: np.random.SeedSequence(2**100 + 1).entropy,
    "reference": reference,
    "reference's module": lambda: reference().net_.module_,
    "partial": lambda: functools.partial(np.dot, X),
    "callback": Keeper,
    "hook": hooked,
    "path": lambda: pathlib.PurePosixPath("/data/people/train.npy"),
    "pickle in zip in gzip": lambda: gzip.compress(zipped(pickle.dumps({"a": X}))),
}


def in_attribute(leak):
    clf = pickle.loads(pickle.dumps(private()))
    clf.aux_ = leak
    return clf


def in_dict(leak):
    return {"model": private(), "aux": leak}


def in_parameter(leak):
    module = network()
    module[0].weight.aux = leak
    return [module]


def as_object(thing):
    return thing


def as_joblib(thing):
    file = io.BytesIO()
    joblib.dump(thing, file, compress=3)
    return file.getvalue()


def as_torch(thing, new=True):
    file = io.BytesIO()
    torch.save(thing, file, _use_new_zipfile_serialization=new)
    return file.getvalue()


def as_old_pickle(thing):
    return pickle.dumps(thing, protocol=2)


FORMS = [
    as_object,
    pickle.dumps,
    as_old_pickle,
    as_joblib,
    as_torch,
    functools.partial(as_torch, new=False),
]


@pytest.mark.parametrize("name", LEAKS)
def test_every_leak_is_found(name):
    leak = LEAKS[name]()
    for form in (in_attribute(leak), pickle.dumps(in_attribute(leak))):
        assert any("aux" in f.where for f in audit_artifact(form).findings)


@pytest.mark.parametrize("carrier", [in_attribute, in_dict, in_parameter])
@pytest.mark.parametrize("form", FORMS)
def test_leaks_are_found_wherever_they_lie_and_in_every_form(carrier, form):
    for name in ("records", "losses", "hook"):
        report = audit_artifact(form(carrier(LEAKS[name]())))
        assert any("aux" in f.where for f in report.findings), report


def test_gradients_beside_parameters_are_named():
    module = network()
    module[0].weight.renamed = torch.randn(7, 5, 6)
    module[0].bias.summed_grad = torch.randn(5)
    report = audit_artifact(pickle.dumps(module))
    found = {(f.kind, f.where, f.shape) for f in report.findings if f.kind != "unexplained array"}
    assert found == {
        ("attached to a tensor", "0.weight.renamed", (7, 5, 6)),
        ("attached to a tensor", "0.bias.summed_grad", (5,)),
    }


def test_what_pickles_drop_is_found_in_bare_modules():
    module, _ = trained()
    module[2].bias.register_hook(hook)
    found = {(f.kind, f.where) for f in audit_artifact(module).findings}
    assert {
        ("attached to a tensor", f"{n}") for n in ("0.weight.grad", "2.bias._backward_hooks")
    } <= found
    kinds = {f.kind for f in audit_artifact(pickle.dumps(module)).findings}
    assert kinds == {"unexplained array"}  # the weights themselves


def test_functions_carry_what_they_close_over():
    cloudpickle = pytest.importorskip("cloudpickle")
    for thing in (closure(), cloudpickle.dumps({"post": closure()})):
        assert "code" in {f.kind for f in audit_artifact(thing).findings}


def test_a_memmap_is_found(tmp_path):
    assert audit_artifact({"cache": memmap(tmp_path)}).findings


@pytest.mark.parametrize(
    "state",
    [
        {"weight": X},
        {"0.weight": X, "0.bias": torch.zeros(5)},
        network().state_dict() | {"2.rows": torch.from_numpy(X)},
        network().state_dict() | {"3.weight": torch.from_numpy(X)},
        dict(network().state_dict()) | {"4.weight": y},
        network().state_dict() | {"0.weight": torch.zeros(5, 6, dtype=torch.float64)},
    ],
)
def test_no_name_explains_an_array(state):
    assert audit_artifact(state).findings


def test_memory_that_no_tensor_shows_is_found():
    kept = torch.from_numpy(X.copy())
    report = audit_artifact(as_torch({"0.weight": kept[:2, :6], "0.bias": torch.zeros(2)}))
    assert X.nbytes in {f.n_bytes for f in report.findings}


def test_statistics_and_rows_of_estimators_are_found():
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    kinds = {f.kind for f in audit_artifact(KNeighborsClassifier().fit(X, y)).findings}
    assert {"fitted values", "unexplained array"} <= kinds
    for model in (StandardScaler().fit(X[:, :1]), OneHotEncoder().fit(y[:, None])):
        assert {f.kind for f in audit_artifact(model).findings} == {"fitted values"}


@pytest.mark.filterwarnings(
    "ignore:Secure RNG", "ignore:Full backward hook", "ignore:Optimal order"
)
def test_opacus_modules_are_found():
    from opacus import PrivacyEngine

    loader = torch.utils.data.DataLoader(records, batch_size=40)
    module = nn.Linear(6, 2)
    module, optimizer, loader = PrivacyEngine().make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    for inputs, targets in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(inputs), targets).backward()
        optimizer.step()
    report = audit_artifact(pickle.dumps(module._module))
    kinds = {f.where: f.kind for f in report.findings}
    assert kinds["weight.grad_sample"] == kinds["weight.summed_grad"] == "attached to a tensor"
    outer, bias = module._module.weight.grad_sample, module._module.bias.grad_sample
    assert torch.allclose(outer[:, 0] / bias[:, :1], inputs, atol=1e-5)  # why that matters


SMALL = {
    "records of four numbers": lambda: [row.copy() for row in X[:, :4]],
    "losses one by one": lambda: [torch.tensor(0.6) for _ in range(40)],
    "indices batch by batch": lambda: {"drawn": [torch.arange(4) for _ in range(7)]},
    "labels as flags": lambda: {"cache": (y == 1).tolist()},
    "labels that are one object": lambda: [(np.int64(0), np.int64(1))[i] for i in y],
    "a gradient under another name": lambda: network().state_dict() | {"0.w_sum": X[:5, :6]},
    "a seed in a tensor": lambda: {"model_seed": torch.tensor(42)},
    "a seed among settings": lambda: fit(module=Factory(seeded, seed=4)),
    "a seed in a log": lambda: ["fitted DPFairClassifier(random_state=42) in 3 s"],
    "losses in a log": lambda: "\n".join(f"epoch {i} train loss 0.{i}1" for i in range(5)),
    "losses as JSON": lambda: json.dumps({"losses": [0.7, 0.6, 0.5] * 5}),
    "records as JSON lines": lambda: pd.DataFrame(X).to_json(orient="records", lines=True),
    "labels as words": lambda: " ".join(np.array(["yes", "no"])[y]),
    "a table of words": lambda: "\n".join(f"{'MF'[i]},{'ab'[i]}" for i in y),
    "bytes in a number": lambda: np.void(X.tobytes()),
}


def seeded(seed):
    return nn.Linear(6, 2)


def fit(**params):
    data = make_two_groups(60, random_state=0)
    return DPFairClassifier("dpsgd", max_steps=2, accountant="rdp", **params).fit(
        data.data, data.target
    )


@pytest.mark.parametrize("name", SMALL)
def test_small_and_written_things_are_found(name):
    thing = SMALL[name]()
    bare = thing.encode() if isinstance(thing, str) else thing
    for form in (bare, pickle.dumps({"model": [thing]}), as_torch({"state": thing})):
        assert audit_artifact(form).findings


def test_what_seeded_the_fits_of_a_search_is_found():
    data = make_two_groups(120, random_state=0)
    clf = DPFairClassifier("dpsgd", max_steps=2, accountant="rdp", random_state=7)
    assert audit_artifact(clf).is_clean
    search = GridSearchCV(clf, {"lr": [0.1]}, cv=2).fit(data.data, data.target)
    del search.cv_results_
    assert "seed" in {f.kind for f in audit_artifact(pickle.dumps(search)).findings}


def test_gradients_that_a_live_classifier_holds_are_found():
    clf = fit()
    assert audit_artifact(clf).is_clean
    next(clf.net_.module_.parameters()).grad_sample = torch.ones(40, 2, 6)
    assert {f.kind for f in audit_artifact(clf).findings} == {"attached to a tensor"}
    assert audit_artifact(pickle.dumps(clf)).is_clean


def test_open_files_are_read(tmp_path):
    (tmp_path / "rows.pkl").write_bytes(pickle.dumps(X))
    with open(tmp_path / "rows.pkl", "rb") as file:
        assert audit_artifact(file).findings


def test_models_that_choose_thresholds_on_labels_are_never_clean():
    rng = np.random.default_rng(0)
    X, y, sex = rng.normal(size=(200, 2)), rng.integers(0, 2, 200), rng.integers(0, 2, 200)
    model = LogisticRegression()
    tuned = TunedThresholdClassifierCV(model, cv=2).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fair = ThresholdOptimizer(estimator=model, predict_method="predict_proba")
        fair.fit(X, y, sensitive_features=sex)
    for fitted in (tuned, fair):
        kinds = {f.kind for f in audit_artifact(pickle.dumps(fitted)).findings}
        assert "fitted values" in kinds and "optimizer state" not in kinds


def test_a_threshold_on_a_private_model_is_found_by_itself():
    rows, y = X[:, :2], np.arange(len(X)) % 2
    model = DPFairClassifier("dpsgd", max_steps=2, accountant="rdp").fit(rows, y)
    tuned = TunedThresholdClassifierCV(model, cv="prefit", refit=False).fit(rows, y)
    for given in (tuned, pickle.dumps(tuned)):
        report = audit_artifact(given)
        assert {f.kind for f in report.findings} == {"fitted values"}
        assert any("best_threshold_" in f.where for f in report.findings)
