"""The regressor: limits of the target, what it takes and refuses, the privacy of the classifier."""

import pickle
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import AdaBoostRegressor, StackingRegressor, VotingRegressor
from sklearn.exceptions import DataConversionWarning
from sklearn.feature_selection import SelectFromModel
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from skdpfair import DPFairClassifier, DPFairRegressor, Factory, Persons, get_method, load_release
from skdpfair.analysis import GroupRecorder
from skdpfair.augmentations import FlipAndShift, Views
from skdpfair.budget import PrivacyLedger
from skdpfair.exceptions import LowSignalWarning, PrivacyLeakWarning
from skdpfair.methods import METHODS
from skdpfair.model_selection import forecast
from skdpfair.preprocessing import BoundedScaler, lint_pipeline
from skdpfair.privacy.privacy_report import ASSUMPTIONS
from skdpfair.report import model_page
from skdpfair.testing import audit_fit, verify_release
from tests.quick_fits import QUIET

pytestmark = QUIET
N, LIMITS = 600, (0.0, 100.0)


RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, 3))
Y = 50 + 30 * X[:, 0] - 10 * X[:, 1] + RNG.normal(scale=5, size=N)
GROUPS = np.where(RNG.random(N) < 0.3, "a", "b")


def regressor(method="dpsgd", **params):
    settings = {"epsilon": None, "noise_multiplier": 1.0, "accountant": "rdp", "random_state": 0}
    settings |= {"y_range": LIMITS, "max_steps": 12, "batch_size": 100}
    return DPFairRegressor(method, **settings | params)


def test_y_range_limits_targets_and_predictions():
    hostile = np.where(Y > 60, [1e300, -1e300] * (N // 2), Y)
    clipped = regressor().fit(X, np.clip(hostile, *LIMITS))
    wild = regressor().fit(X, hostile)
    expected = clipped.predict(X)
    assert (wild.predict(X) == expected).all()
    far = wild.predict(1e6 * X)
    assert far.min() >= 0 and far.max() <= 100 and np.ptp(far) > 50
    assert (wild.set_params(y_range=(0, 1)).predict(X) == expected).all()


def test_gradient_scale_does_not_depend_on_targets():
    exact = {"random_state": None, "noise_multiplier": 0.0, "batch_size": N}
    one, other = (regressor(**exact).fit(X, target) for target in (Y, 100 - Y / 7))
    assert one.method_.max_grad_norm == other.method_.max_grad_norm > 0 and one.lr_ == other.lr_


def test_fit_refuses_targets_that_are_no_numbers_without_a_cell():
    for target, match in (
        (np.where(np.arange(N) == 3, np.nan, Y), "Input y contains NaN"),
        (np.where(np.arange(N) == 3, np.inf, Y), "Input y contains inf"),
        (["secret"] * N, r"^y (?!.*secret)"),
        (np.stack([Y, Y], axis=1), "MultiOutputRegressor"),
    ):
        with pytest.raises(ValueError, match=match):
            regressor().fit(X, target)
    with pytest.warns(DataConversionWarning):
        regressor().fit(X, Y[:, None])


WRONG = [(1, 0), (2, 2), (0,), (0, 1, 2), "ab", {0: 1}, (0, 1e308), (0, 5e-324)]
WRONG += [(0, "1"), 5, (None, 1), (True, 2)]


@pytest.mark.parametrize("y_range", WRONG)
def test_y_range_is_a_pair_of_numbers_in_order(y_range):
    with pytest.raises((TypeError, ValueError), match="y_range"):
        regressor(y_range=y_range).fit(X, Y)


def test_y_range_none_takes_the_range_of_the_targets_as_public():
    with pytest.warns(PrivacyLeakWarning, match="y_range=None"):
        model = regressor(y_range=None).fit(X, Y)
        of_one_value = regressor(y_range=None).fit(X, np.full(N, 2.0))
    assert of_one_value.y_range_ == (2.0, 4.0)
    assert model.y_range_ == (Y.min(), Y.max()) and model.y_range is None
    assert ASSUMPTIONS["limits"] in model.privacy_.assumptions
    with pytest.raises(ValueError, match="warm_start=True needs y_range"):
        regressor(y_range=None, warm_start=True).fit(X, Y)


@pytest.mark.parametrize(
    ("params", "error", "match"),
    [
        ({"method": "dpsgd_f", "group_col": "target"}, ValueError, "group_col='target'"),
        ({"method": "fairlens"}, ValueError, "method='fairlens'"),
        ({"method": "fairlens_dp"}, ValueError, "method='fairlens_dp'"),
        ({"loss": "log"}, ValueError, "loss.*'log'"),
        ({"class_weight": {0: 1}}, TypeError, "class_weight"),
        ({"module": Factory(nn.Linear, in_features=3, out_features=2)}, Exception, r"batch, 1\)"),
        ({"callbacks": [GroupRecorder()]}, ValueError, "GroupRecorder.*terms=False"),
    ],
)
def test_fit_refuses_what_is_for_classes(params, error, match):
    with pytest.raises(error, match=match):
        regressor(**params).fit(X, Y, sensitive_features=None if "group_col" in params else GROUPS)


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"fairlens", "fairlens_dp"}))
def test_fit_trains_by_every_other_method(name):
    method, noise = METHODS[name], 1.0 if METHODS[name].takes_noise else None
    given = {"sensitive_features": GROUPS} if method.needs_groups else {}
    model = regressor(name, noise_multiplier=noise).fit(X, Y, **given)
    assert model.privacy_.is_private == method.private
    assert model.predict(X).shape == (N,)


@pytest.mark.parametrize(
    "method",
    ["global_adapt", "dpsgd_f", get_method("dp_is_sgd", group_probabilities=(0.3, 0.7))],
    ids=str,
)
def test_regressor_spends_what_the_classifier_spends(method):
    params = {"epsilon": 1.0, "max_steps": 20, "batch_size": 100, "random_state": 0}
    params |= {"accountant": "rdp", "module": "logistic"}
    one = DPFairClassifier(method, **params).fit(X, Y > 50, sensitive_features=GROUPS)
    two = DPFairRegressor(method, y_range=LIMITS, **params)
    two.fit(X, Y, sensitive_features=GROUPS)
    for name in ("epsilon", "delta", "noise_multiplier", "sample_rate", "steps", "releases"):
        assert getattr(one.privacy_, name) == getattr(two.privacy_, name), name
    assert ASSUMPTIONS["y_range"] in two.privacy_.assumptions
    assert ASSUMPTIONS["classes"] not in two.privacy_.assumptions


@pytest.mark.parametrize(
    "around, n_fits",
    [
        (lambda r: TransformedTargetRegressor(r, transformer=StandardScaler()), None),
        (lambda r: StackingRegressor([("a", r)], cv=2), None),
        (lambda r: AdaBoostRegressor(r, n_estimators=2, random_state=0), None),
        (lambda r: TransformedTargetRegressor(r, func=np.negative, inverse_func=np.negative), 1),
        (lambda r: VotingRegressor([("a", r), ("b", clone(r))]), 2),
        (lambda r: MultiOutputRegressor(r), 2),
    ],
)
def test_ledger_warns_of_what_learns_around_a_regressor(around, n_fits, tmp_path):
    ledger = PrivacyLedger(tmp_path / "l.jsonl", delta=1e-5)
    inner = regressor(y_range=(-100, 100), random_state=None)
    with nullcontext() if n_fits else pytest.warns(PrivacyLeakWarning, match="learn"):
        model = around(inner)
        ledger.fit(model, X, np.stack([Y, -Y], 1) if type(model) is MultiOutputRegressor else Y)
    assert 0 < ledger.epsilon() < np.inf
    assert n_fits in (None, ledger.report().n_fits)


def test_regressor_in_pipelines_cross_validation_and_searches():
    model = regressor(noise_multiplier=0.0, max_steps=60)
    pipeline = make_pipeline(BoundedScaler((-1, 1)), model)
    private = clone(pipeline).set_params(dpfairregressor__noise_multiplier=1.0)
    assert not lint_pipeline(private).findings and lint_pipeline(pipeline).findings
    given = {"dpfairregressor__sensitive_features": GROUPS}
    scores = cross_validate(pipeline, X, Y, cv=3, params=given, scoring=("r2",))["test_r2"]
    assert scores.min() > 0.6
    search = GridSearchCV(pipeline, {"dpfairregressor__loss": ["squared", "absolute"]}, cv=2)
    search.fit(X, Y)
    assert search.best_score_ == search.cv_results_["mean_test_score"].max() > 0.6
    assert search.score(X, Y) == r2_score(Y, search.predict(X))


def test_fit_takes_groups_persons_weights_and_names():
    frame = pd.DataFrame(X, columns=list("uvw")).assign(sex=GROUPS, who=np.arange(N) // 2)
    given = {"group_col": "sex", "persons": Persons("who", max_records=2), "max_sample_weight": 2.0}
    model = regressor("dpsgd_f", **given).fit(frame, Y, sample_weight=np.full(N, 0.5))
    assert model.privacy_.protects == "person" and list(model.levels_) == ["a", "b"]
    assert (model.predict(frame) == model.predict(frame[list("uvw")])).all()


def test_warm_start_spends_again_and_refuses_another_y_range():
    model = regressor(warm_start=True, loss="absolute").fit(X, Y)
    first, second = model.privacy_, model.fit(X, Y).privacy_
    assert second.steps == 24 and second.epsilon > first.epsilon
    with pytest.raises(ValueError, match="range of the target changed"):
        model.set_params(y_range=(0, 50)).fit(X, Y)


def test_copies_hold_no_row_and_predict_alike(tmp_path):
    x, y, path = X.copy(), Y.copy(), tmp_path / "model.safetensors"
    x[7], y[7] = 0.7390851332, 72.345678901234
    model = regressor("dpsgd_f", y_range=(20, 80), keep_reference=True)
    model.fit(x, y, sensitive_features=GROUPS)
    pickled = pickle.dumps(model)
    model.release().save_release(path)
    loaded, content = load_release(path), path.read_bytes()
    loaded.save_release(path)
    assert path.read_bytes() == content and type(loaded) is DPFairRegressor
    verify_release(path)
    rows = (x[7].astype(np.float32), x[7], y[7], np.float32((y[7] - 50) / 30))
    assert not any(np.asarray(row).tobytes() in pickled + content for row in rows)
    for copy in (pickle.loads(pickled), loaded, model.release()):
        assert (copy.predict(x) == model.predict(x)).all() and copy.y_range_ == (20.0, 80.0)
        assert copy.privacy_.epsilon == model.privacy_.epsilon and not hasattr(copy, "reference_")


def test_what_is_for_classes_refuses_regressors():
    model = regressor(callbacks=[GroupRecorder(terms=False)]).fit(X, Y, sensitive_features=GROUPS)
    assert list(model.diagnostics_["group"].unique()) == ["a", "b"]
    for function in (
        lambda: model_page(model),
        lambda: audit_fit(model, X, Y),
        lambda: forecast(GridSearchCV(model, {"loss": ["squared"]}), n_samples=N),
    ):
        with pytest.raises(TypeError, match="DPFairClassifier"):
            function()
    before = make_pipeline(SelectFromModel(regressor()), DPFairClassifier())
    with pytest.raises(ValueError, match="last step"):
        forecast(before, n_samples=N)


def test_fit_takes_pictures_and_their_views():
    X = np.random.default_rng(0).random((60, 8, 8), dtype=np.float32)
    views = {"augment": Views(FlipAndShift(shift=1), n=2)}
    for params in ({"module": "scattering"}, {"module": "cnn", **views}):
        model = regressor(max_steps=3, **params).fit(X, X.mean((1, 2)) * 100)
        assert model.predict(X).shape == (60,)
        assert (pickle.loads(pickle.dumps(model)).predict(X) == model.predict(X)).all()


def test_low_signal_warning_is_that_of_a_regression():
    with pytest.warns(LowSignalWarning, match="n = 100 .*(one number|non-private model)"):
        regressor(noise_multiplier=None, epsilon=0.5).fit(X[:100], Y[:100])
