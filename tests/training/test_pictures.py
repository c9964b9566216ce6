"""Pictures in DPFairClassifier: features by shape, and models in every form."""

import logging
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from torch import nn

from skdpfair import MLP, DPFairClassifier, load_release
from skdpfair._networks import small_cnn
from skdpfair.augmentations import PGD, FlipAndShift, Views
from skdpfair.features import FrozenFeatures, Scattering2D
from skdpfair.model_selection import TradeoffResults, comparison_scorer, sweep
from skdpfair.report import model_page
from skdpfair.report._sweep_page import results_page
from skdpfair.testing import verify_release
from skdpfair.training.pictures import features_of
from skdpfair.training.spec import FitSpec

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning"),
    pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning"),
]
SETTINGS = {"epsilon": 8.0, "delta": 1e-4, "max_steps": 30, "random_state": 0, "classes": [0, 1]}


@pytest.fixture(scope="module")
def bars():
    """Pictures of horizontal or vertical bars, some of them faint."""
    rng = np.random.default_rng(0)
    y, group = rng.integers(0, 2, 600), rng.choice(["bright", "faint"], 600)
    phase = rng.uniform(0, 6, 600)[:, None, None]
    rows, columns = np.mgrid[:12, :10]
    waves = np.where(y[:, None, None], np.sin(rows * 1.5 + phase), np.sin(columns * 1.5 + phase))
    strength = np.where(group == "faint", 0.1, 0.4)[:, None, None]
    x = 0.5 + strength * waves + 0.1 * rng.standard_normal((600, 12, 10))
    return x.clip(0, 1).astype(np.float32), y, group


@pytest.fixture(scope="module")
def fitted(bars):
    x, y, group = bars
    return DPFairClassifier(**SETTINGS).fit(x, y, sensitive_features=group)


def test_auto_trains_a_linear_model_on_features_and_says_so(bars, caplog):
    x, y, group = bars
    with caplog.at_level(logging.INFO, "skdpfair"):
        fitted = DPFairClassifier(**SETTINGS).fit(x, y, sensitive_features=group)
    assert "module='auto': a linear model on Scattering2D(), as records have" in caplog.text
    assert fitted.score(x, y) > 0.85
    assert repr(fitted.features_) == "Scattering2D()"
    told = "Features are those of Scattering2D(), which learns nothing."
    assert told in fitted.privacy_.statement
    assert fitted.privacy_statement()["features"] == "Scattering2D(), which learns nothing"


def test_it_is_the_model_of_a_pipeline(bars, fitted):
    x, y, group = bars
    pipe = make_pipeline(Scattering2D(), DPFairClassifier(module="logistic", **SETTINGS))
    pipe.fit(x, y, dpfairclassifier__sensitive_features=group)
    np.testing.assert_array_equal(pipe.predict_proba(x), fitted.predict_proba(x))
    assert pipe[-1].privacy_.epsilon == fitted.privacy_.epsilon
    named = clone(fitted).set_params(module=Scattering2D(J=2))
    named.fit(x, y, sensitive_features=group)
    np.testing.assert_array_equal(named.predict_proba(x), fitted.predict_proba(x))


@pytest.mark.parametrize(
    "shape, params, chosen",
    [
        ((12, 10), {}, "Scattering2D()"),
        ((3, 8, 8), {}, "Scattering2D()"),
        ((8, 9, 3), {}, "Scattering2D()"),
        ((7, 12), {}, "None"),  # too small
        ((5, 12, 12), {}, "None"),  # no colours
        ((2, 3, 12, 12), {}, "None"),
        ((12, 10), {"module": MLP((4,))}, "None"),
        ((12, 10), {"attack": PGD(0.1, n_steps=1)}, "None"),
        ((12, 10), {"augment": Views(FlipAndShift(shift=1), n=2)}, "None"),
        ((12, 10), {"module": "logistic"}, "None"),
        ((12, 10), {"module": "cnn"}, "None"),
        ((12, 10), {"module": Scattering2D(L=4)}, "Scattering2D(L=4)"),
    ],
)
def test_what_is_chosen_follows_from_public_facts(shape, params, chosen):
    x = np.random.default_rng(0).random((300, *shape), dtype=np.float32)
    y = np.arange(300) % 2
    fitted = DPFairClassifier("dpsgd", **SETTINGS | {"max_steps": 2} | params).fit(x, y)
    shown = "None" if fitted.features_ is None else repr(fitted.features_).replace("'", "")
    assert shown == chosen


@pytest.mark.parametrize(
    "shape, given, reason",
    [
        ((4, 32, 32), {}, "records of shape (4, 32, 32) are no pictures of 1 or 3 channels"),
        ((32, 7), {}, "pictures of shape (32, 7) have less than 8 pixels on a side"),
        ((32, 32), {"augment": FlipAndShift()}, "augment is given"),
    ],
)
def test_why_pixels_are_trained_on_is_logged(shape, given, reason, caplog):
    spec = FitSpec.of(DPFairClassifier(**given))
    with caplog.at_level(logging.INFO, "skdpfair"):
        assert features_of(spec, shape) == (spec, None)
        assert features_of(spec, (5,)) == (spec, None)  # a row of a table is not worth a line
    assert caplog.messages == [f"module='auto': no features of pictures, as {reason}"]


DIFFERENT = [np.zeros((12, 10)), np.zeros((12, 9))]
OBJECTS = np.empty(2, dtype=object)
OBJECTS[:] = DIFFERENT


@pytest.mark.parametrize("X", [DIFFERENT, OBJECTS, [torch.zeros(2, 3), torch.zeros(2, 4)]])
@pytest.mark.parametrize("read", [lambda X: DPFairClassifier().fit(X, [0, 1]), Scattering2D().fit])
def test_pictures_of_different_sizes_are_refused(X, read):
    with pytest.raises(ValueError, match=r"^X holds arrays of different shapes, such as \("):
        read(X)


@pytest.mark.parametrize("spoilt", [np.nan, np.inf])
def test_advice_on_missing_pixels_is_for_pictures(bars, fitted, spoilt):
    x, y, _ = bars
    x = x.copy()
    x[3, 4, 5] = spoilt
    for read in (fitted.predict, lambda x: clone(fitted).fit(x, y)):
        with pytest.raises(ValueError, match=r"^X contains NaN or inf.*Leave such records") as told:
            read(x)
        assert "column" not in str(told.value)


@pytest.mark.parametrize(
    "params, shape, text",
    [
        ({}, (2, 3, 4, 5), "needs pictures"),
        ({"module": Scattering2D(J=9)}, (12, 12), "J"),
        ({"attack": PGD(0.1)}, (12, 12), "attack=PGD.*changes pixels"),
        ({"augment": FlipAndShift()}, (12, 12), "augment=FlipAndShift.*changes pixels"),
    ],
)
def test_what_cannot_be_used(params, shape, text):
    x = np.random.default_rng(0).random((50, *shape))
    with pytest.raises((ValueError, TypeError), match=text):
        DPFairClassifier(**{"module": "scattering"} | SETTINGS | params).fit(x, np.arange(50) % 2)


def test_every_form_of_a_model_takes_pictures(bars, fitted, tmp_path):
    x, _, _ = bars
    expected = fitted.predict_proba(x[:40])
    path = tmp_path / "model.safetensors"
    fitted.save_release(path)
    verify_release(path)
    for other in (load_release(path), fitted.release(), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(other.predict_proba(x[:40]), expected)
        assert other.features_.in_shape_ == (12, 10)
        with pytest.raises(ValueError, match=r"of shape \(12, 10\), as in fit, got \(10, 12\)"):
            other.predict(x.transpose(0, 2, 1))


def test_a_cnn_takes_channels_first_or_last(bars, tmp_path):
    x, y, _ = bars
    x = np.stack([x, x / 2, 1 - x], axis=-1)
    model = DPFairClassifier(**SETTINGS, module="cnn").fit(x, y)
    same = small_cnn((3, 12, 10), 2)
    same.load_state_dict(
        dict(zip(same.state_dict(), model.net_.module_.state_dict().values(), strict=True))
    )
    with torch.no_grad():
        wanted = same(torch.from_numpy(x[:7]).movedim(-1, 1)).softmax(1)
    model.save_release(tmp_path / "model.safetensors")
    released = load_release(tmp_path / "model.safetensors")
    for found in (model.predict_proba(x[:7]), released.predict_proba(x[:7])):
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    verify_release(tmp_path / "model.safetensors")


def test_reference_validation_and_warm_start(bars):
    x, y, group = bars
    clf = DPFairClassifier(
        **SETTINGS, keep_reference=True, warm_start=True, validation_data=(x[:50], y[:50])
    )
    clf.fit(x, y, sensitive_features=group)
    assert repr(clf.reference_.features_) == "Scattering2D()"
    assert clf.reference_.score(x, y) > 0.9
    assert clf.net_.history[-1]["valid_acc"] > 0.8
    once = clf.privacy_.epsilon
    clf.fit(x, y, sensitive_features=group)
    assert clf.privacy_.epsilon > once
    assert clf.score(x, y) > 0.9


def test_pictures_may_lie_in_a_memory_map(bars, fitted, tmp_path):
    x, y, group = bars
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    own = clone(fitted).fit(mapped, y, sensitive_features=group)
    np.testing.assert_array_equal(own.predict_proba(mapped), fitted.predict_proba(x))


def test_folds_and_scorers_take_pictures(bars):
    x, y, group = bars
    clf = DPFairClassifier(**SETTINGS | {"max_steps": 10})
    assert cross_val_predict(clf, x, y, cv=2).shape == (600,)
    scorer = comparison_scorer("dg_gap", X_train=x, y_train=y, sensitive_features=group)
    clf.fit(x[:300], y[:300], sensitive_features=group[:300])
    found = scorer(clf, x[300:], y[300:], sensitive_features=group[300:])
    gap = clf.score(x[:300], y[:300]) - clf.score(x[300:], y[300:])
    assert found["neg_dg_gap"] == pytest.approx(-abs(gap))


def test_bytes_are_fractions_of_255_wherever_they_lie(bars, fitted, tmp_path):
    x, y, _ = bars
    levels = (255 * x).round().astype(np.uint8)
    np.save(tmp_path / "x.npy", levels)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    forms = {"array": levels, "map": mapped, "tensor": torch.from_numpy(levels)}
    expected = fitted.predict_proba(levels.astype(np.float32) / 255)
    for name, form in forms.items():
        np.testing.assert_allclose(fitted.predict_proba(form), expected, atol=1e-4, err_msg=name)
        settings = SETTINGS | {"validation_data": (form, y), "max_steps": 5}
        losses = DPFairClassifier(**settings).fit(form, y).net_.history[:, "valid_loss"]
        assert losses[-1] < 0.7, name


def test_a_statement_names_features_only_while_they_are_as_computed(bars):
    x, y, _ = bars
    head = DPFairClassifier(module="logistic", **SETTINGS | {"max_steps": 2})
    features = Scattering2D().fit_transform(x)
    assert clone(head).fit(features, y).privacy_.features is not None
    features -= features.mean(0)
    assert clone(head).fit(features, y).privacy_.features is None


def test_pages_name_the_features(bars, fitted, tmp_path):
    x, y, group = bars
    page = model_page(fitted)
    assert "<dt>public features</dt><dd>Scattering2D(), which learns nothing</dd>" in page
    assert "No pipeline was given" not in page
    frozen = FrozenFeatures(nn.Flatten())
    on_them = DPFairClassifier(**SETTINGS).fit(given := frozen.transform(x), y)
    assert frozen.described in model_page(on_them)
    made = {"store": tmp_path / "runs", "max_steps": 2, "delta": 1e-4, "progress": False}
    results = sweep(
        x, y, sensitive_features=group, methods=["dpsgd"], epsilons=[8.0], seeds=1, **made
    )
    for found in (results, TradeoffResults.from_store(tmp_path / "runs")):
        page = results_page(found)
        assert "<dd>Scattering2D(), which learns nothing</dd>" in page
        assert "No pipeline was given" not in page
    frozen_runs = sweep(
        given,
        y,
        sensitive_features=group,
        methods=["dpsgd"],
        epsilons=[8.0],
        seeds=1,
        max_steps=2,
        progress=False,
    )
    assert frozen.described in results_page(frozen_runs)


@pytest.mark.skipif(not hasattr(Pipeline, "set_callbacks"), reason="scikit-learn < 1.9")
def test_steps_before_features_are_still_named(bars):
    x, y, _ = bars
    centre = FunctionTransformer(lambda x: x - x.mean(0))
    pipe = make_pipeline(centre, DPFairClassifier(**SETTINGS | {"max_steps": 2})).fit(x, y)
    assert pipe[-1].features_ is not None
    assert any("functiontransformer" in note for note in pipe[-1].privacy_.not_accounted)


def test_what_would_predict_on_other_features_is_refused(bars, tmp_path):
    x, y, _ = bars
    by_name = DPFairClassifier(module="scattering", **SETTINGS | {"max_steps": 2})
    with pytest.raises(ValueError, match="module has an image_shape"):
        clone(by_name).set_params(module__image_shape=(12, 10)).fit(x, y)
    model = clone(by_name).set_params(warm_start=True).fit(x, y)
    with pytest.raises(ValueError, match="features of pictures changed"):
        model.set_params(module__mirror=True).fit(x, y)


@pytest.mark.parametrize("module", ["cnn", "scattering"])
@pytest.mark.parametrize(
    ("size", "remedy"),
    [
        (784, "X.reshape(-1, 28, 28)"),
        (3072, "X.reshape(-1, 3, 32, 32)"),
        (91, "X.reshape(-1, height, width)"),
    ],
)
def test_rows_of_pixels_are_refused_with_the_call_that_makes_pictures(module, size, remedy):
    x, y = np.zeros((1000, size), np.float32), np.arange(1000) % 2
    with pytest.raises(ValueError, match=f"module='{module}' needs pictures") as caught:
        DPFairClassifier(module=module, **SETTINGS).fit(x, y)
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    "width, hint", [(784, "X.reshape(-1, 28, 28)"), (3072, "(-1, 32, 32, 3)"), (783, "")]
)
def test_flat_rows_of_pixels_get_a_hint(width, hint, caplog):
    caplog.set_level(logging.WARNING, "skdpfair")
    assert features_of(FitSpec.of(DPFairClassifier()), (width,))[1] is None
    assert hint in caplog.text and bool(caplog.text) == bool(hint)
