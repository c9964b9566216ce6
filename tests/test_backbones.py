"""Fits of modules with frozen backbones, and with batch normalisation."""

import pickle
from functools import partial

import numpy as np
import pytest
import torch
from skorch.callbacks import Callback
from torch import nn

from skdpfair import DPFairClassifier, load_release
from skdpfair.attacks import PGD
from skdpfair.audit import audit_artifact
from skdpfair.budget.files import sha256_of
from skdpfair.exceptions import PrivacyAccountingError, UnsupportedModuleError
from skdpfair.postprocessing import DPThresholdClassifier
from skdpfair.training.inference import weights_of

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


def trainable():
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)]
    return nn.Sequential(*layers)


def private(**options):
    fixed = {"module": with_backbone, "epsilon": None, "noise_multiplier": 1.0, "max_steps": 12}
    return DPFairClassifier("dpsgd", **fixed | {"batch_size": 100} | options)


def not_private(method="sgd", **options):
    fixed = {"epsilon": None, "module": trainable, "lr": 0.5, "max_steps": 3, "random_state": 0}
    return DPFairClassifier(method, **fixed | options)


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


def test_a_head_learns_on_a_backbone_that_stays_as_it_is(fitted):
    assert fitted.score(X, Y) > 0.9 and fitted.net_.engine_.n_parameters == 130
    public = {f"0.{name}": v.numpy() for name, v in public_backbone().state_dict().items()}
    held = frozen_of(fitted)
    assert public.keys() == held.keys()
    assert all(np.array_equal(held[name], public[name]) for name in public)


def test_the_statement_names_the_frozen_numbers(fitted):
    frozen = frozen_of(fitted)
    n = sum(w.size for w in frozen.values())
    said = f"frozen: {n} numbers of the module (sha256 {sha256_of(frozen)[:16]}) are public"
    (found,) = [text for text in fitted.privacy_.assumptions if text.startswith("frozen")]
    assert found.startswith(said) and found in repr(fitted.privacy_)
    assert not any(
        "frozen" in text for text in private(module="mlp").fit(X, Y).privacy_.assumptions
    )
    assert audit_artifact(fitted.privacy_statement()).is_clean
    for text in (found + " 0.5", found.replace("sha256 ", "sha256 0"), "frozen: 1"):
        wrong = fitted.privacy_statement()
        wrong["assumptions"] = [*wrong["assumptions"], text]
        assert not audit_artifact(wrong).is_clean


def test_the_model_page_shows_the_frozen_numbers(fitted):
    report = pytest.importorskip("skdpfair.report")
    page = report.model_page(fitted)
    assert "are public by declaration" in str(page)
    assert audit_artifact(str(page).encode()).is_clean


def test_copies_hold_the_backbone_and_predict_the_same(fitted, tmp_path):
    fitted.save_release(tmp_path / "model.safetensors")
    loaded = load_release(tmp_path / "model.safetensors", module=with_backbone)
    for copied in (loaded, fitted.release(), pickle.loads(pickle.dumps(fitted))):
        assert np.array_equal(copied.predict_proba(X), fitted.predict_proba(X))
        assert copied.privacy_.assumptions == fitted.privacy_.assumptions
    for artifact in (tmp_path / "model.safetensors", pickle.dumps(fitted)):
        findings = audit_artifact(artifact).findings
        assert {finding.kind for finding in findings} == {"not judged"}  # as of any own network


def test_statistics_of_records_beside_a_model_are_found(fitted):
    module = with_backbone().train()
    module(torch.from_numpy(X))
    report = audit_artifact({"model": pickle.dumps(fitted), "more": module.state_dict()})
    assert any(finding.kind == "unexplained array" for finding in report.findings)


def test_onnx_predicts_the_same(fitted, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    fitted.export_onnx(tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    found = session.run(["probabilities"], {"features": X})[0]
    np.testing.assert_allclose(found, fitted.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"max_physical_batch_size": 16},
        {"attack": PGD(0.05, n_steps=2, input_range=None)},
        {"attack": uphill},
        {"diagnostics": True},
        {"keep_reference": True},
        {"validation_data": (X[:50], Y[:50])},
    ],
    ids=["parts", "pgd", "attack", "diagnostics", "reference", "validation"],
)
def test_no_way_to_train_moves_the_backbone(fitted, options):
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


class Moving(Callback):
    def on_epoch_begin(self, net, **kwargs):
        net.module_.train()(torch.from_numpy(X))


def test_callbacks_meet_frozen_layers_in_evaluation_mode_and_cannot_move_them():
    private(callbacks=[Training()]).fit(X, Y)
    with pytest.raises(PrivacyAccountingError, match="do not train"):
        private(callbacks=[Moving()]).fit(X, Y)


@pytest.mark.parametrize("noise_multiplier", [0.0, 1.0])
def test_private_methods_refuse_batch_statistics(noise_multiplier):
    model = private(module=trainable, noise_multiplier=noise_multiplier, lr=0.5)
    with pytest.raises(UnsupportedModuleError, match="freeze"):
        model.set_params(method__max_grad_norm=1.0).fit(X, Y)


def test_one_full_batch_is_a_step_of_torch():
    model = not_private(max_steps=1, batch_size=len(X)).fit(X, Y)
    module, x, y = trainable(), torch.from_numpy(X), torch.from_numpy(Y)
    optimizer = torch.optim.SGD(module.parameters(), 0.5)
    nn.functional.cross_entropy(module(x), y).backward()
    optimizer.step()
    for name, value in module.state_dict().items():
        np.testing.assert_allclose(weights_of(model.net_)[name], value, rtol=1e-3, atol=1e-4)
    expected = module.eval()(x).softmax(1).detach()
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-4)


@pytest.mark.parametrize("method", ["sgd", "is_sgd", "gdro"])
def test_methods_without_privacy_learn_with_batch_statistics(method, tmp_path):
    model = not_private(method, max_steps=30, batch_size=100)
    model.fit(X, Y, sensitive_features=GROUP)
    weights = weights_of(model.net_)
    assert model.score(X, Y) > 0.9 and not model.privacy_.is_private
    assert weights["1.num_batches_tracked"] == 30 and abs(weights["1.running_mean"]).min() > 1e-3
    copied = pickle.loads(pickle.dumps(model))
    assert np.array_equal(copied.predict_proba(X), model.predict_proba(X))
    rows = [model.predict_proba(X[i : i + 1])[0] for i in range(5)]
    np.testing.assert_allclose(rows, model.predict_proba(X)[:5], atol=1e-5)


def test_thresholds_are_found_by_running_statistics():
    model = not_private(max_steps=30, batch_size=100)
    thresholds = DPThresholdClassifier(model).fit(X, Y)
    assert thresholds.score(X, Y) > 0.9


@pytest.mark.parametrize(
    "options, match",
    [
        ({"lr": "auto"}, "lr='auto'"),
        ({"diagnostics": True}, "diagnostics=True"),
        ({"attack": PGD(0.1, input_range=None)}, "attack"),
        ({"iterate_average": 0.5}, "iterate_average"),
    ],
)
def test_what_needs_gradients_of_records_is_refused(options, match):
    with pytest.raises(ValueError, match=match):
        not_private(**options).fit(X, Y)


def test_a_module_that_is_frozen_as_a_whole_is_refused():
    with pytest.raises(ValueError, match=r"^module has no trainable parameter.*FrozenFeatures"):
        private(module=lambda: with_backbone().requires_grad_(False)).fit(X, Y)


def test_frozen_normalisation_is_frozen_for_methods_without_privacy(fitted):
    for tail in ([], [nn.BatchNorm1d(64)]):
        factory = partial(_stacked, tail)
        model = not_private(module=factory).fit(X, Y)
        assert model.net_.engine_.name == ("autograd" if tail else "bookkeeping")
        assert sha256_of(frozen_of(model)) == sha256_of(frozen_of(fitted))


def _stacked(tail):
    return nn.Sequential(public_backbone(), *tail, nn.Linear(64, 2))
