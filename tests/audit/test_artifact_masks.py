"""Names of public facts excuse nothing that has another form."""

import pickle
from copy import deepcopy
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

from skdpfair import DPFairClassifier
from skdpfair.audit import audit_artifact
from skdpfair.datasets import make_two_groups
from skdpfair.preprocessing import BoundedScaler

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
        ("feature_names_in_", X.astype(str)),
        ("feature_names_in_", np.array([str(row) for row in X], dtype=object)),
        ("class_weight", dict(enumerate(norms.tolist()))),
        ("hidden_layer_sizes", tuple(norms.tolist())),
        ("hidden_layer_sizes", tuple(drawn.tolist())),
        ("module_params", {"w": X.tolist()}),
        ("optimizer_params", {"w": norms.tolist()}),
        ("privacy_.assumptions", tuple(norms.tolist())),
        ("privacy_.assumptions", tuple(map(str, norms))),
        ("privacy_.group_epsilons", dict(enumerate(X[:, 0].tolist()))),
        ("method_.max_grad_norm", norms),
        ("_group_positions", drawn.tolist()),
        ("groups", X[:, 0].tolist()),
        ("lr_", norms),
        ("verbose", int.from_bytes(X[:2].tobytes(), "big")),
    ],
)
def test_attributes_of_ours(path, value):
    clf = with_attribute(path, value)
    assert audit_artifact(clf).findings
    assert audit_artifact(pickle.dumps(clf)).findings


@pytest.mark.parametrize(
    "plant",
    [
        lambda m: m[0].register_parameter("bank", nn.Parameter(torch.from_numpy(X))),
        lambda m: m.register_buffer("scale", torch.from_numpy(X)),
        lambda m: m.register_buffer("weight", torch.from_numpy(X)),
        lambda m: m.register_buffer("bias", torch.from_numpy(X[:, 0].copy())),
        lambda m: setattr(m[0], "weight", nn.Parameter(torch.from_numpy(X))),
    ],
)
def test_parameters_and_buffers(plant):
    module = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))
    assert audit_artifact(module).is_clean
    plant(module)
    for thing in (module, module.state_dict(), pickle.dumps(module)):
        assert audit_artifact(thing).findings


def test_bounds_are_as_many_as_the_columns():
    pairs = [(float(a), float(a) + 1) for a in X[:, 0]]
    assert audit_artifact(BoundedScaler(pairs[:6]).fit(X)).is_clean
    scaler = BoundedScaler(pairs[:6]).fit(X)
    scaler.bounds = pairs
    assert audit_artifact(pickle.dumps(scaler)).findings


def test_rows_tell_what_shapes_cannot():
    """A table may pass for an embedding; whoever has the records can still find them."""
    module = nn.Sequential(nn.Embedding(90, 6), nn.Linear(6, 2))
    with torch.no_grad():
        module[0].weight.copy_(torch.from_numpy(X))
    assert audit_artifact(module).is_clean
    assert {f.kind for f in audit_artifact(module, rows=X).findings} == {"rows"}
