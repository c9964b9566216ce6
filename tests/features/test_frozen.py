"""Public networks as transformers: each record alone, no traces, and what reports say."""

import numpy as np
import pytest
import torch
from scipy.special import j0
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from torch import nn

from skdpfair import DPFairClassifier
from skdpfair.exceptions import UnsupportedModuleError
from skdpfair.features import FrozenFeatures
from skdpfair.preprocessing import lint_pipeline


class Backbone(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 3, stride=2), nn.BatchNorm2d(width), nn.ReLU(), nn.Dropout(0.5)
        )

    def forward(self, x):
        return self.layers(x).mean((2, 3))


class Centred(nn.Module):
    """Mixes the records of a batch."""

    def forward(self, x):
        return x.flatten(1) - x.flatten(1).mean(0)


class Unlisted(nn.Module):
    """Uses an operation that no recording follows."""

    def forward(self, x):
        return torch.special.bessel_j0(x.flatten(1))


class Counting(Unlisted):
    """Counts its calls."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return super().forward(x) + self.calls


class Hurting(nn.Module):
    """Changes what it is given."""

    def forward(self, x):
        x -= 1
        return x.flatten(1)


class Remembering(nn.Module):
    """Adds the record before."""

    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(432))

    def forward(self, x):
        out = x.flatten(1) + self.last
        self.last.copy_(x[0].flatten())
        return out


@pytest.fixture
def pictures():
    return np.random.default_rng(0).random((9, 3, 12, 12), dtype=np.float32)


@pytest.fixture
def backbone():
    torch.manual_seed(0)
    module = Backbone()
    module(torch.rand(64, 3, 12, 12) * 3)  # moves the running statistics
    return module


def test_the_features_are_those_of_the_module_in_evaluation_mode(backbone, pictures):
    before = {k: v.clone() for k, v in backbone.state_dict().items()}
    found = FrozenFeatures(backbone.train()).fit_transform(pictures)
    with torch.no_grad():
        expected = backbone.eval()(torch.from_numpy(pictures)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert all(torch.equal(v, before[k]) for k, v in backbone.state_dict().items())


def test_a_module_that_cannot_be_recorded_is_traced_on_one_record(pictures):
    found = FrozenFeatures(Unlisted()).fit_transform(pictures)
    np.testing.assert_allclose(found, j0(pictures.reshape(9, -1)), rtol=1e-4, atol=1e-6)


class Strided(nn.Module):
    """Reads memory by its layout where it sees one record."""

    def forward(self, x):
        return x.flatten(1) if len(x) != 1 else torch.as_strided(x, (1, x.numel()), (x.numel(), 1))


BATCHES = []


class Noting(nn.Module):
    def forward(self, x):
        BATCHES.append(len(x))
        return x.flatten(1)


def test_no_code_of_a_network_runs_on_the_records(pictures):
    found = FrozenFeatures(Noting()).fit(pictures).transform(pictures)
    np.testing.assert_array_equal(found, pictures.reshape(9, -1))
    assert set(BATCHES) <= {1, 4}  # of made-up records; there are nine pictures


def test_the_pictures_stay_as_they_are(pictures):
    before = pictures.copy()
    for module in (nn.Sequential(nn.ReLU(inplace=True), nn.Flatten()), Hurting()):
        FrozenFeatures(module).fit_transform(pictures)
    np.testing.assert_array_equal(pictures, before)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_network_of_torch_export_is_taken_and_one_of_torchscript_is_not(backbone, pictures):
    example, sizes = torch.from_numpy(pictures), ({0: torch.export.Dim("n")},)
    exported = torch.export.export(backbone.eval(), (example,), dynamic_shapes=sizes).module()
    found, expected = (FrozenFeatures(m).fit_transform(pictures) for m in (exported, backbone))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(TypeError, match=r"torch\.jit\.ScriptModule, which cannot be traced"):
        FrozenFeatures(torch.jit.script(Remembering())).fit_transform(pictures)


class Drawing(nn.Module):
    def forward(self, x):
        return x.flatten(1) + torch.rand_like(x.flatten(1))


@pytest.mark.parametrize(
    "module, error, text",
    [
        ("net.onnx", TypeError, "module must be a torch.nn.Module .* 'net.onnx'"),
        (Backbone, TypeError, "module must be a torch.nn.Module that has its weights"),
        (nn.Flatten(0), UnsupportedModuleError, "mixes the records"),
        (Centred(), UnsupportedModuleError, "mixes the records"),
        (Strided(), UnsupportedModuleError, "as_strided"),
        (Counting(), UnsupportedModuleError, "one record at a time"),
        (nn.Sequential(nn.Flatten(), Remembering()), UnsupportedModuleError, "module"),
        (Drawing(), UnsupportedModuleError, "draws random numbers"),
    ],
)
def test_modules_and_parameters_that_cannot_give_features_are_refused(
    module, error, text, pictures
):
    with pytest.raises(error, match=text):
        FrozenFeatures(module).fit_transform(pictures)


def test_the_report_names_the_network_and_its_digest(backbone):
    rng = np.random.default_rng(0)
    X, y = rng.random((400, 3, 12, 12), dtype=np.float32), rng.integers(0, 2, 400)
    frozen = FrozenFeatures(backbone)
    head = DPFairClassifier("dpsgd", epsilon=8.0, delta=1e-4, module="logistic", max_steps=3)
    pipe = make_pipeline(frozen, head).fit(X, y)
    told = f"Features are those of FrozenFeatures(Backbone), sha256 {frozen.digest[:16]}, public"
    assert told in pipe[-1].privacy_.statement
    assert "frozenfeatures" not in " ".join(pipe[-1].privacy_.not_accounted)
    report = lint_pipeline(pipe)
    assert not report.findings
    assert any("must come from public rows" in note for note in report.notes)
    bare = clone(pipe).fit(X, y)[-1].fit(frozen.transform(X).copy(), y)  # a copy may be anything
    assert bare.privacy_.features is None
