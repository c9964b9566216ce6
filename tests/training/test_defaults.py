"""The rule sees public facts only, and gives the settings that were published with it."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from torch import nn

from skdpfair import MLP, DPFairClassifier
from skdpfair.preprocessing import public_preprocessor
from skdpfair.privacy.gdp import auto_delta
from skdpfair.training import defaults
from skdpfair.training.spec import FitSpec
from tests.quick_fits import QUIET


def resolve(n_samples, epsilon, delta, **params):
    method = "sgd" if epsilon is None else "dpsgd"
    spec = FitSpec.of(DPFairClassifier(method, epsilon=epsilon, **params))
    return SimpleNamespace(**defaults.resolve(spec, n_samples, delta))


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
def test_resolve_gives_the_published_module_batch_and_rate(n, epsilon, module, batch, unit):
    settings = resolve(n_samples=n, epsilon=epsilon, delta=auto_delta(n))
    assert settings.module == ("logistic" if module == "logistic" else defaults.AUTO_MLP)
    assert n / settings.steps_per_epoch == pytest.approx(batch, abs=1)
    assert unit is None or settings.lr_scale == pytest.approx(unit, abs=0.1)


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
def test_resolve_averages_iterates_unless_they_are_mostly_noise(epsilon, given, share):
    assert resolve(n_samples=1000, epsilon=epsilon, delta=1e-5, **given).averaged_fraction == share


def test_resolve_takes_steps_by_the_signal_to_noise_ratio_or_of_the_user():
    settings = resolve(n_samples=32561, epsilon=1.0, delta=1e-6)
    assert round(settings.signal_to_noise) == 7707
    assert (settings.n_steps - settings.warm_up, settings.warm_up) == (428, 21)
    given = {"batch_size": 128, "max_steps": 77, "module": "mlp"}
    settings = resolve(n_samples=10_000, epsilon=1.0, delta=1e-6, **given)
    assert settings.steps_per_epoch == math.ceil(10_000 / 128) and settings.n_steps == 77
    assert isinstance(settings.module, MLP) and settings.warm_up < 77 // 3
    epochs = resolve(n_samples=1000, epsilon=1.0, delta=1e-6, max_epochs=3, batch_size=100)
    assert epochs.n_steps == 30


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
def test_logit_scale_shortens_the_logits_of_default_fits(method, given, n_classes, scale):
    spec = FitSpec.of(DPFairClassifier(method, **{"epsilon": 1.0} | given))
    assert defaults.logit_scale(spec, n_classes) == scale


@pytest.mark.parametrize("module", ["logistic", MLP((32,))])
@QUIET
def test_defaults_predict_a_rare_class_about_as_often_as_it_is(module):
    """Eight fits: 0.82 to 0.85, and 1.36 to 1.41; 0.05 if the threshold follows the other class."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 5)).astype(np.float32)
    y = rng.uniform(size=len(X)) < expit(X[:, 0] + X[:, 1] - 4)
    model = DPFairClassifier(epsilon=3.0, module=module, random_state=0, warm_start=True)
    for _ in range(2):  # the second fit takes the bounds of the first
        ratio = model.fit(X, y).predict_proba(X)[:, 1].mean() / y.mean()
        assert 0.7 < ratio < 1.6


def test_network_for_columns_that_were_encoded_as_curves_is_linear():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"age": rng.uniform(18, 80, 4000), "ward": rng.choice(["A", "B"], 4000)})
    facts = {"bounds": {"age": (18, 80)}, "categories": {"ward": ["A", "B"]}}
    for encoding, kind in (("auto", nn.Linear), ("linear", nn.Sequential)):
        X = public_preprocessor(**facts, encoding=encoding, epsilon=None).fit_transform(rows)
        model = DPFairClassifier("sgd", epsilon=None, max_steps=3).fit(X, rng.integers(0, 2, 4000))
        assert type(model.net_.module_) is kind


@pytest.mark.parametrize("n", [1, 2, 10, 99, 100, 1000, 32_561, 10**6, 10**9])
def test_auto_delta_is_the_largest_power_of_ten_that_is_small_enough(n):
    delta = auto_delta(n)
    assert delta <= 1 / (10 * n) * (1 + 1e-12) < 10 * delta * (1 + 1e-9)
    assert math.log10(delta) == pytest.approx(round(math.log10(delta)))
