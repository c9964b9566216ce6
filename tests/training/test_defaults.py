"""The rule sees public facts only, and gives the settings that were published with it."""

import math
import pickle
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, softmax
from torch import nn

from skdpfair import MLP, DPFairClassifier
from skdpfair.estimators.classifier import private_logits
from skdpfair.preprocessing import public_preprocessor
from skdpfair.privacy.gdp import auto_delta
from skdpfair.training import defaults
from skdpfair.training.spec import FitSpec


def resolve(n_samples, epsilon, delta, **params):
    method = "sgd" if epsilon is None else "dpsgd"
    spec = FitSpec.of(DPFairClassifier(method, epsilon=epsilon, **params))
    return defaults.resolve(spec, n_samples, delta)


@pytest.mark.parametrize(
    "n, epsilon, module, batch, unit",
    [
        (1000, 1.0, "logistic", 500, None),
        (1000, 8.0, "logistic", 1000, None),
        (32561, 1.0, "logistic", 1809, 24.0),
        (32561, 3.0, "mlp", 4070, 46.9),
        (32561, 8.0, "mlp", 4070, 64.0),
        (48336, 1.0, "mlp", 2302, 25.4),
    ],
)
def test_worked_values(n, epsilon, module, batch, unit):
    settings = resolve(n_samples=n, epsilon=epsilon, delta=auto_delta(n))
    assert settings.module == ("logistic" if module == "logistic" else defaults.AUTO_MLP)
    assert n / settings.steps_per_epoch == pytest.approx(batch, abs=1)
    if unit is not None:
        assert settings.lr_scale == pytest.approx(unit, abs=0.1)


def test_steps_follow_from_the_signal():
    settings = resolve(n_samples=32561, epsilon=1.0, delta=1e-6)
    assert round(settings.signal_to_noise) == 7707
    assert (settings.n_steps - settings.warm_up, settings.warm_up) == (428, 21)


@pytest.mark.parametrize(
    "epsilon, given, share",
    [
        (1.0, {}, 0.0),  # a signal-to-noise ratio of 268
        (3.0, {}, 0.5),  # of 719
        (None, {}, 0.5),
        (3.0, {"lr": 0.1}, 0.0),
        (1.0, {"iterate_average": 0.25, "lr": 0.1}, 0.25),
    ],
)
def test_iterates_are_averaged_unless_they_are_mostly_noise(epsilon, given, share):
    settings = resolve(n_samples=1000, epsilon=epsilon, delta=1e-5, **given)
    assert settings.averaged == share


@pytest.mark.parametrize(
    "method, given, n_classes, scale",
    [
        ("dpsgd", {}, 2, 0.85),
        ("dpsgd", {}, 3, 1.0),
        ("auto_s", {}, 2, 0.25),
        ("auto_s", {}, 10, 0.3),
        ("global", {}, 2, 1.0),
        ("sgd", {"epsilon": None}, 2, 1.0),
        ("dpsgd", {"lr": 0.1}, 2, 1.0),
        ("dpsgd", {"max_steps": 50}, 2, 1.0),
        ("dpsgd", {"max_epochs": 5}, 2, 1.0),
        ("dpsgd", {"lr": 0.1, "logit_scale": 0.5}, 3, 0.5),
        ("dpsgd", {"epsilon": None}, 2, 1.0),
        ("dpsgd", {"epsilon": None, "noise_multiplier": 2.0}, 2, 0.85),
    ],
)
def test_the_logits_of_default_fits_to_two_classes_are_shortened(method, given, n_classes, scale):
    spec = FitSpec.of(DPFairClassifier(method, **{"epsilon": 1.0} | given))
    assert defaults.logit_scale(spec, n_classes) == scale


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_all_predictions_have_the_scale(scale):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 4)).astype(np.float32), rng.integers(0, 3, 300)
    model = DPFairClassifier("dpsgd", epsilon=8.0, logit_scale=scale, keep_reference=True).fit(X, y)
    raw = model.net_.logits(X)
    for other in (model, model.release(), pickle.loads(pickle.dumps(model))):
        assert other.logit_scale_ == scale
        np.testing.assert_array_equal(other.decision_function(X), scale * raw)
        np.testing.assert_allclose(other.predict_proba(X), softmax(scale * raw, axis=1))
        np.testing.assert_array_equal(other.predict(X), raw.argmax(axis=1))
    np.testing.assert_allclose(private_logits(model, X), scale * raw, rtol=1e-6)
    assert model.reference_.logit_scale_ == 1.0


@pytest.mark.parametrize("module", ["logistic", MLP((32,))])
@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning")
def test_a_rare_class_is_predicted_about_as_often_as_it_is(module):
    """Eight fits: 0.82 to 0.85, and 1.36 to 1.41; 0.05 if the threshold follows the other class."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 5)).astype(np.float32)
    y = rng.uniform(size=len(X)) < expit(X[:, 0] + X[:, 1] - 4)
    model = DPFairClassifier(epsilon=3.0, module=module, random_state=0, warm_start=True)
    for _ in range(2):  # the second fit takes the bounds of the first
        ratio = model.fit(X, y).predict_proba(X)[:, 1].mean() / y.mean()
        assert 0.7 < ratio < 1.6


def test_columns_that_were_encoded_as_curves_get_a_linear_model():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"age": rng.uniform(18, 80, 4000), "ward": rng.choice(["A", "B"], 4000)})
    y = rng.integers(0, 2, 4000)
    facts = {"bounds": {"age": (18, 80)}, "categories": {"ward": ["A", "B"]}}
    for encoding, kind in (("auto", nn.Linear), ("linear", nn.Sequential)):
        X = public_preprocessor(**facts, encoding=encoding, epsilon=None).fit_transform(rows)
        model = DPFairClassifier("sgd", epsilon=None, max_steps=3).fit(X, y)
        assert type(model.net_.module_) is kind


def settings_of(model):
    names = ("lr_", "batch_size_", "n_steps_", "n_iter_", "signal_to_noise_")
    return [getattr(model, n) for n in names if n != "lr_"] + [
        model.privacy_.noise_multiplier,
        [getattr(model.net_.plan, field.name) for field in fields(defaults.Settings)],
    ]


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")
@pytest.mark.parametrize("method", ["dpsgd", "global_adapt"])
def test_other_rows_of_the_same_number_get_the_same_settings(method):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 4)), rng.integers(0, 2, 400)
    order = rng.permutation(400)
    data = [(X, y), (X[order], y[order]), (1e3 * rng.normal(size=(400, 4)), 1 - y)]
    first, *others = (settings_of(DPFairClassifier(method, epsilon=2.0).fit(*d)) for d in data)
    assert all(first == other for other in others)


def test_what_the_user_gave_stays():
    given = {"batch_size": 128, "max_steps": 77, "module": "mlp"}
    settings = resolve(n_samples=10_000, epsilon=1.0, delta=1e-6, **given)
    assert settings.steps_per_epoch == math.ceil(10_000 / 128)
    assert (
        settings.n_steps == 77 and isinstance(settings.module, MLP) and settings.warm_up < 77 // 3
    )
    epochs = resolve(n_samples=1000, epsilon=1.0, delta=1e-6, max_epochs=3, batch_size=100)
    assert epochs.n_steps == 30


@pytest.mark.parametrize("n", [1, 2, 10, 99, 100, 1000, 32_561, 10**6, 10**9])
def test_auto_delta_is_the_largest_power_of_ten_that_is_small_enough(n):
    delta = auto_delta(n)
    assert delta <= 1 / (10 * n) * (1 + 1e-12) < 10 * delta * (1 + 1e-9)
    assert math.log10(delta) == pytest.approx(round(math.log10(delta)))
