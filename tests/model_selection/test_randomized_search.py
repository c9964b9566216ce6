"""The search that releases its winner only: what it costs, keeps, reports and refuses."""

import math
import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from multiprocessing import get_context

import numpy as np
import pytest
from joblib import Parallel, delayed
from scipy.stats import loguniform
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.feature_selection import SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skdpfair import DPFairClassifier, get_method
from skdpfair.analysis import GroupRecorder
from skdpfair.budget import PrivacyLedger
from skdpfair.budget.active_ledger import SEARCH
from skdpfair.exceptions import BudgetExceededError, PrivacyAccountingError
from skdpfair.model_selection import _trials, forecast
from skdpfair.model_selection._randomized_search import pool_of, selection_of
from skdpfair.model_selection._trials import SHAPES
from skdpfair.preprocessing import DPQuantileScaler
from skdpfair.privacy import NoisyRelease
from skdpfair.privacy.privacy_report import ASSUMPTIONS
from skdpfair.privacy.renyi import curve_epsilon, rdp_curve, selection_curve
from skdpfair.privacy.tradeoff import trade_off_from_epsilon
from tests.model_selection.searches import NAME, base, searching

pytestmark = pytest.mark.usefixtures("trials")
insecure = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning")


def private():
    return DPFairClassifier("dpsgd", max_steps=5, batch_size=60)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    return X, np.where(X[:, 0] > 0, "yes", "no")


# the winner


def test_fit_keeps_the_winner_which_predicts(data):
    search = searching(trials="geometric").fit(*data)
    winner = search.best_estimator_
    assert search.best_params_["lr"] in (0.1, 1.0) and winner.lr == search.best_params_["lr"]
    assert search.score(*data) == np.mean(search.predict(data[0]) == data[1])
    assert search.predict_proba(data[0]).shape == (300, 2)
    assert list(search.classes_) == ["no", "yes"]
    assert clone(search).get_params()["mean_trials"] == 3.0
    assert search.n_features_in_ == 3
    with pytest.raises(ValueError, match="warm_start=True composes"):
        winner.set_params(warm_start=True).fit(*data)


def test_fit_takes_groups_and_pipelines_and_no_seed_of_the_estimator(data):
    X, y = data
    sex = np.where(X[:, 1] > 0, "F", "M")
    search = searching(base("dpsgd_f", random_state=0)).fit(X, y, sensitive_features=sex)
    assert list(search.best_estimator_.levels_) == ["F", "M"]
    assert search.best_estimator_.random_state is None
    pipe = make_pipeline(FunctionTransformer(), base("dpsgd_f"))
    search = searching(pipe).fit(X, y, sensitive_features=sex)
    assert search.best_estimator_[-1].privacy_ is search.privacy_


def test_fit_scores_no_record_that_it_trains_on(data, monkeypatch):
    columns, nobody = [], ((None, None), None)
    monkeypatch.setattr(_trials, "trainer", lambda _, rows, *__: columns.append(rows))
    monkeypatch.setattr(_trials, "scorer", lambda X, y, *_: columns.append((X, y)))
    monkeypatch.setattr(_trials, "run", lambda *_: nobody)
    X, y = data
    X = np.column_stack([np.arange(len(X)), X])
    searching(holdout=0.2).fit(X, y)
    trained, scored = ([*rows[:, 0].astype(int)] for rows, _ in columns)
    assert sorted(trained + scored) == list(range(300)) and len(scored) == 60
    assert all((labels == y[rows[:, 0].astype(int)]).all() for rows, labels in columns)


# the cost


@pytest.mark.parametrize("trials", SHAPES)
def test_epsilon_is_that_of_the_selection(data, trials):
    search = searching(trials=trials).fit(*data)
    planned, report = forecast(search, 300), search.privacy_
    (fit,) = planned.fits
    assert fit.n_samples == 240
    curve = selection_curve(rdp_curve(fit.releases), 3.0, SHAPES[trials])
    assert report.epsilon == planned.epsilon_total
    assert report.epsilon == pytest.approx(curve_epsilon(curve, report.delta), rel=1e-12)
    assert planned.epsilon == pytest.approx(curve_epsilon(rdp_curve(fit.releases), 1e-4))
    facts = report.accountant, report.is_private, report.seeded, report.steps, report.sample_rate
    assert facts == ("rdp", True, False, 5, 0.25)
    alone = trade_off_from_epsilon(report.epsilon, report.delta)
    assert report.detection_rate() < 0.9 * float(alone.true_positive_rate(0.01))
    assert report.mu < 0.9 * alone.mu
    (limit,) = re.findall(r"at most ([\d.]+) %", planned.reasons[1])
    assert f"at most {limit} %" in report.plain_statement


def test_epsilon_is_that_of_the_dearest_configuration_whichever_wins(data):
    small, large = (
        searching(space={"noise_multiplier": [noise]}).forecast(300).epsilon_total
        for noise in (4.0, 2.0)
    )
    both = searching(space=[{"noise_multiplier": [4.0]}, {"noise_multiplier": [2.0], "lr": [0.1]}])
    assert small < large == both.forecast(300).epsilon_total == both.fit(*data).privacy_.epsilon
    drawn = searching(space={"lr": loguniform(0.01, 1.0), "max_steps": [3, 5]}, n_candidates=6)
    whole = drawn.forecast(300).epsilon_total
    assert whole == drawn.forecast(300).epsilon_total == drawn.fit(*data).privacy_.epsilon


@insecure
@pytest.mark.parametrize("estimator", [private(), make_pipeline(FunctionTransformer(), private())])
@pytest.mark.parametrize("trials", SHAPES)
def test_epsilon_of_the_whole_search_is_met_from_below(data, estimator, trials):
    name = "" if isinstance(estimator, DPFairClassifier) else NAME
    search = searching(estimator, epsilon=2.0, trials=trials, random_state=1)
    planned, found = search.forecast(300), search.fit(*data)
    assert 1.99 < planned.epsilon_total == found.privacy_.epsilon <= 2.0
    trial = found.best_params_[f"{name}epsilon"]
    assert 0.5 < trial < 2.0
    again = clone(search).set_params(estimator=clone(estimator), epsilon=None)
    again.estimator.set_params(**{f"{name}epsilon": trial})
    assert again.fit(*data).privacy_.epsilon == found.privacy_.epsilon


def test_epsilon_is_met_where_the_smallest_of_a_trial_is_infeasible():
    search = searching(private(), epsilon=0.05, trials="geometric")
    assert 0.045 < search.forecast(3000).epsilon_total <= 0.05


def test_selection_of_charges_the_score_no_more_than_a_trial():
    search = searching()
    selection = selection_of(search, pool_of(search), 300)

    def score(noise):
        return rdp_curve([NoisyRelease("score", 1.0, (noise,))])

    assert (score(selection.noise) <= selection.curve * (1 + 1e-9)).all()
    assert (score(0.99 * selection.noise) > selection.curve).any()


@insecure
@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.PrivacyLeakWarning")
def test_report_has_the_public_facts_of_the_released_trial(data):
    X, y = data
    method = get_method("dp_is_sgd", group_probabilities=(0.4, 0.6))
    levels = ["no", "yes"]
    clf = private().set_params(method=method, group_col__levels=levels, classes=levels)
    pipe = make_pipeline(StandardScaler(), clf)
    search = searching(pipe, random_state=0, epsilon=3.0).fit(X, y, sensitive_features=y)
    alone = clone(pipe).fit(X, y, dpfairclassifier__sensitive_features=y)[-1].privacy_
    report, sets = (
        search.privacy_,
        {ASSUMPTIONS[name] for name in ("n", "sets", "classes", "groups")},
    )
    assert set(alone.assumptions) - sets <= set(report.assumptions)
    assert any("group_probabilities" in text for text in report.assumptions)
    assert set(alone.not_accounted) <= set(report.not_accounted)
    assert search.best_estimator_[-1].privacy_ == report


def test_ledger_is_charged_once_for_the_whole_search(data, tmp_path, monkeypatch):
    with PrivacyLedger(tmp_path / "ledger", epsilon=100.0, delta=1e-4) as ledger:
        search = searching(make_pipeline(FunctionTransformer(), base())).fit(*data)
        assert ledger.epsilon() == pytest.approx(search.privacy_.epsilon)
        base().fit(*data)
    selection, _ = ledger.frame().what
    assert selection == "private selection"
    monkeypatch.setattr(_trials, "run", lambda *_: pytest.fail("trained"))
    with (
        PrivacyLedger(tmp_path / "tight", epsilon=0.1, delta=1e-4),
        pytest.raises(BudgetExceededError),
    ):
        searching().fit(*data)


@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_ledger_is_charged_for_a_grid_of_private_searches(data, tmp_path, n_jobs):
    ledger = PrivacyLedger(tmp_path / "ledger", delta=1e-4)
    grid = GridSearchCV(searching(), {"mean_trials": [2.0, 3.0]}, cv=2, n_jobs=n_jobs)
    ledger.fit(grid, *data)
    assert list(ledger.frame().what) == ["private selection"] * 5


# refusals


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"mean_trials": 0.0}, "mean_trials"),
        ({"trials": "binomial"}, "trials"),
        ({"holdout": 1.0}, "holdout"),
        ({"delta": 0.5}, "delta"),
        ({"n_candidates": 0}, "n_candidates"),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"epsilon": math.inf}, "epsilon must be"),
        ({"epsilon": 1.0, "space": {"epsilon": [0.5, 1.0]}}, "Remove epsilon"),
        ({"epsilon": 1.0, "space": {"noise_multiplier": [0.5, 1.0]}}, "Remove epsilon"),
        ({"space": {"noise_multiplier": [3.0, 0.0]}}, "without privacy"),
        ({"space": {"keep_reference": [True]}}, "keep_reference=True"),
        ({"estimator": base(warm_start=True)}, "warm_start=True"),
        ({"estimator": base(callbacks=[GroupRecorder()])}, "callbacks="),
    ],
)
def test_unusable_parameters_are_refused(data, params, match):
    with pytest.raises(ValueError, match=match):
        searching(**{"estimator": private() if "epsilon" in params else base()} | params).fit(*data)


@pytest.mark.parametrize(
    "network",
    [
        {"module": ["mlp"], "module__hidden_layer_sizes": [(4,), (10**8,)]},
        {"module": ["logistic", "cnn"]},  # on records that are no pictures
        {"module": [lambda width=2: None], "module__depth": [2]},
    ],
)
def test_network_that_cannot_be_made_is_refused_before_any_trial(data, network, tmp_path):
    refused = pytest.raises((ValueError, TypeError), match=r"^module")
    with PrivacyLedger(tmp_path / "ledger", delta=1e-4) as ledger, refused:
        searching(base(module="logistic"), network).fit(*data)
    assert ledger.frame().empty


# private fits beside the last step


@pytest.mark.parametrize(
    "inner",
    [base(), base(noise_multiplier=None), GridSearchCV(base(), {}), searching()],
    ids=["private", "reference", "grid", "search"],
)
def test_private_fits_beside_the_last_step_are_refused(data, inner):
    pipe = make_pipeline(SelectFromModel(inner), base())
    with pytest.raises(ValueError, match="before its last step"):
        searching(pipe).fit(*data)
    for planned in (pipe, searching(pipe), GridSearchCV(pipe, {NAME + "lr": [0.1]})):
        with pytest.raises(ValueError, match="before its last step"):
            forecast(planned, 300)


def test_frozen_private_step_was_paid_for_before(data):
    scaler = DPQuantileScaler((-3, 3))
    with pytest.raises(ValueError, match="DPQuantileScaler before"):
        searching(make_pipeline(scaler, base())).fit(*data)
    scaler.fit(data[0])
    search = searching(make_pipeline(FrozenEstimator(scaler), base())).fit(*data)
    assert search.privacy_.epsilon == forecast(search, 300).epsilon_total


def fitted_in(place, model, X, y):
    if place == "here":
        return model.fit(X, y)
    if place == "thread":
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(model.fit, X, y).result()
    if place == "loky":
        return Parallel(2, backend="loky")([delayed(model.fit)(X, y)])[0]
    with get_context(place).Pool(1) as pool:
        return pool.apply(model.fit, (X, y))


class FitsInside(TransformerMixin, BaseEstimator):
    """A step whose parameters do not show that it fits a model of its own."""

    def __init__(self, kind="private", where="fit", swallows=False, place="here"):
        self.kind, self.where, self.swallows, self.place = kind, where, swallows, place

    def fit(self, X, y=None):
        self.y_, self.fitted_ = y, True
        if self.where == "fit":
            self._fit_model(X, y)
        return self

    def transform(self, X):
        if self.where == "score" and len(X) < 200:
            self._fit_model(X, np.arange(len(X)) % 2)
        return X

    def _fit_model(self, X, y):
        model = base(noise_multiplier=0.1) if self.kind == "private" else base()
        model = DPQuantileScaler((-1, 1)) if self.kind == "quantiles" else model
        with suppress(PrivacyAccountingError) if self.swallows else nullcontext():
            self.model_ = fitted_in(self.place, model, X, y)


@pytest.mark.parametrize("swallows", [False, True])
@pytest.mark.parametrize(
    ("kind", "where"),
    [("private", "fit"), ("as planned", "fit"), ("quantiles", "fit"), ("private", "score")],
)
def test_step_that_fits_a_model_of_its_own_is_refused(data, trials, kind, where, swallows):
    trials(1)
    search = searching(make_pipeline(FitsInside(kind, where, swallows), base()))
    if swallows and where == "score":
        winner = search.fit(*data).best_estimator_
        assert not hasattr(winner[0], "model_")  # nothing was fitted
        return
    with pytest.raises(RuntimeError, match="the fit of a step"):
        search.fit(*data)
    assert not hasattr(search, "best_estimator_")


@pytest.mark.parametrize(
    "place", ["thread", "fork", "spawn", pytest.param("loky", marks=pytest.mark.slow)]
)
def test_step_that_fits_in_a_thread_or_process_is_refused(data, trials, place):
    if place == "loky":  # a pool that lived before knows of no search
        Parallel(2, backend="loky")([delayed(len)("") for _ in range(2)])
    trials(1)
    search = searching(make_pipeline(FitsInside(place=place), base()))
    with pytest.raises(RuntimeError, match="thread or process"):
        search.fit(*data)
    assert SEARCH not in os.environ
    if place != "spawn":  # whose start takes seconds; the search is over
        assert fitted_in(place, base(), *data).privacy_.epsilon < np.inf
