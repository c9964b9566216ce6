"""The ONNX file computes what the classifier does, and tells of nothing else."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import skdpfair
from skdpfair import MLP
from skdpfair.exceptions import PrivacyLeakWarning
from skdpfair.release import _onnx

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")


def check_onnx(model, X, path):
    """Check the file against the classifier, for batches of several sizes."""
    model.export_onnx(path)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    (features,) = session.get_inputs()
    assert features.name == "features" and features.shape[0] == "batch"
    assert [o.name for o in session.get_outputs()] == ["logits", "probabilities", "label"]
    x = X.drop(columns="group").to_numpy() if hasattr(X, "columns") else X
    for rows in (slice(1), slice(3, 10), slice(None)):
        given = {"features": x[rows].astype(np.float32)}
        logits, probabilities, label = session.run(None, given)
        expected = model.decision_function(X[rows])
        if len(model.classes_) == 2:
            logits = logits[:, 1] - logits[:, 0]
        np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(probabilities, model.predict_proba(X[rows]), atol=1e-5)
        np.testing.assert_array_equal(label, model.predict(X[rows]))
    return label


def check_clean(path):
    """Check that a file holds no path, no source line, and no note of an exporter."""
    content = Path(path).read_bytes()
    places = {*sys.path, sys.prefix, str(Path.home()), str(Path(skdpfair.__file__).parents[1])}
    places |= {__file__, str(Path.cwd()), str(path)}
    words = [b"site-packages", b".py", b"forward(", b"stack_trace", b"pytorch"]
    for word in [*words, *(place.encode() for place in places if len(place) > 1)]:
        assert word not in content, word
    model = onnx.load(path)
    assert not model.functions and not model.doc_string and not model.graph.doc_string
    assert not any(n.doc_string or n.metadata_props for n in model.graph.node)
    assert {o.domain for o in model.opset_import} == {""}
    return {p.key: json.loads(p.value) for p in model.metadata_props}


LABELS = {
    "text": (["no\n", 'y"é', "c"], object),
    "bool": ([True, False], np.int64),
    "float": ([0.0, 2.0], np.int64),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_kind(kind, table, path, fitted):
    labels, dtype = LABELS[kind]
    y = np.array(labels)[np.arange(len(table[0])) % len(labels)]
    label = check_onnx(fitted((table[0], y)), table[0], path)
    assert label.dtype == dtype


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_layers_of_a_table(activation, table, path, fitted):
    check_onnx(fitted(table, module=MLP((7, 5), activation=activation)), table[0], path)


@pytest.mark.parametrize(
    ("module", "shape"),
    [("cnn", (9, 7)), ("mlp", (9, 7)), ("logistic", (3, 9, 7))],
)
def test_images(module, shape, path, fitted):
    rng = np.random.default_rng(0)
    X, y = rng.random((20, *shape), dtype=np.float32), rng.integers(0, 3, 20)
    check_onnx(fitted((X, y), module=module, group_col=None), X, path)


def test_facts_are_in_the_file(table, path, fitted):
    model = fitted(table, "dpsgd_f")
    model.export_onnx(path)
    facts = check_clean(path)
    assert facts["privacy_statement"] == model.privacy_statement()
    assert facts["feature_names"] == [f"x{i}" for i in range(6)]  # the group is none
    assert facts["classes"] == [0, 1]
    first = path.read_bytes()
    model.export_onnx(path)
    assert path.read_bytes() == first
    model = fitted(table, noise_multiplier=None)
    with pytest.warns(PrivacyLeakWarning):
        model.export_onnx(path)
    assert "NOT" in check_clean(path)["privacy_statement"]["statement"]


class Own(nn.Module):
    """With names that could meet those of the outputs, and what no built-in module has."""

    def __init__(self, width=4):
        super().__init__()
        self.label, self.drop = nn.Linear(6, width), nn.Dropout(0.3)
        self.norm, self.logits = nn.LayerNorm(width), nn.Linear(width, 2)

    def forward(self, features):
        probabilities = torch.tanh(self.label(features))
        return self.logits(self.norm(self.drop(probabilities)) + probabilities)


class Bessel(nn.Module):
    """With a function that ONNX does not have."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(self, x):
        return torch.special.i1e(self.layer(x))


def test_modules_of_ones_own(table, path, fitted):
    check_onnx(fitted(table, module=Own), table[0], path)
    check_clean(path)


@pytest.mark.slow
def test_modules_that_cannot_be_exported(table, path, fitted):
    model = fitted(table, module=Bessel)
    with pytest.raises(ValueError, match="cannot export the module Bessel"):
        model.export_onnx(path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_modules_of_ones_own_before_torch_2_5(table, path, fitted, monkeypatch):
    export = torch.onnx.export

    def old_export(model, args, f, input_names, output_names, dynamic_axes, opset_version):
        options = {"input_names": input_names, "output_names": output_names, "dynamo": False}
        export(model, args, f, dynamic_axes=dynamic_axes, opset_version=opset_version, **options)

    monkeypatch.setattr(_onnx.torch.onnx, "export", old_export)
    check_onnx(fitted(table, module=Own), table[0], path)
    check_clean(path)
