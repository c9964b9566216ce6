"""Pictures in DPFairClassifier: features by shape, and models in every form."""

import logging
import pickle
import re

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
from tests.quick_fits import QUIET

pytestmark = QUIET
FEATURES = "Scattering2D(), which learns nothing"


def classifier(**params):
    given = {"epsilon": 8.0, "delta": 1e-4, "max_steps": 30, "random_state": 0, "classes": [0, 1]}
    return DPFairClassifier(**given | params)


def bars():
    """Return pictures of horizontal or vertical bars, some of them faint, classes and groups."""
    rng = np.random.default_rng(0)
    y, group = rng.integers(0, 2, 600), rng.choice(["bright", "faint"], 600)
    phase = rng.uniform(0, 6, 600)[:, None, None]
    rows, columns = np.mgrid[:12, :10]
    waves = np.where(y[:, None, None], np.sin(rows * 1.5 + phase), np.sin(columns * 1.5 + phase))
    strength = np.where(group == "faint", 0.1, 0.4)[:, None, None]
    x = 0.5 + strength * waves + 0.1 * rng.standard_normal((600, 12, 10))
    return x.clip(0, 1).astype(np.float32), y, group


X, Y, GROUP = bars()


@pytest.fixture(scope="module")
def fitted():
    return classifier().fit(X, Y, sensitive_features=GROUP)


def test_auto_trains_a_linear_model_on_features_that_the_statement_names(fitted):
    assert isinstance(fitted.net_.module_, nn.Linear) and fitted.score(X, Y) > 0.85
    assert repr(fitted.features_) == "Scattering2D()"
    assert fitted.privacy_statement()["features"] == FEATURES
    pipe = make_pipeline(Scattering2D(), classifier(module="logistic"))
    pipe.fit(X, Y, dpfairclassifier__sensitive_features=GROUP)
    np.testing.assert_array_equal(pipe.predict_proba(X), fitted.predict_proba(X))
    assert pipe[-1].privacy_.epsilon == fitted.privacy_.epsilon
    named = classifier(module=Scattering2D(J=2)).fit(X, Y, sensitive_features=GROUP)
    np.testing.assert_array_equal(named.predict_proba(X), fitted.predict_proba(X))


COLOURS = "records of shape .* are no pictures of 1 or 3 channels"


@pytest.mark.parametrize(
    "shape, params, features, logged",
    [
        ((12, 10), {}, "Scattering2D()", r"on Scattering2D\(\), .* shape \(12, 10\)"),
        ((3, 8, 8), {}, "Scattering2D()", ""),
        ((8, 9, 3), {}, "Scattering2D()", ""),
        ((32, 7), {}, None, "less than 8 pixels"),
        ((5, 12, 12), {}, None, COLOURS),
        ((2, 3, 12, 12), {}, None, None),
        ((5,), {}, None, None),  # a row of a table is not worth a line
        ((784,), {}, None, r"X\.reshape\(-1, 28, 28\)"),
        ((3072,), {}, None, r"\(-1, 32, 32, 3\)"),
        ((783,), {}, None, None),
        ((12, 10), {"module": MLP((4,))}, None, None),
        ((12, 10), {"attack": PGD(0.1, n_steps=1)}, None, "attack is given"),
        ((12, 10), {"augment": Views(FlipAndShift(shift=1), n=2)}, None, "augment is given"),
        ((12, 10), {"module": "logistic"}, None, None),
        ((12, 10), {"module": "cnn"}, None, None),
        ((12, 10), {"module": Scattering2D(L=4)}, "Scattering2D(L=4)", None),
    ],
)
def test_features_of_chooses_by_shape_and_logs_why(shape, params, features, logged, caplog):
    spec = FitSpec.of(DPFairClassifier(**params))
    with caplog.at_level(logging.INFO, "skdpfair"):
        head, found = features_of(spec, shape)
    assert (found and repr(found)) == features
    assert head.module == "logistic" if found else head is spec
    assert len(caplog.messages) == (logged is not None)
    assert re.search(logged or "", caplog.text)


@pytest.mark.parametrize("module", ["cnn", "scattering"])
@pytest.mark.parametrize(
    ("size", "remedy"),
    [
        (784, r"X\.reshape\(-1, 28, 28\)"),
        (3072, r"X\.reshape\(-1, 3, 32, 32\)"),
        (91, r"X\.reshape\(-1, height, width\)"),
    ],
)
def test_fit_refuses_rows_of_pixels_with_the_call_that_makes_pictures(module, size, remedy):
    x, y = np.zeros((1000, size), np.float32), np.arange(1000) % 2
    with pytest.raises(ValueError, match=f"module='{module}' .*{remedy}"):
        classifier(module=module).fit(x, y)


DIFFERENT = [np.zeros((12, 10)), np.zeros((12, 9))]
OBJECTS = np.empty(2, dtype=object)
OBJECTS[:] = DIFFERENT


@pytest.mark.parametrize("X", [DIFFERENT, OBJECTS, [torch.zeros(2, 3), torch.zeros(2, 4)]])
@pytest.mark.parametrize("read", [lambda X: DPFairClassifier().fit(X, [0, 1]), Scattering2D().fit])
def test_fit_refuses_pictures_of_different_sizes(X, read):
    with pytest.raises(ValueError, match=r"^X holds .*different shapes, such as \("):
        read(X)


@pytest.mark.parametrize("spoilt", [np.nan, np.inf])
def test_fit_and_predict_refuse_missing_pixels_without_advice_on_columns(fitted, spoilt):
    x = X.copy()
    x[3, 4, 5] = spoilt
    for read in (fitted.predict, lambda x: clone(fitted).fit(x, Y)):
        with pytest.raises(ValueError, match=r"^X contains NaN or inf(?!.*column)"):
            read(x)


@pytest.mark.parametrize(
    "params, shape, match",
    [
        ({}, (2, 3, 4, 5), "needs pictures"),
        ({"module": Scattering2D(J=9)}, (12, 12), "J"),
        ({"module__image_shape": (12, 10)}, (12, 10), "image_shape"),
        ({"attack": PGD(0.1)}, (12, 12), "attack=PGD"),
        ({"augment": FlipAndShift()}, (12, 12), "augment=FlipAndShift"),
    ],
)
def test_features_of_refuses_what_features_cannot_do(params, shape, match):
    x = np.random.default_rng(0).random((50, *shape))
    model = classifier(module="scattering").set_params(**params)
    with pytest.raises((ValueError, TypeError), match=match):
        model.fit(x, np.arange(50) % 2)


def test_copies_and_releases_take_pictures_of_the_shape_of_the_fit(fitted, tmp_path):
    x, path = X[:40], tmp_path / "model.safetensors"
    fitted.save_release(path)
    verify_release(path)
    for other in (load_release(path), fitted.release(), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(other.predict_proba(x), fitted.predict_proba(x))
        assert other.features_.in_shape_ == (12, 10)
        with pytest.raises(ValueError, match=r"\(12, 10\), as in fit, got \(10, 12\)"):
            other.predict(x.transpose(0, 2, 1))


def test_cnn_takes_channels_first_or_last(tmp_path):
    x = np.stack([X, X / 2, 1 - X], axis=-1)
    model = classifier(module="cnn").fit(x, Y)
    assert model.net_.engine_.name == "bookkeeping"
    same = small_cnn((3, 12, 10), 2)
    state = model.net_.module_.state_dict().values()
    same.load_state_dict(dict(zip(same.state_dict(), state, strict=True)))
    with torch.no_grad():
        wanted = same(torch.from_numpy(x[:7]).movedim(-1, 1)).softmax(1)
    path = tmp_path / "model.safetensors"
    model.save_release(path)
    verify_release(path)
    for found in (model.predict_proba(x[:7]), load_release(path).predict_proba(x[:7])):
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_reference_validation_and_warm_start_are_on_features():
    clf = classifier(keep_reference=True, warm_start=True, validation_data=(X[:50], Y[:50]))
    clf.fit(X, Y, sensitive_features=GROUP)
    assert repr(clf.reference_.features_) == "Scattering2D()" and clf.reference_.score(X, Y) > 0.9
    assert clf.net_.history[-1]["valid_acc"] > 0.8
    once = clf.privacy_.epsilon
    clf.fit(X, Y, sensitive_features=GROUP)
    assert clf.privacy_.epsilon > once and clf.score(X, Y) > 0.9


def test_folds_and_comparison_scorer_take_pictures():
    clf = classifier(max_steps=10)
    assert cross_val_predict(clf, X, Y, cv=2).shape == (600,)
    scorer = comparison_scorer("dg_gap", X_train=X, y_train=Y, sensitive_features=GROUP)
    clf.fit(X[:300], Y[:300], sensitive_features=GROUP[:300])
    found = scorer(clf, X[300:], Y[300:], sensitive_features=GROUP[300:])
    gap = clf.score(X[:300], Y[:300]) - clf.score(X[300:], Y[300:])
    assert found["neg_dg_gap"] == pytest.approx(-abs(gap))


@pytest.mark.parametrize("form", ["array", "map", "tensor"])
def test_bytes_are_fractions_of_255_wherever_they_are(form, fitted, tmp_path):
    given = levels = (255 * X).round().astype(np.uint8)
    if form == "map":
        np.save(tmp_path / "x.npy", levels)
        given = np.load(tmp_path / "x.npy", mmap_mode="r")
    elif form == "tensor":
        given = torch.from_numpy(levels)
    own = clone(fitted).set_params(validation_data=(given, Y), max_steps=5).fit(given, Y)
    assert own.net_.history[-1]["valid_loss"] < 0.7
    for model in (own, fitted):
        expected = model.predict_proba(levels.astype(np.float32) / 255)
        np.testing.assert_allclose(model.predict_proba(given), expected, atol=1e-4)


def test_statement_names_features_as_computed():
    head = classifier(module="logistic", max_steps=2)
    features = Scattering2D().fit_transform(X)
    assert clone(head).fit(features, Y).privacy_.features is not None
    features -= features.mean(0)
    assert clone(head).fit(features, Y).privacy_.features is None


def test_pages_name_the_features(fitted, tmp_path):

    def runs(rows, **params):
        settings = {"epsilons": [8.0], "seeds": 1, "max_steps": 2, "delta": 1e-4, "progress": False}
        settings |= {"sensitive_features": GROUP, "methods": ["dpsgd"]}
        return sweep(rows, Y, **settings, **params)

    frozen, store = FrozenFeatures(nn.Flatten()), tmp_path / "runs"
    results, stored = runs(X, store=store), TradeoffResults.from_store(store)
    for page in (model_page(fitted), results_page(results), results_page(stored)):
        assert f"<dd>{FEATURES}</dd>" in page and "No pipeline" not in page
    flat = frozen.transform(X)
    for page in (model_page(classifier(max_steps=2).fit(flat, Y)), results_page(runs(flat))):
        assert frozen.described in page


@pytest.mark.skipif(not hasattr(Pipeline, "set_callbacks"), reason="scikit-learn < 1.9")
def test_not_accounted_names_steps_before_features():
    centre = FunctionTransformer(lambda X: X - X.mean(0))
    pipe = make_pipeline(centre, classifier(max_steps=2)).fit(X, Y)
    assert pipe[-1].features_ is not None
    assert any("functiontransformer" in note for note in pipe[-1].privacy_.not_accounted)
