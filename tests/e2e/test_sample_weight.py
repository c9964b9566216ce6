"""Sample weights in fits, statements, wrappers and routing."""

import warnings

import numpy as np
import pytest
from fairlearn.reductions import DemographicParity, ExponentiatedGradient, GridSearch
from sklearn import config_context
from sklearn.ensemble import AdaBoostClassifier
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from torch import nn

from skdpfair import MLP, DPFairClassifier, get_method
from skdpfair.analysis import GroupRecorder
from skdpfair.budget import PrivacyLedger
from skdpfair.exceptions import LowSignalWarning
from skdpfair.methods import METHODS
from skdpfair.preprocessing import BoundedScaler
from skdpfair.privacy.privacy_report import ASSUMPTIONS, WEIGHTS_FROM_OTHERS

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


def exact(method, **params):
    """A fit to all records in each step, without noise."""
    plain = {"epsilon": None, "noise_multiplier": 0.0, "batch_size": N}
    return quick(method, **(plain | params))


class Zero(nn.Linear):
    """A linear model that starts at zero."""

    def reset_parameters(self):
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)


def weights(model):
    return np.concatenate([p.detach().numpy().ravel() for p in model.net_.module_.parameters()])


@pytest.mark.parametrize("method", METHODS)
def test_weights_that_are_all_zero_train_on_noise(method, data):
    """Else, success or failure would reveal whether the weight of one record is 0."""
    budget = {} if METHODS[method].private else {"epsilon": None}
    groups = {"sensitive_features": np.arange(N) % 2} if METHODS[method].needs_groups else {}
    model = quick(method, max_steps=2, **budget)
    model.fit(*data, sample_weight=np.zeros(N), **groups)
    assert np.isfinite(weights(model)).all()
    # the largest counts as public, where it is not declared
    with pytest.raises(ValueError, match="a weight above zero"):
        model.set_params(max_sample_weight=None).fit(*data, sample_weight=np.zeros(N), **groups)


def test_weights_multiply_what_is_clipped_relative_to_the_largest(data):
    """The sum of one step of a linear model from zero, computed by hand: gradients are x / 2."""
    X, y = data
    settings = {
        "method": get_method("dpsgd", max_grad_norm=0.3),
        "module": lambda: Zero(3, 2),
        "lr": 1.0,
    }
    settings |= {"max_steps": 1, "iterate_average": 0.0, "max_sample_weight": None}
    rows = np.hstack([X, np.ones((N, 1), np.float32)]) * np.where(y, 0.5, -0.5)[:, None]
    rows *= np.minimum(1, 0.3 / (np.sqrt(2) * np.linalg.norm(rows, axis=1, keepdims=True)))
    of_record, by_class = np.linspace(0.5, 2, N), np.where(y, 1, 0.2)
    for given, params, factor in [
        (None, {}, np.ones(N)),
        (np.full(N, 7.0), {}, np.ones(N)),
        (of_record, {}, of_record / 2),
        (of_record, {"max_sample_weight": 4.0}, of_record / 4),
        (of_record, {"class_weight": {1: 5.0}}, of_record / 2 * by_class),
        (np.where(y, 5, 1), {}, by_class),
        (np.where(y, 5e-100, 1e-100), {}, by_class),
        (None, {"class_weight": {0: 1e-100, 1: 5e-100}}, by_class),
    ]:
        model = exact(**settings | params).fit(X, y, sample_weight=given)
        found = next(model.net_.module_.parameters()).detach().numpy()[1]
        expected = (factor[:, None] * rows).sum(0)[:-1] / N
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)


def test_weights_of_streamed_rows_are_those_of_rows_in_memory(data, tmp_path):
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
    only = 100.0 * (y == 0)  # as if no record of the other class had a loss
    model = quick(keep_reference=True, warm_start=True, max_steps=40)
    model.fit(X, y, sample_weight=only)
    assert (model.reference_.predict(X) == 0).mean() > 0.8
    before = model.predict(X).mean()
    model.fit(X, y, sample_weight=100 - only)
    assert model.predict(X).mean() > before + 0.2


def test_the_statement_assumes_weights_of_each_record_alone(data):
    ones, ramp = np.ones(N), np.linspace(0, 2.5, N)
    of_weights = {ASSUMPTIONS["weights"], ASSUMPTIONS["largest weight"], WEIGHTS_FROM_OTHERS}

    def stated(report):
        return of_weights & {*report.assumptions, *report.not_accounted}, report.max_sample_weight

    weighted, plain = (quick().fit(*data, sample_weight=given).privacy_ for given in (ones, None))
    declared = {ASSUMPTIONS["weights"], WEIGHTS_FROM_OTHERS}, 100.0
    assert stated(weighted) == declared and stated(plain) == (set(), None)
    assert weighted.epsilon == plain.epsilon and weighted.facts()["max_sample_weight"] == 100.0
    assert "weights multiply" not in plain.statement
    assert "epsilon does not cover weights computed from other records" in weighted.statement
    for most, weight, expected in ((None, ramp, (of_weights, 2.5)), (100.0, ones, declared)):
        model = quick(max_sample_weight=most, warm_start=True).fit(*data, sample_weight=weight)
        assert stated(model.fit(*data).privacy_) == expected


WRAPPERS = {
    "boosting": lambda model: AdaBoostClassifier(model, n_estimators=2, random_state=0),
    "reduction": lambda model: ExponentiatedGradient(model, DemographicParity(), max_iter=2),
    "grid": lambda model: GridSearch(model, DemographicParity(), grid_size=2),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_fits_of_wrappers_that_weigh_rows_are_charged(name, data, tmp_path):
    X, y = data
    groups = {} if name == "boosting" else {"sensitive_features": np.arange(N) % 2}
    ledger = PrivacyLedger(tmp_path / "ledger", delta=1e-4, accountant="rdp")
    with ledger:
        model = WRAPPERS[name](quick())
        model.fit(X, y, **groups)
    fitted = model.estimators_ if name == "boosting" else model.predictors_
    fitted = [m for m in fitted if isinstance(m, DPFairClassifier)]
    n_fits = 2 if name == "boosting" else len(fitted)  # a second no better than chance is dropped
    if name == "reduction":  # which keeps those that it uses
        n_fits = model.n_oracle_calls_ - model.n_oracle_calls_dummy_returned_
    assert model.predict(X).shape == (N,)
    assert ledger.report().n_fits == n_fits >= 2
    assert ledger.epsilon() > max(m.privacy_.epsilon for m in fitted)
    assert {one.privacy_.max_sample_weight for one in fitted} == {100.0}
    assert all(WEIGHTS_FROM_OTHERS in one.privacy_.not_accounted for one in fitted)


def test_sample_weight_can_be_routed(data):
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


@pytest.mark.parametrize(
    ("params", "given"), [({}, {"sample_weight": np.ones(N)}), ({"class_weight": {1: 2.0}}, {})]
)
def test_group_recorder_refuses_weights(params, given, data):
    model = quick(callbacks=[GroupRecorder()], max_sample_weight=None, **params)
    with pytest.raises(ValueError, match="losses without weights"):
        model.fit(*data, **given)


def test_low_signal_warnings_name_the_largest_weight(data):
    X, y = (np.concatenate([part] * 20) for part in data)
    model = quick(epsilon=2.0, max_sample_weight=40.0)
    with pytest.warns(LowSignalWarning, match=r"weights up to 40.*n\*mu / 40 = \d+;"):
        model.fit(X, y, sample_weight=np.ones(len(y)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", LowSignalWarning)
        model.set_params(max_sample_weight=2.0).fit(X, y, sample_weight=np.ones(len(y)))
