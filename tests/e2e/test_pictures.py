"""Fits to pictures: copies, networks, references, folds, bytes, statements and pages."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import cross_val_predict
from torch import nn

from skdpfair import load_release
from skdpfair._networks import small_cnn
from skdpfair.features import FrozenFeatures, Scattering2D
from skdpfair.model_selection import TradeoffResults, comparison_scorer, sweep
from skdpfair.report import model_page
from skdpfair.report._sweep_page import results_page
from skdpfair.testing import verify_release
from tests.bars import FEATURES, GROUP, X, Y, classifier
from tests.quick_fits import QUIET

pytestmark = QUIET


@pytest.fixture(scope="module")
def fitted():
    return classifier().fit(X, Y, sensitive_features=GROUP)


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
