"""Fits and predictions are the same whatever settings of torch surround them."""

import pickle
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
import torch
from torch import nn

from skdpfair import DPFairClassifier, load_release
from skdpfair.budget import PrivacyLedger
from skdpfair.features import FrozenFeatures, Scattering2D
from skdpfair.model_selection import DPRandomizedSearch, DPThresholdClassifier

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning"),
    pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning"),
]
RNG = np.random.default_rng(0)
X, Y = RNG.random((300, 4)).astype(np.float32), RNG.integers(0, 2, 300)
PICTURES = RNG.random((3, 8, 8)).astype(np.float32)
FROZEN = nn.Sequential(nn.Flatten(), nn.Linear(64, 5)).requires_grad_(False)


def classifier(**params):
    settings = {"noise_multiplier": 1.0, "max_steps": 6, "batch_size": 60, "lr": 0.1}
    return DPFairClassifier("dpsgd", epsilon=None, **settings | params)


@contextmanager
def set_to(change, value, before):
    change(value)
    try:
        yield
    finally:
        change(before)


SETTINGS = {
    "bfloat16": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "float16": lambda: torch.autocast("cpu", dtype=torch.float16),
    "inference_mode": torch.inference_mode,
    "no_grad": torch.no_grad,
    "anomaly": lambda: set_to(torch.autograd.set_detect_anomaly, True, False),
    "deterministic": lambda: set_to(torch.use_deterministic_algorithms, True, False),
    "matmul": lambda: set_to(torch.set_float32_matmul_precision, "medium", "highest"),
    "double": lambda: set_to(torch.set_default_dtype, torch.float64, torch.float32),
    "half": lambda: set_to(torch.set_default_dtype, torch.bfloat16, torch.float32),
    "device": lambda: torch.device("meta"),
}


class Rectified(nn.Sequential):
    """A network whose gradients come from vmap."""

    def __init__(self):
        super().__init__(nn.Linear(4, 5), nn.PReLU(), nn.Linear(5, 2))


def file_of(model, folder):
    model.save_release(folder / "model.release")
    return load_release(folder / "model.release")


PREDICTIONS = {
    "predict": lambda model, _: model.predict_proba(X),
    "private": lambda model, _: model.net_.private_logits(X),
    "release": lambda model, folder: file_of(model, folder).predict_proba(X),
    "pickle": lambda model, _: pickle.loads(pickle.dumps(model)).decision_function(X),
    "scattering": lambda *_: Scattering2D().fit_transform(PICTURES),
    "frozen": lambda *_: FrozenFeatures(FROZEN).fit_transform(PICTURES),
}
FITS = {
    "mlp": lambda: classifier(module="mlp", random_state=0),
    "vmap": lambda: classifier(module=Rectified, random_state=0),
    "thresholds": lambda: DPThresholdClassifier(classifier(random_state=0), random_state=0),
}
OF_FITS = [name for name in SETTINGS if name != "inference_mode"]


@pytest.fixture(scope="module")
def model():
    return classifier(module="mlp").fit(X, Y)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", PREDICTIONS)
def test_predictions_are_the_same_under_settings_of_torch(name, setting, model, tmp_path):
    expected = PREDICTIONS[name](model, tmp_path)
    with SETTINGS[setting]():
        found = PREDICTIONS[name](model, tmp_path)
    np.testing.assert_array_equal(found, expected)
    assert torch.get_default_dtype() == torch.float32 and not torch.is_inference_mode_enabled()


@pytest.mark.parametrize(
    "name, settings", [*(("mlp", [s]) for s in OF_FITS), ("vmap", OF_FITS), ("thresholds", OF_FITS)]
)
def test_fits_are_the_same_under_settings_of_torch(name, settings):
    with ExitStack() as stack:
        for setting in settings:
            stack.enter_context(SETTINGS[setting]())
        model = FITS[name]().fit(X, Y)
        inside = model.predict_proba(X)
    np.testing.assert_array_equal(inside, model.predict_proba(X))
    np.testing.assert_array_equal(inside, FITS[name]().fit(X, Y).predict_proba(X))


def test_fit_in_inference_mode_is_refused_before_it_is_charged(tmp_path):
    models = [*(make() for make in FITS.values()), DPRandomizedSearch(classifier(), {"lr": [0.1]})]
    with PrivacyLedger(tmp_path / "ledger", delta=1e-5) as ledger, torch.inference_mode():
        for model in models:
            with pytest.raises(ValueError, match="inference_mode"):
                model.fit(X, Y)
    assert ledger.frame().empty


def test_fit_takes_frozen_flags_of_torch(monkeypatch):
    monkeypatch.setattr(torch.backends, "__allow_nonbracketed_mutation_flag", True)  # afterwards
    torch.backends.disable_global_flags()
    assert classifier(module=Rectified).fit(X, Y).privacy_.proof == "per-record by vmap"
    assert torch.backends.cudnn.enabled and torch.backends.flags_frozen()
