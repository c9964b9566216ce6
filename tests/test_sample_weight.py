"""Sample weights: what a fit makes of them, and what its statement says."""

import numpy as np
import pytest
from fairlearn.reductions import DemographicParity, ExponentiatedGradient, GridSearch
from sklearn import config_context
from sklearn.ensemble import AdaBoostClassifier
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline

from skdpfair import MLP, DPFairClassifier, get_method
from skdpfair.analysis import GroupRecorder
from skdpfair.budget import PrivacyLedger
from skdpfair.methods import METHODS
from skdpfair.preprocessing import BoundedScaler
from skdpfair.privacy.statement import ASSUMPTIONS, WEIGHTS_FROM_OTHERS

pytestmark = pytest.mark.filterwarnings(
    "ignore::skdpfair.exceptions.InsecureSeedWarning",
    "ignore::skdpfair.exceptions.LowSignalWarning",
    "ignore:Setting a",  # of fairlearn
)
N = 240


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3)).astype(np.float32)
    return X, (X[:, 0] + 0.3 * rng.normal(size=N) > 0).astype(int)


def quick(method="dpsgd", **params):
    given = {"epsilon": 8.0, "max_steps": 6, "batch_size": 60, "module": "logistic"}
    given |= {"max_sample_weight": 100.0, "random_state": 0, "accountant": "rdp"}
    return DPFairClassifier(method, **(given | params))


def exact(**params):
    """A fit to all records in each step, without noise and in effect without clipping."""
    method = get_method("dpsgd", max_grad_norm=1e6)
    plain = {"epsilon": None, "noise_multiplier": 0.0, "batch_size": N, "lr": 0.5}
    return quick(method, **(plain | params))


def weights(model):
    return np.concatenate([p.detach().numpy().ravel() for p in model.net_.module_.parameters()])


@pytest.mark.parametrize(
    "given, params, match",
    [
        (np.full(N, 1e16), {"max_sample_weight": None}, r"one number from 0 to 1e\+15"),
        (np.ones(N), {"max_sample_weight": 0.0}, "max_sample_weight"),
        (np.ones(N - 1), {}, r"240 rows, got an array of \(239,\)"),
        (np.ones((N, 1)), {}, "sample_weight must hold one number from 0 to max_sample_weight=100"),
        (np.full(N, 101.5), {}, "Declare a larger max_sample_weight"),
        (np.full(N, -1.5), {}, "some are outside or NaN"),
        (np.full(N, np.nan), {}, "some are outside or NaN"),
        (["x"] * N, {}, "sample_weight must hold one number"),
        (np.ma.masked_equal(np.arange(N), 7), {}, "masked values"),
    ],
)
def test_weights_that_cannot_be_used_are_refused(given, params, match, data):
    with pytest.raises(ValueError, match=match) as caught:
        quick(**params).fit(*data, sample_weight=given)
    assert "101.5" not in str(caught.value) and "-1.5" not in str(caught.value)


@pytest.mark.parametrize("method", METHODS)
def test_weights_that_are_all_zero_train_on_noise(method, data):
    """Else, success or failure would tell whether the weight of one record is 0."""
    budget = {} if METHODS[method].private else {"epsilon": None}
    groups = {"sensitive_features": np.arange(N) % 2} if METHODS[method].needs_groups else {}
    model = quick(method, max_sample_weight=None, max_steps=2, **budget)
    model.fit(*data, sample_weight=np.zeros(N), **groups)
    assert np.isfinite(weights(model)).all() and model.privacy_.max_sample_weight == 0
    assert ASSUMPTIONS["largest weight"] in model.privacy_.assumptions


def test_weights_multiply_the_loss(data):
    X, y = data
    plain = exact().fit(X, y)
    np.testing.assert_allclose(
        weights(plain), weights(exact().fit(X, y, sample_weight=[1] * N)), rtol=1e-5
    )
    doubled = exact(lr=0.25).fit(X, y, sample_weight=np.full(N, 2.0))
    np.testing.assert_allclose(weights(plain), weights(doubled), rtol=1e-4)
    # rows of weight 0 count in n alone, by which sums are divided
    kept = np.arange(N) % 2 == 0
    half = exact(lr=0.25, batch_size=N // 2).fit(X[kept], y[kept])
    weighted = exact().fit(X, y, sample_weight=kept.astype(float))
    np.testing.assert_allclose(weights(half), weights(weighted), rtol=1e-4)
    assert not np.allclose(weights(plain), weights(weighted), rtol=0.01)


def test_weights_of_streamed_rows(data, tmp_path):
    X, y = data
    X.tofile(tmp_path / "rows")
    rows = np.memmap(tmp_path / "rows", dtype=np.float32, shape=X.shape, mode="r")
    weight = np.linspace(0.0, 3.0, N)
    models = [quick().fit(given, y, sample_weight=weight) for given in (X, rows)]
    np.testing.assert_allclose(weights(models[0]), weights(models[1]), rtol=1e-5)


def test_fits_with_other_weights_share_no_noise(data):
    all_noise = {"epsilon": None, "noise_multiplier": 1e3}
    model = quick(module=MLP((40,)), lr=1e3, **all_noise)
    one, other = (
        weights(model.fit(*data, sample_weight=np.full(N, weight))) for weight in (1.0, 1.001)
    )
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.3


def test_reference_and_warm_start_use_the_weights(data):
    X, y = data
    only = (y == 0).astype(float)  # as if no record of the other class had a loss
    model = quick(keep_reference=True, warm_start=True, max_steps=40)
    model.fit(X, y, sample_weight=100 * only)
    assert (model.reference_.predict(X) == 0).mean() > 0.8
    assert model.privacy_.max_sample_weight == 100.0
    before = model.predict(X).mean()
    model.fit(X, y, sample_weight=100 - 100 * only)
    assert model.predict(X).mean() > before + 0.2


def test_the_statement_says_what_is_assumed_of_weights(data):
    weighted = quick().fit(*data, sample_weight=np.ones(N))
    told, plain = weighted.privacy_, quick().fit(*data).privacy_
    assert ASSUMPTIONS["weights"] in told.assumptions
    assert WEIGHTS_FROM_OTHERS in told.not_accounted
    assert "Sample weights multiply the loss before clipping" in told.statement
    assert told.max_sample_weight == 100.0 and told.epsilon == plain.epsilon
    assert plain.max_sample_weight is None and "weights multiply" not in plain.statement
    assert not {ASSUMPTIONS["weights"], WEIGHTS_FROM_OTHERS} & {
        *plain.assumptions,
        *plain.not_accounted,
    }
    assert weighted.privacy_statement()["max_sample_weight"] == 100.0
    assert ASSUMPTIONS["largest weight"] not in told.assumptions
    largest = quick(max_sample_weight=None, warm_start=True)
    largest.fit(*data, sample_weight=np.linspace(0, 2.5, N)).fit(*data)
    assert largest.privacy_.max_sample_weight == 2.5
    assert {ASSUMPTIONS["weights"], ASSUMPTIONS["largest weight"]} <= {
        *largest.privacy_.assumptions
    }
    again = quick(warm_start=True).fit(*data, sample_weight=np.ones(N))
    assert again.fit(*data).privacy_.assumptions == told.assumptions
    assert again.privacy_.max_sample_weight == 100.0


WRAPPERS = {
    "boosting": lambda model: AdaBoostClassifier(model, n_estimators=2, random_state=0),
    "reduction": lambda model: ExponentiatedGradient(model, DemographicParity(), max_iter=2),
    "grid": lambda model: GridSearch(model, DemographicParity(), grid_size=2),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_wrappers_that_weigh_rows_run_and_each_of_their_fits_is_charged(name, data, tmp_path):
    X, y = data
    groups = {} if name == "boosting" else {"sensitive_features": np.arange(N) % 2}
    ledger = PrivacyLedger(tmp_path / "ledger", delta=1e-4, accountant="rdp")
    with ledger:
        model = WRAPPERS[name](quick()).fit(X, y, **groups)
    fitted = model.estimators_ if name == "boosting" else model.predictors_
    fitted = [m for m in fitted if isinstance(m, DPFairClassifier)]
    n_fits = 2 if name == "boosting" else len(fitted)  # a second no better than chance is dropped
    if name == "reduction":  # which keeps those that it uses
        n_fits = model.n_oracle_calls_ - model.n_oracle_calls_dummy_returned_
    assert model.predict(X).shape == (N,)
    assert ledger.report().n_fits == n_fits >= 2
    assert ledger.epsilon() > max(m.privacy_.epsilon for m in fitted)
    for one in fitted:
        assert one.privacy_.max_sample_weight == 100.0
        assert "epsilon does not cover weights computed from other" in one.privacy_.statement


def test_metadata_routing(data):
    X, y = data
    weight, pipe = np.ones(N), make_pipeline(BoundedScaler((-5, 5)), quick())
    with config_context(enable_metadata_routing=True):
        accuracy = make_scorer(accuracy_score).set_score_request(sample_weight=False)
        params = {"params": {"sample_weight": weight}, "return_estimator": True, "cv": 2}
        params |= {"scoring": accuracy}
        with pytest.raises((UnsetMetadataPassedError, ValueError), match="sample_weight"):
            cross_validate(pipe, X, y, **params)
        pipe[-1].set_fit_request(sample_weight=True)
        for fitted in cross_validate(pipe, X, y, **params)["estimator"]:
            assert fitted[-1].privacy_.max_sample_weight == 100.0


def test_a_recorder_takes_no_weights(data):
    model = quick(callbacks=[GroupRecorder()], max_sample_weight=None)
    with pytest.raises(ValueError, match="measures losses without sample weights"):
        model.fit(*data, sample_weight=np.ones(N))
