"""Forecasts of searches and fits: what a ledger holds afterwards."""

import math

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    RandomizedSearchCV,
    RepeatedKFold,
    ShuffleSplit,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skdpfair import DPFairClassifier, Groups, get_method
from skdpfair.analysis import GroupRecorder
from skdpfair.budget import PrivacyLedger
from skdpfair.budget.spending import DIAGNOSTICS, REFERENCE, SCORES
from skdpfair.exceptions import BudgetExceededError
from skdpfair.model_selection import DPThresholdClassifier, forecast
from skdpfair.preprocessing import DPQuantileScaler
from skdpfair.privacy import compute_epsilon
from tests.model_selection.searches import NAME, base

with_tasks = pytest.mark.skipif(
    not hasattr(Pipeline, "set_callbacks"), reason="scikit-learn < 1.9 tells of no folds"
)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 3))
Y = (X[:, 0] > 0).astype(int)


def planned(search, **params):
    return forecast(search, 200, accountant="rdp", **params)


def grid(estimator, cv=2, **space):
    return GridSearchCV(estimator, space, cv=cv, error_score="raise")


def releases_of(plan):
    return [r for fit in plan.fits for r in fit.releases for _ in range(fit.n_fits)]


def ledger_for(plan, folder, epsilon=None):
    path = folder / f"{epsilon}.jsonl"
    return PrivacyLedger(path, epsilon=epsilon, delta=plan.delta, accountant="rdp")


@with_tasks
@pytest.mark.parametrize(
    ("cv", "n_jobs"),
    [
        (4, None),
        pytest.param(4, 2, marks=pytest.mark.slow),
        (KFold(3), None),
        (RepeatedKFold(n_splits=3, n_repeats=2), None),
        (ShuffleSplit(3), None),
    ],
)
def test_forecast_of_a_search_is_the_report_of_its_ledger(tmp_path, cv, n_jobs):
    """Candidates that cost the same: then the refit is that of any."""
    model = make_pipeline(FunctionTransformer(), base())
    search = grid(model, cv, **{NAME + "lr": [0.1, 0.5]}).set_params(n_jobs=n_jobs)
    plan = planned(search)
    ledger = ledger_for(plan, tmp_path)
    ledger.fit(search, X, Y)
    spent = ledger.report()
    assert plan.epsilon == pytest.approx(spent.epsilon, rel=1e-9) and spent.n_fits > 6
    facts = {name: value for name, value in vars(spent).items() if name != "epsilon"}
    assert facts == {name: getattr(plan, name) for name in facts}
    every = compute_epsilon(releases_of(plan), plan.delta, "rdp")
    assert plan.epsilon == pytest.approx(every, rel=1e-9)


@with_tasks
def test_forecast_of_a_search_over_a_reference_bounds_its_ledger(tmp_path):
    search = grid(base(), 3, noise_multiplier=[3.0, None])
    plan = planned(search)
    ledger = ledger_for(plan, tmp_path)
    ledger.fit(search, X, Y)
    spent = ledger.report()
    assert spent.epsilon_total == ledger.epsilon() == math.inf
    assert spent.reasons == plan.reasons == (REFERENCE, SCORES) and spent.n_fits == 7
    if search.best_params_["noise_multiplier"] is not None:
        assert spent.epsilon == pytest.approx(plan.epsilon, rel=1e-9)
    assert spent.epsilon <= plan.epsilon * (1 + 1e-9)


def test_forecast_of_a_search_is_a_budget_for_it_and_no_more(tmp_path):
    search = grid(base(), 4, lr=[0.1, 0.2])
    plan = planned(search)
    enough = plan.epsilon * (1 + 1e-9)
    for budget in (enough, 0.6 * enough):
        ledger = ledger_for(plan, tmp_path, budget)
        if budget == enough:
            ledger.fit(search, X, Y)
            assert ledger.report().n_fits == 9
        with pytest.raises(BudgetExceededError):
            ledger.fit(search, X, Y)
        assert 0.5 * budget < ledger.epsilon() <= budget


@pytest.mark.parametrize("method", ["dpsgd", "global_adapt", "dpsgd_f", "dp_is_sgd", "fairlens_dp"])
def test_forecast_of_a_fit_is_the_epsilon_of_its_ledger(tmp_path, method):
    clf = base(method, group_col=1)
    binary = np.column_stack([X[:, 0], X[:, 1] > 0])
    plan = planned(clf, n_groups=2)
    with ledger_for(plan, tmp_path) as ledger:
        clone(clf).fit(binary, Y)
    assert ledger.epsilon() == pytest.approx(plan.epsilon, rel=1e-9)
    assert plan.epsilon_total == plan.epsilon


@pytest.mark.parametrize("in_pipeline", [False, True])
def test_forecast_of_thresholds_is_the_epsilon_of_their_ledger(tmp_path, in_pipeline):
    model = DPThresholdClassifier(base(noise_multiplier=None).set_params(epsilon=2.0))
    space = {"estimator__max_steps": [3, 4]}
    if in_pipeline:
        model = make_pipeline(FunctionTransformer(), model)
        space = {f"dpthresholdclassifier__{name}": v for name, v in space.items()}
    alone, search = planned(model), grid(model, 4, **space).set_params(refit=False)
    with ledger_for(alone, tmp_path) as ledger:
        clone(model).fit(X, Y)
    assert ledger.epsilon() == pytest.approx(alone.epsilon, rel=1e-9)
    assert len(alone.fits[0].releases) == 2 and alone.epsilon == pytest.approx(2.0, rel=1e-3)
    plan = planned(search)
    with ledger_for(plan, tmp_path, 1e6) as ledger:
        search.fit(X, Y)
    made = releases_of(plan)
    assert len(made) == 2 * 8 and ledger.report().n_fits == 8
    assert ledger.epsilon() == pytest.approx(compute_epsilon(made, plan.delta, "rdp"), rel=1e-9)


@pytest.mark.parametrize(
    ("cv", "sizes"),
    [
        (4, {150: 4}),
        (KFold(3), {133: 2, 134: 1}),
        (GroupKFold(3), {133: 2, 134: 1}),
        (RepeatedKFold(n_splits=4, n_repeats=3), {150: 12}),
        (ShuffleSplit(3, train_size=0.5, test_size=0.5), {100: 3}),
        ([(np.arange(50), np.arange(50, 200))], {50: 1}),
    ],
)
def test_forecast_has_the_sizes_of_folds(cv, sizes):
    assert {f.n_samples: f.n_fits for f in planned(base(), cv=cv).fits} == sizes


def test_forecast_charges_the_refit_as_the_dearest_candidate():
    search = grid(base(), noise_multiplier=[4.0, 2.0, 3.0])
    plan = planned(search)
    assert plan.fits[-1].candidate == 1
    assert planned(clone(search).set_params(refit=False)).epsilon < plan.epsilon
    assert plan.epsilon_total == math.inf and plan.reasons == (SCORES,)
    assert [f.stage for f in plan.fits for _ in f.releases] == ["fold"] * 3 + ["refit"]
    asc = get_method("asc", group_probabilities=(0.5, 0.5))
    space = [{"noise_multiplier": [2.0]}, {"method": [asc], "noise_multiplier": [1.9]}]
    strata = planned(GridSearchCV(base(), space, cv=2), n_groups=2)
    assert strata.fits[-1].candidate == 0
    assert strata.fits[-2].releases[-1].strata is not None  # a higher rate, and less noise


class OtherBudget(TransformerMixin, BaseEstimator):
    def __init__(self, epsilon=1.0, delta=1e-5):
        self.epsilon, self.delta = epsilon, delta

    def fit(self, X, y=None):
        return self


@pytest.mark.parametrize(
    ("estimator", "reason"),
    [
        (base(noise_multiplier=None), REFERENCE),
        (base(keep_reference=True), REFERENCE),
        (base(noise_multiplier=0.0), REFERENCE),
        (base(callbacks=[GroupRecorder(terms=False)]), DIAGNOSTICS),
        (make_pipeline(OtherBudget(), base()), "OtherBudget spends"),
    ],
)
def test_forecast_of_what_is_not_counted_has_a_reason_and_no_total(estimator, reason):
    plan = planned(estimator)
    assert plan.epsilon_total == math.inf and len(plan.reasons) == 1
    assert plan.reasons[0].startswith(reason)


def test_forecast_of_a_search_over_a_reference_has_the_epsilon_without_it():
    with_reference = planned(grid(base(), noise_multiplier=[None, 3.0]))
    assert with_reference.epsilon == planned(grid(base(), noise_multiplier=[3.0])).epsilon
    assert planned(base(noise_multiplier=None)).epsilon == 0.0


def test_forecast_of_a_random_search_needs_its_seed():
    space = {"noise_multiplier": [4.0, 2.0, 3.0]}
    search = RandomizedSearchCV(base(), space, n_iter=2, cv=2, random_state=0)
    assert len(planned(search).fits) == 3
    with pytest.raises(ValueError, match=r"random_state .*None"):
        planned(search.set_params(random_state=None))


@pytest.mark.parametrize(
    ("search", "params", "error", "match"),
    [
        (LogisticRegression(), {}, TypeError, "search .*LogisticRegression"),
        (base(), {"n_samples": [1, 2, 3]}, TypeError, "n_samples must be an int"),
        (grid(LogisticRegression(), C=[1.0]), {}, TypeError, "Pipeline that ends"),
        (grid(base()), {"cv": 3}, ValueError, "cv must be None"),
        (base(), {"delta": 2.0}, ValueError, "delta"),
    ],
)
def test_forecast_refuses_unplannable_searches(search, params, error, match):
    with pytest.raises(error, match=match):
        forecast(search, **{"n_samples": 200} | params)


def test_forecast_lists_the_release_of_a_private_scaler(tmp_path):
    scaler = DPQuantileScaler((-5, 5), epsilon=1.0)
    classifier = DPFairClassifier(
        epsilon=1.0, group_col=Groups(levels=["F", "M"]), max_steps=3, accountant="rdp"
    )
    plan = planned(make_pipeline(scaler, classifier))
    first, *_, last = plan.fits[0].releases
    assert (first.what, last.what) == ("DPQuantileScaler", "steps")
    assert (first.steps, first.sample_rate) == (1, 1.0)
    assert first.noise_multipliers == scaler.planned(200).noise_multipliers
    assert [r.what for r in planned(classifier).fits[0].releases] == ["steps"]
    with ledger_for(plan, tmp_path) as ledger:
        scaler.fit(X)
    assert list(ledger.frame().steps) == [scaler.privacy_.steps] == [1]
