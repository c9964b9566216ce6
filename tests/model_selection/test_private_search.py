"""The search that releases its winner only, and says what that costs."""

import math
import os
import pickle
import re
import struct
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import replace
from multiprocessing import get_context

import numpy as np
import pytest
from joblib import Parallel, delayed
from scipy import special, stats
from scipy.stats import loguniform
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.dummy import DummyClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skdpfair import DPFairClassifier, get_method
from skdpfair._utils.keystream import Keystream
from skdpfair.analysis import GroupRecorder
from skdpfair.budget import PrivacyLedger
from skdpfair.budget.active_ledger import SEARCH
from skdpfair.budget.charging import ledger_suspended
from skdpfair.exceptions import BudgetExceededError, InsecureSeedWarning, PrivacyAccountingError
from skdpfair.model_selection import DPRandomizedSearch, _trials, forecast
from skdpfair.model_selection._private_search import pool_of, selection_of
from skdpfair.model_selection._trials import SHAPES, draw_count
from skdpfair.preprocessing import DPQuantileScaler
from skdpfair.privacy import NoisyRelease
from skdpfair.privacy.renyi import curve_epsilon, rdp_curve, selection_curve, stop_parameter
from skdpfair.privacy.statement import ASSUMPTIONS
from skdpfair.privacy.tradeoff import trade_off_from_epsilon
from skdpfair.training.plan import Plan

pytestmark = [
    pytest.mark.usefixtures("trials"),
    pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning"),
]
SECRET = 98765432.125  # a score
PIPED = {"dpfairclassifier__lr": [0.1, 1.0]}


class TellTaleCount(int):
    pass


class TellTaleScore(float):
    pass


def base(method="dpsgd", **params):
    params = {"noise_multiplier": 3.0, "max_steps": 5, "batch_size": 60} | params
    return DPFairClassifier(method, epsilon=None, accountant="rdp", **params)


def private():
    return DPFairClassifier("dpsgd", max_steps=5, batch_size=60)


def searching(estimator=None, space=None, **params):
    space = {"lr": [0.1, 1.0]} if space is None else space
    return DPRandomizedSearch(estimator or base(), space, **{"mean_trials": 3.0} | params)


def breaks(X):
    raise ValueError(f"({len(X)} rows)")


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    return X, np.where(X[:, 0] > 0, "yes", "no")


def test_the_winner_is_kept_and_predicts(data):
    search = searching(trials="geometric").fit(*data)
    assert search.best_params_["lr"] in (0.1, 1.0)
    assert search.best_estimator_.lr == search.best_params_["lr"]
    assert search.score(*data) == np.mean(search.predict(data[0]) == data[1])
    assert search.predict_proba(data[0]).shape == (300, 2)
    assert list(search.classes_) == ["no", "yes"]
    assert search.best_estimator_.privacy_ is search.privacy_
    assert clone(search).get_params()["mean_trials"] == 3.0
    assert search.n_features_in_ == 3


@pytest.mark.parametrize("trials", SHAPES)
def test_epsilon_is_that_of_the_selection(data, trials):
    search = searching(trials=trials).fit(*data)
    foreseen = forecast(search, 300)
    (fit,) = foreseen.fits
    report = search.privacy_
    assert fit.n_samples == 240
    assert report.epsilon == foreseen.epsilon_total
    assert report.epsilon == pytest.approx(
        curve_epsilon(selection_curve(rdp_curve(fit.releases), 3.0, SHAPES[trials]), report.delta),
        rel=1e-12,
    )
    assert foreseen.epsilon == pytest.approx(curve_epsilon(rdp_curve(fit.releases), 1e-4))
    assert report.accountant == "rdp" and report.is_private and not report.seeded
    assert report.steps == 5 and report.sample_rate == 0.25
    alone = trade_off_from_epsilon(report.epsilon, report.delta)
    assert report.detection_rate() < 0.9 * float(alone.true_positive_rate(0.01))
    assert report.mu < 0.9 * alone.mu
    (limit,) = re.findall(r"right in at most ([\d.]+) %", foreseen.reasons[1])
    assert f"correct with a probability of at most {limit} %" in report.plain_statement


def test_the_worst_configuration_is_charged_whichever_wins(data):
    small = searching(space={"noise_multiplier": [4.0]}).forecast(300).epsilon_total
    large = searching(space={"noise_multiplier": [2.0]}).forecast(300).epsilon_total
    both = searching(space=[{"noise_multiplier": [4.0]}, {"noise_multiplier": [2.0], "lr": [0.1]}])
    assert small < large == both.forecast(300).epsilon_total == both.fit(*data).privacy_.epsilon


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning")
@pytest.mark.parametrize("estimator", [private(), make_pipeline(FunctionTransformer(), private())])
@pytest.mark.parametrize("trials", SHAPES)
def test_a_budget_of_the_whole_search_is_met_from_below(data, estimator, trials):
    name = "lr" if isinstance(estimator, DPFairClassifier) else "dpfairclassifier__lr"
    search = searching(estimator, {name: [0.1, 1.0]}, epsilon=2.0, trials=trials, random_state=1)
    assert 1.99 < search.forecast(300).epsilon_total <= 2.0
    found = search.fit(*data)
    trial = found.best_params_[name.replace("lr", "epsilon")]
    assert 0.5 < trial < 2.0
    assert found.privacy_.epsilon == search.forecast(300).epsilon_total
    again = clone(search).set_params(estimator=clone(estimator), epsilon=None)
    again.estimator.set_params(**{name.replace("lr", "epsilon"): trial})
    assert again.fit(*data).privacy_.epsilon == found.privacy_.epsilon


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"epsilon": math.inf}, "epsilon must be"),
        ({"epsilon": 1.0, "space": {"epsilon": [0.5, 1.0]}}, "Remove epsilon"),
        ({"epsilon": 1.0, "space": {"noise_multiplier": [0.5, 1.0]}}, "Remove epsilon"),
    ],
)
def test_a_budget_of_the_whole_search_that_cannot_be_met_is_refused(data, params, says):
    with pytest.raises(ValueError, match=says):
        searching(private(), **params).fit(*data)


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning")
@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.PrivacyLeakWarning")
def test_the_report_has_the_public_facts_of_the_released_trial(data):
    X, y = data
    method = get_method("dp_is_sgd", group_probabilities=(0.4, 0.6))
    clf = private().set_params(
        method=method, group_col__levels=["no", "yes"], classes=["no", "yes"]
    )
    pipe = make_pipeline(StandardScaler(), clf)
    search = searching(pipe, PIPED, random_state=0, epsilon=3.0)
    search.fit(X, y, sensitive_features=y)
    alone = clone(pipe).fit(X, y, dpfairclassifier__sensitive_features=y)[-1].privacy_
    sets = {ASSUMPTIONS[name] for name in ("n", "sets", "classes", "groups")}
    assert set(alone.assumptions) - sets <= set(search.privacy_.assumptions)
    assert any("group_probabilities" in text for text in search.privacy_.assumptions)
    assert set(alone.not_accounted) <= set(search.privacy_.not_accounted)
    assert any("standardscaler" in text for text in search.privacy_.not_accounted)
    assert search.best_estimator_[-1].privacy_ == search.privacy_


def test_a_small_budget_that_some_trial_can_meet_is_met():
    """Where the smallest epsilon that is tried is infeasible, larger ones are not given up."""
    search = searching(private(), epsilon=0.05, trials="geometric")
    assert 0.045 < search.forecast(3000).epsilon_total <= 0.05


def test_a_distribution_is_drawn_from_public_numbers_alone(data):
    search = searching(space={"lr": loguniform(0.01, 1.0), "max_steps": [3, 5]}, n_candidates=6)
    whole = search.forecast(300).epsilon_total
    assert whole == search.forecast(300).epsilon_total == search.fit(*data).privacy_.epsilon


def test_the_score_costs_no_more_than_a_trial():
    search = searching()
    selection = selection_of(search, pool_of(search), 300)
    score = rdp_curve([NoisyRelease("score", 1.0, (selection.noise,))])
    assert (score <= selection.curve * (1 + 1e-9)).all()
    less = rdp_curve([NoisyRelease("score", 1.0, (0.99 * selection.noise,))])
    assert (less > selection.curve).any()


def test_the_score_has_the_noise_that_is_charged(data, monkeypatch):
    class Model:
        classes_ = np.unique(data[1])

    right = data[1][:, None] == Model.classes_
    monkeypatch.setattr(_trials, "private_logits", lambda model, X: right.astype(float))
    score = _trials.scorer(*data, 5.0, np.random.default_rng(0))
    drawn = [score(Model()) for _ in range(4000)]
    assert np.mean(drawn) == pytest.approx(300, abs=0.5)
    assert np.std(drawn) == pytest.approx(5.0, rel=0.05)


@pytest.mark.parametrize("mean", [1.5, 6.0, 1000.0])
@pytest.mark.parametrize("shape", [0.0, 1e-3, 0.5, 1.0, 30.0, math.inf])
def test_the_number_of_trials_follows_its_law(shape, mean):
    """False alarms: 1e-6 each, and the seed is fixed."""
    stream, k = Keystream(b"seed"), np.arange(1, 10**6)
    drawn = np.array([draw_count(stream, mean, shape) for _ in range(4000)])
    if shape == math.inf:
        logs = np.append(0.0, k * math.log(mean) - special.gammaln(k + 1))
    else:  # Papernot and Steinke, definition 1
        logs = special.gammaln(k + shape) - special.gammaln(k + 1)
        logs = np.append(-math.inf, logs + k * math.log1p(-stop_parameter(mean, shape)))
    law = np.exp(logs - logs.max())
    law /= law.sum()
    assert law @ np.append(0, k) == pytest.approx(mean, rel=1e-6)
    upto = law.cumsum()[drawn]
    between = upto - law[drawn] * stream.random(len(drawn))
    assert stats.kstest(between, "uniform").pvalue > 1e-6


def test_each_trial_is_one_of_the_pool_and_the_best_is_kept(monkeypatch):
    monkeypatch.setattr(_trials, "draw_count", lambda *law: 50)
    rng = np.random.default_rng(0)
    found = _trials.best_of(rng, (50.0, 1.0), [3, 1, 2], lambda p: -p, lambda model: model)
    assert found == (1, -1)


def test_no_trial_leaves_a_model_that_knows_nothing(data, monkeypatch):
    monkeypatch.setattr(_trials, "draw_count", lambda *law: 0)
    search = searching().fit(*data)
    assert isinstance(search.best_estimator_, DummyClassifier)
    assert (search.predict_proba(data[0]) == 0.5).all()
    assert search.best_params_ == {} and search.privacy_.is_private
    assert search.privacy_.epsilon == forecast(search, 300).epsilon_total


def test_neither_the_trials_nor_their_scores_are_kept(data, monkeypatch, capfd, caplog):
    """K and the scores are of classes whose names would show in a pickle, and in no other way."""
    monkeypatch.setattr(_trials, "draw_count", lambda *law: TellTaleCount(3))
    monkeypatch.setattr(_trials, "scorer", lambda *args: lambda model: TellTaleScore(SECRET))
    assert b"TellTaleScore" in pickle.dumps([TellTaleCount(3), TellTaleScore(SECRET)])
    search = searching().fit(*data)
    kept = pickle.dumps(search)
    assert b"TellTale" not in kept
    assert struct.pack(">d", SECRET) not in kept and struct.pack("<d", SECRET) not in kept
    assert str(SECRET) not in repr(vars(search)) + repr(search.privacy_.facts())
    public = {"best_estimator_", "best_params_", "classes_", "privacy_", "n_features_in_"}
    assert {k for k in vars(search) if k.endswith("_")} == public
    assert capfd.readouterr() == ("", "") and caplog.text == ""


def test_an_error_tells_nothing_of_the_trials(data, monkeypatch):
    monkeypatch.setattr(_trials, "draw_count", lambda *law: 3)
    pipe = make_pipeline(FunctionTransformer(breaks), base())
    with pytest.raises(
        ValueError, match=r"param_distributions cannot be fitted: \(240 rows"
    ) as caught:
        searching(pipe, {"dpfairclassifier__lr": [0.1]}).fit(*data)
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert not any(frame.name in ("best_of", "train") for frame in frames)
    assert caught.value.__context__ is None and caught.value.__cause__ is None
    held = [
        v for tb, _ in traceback.walk_tb(caught.value.__traceback__) for v in tb.f_locals.values()
    ]
    assert not any(isinstance(value, np.random.Generator) for value in held)  # it can be rewound


def test_a_seed_is_reproducible_and_warns(data):
    with pytest.warns(InsecureSeedWarning, match="number of trials") as caught:
        first = searching(random_state=3).fit(*data)
        again = searching(random_state=3).fit(*data)
    assert len(caught) == 2  # one for each search, whatever the number of trials
    assert np.array_equal(first.predict_proba(data[0]), again.predict_proba(data[0]))
    assert first.privacy_.seeded
    assert pickle.loads(pickle.dumps(first)).random_state is None


def test_no_record_is_trained_on_and_scored(data, monkeypatch):
    seen, nobody = [], ((None, None), None)
    monkeypatch.setattr(_trials, "trainer", lambda _, rows, *__: seen.append(rows))
    monkeypatch.setattr(_trials, "scorer", lambda X, y, *_: seen.append((X, y)))
    monkeypatch.setattr(_trials, "run", lambda *_: nobody)
    X, y = data
    X = np.column_stack([np.arange(len(X)), X])
    searching(holdout=0.2).fit(X, y)
    trained, scored = ([*rows[:, 0].astype(int)] for rows, _ in seen)
    assert sorted(trained + scored) == list(range(300)) and len(scored) == 60
    assert all((labels == y[rows[:, 0].astype(int)]).all() for rows, labels in seen)


def test_the_estimators_seed_is_not_shared_by_the_trials(data):
    assert searching(base(random_state=0)).fit(*data).best_estimator_.random_state is None


def test_groups_and_pipelines(data):
    X, y = data
    sex = np.where(X[:, 1] > 0, "F", "M")
    search = searching(base("dpsgd_f"), trials="geometric").fit(X, y, sensitive_features=sex)
    assert list(search.best_estimator_.levels_) == ["F", "M"]
    pipe = make_pipeline(FunctionTransformer(), base("dpsgd_f"))
    space = {"dpfairclassifier__lr": [0.1]}
    search = searching(pipe, space, trials="geometric").fit(X, y, sensitive_features=sex)
    assert search.best_estimator_[-1].privacy_ is search.privacy_


def test_a_ledger_is_charged_once_for_the_whole_search(data, tmp_path, monkeypatch):
    with PrivacyLedger(tmp_path / "ledger", epsilon=100.0, delta=1e-4) as ledger:
        search = searching(trials="geometric").fit(*data)
    assert list(ledger.frame().what) == ["private selection"]
    assert ledger.epsilon() == pytest.approx(search.privacy_.epsilon)
    monkeypatch.setattr(_trials, "run", lambda *_: pytest.fail("trained"))
    with (
        PrivacyLedger(tmp_path / "tight", epsilon=0.1, delta=1e-4),
        pytest.raises(BudgetExceededError),
    ):
        searching(trials="geometric").fit(*data)


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"mean_trials": 0.0}, "mean_trials"),
        ({"trials": "binomial"}, "trials"),
        ({"holdout": 1.0}, "holdout"),
        ({"delta": 0.5}, "delta"),
        ({"n_candidates": 0}, "n_candidates"),
        ({"space": {"noise_multiplier": [3.0, 0.0]}}, "trains without privacy"),
        ({"space": {"keep_reference": [True]}}, "keep_reference=True would reveal trials"),
        ({"estimator": base(warm_start=True)}, "warm_start=True would reveal trials"),
        ({"estimator": base(callbacks=[GroupRecorder()])}, "callbacks=.* would reveal trials"),
    ],
)
def test_refusals(data, params, says):
    with pytest.raises(ValueError, match=says):
        searching(**params).fit(*data)


@pytest.mark.parametrize(
    "network",
    [
        {"module": ["mlp"], "module__hidden_layer_sizes": [(4,), (10**8,)]},
        {"module": ["logistic", "cnn"]},  # on records that are no pictures
        {"module": [lambda width=2: None], "module__depth": [2]},
    ],
)
def test_a_network_that_cannot_be_made_is_refused_before_any_trial(data, network, tmp_path):
    named = pytest.raises((ValueError, TypeError), match=r"^module")
    with PrivacyLedger(tmp_path / "ledger", delta=1e-4) as ledger, named:
        searching(base(module="logistic"), network).fit(*data)
    assert ledger.frame().empty


def test_a_trial_that_released_more_than_planned_ends_the_search(data, monkeypatch):
    rng, low = np.random.default_rng(0), rdp_curve([NoisyRelease("steps", 0.1, (100.0,), 1)])
    train = _trials.trainer(base(), data, {}, low, rng, False, {})
    with ledger_suspended(), pytest.raises(PrivacyAccountingError, match="covers one model each"):
        train({})
    less = property(lambda plan: (replace(plan.mechanism.release, steps=0),))  # than it releases
    monkeypatch.setattr(Plan, "releases", less)
    with (
        ledger_suspended(),
        pytest.raises(PrivacyAccountingError, match="released more than was planned"),
    ):
        train({})


def test_the_winner_cannot_be_trained_further(data, monkeypatch):
    monkeypatch.setattr(_trials, "draw_count", lambda *law: 1)
    winner = searching().fit(*data).best_estimator_
    with pytest.raises(ValueError, match="warm_start=True composes"):
        winner.set_params(warm_start=True).fit(*data)


class FitsOnTheWay(TransformerMixin, BaseEstimator):
    """A step whose parameters do not show that it fits a model of its own."""

    def __init__(self, kind="private", where="fit", swallows=False):
        self.kind, self.where, self.swallows = kind, where, swallows

    def fit(self, X, y=None):
        self.y_, self.fitted_ = y, True
        if self.where == "fit":
            self._on_the_way(X, y)
        return self

    def transform(self, X):
        if self.where == "score" and len(X) < 200:
            self._on_the_way(X, np.arange(len(X)) % 2)
        return X

    def _on_the_way(self, X, y):
        models = {
            "private": lambda: base(noise_multiplier=0.1),
            "as planned": base,
            "quantiles": lambda: DPQuantileScaler((-1, 1)),
        }
        with suppress(PrivacyAccountingError) if self.swallows else nullcontext():
            self.model_ = models[self.kind]().fit(X, y)


@pytest.mark.parametrize("swallows", [False, True])
@pytest.mark.parametrize(
    ("kind", "where"),
    [(kind, "fit") for kind in ("private", "as planned", "quantiles")] + [("private", "score")],
)
def test_a_step_that_fits_a_model_of_its_own_is_refused(data, trials, kind, where, swallows):
    trials(1)
    search = searching(make_pipeline(FitsOnTheWay(kind, where, swallows), base()), PIPED)
    if swallows and where == "score":
        winner = search.fit(*data).best_estimator_
        assert not hasattr(winner[0], "model_")  # nothing was fitted
        return
    with pytest.raises(RuntimeError, match="the fit of a step, in any thread"):
        search.fit(*data)
    assert not hasattr(search, "best_estimator_")


def fitted_in(place, model, X, y):
    if place == "thread":
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(model.fit, X, y).result()
    if place == "loky":
        return Parallel(2, backend="loky")([delayed(model.fit)(X, y)])[0]
    with get_context(place).Pool(1) as pool:
        return pool.apply(model.fit, (X, y))


class FitsElsewhere(FunctionTransformer):
    """A step that fits a private model in a thread or process of its own."""

    def __init__(self, place="thread"):
        super().__init__()
        self.place = place

    def fit(self, X, y=None):
        self.model_ = fitted_in(self.place, base(noise_multiplier=0.1), X, y)
        return super().fit(X)


@pytest.mark.parametrize(
    "place", ["thread", "fork", "spawn", pytest.param("loky", marks=pytest.mark.slow)]
)
def test_a_step_that_fits_in_a_thread_or_process_is_refused(data, trials, place):
    if place == "loky":  # a pool that lived before knows of no search
        Parallel(2, backend="loky")([delayed(len)("") for _ in range(2)])
    trials(1)
    search = searching(make_pipeline(FitsElsewhere(place), base()), PIPED)
    with pytest.raises(RuntimeError, match="in any thread or process"):
        search.fit(*data)
    assert SEARCH not in os.environ
    if place != "spawn":  # whose start takes seconds; the search is over
        assert fitted_in(place, base(), *data).privacy_.epsilon < np.inf


def test_one_fit_in_each_trial_happens_and_later_fits_are_charged(data, trials, tmp_path):
    trials(3)
    model = make_pipeline(FunctionTransformer(), base())
    with PrivacyLedger(tmp_path / "ledger", delta=1e-4, accountant="rdp") as ledger:
        assert searching(model, PIPED).fit(*data).best_params_
        base().fit(*data)
    assert ledger.report().n_fits == 2
