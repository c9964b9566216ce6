"""Fits of modules with frozen backbones."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from skorch.callbacks import Callback
from torch import nn

from skdpfair import DPFairClassifier, load_release
from skdpfair._utils.files import sha256_of
from skdpfair.analysis import GroupRecorder
from skdpfair.augmentations import PGD
from skdpfair.exceptions import PrivacyAccountingError, UnsupportedModuleError
from skdpfair.release._closed_list import is_report
from skdpfair.training.inference import weights_of

pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")
RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, 600)
X = (RNG.normal(size=(600, 1, 6, 6)) + 2.0 * Y[:, None, None, None]).astype(np.float32)
GROUP = RNG.integers(0, 2, 600)


def public_backbone():
    generator = torch.Generator().manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()]
    module = nn.Sequential(*layers)
    with torch.no_grad():
        for tensor in (*module.parameters(), module[1].running_mean):
            tensor.copy_(torch.rand(tensor.shape, generator=generator))
        module[1].running_var.fill_(4.0)
    return module.requires_grad_(False)


def with_backbone():
    return nn.Sequential(public_backbone(), nn.Linear(64, 2))


def private(**options):
    fixed = {"module": with_backbone, "epsilon": None, "noise_multiplier": 1.0, "max_steps": 12}
    return DPFairClassifier("dpsgd", **fixed | {"batch_size": 100} | options)


@pytest.fixture(scope="module")
def fitted():
    return private(noise_multiplier=0.5, max_steps=60).fit(X, Y)


def uphill(module, x, y):
    def loss(x):
        return nn.functional.cross_entropy(module(x), y, reduction="sum")

    return x + 0.01 * torch.func.grad(loss)(x).sign()


uphill.input_range = None


def frozen_of(model):
    weights = weights_of(model.net_)
    return {name: w for name, w in weights.items() if name.startswith("0.")}


def test_head_trains_on_a_frozen_backbone(fitted):
    assert fitted.score(X, Y) > 0.9 and fitted.net_.engine_.n_parameters == 130
    public = {f"0.{name}": v.numpy() for name, v in public_backbone().state_dict().items()}
    held = frozen_of(fitted)
    assert public.keys() == held.keys()
    assert all(np.array_equal(held[name], public[name]) for name in public)


def test_assumptions_have_the_number_and_digest_of_frozen_parameters(fitted):
    frozen = frozen_of(fitted)
    n = sum(w.size for w in frozen.values())
    (found,) = [text for text in fitted.privacy_.assumptions if text.startswith("frozen")]
    assert found.startswith(f"frozen: {n} ") and sha256_of(frozen)[:16] in found
    assert found in fitted.privacy_.details()
    others = private(module="mlp").fit(X, Y).privacy_.assumptions
    assert not any("frozen" in text for text in others)
    assert is_report(fitted.privacy_, None)
    for text in (found + " 0.5", found.replace("sha256 ", "sha256 0"), "frozen: 1"):
        assumptions = *fitted.privacy_.assumptions, text
        assert not is_report(replace(fitted.privacy_, assumptions=assumptions), None)


def test_model_page_has_the_frozen_parameters(fitted):
    report = pytest.importorskip("skdpfair.report")
    digest = sha256_of(frozen_of(fitted))[:16]
    assert digest in report.model_page(fitted)


def test_copies_have_the_frozen_backbone(fitted, tmp_path):
    fitted.save_release(tmp_path / "model.safetensors")
    loaded = load_release(tmp_path / "model.safetensors", module=with_backbone)
    for copied in (loaded, fitted.release(), pickle.loads(pickle.dumps(fitted))):
        assert np.array_equal(copied.predict_proba(X), fitted.predict_proba(X))
        assert copied.privacy_.assumptions == fitted.privacy_.assumptions


@pytest.mark.parametrize(
    "options",
    [
        {"max_physical_batch_size": 16},
        {"attack": PGD(0.05, n_steps=2, input_range=None)},
        {"attack": uphill},
        {"callbacks": [GroupRecorder(terms=False)]},
        {"keep_reference": True},
        {"validation_data": (X[:50], Y[:50])},
    ],
    ids=["parts", "pgd", "attack", "diagnostics", "reference", "validation"],
)
def test_no_parameter_of_a_fit_moves_the_frozen_backbone(fitted, options):
    model = private(max_steps=6, **options).fit(X, Y, sensitive_features=GROUP)
    models = [model, model.reference_] if "keep_reference" in options else [model]
    for one in models:
        assert sha256_of(frozen_of(one)) == sha256_of(frozen_of(fitted))


class Training(Callback):
    """Looks at the mode of the layers, and passes records through the module."""

    def on_epoch_begin(self, net, **kwargs):
        net._set_training(True)
        assert not net.module_[0][1].training and net.module_[0].training
        net.module_(torch.from_numpy(X))


class Statistics(Callback):
    def on_epoch_begin(self, net, **kwargs):
        net.module_.train()(torch.from_numpy(X))


class Weights(Callback):
    def on_epoch_begin(self, net, **kwargs):
        net.module_[0][0].weight.mul_(2)


def test_callbacks_cannot_move_frozen_layers():
    private(callbacks=[Training()]).fit(X, Y)
    with pytest.raises(UnsupportedModuleError, match=r"callbacks.*buffer"):
        private(callbacks=[Statistics()]).fit(X, Y)
    with pytest.raises(PrivacyAccountingError, match="do not train"):
        private(callbacks=[Weights()]).fit(X, Y)


def test_module_without_a_trainable_parameter_is_refused():
    with pytest.raises(ValueError, match=r"^module .*FrozenFeatures"):
        private(module=lambda: with_backbone().requires_grad_(False)).fit(X, Y)
