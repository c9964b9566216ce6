"""Public networks as transformers: of each record alone, without traces, named in reports."""

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


class Of(nn.Module):
    """Features that a function computes of a batch, and of a state."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.register_buffer("state", torch.zeros(432))

    def forward(self, x):
        return self.function(x.flatten(1), self.state)


def unlisted(x, state):
    """Use an operation that no recording follows."""
    return torch.special.bessel_j0(x)


def counting(x, state):
    state += 1
    return unlisted(x, state) + state


def remembering(x, state):
    out = x + state
    state.copy_(x[0])
    return out


def strided(x, state):
    """Read memory by its layout where there is one record."""
    return x if len(x) != 1 else torch.as_strided(x, (1, x.numel()), (x.numel(), 1))


@pytest.fixture
def pictures():
    return np.random.default_rng(0).random((9, 3, 12, 12), dtype=np.float32)


@pytest.fixture
def backbone():
    torch.manual_seed(0)
    module = Backbone()
    module(torch.rand(64, 3, 12, 12) * 3)  # moves the running statistics
    return module


def test_frozen_features_are_those_of_the_module_in_evaluation_mode(backbone, pictures):
    before = {k: v.clone() for k, v in backbone.state_dict().items()}
    found = FrozenFeatures(backbone.train()).fit_transform(pictures)
    with torch.no_grad():
        expected = backbone.eval()(torch.from_numpy(pictures)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert all(torch.equal(v, before[k]) for k, v in backbone.state_dict().items())


def test_a_module_that_cannot_be_recorded_is_traced_on_one_record(pictures):
    found = FrozenFeatures(Of(unlisted)).fit_transform(pictures)
    np.testing.assert_allclose(found, j0(pictures.reshape(9, -1)), rtol=1e-4, atol=1e-6)


SIZES = set()  # of the batches that reach the code of a network


def noting(x, state):
    SIZES.add(len(x))
    return x


def test_no_code_of_a_network_runs_on_the_records(pictures):
    found = FrozenFeatures(Of(noting)).fit(pictures).transform(pictures)
    np.testing.assert_array_equal(found, pictures.reshape(9, -1))
    assert not SIZES - {1, 4}  # of made-up records; there are nine pictures


def test_frozen_features_leave_the_pictures_unmodified(pictures):
    before = pictures.copy()
    for module in (
        nn.Sequential(nn.ReLU(inplace=True), nn.Flatten()),
        Of(lambda x, state: x.sub_(1)),
    ):
        FrozenFeatures(module).fit_transform(pictures)
    np.testing.assert_array_equal(pictures, before)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_frozen_features_take_networks_of_torch_export_and_refuse_torchscript(backbone, pictures):
    example, sizes = torch.from_numpy(pictures), ({0: torch.export.Dim("n")},)
    exported = torch.export.export(backbone.eval(), (example,), dynamic_shapes=sizes).module()
    found, expected = (FrozenFeatures(m).fit_transform(pictures) for m in (exported, backbone))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(TypeError, match=r"torch\.jit\.ScriptModule"):
        FrozenFeatures(torch.jit.script(nn.Flatten())).fit_transform(pictures)


LAST = np.zeros((20, 12, 12, 3), np.float32)  # channels


@pytest.mark.parametrize(
    "module, X, error, match",
    [
        ("net.onnx", LAST, TypeError, "module must be a torch.nn.Module .* 'net.onnx'"),
        (Backbone, LAST, TypeError, "module must be a torch.nn.Module .*weights"),
        (nn.Flatten(0), LAST, UnsupportedModuleError, "mixes the records"),
        (Of(lambda x, state: x - x.mean(0)), LAST, UnsupportedModuleError, "mixes the records"),
        (Of(strided), LAST, UnsupportedModuleError, "as_strided"),
        (Of(counting), LAST, UnsupportedModuleError, "one record at a time"),
        (nn.Sequential(nn.Flatten(), Of(remembering)), LAST, UnsupportedModuleError, "module"),
        (
            Of(lambda x, state: x + torch.rand_like(x)),
            LAST,
            UnsupportedModuleError,
            "draws random numbers",
        ),
        (nn.Conv2d(3, 2, 3), LAST, ValueError, r"channels .*X.transpose\(0, 3, 1, 2\)"),
        (nn.Conv2d(3, 2, 3), LAST.reshape(20, -1), ValueError, "image_shape="),
    ],
)
def test_frozen_features_refuse_modules_that_give_none(module, X, error, match):
    with pytest.raises(error, match=match):
        FrozenFeatures(module).fit_transform(X)


def test_the_report_names_the_network_and_its_digest(backbone):
    rng = np.random.default_rng(0)
    X, y = rng.random((400, 3, 12, 12), dtype=np.float32), rng.integers(0, 2, 400)
    frozen = FrozenFeatures(backbone)
    head = DPFairClassifier("dpsgd", epsilon=8.0, delta=1e-4, module="logistic", max_steps=3)
    pipe = make_pipeline(frozen, head).fit(X, y)
    named = f"FrozenFeatures(Backbone), sha256 {frozen.digest[:16]}, public by declaration"
    assert pipe[-1].privacy_.features == named
    assert "frozenfeatures" not in " ".join(pipe[-1].privacy_.not_accounted)
    linted = lint_pipeline(pipe)
    assert not linted.findings and any("public rows" in note for note in linted.notes)
    bare = clone(pipe).fit(X, y)[-1].fit(frozen.transform(X).copy(), y)  # a copy may be anything
    assert bare.privacy_.features is None


def test_frozen_features_of_a_compiled_module_are_those_inside():
    network, x = nn.Linear(4, 2), np.eye(4, dtype=np.float32)
    pair = [FrozenFeatures(m) for m in (torch.compile(network, backend="eager"), network)]
    assert len({features.digest for features in pair}) == 1
    np.testing.assert_array_equal(*(features.fit_transform(x) for features in pair))
