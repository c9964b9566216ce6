"""Fits with fine curves of amounts: in files, forecasts, searches, sweeps, displays, callbacks."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from skorch.callbacks import Callback

from skdpfair import load_release
from skdpfair.augmentations import PGD
from skdpfair.model_selection import DPRandomizedSearch, DPThresholdClassifier, forecast, sweep
from skdpfair.preprocessing import public_preprocessor
from skdpfair.release import _file
from skdpfair.report import ShapeDisplay
from skdpfair.testing import verify_release
from skdpfair.training.defaults import network_for
from skdpfair.training.inference import with_fine_columns
from tests.fine_curves import SCHEMA, fine, made, private, releases
from tests.quick_fits import QUIET

pytestmark = QUIET


@pytest.fixture(scope="module")
def rows():
    table = made()
    return table.drop(columns="y"), table["y"]


@pytest.fixture(scope="module")
def encoded():
    return SCHEMA.split(made(), epsilon=3.0)[:2]


@pytest.fixture(scope="module")
def fitted(encoded):
    return private().fit(*encoded)


def test_fine_curves_predict_alike_in_pickles_releases_and_files(encoded, rows, fitted, tmp_path):
    X, path = encoded[0], tmp_path / "model.safetensors"
    expected = fitted.decision_function(X)
    fitted.save_release(path, schema=SCHEMA)
    loaded = load_release(path)
    for model in (pickle.loads(pickle.dumps(fitted)), fitted.release(), loaded):
        np.testing.assert_array_equal(model.decision_function(X), expected)
    np.testing.assert_array_equal(loaded.decision_function(rows[0]), expected)
    # trained on sparse rows, as the module is without its first part
    wide = with_fine_columns(fitted.net_.module_[0], X.to_numpy(copy=True))
    logits = fitted.net_.module_[1](torch.from_numpy(wide[:])).detach().numpy()
    margin = (logits[:, 1] - logits[:, 0]) * fitted.logit_scale_
    np.testing.assert_allclose(margin, expected, atol=1e-4)


def test_fine_curves_are_those_of_the_next_fit_the_reference_and_thresholds(encoded, fitted):
    model = private(warm_start=True, keep_reference=True, max_steps=20).fit(*encoded)
    assert fine(model) == fine(model.reference_) == fine(fitted)
    model.fit(*encoded)
    assert fine(model) == fine(fitted) and releases(model.privacy_).count("column counts") == 1
    tuned = DPThresholdClassifier(private(max_steps=20)).fit(*encoded)
    assert fine(tuned.estimator_) == fine(fitted) and tuned.privacy_.epsilon <= 3.0


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.PrivacyLeakWarning")
def test_verify_release_takes_indices_of_fine_curves_and_nothing_else(encoded, fitted, tmp_path):
    X, y = encoded
    path = tmp_path / "model.safetensors"
    given = private(module=network_for(X.columns), random_state=None, max_steps=3)
    # the columns of an array have no names
    for model in (clone(given).fit(X.to_numpy(), y), given.fit(X, y), fitted):
        model.save_release(path)
        verify_release(path)
    content, arrays = _file.opened(path)[:2]
    for planted in ([20, 10], [-20], ["a name"], [12345]):
        content["module"]["params"]["fine"] = {"tuple": planted}
        _file.write(path, content, arrays)
        with pytest.raises(ValueError, match=r"model\.safetensors"):
            verify_release(path)


def test_forecast_has_the_amount_counts_that_the_encoder_leads_to(rows):
    X, y = rows
    clf = private(random_state=None, classes=["no", "yes"], max_steps=20)
    model = make_pipeline(public_preprocessor(SCHEMA.bounds, epsilon=3.0), clf)
    foreseen = forecast(model, len(X))
    report = model.fit(X, y)[-1].privacy_
    assert releases(foreseen.fits[0])[0] == releases(report)[0] == "column counts"
    assert foreseen.epsilon == pytest.approx(report.epsilon, rel=1e-6)
    # under attack, rows are not those that were counted
    attacked = clone(model).set_params(dpfairclassifier__attack=PGD(0.1, 0.1, 1))
    assert "column counts" not in releases(forecast(attacked, len(X)).fits[0])
    frozen = make_pipeline(FrozenEstimator(model[0]), clf)
    assert forecast(frozen, len(X)).epsilon == foreseen.epsilon
    # only the fit sees the names of columns that other steps pass on
    passing = make_pipeline("passthrough", clf)
    for searched in (model, frozen, passing, clf):
        prefix = "" if searched is clf else "dpfairclassifier__"
        search = DPRandomizedSearch(searched, {f"{prefix}lr": [1.0, 2.0]}, mean_trials=2.0)
        read = X if searched in (model, frozen) else model[:-1].transform(X)
        assert search.fit(read, y, sensitive_features=None).privacy_.epsilon > 3.0


def test_attack_moves_amounts_and_their_knots_follow(encoded, fitted):
    widths = set()

    class Watched(PGD):
        def __call__(self, forward, x, *args):
            widths.add(x.shape[1])
            return super().__call__(forward, x, *args)

    clf = pickle.loads(pickle.dumps(fitted))
    attack = Watched(0.1, 0.1, 1, input_range=None)
    clf.set_params(warm_start=True, attack=attack, max_steps=2).fit(*encoded)
    assert fine(clf) and widths == {encoded[0].shape[1]}


def test_sweep_trains_with_an_amount_in_the_first_column(encoded):
    X, y = encoded
    X = X[["pay_log", *X.columns.drop("pay_log")]]
    settings = {"epsilons": [3.0], "seeds": 1, "max_steps": 2, "progress": False}
    found = sweep(X, y, sensitive_features=np.arange(len(y)) % 2, methods=["dpsgd"], **settings)
    assert {*found.frame["method"]} == {"reference", "dpsgd"}


@pytest.mark.filterwarnings("ignore:More than 20 figures:RuntimeWarning")
def test_shape_display_draws_a_fine_curve_as_the_model_predicts(rows):
    X, y = rows
    preprocessor = public_preprocessor(SCHEMA.bounds, epsilon=3.0)
    model = make_pipeline(preprocessor, private(random_state=None)).fit(X, y)
    shape = ShapeDisplay.from_estimator(model).frame.query("column == 'pay'")
    pay = np.unique(X["pay"])
    expected = model.decision_function(X.iloc[[0] * len(pay)].assign(pay=pay))
    difference = np.interp(pay, shape["value"].astype(float), shape["logit"]) - expected
    # log-linear pieces are drawn as straight ones
    assert np.ptp(difference) < 0.05 < np.ptp(expected)


def test_callbacks_predict_rows_without_columns_of_knots(encoded):
    X, y = encoded
    shapes, rows = set(), X[:7].to_numpy(copy=True)

    class Watching(Callback):
        def on_epoch_end(self, net, **kwargs):
            shapes.add(net.logits(rows).shape)

    clf = private(callbacks=[Watching()], validation_data=(X[:50], y[:50])).fit(X, y)
    assert fine(clf) and shapes == {(7, 2)}
