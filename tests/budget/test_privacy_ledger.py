"""What a ledger says before, during and after fits of estimators that hold private ones."""

import math
import os
import pickle

import joblib
import numpy as np
import pytest
from joblib.parallel import ParallelBackendBase
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier, VotingClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401  (lets the next import find the halving search)
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    ShuffleSplit,
    cross_validate,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skdpfair import DPFairClassifier
from skdpfair.analysis import GroupRecorder
from skdpfair.budget import PrivacyLedger
from skdpfair.budget.active_ledger import VARIABLE
from skdpfair.budget.spending import DIAGNOSTICS, REFERENCE, SCORES, UNKNOWN
from skdpfair.exceptions import BudgetExceededError, PrivacyLeakWarning
from skdpfair.model_selection import DPRandomizedSearch, forecast
from skdpfair.preprocessing import BoundedScaler, DPQuantileScaler

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning"),
    pytest.mark.filterwarnings("ignore::skdpfair.exceptions.PrivacyLeakWarning"),
    pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning"),  # of ensembles
]
tasks = pytest.mark.skipif(
    not hasattr(Pipeline, "set_callbacks"), reason="scikit-learn < 1.9 tells of no folds"
)
DELTA = 1e-4


def quick(**params):
    params = {"noise_multiplier": 3.0, "max_steps": 2, "batch_size": 50} | params
    return DPFairClassifier("dpsgd", epsilon=None, accountant="rdp", **params)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    return X, (X[:, 0] > 0).astype(int)


@pytest.fixture
def ledger(tmp_path):
    return PrivacyLedger(tmp_path / "ledger", delta=DELTA, accountant="rdp")


def grid(estimator, cv=4, n_jobs=None, **spaces):
    return GridSearchCV(estimator, spaces, cv=cv, n_jobs=n_jobs, error_score="raise")


def planned(search):
    return forecast(search, 120, delta=DELTA, accountant="rdp")


MODELS = {
    "alone": (quick, 1),
    "bounds": (lambda: make_pipeline(BoundedScaler((-5, 5)), make_pipeline(quick())), 1),
    "quantiles": (lambda: make_pipeline(DPQuantileScaler((-5, 5)), quick()), 2),
    "scaler": (lambda: make_pipeline(StandardScaler(), quick()), 1),
    "voting": (lambda: VotingClassifier([("a", quick()), ("b", quick())]), 2),
    "bootstrap": (lambda: BaggingClassifier(quick(max_sample_weight=100.0), 2), 2),
    "isotonic": (lambda: CalibratedClassifierCV(quick(), method="isotonic", cv=2), 2),
    "private search": (lambda: DPRandomizedSearch(quick(), {"lr": [0.1]}, mean_trials=1.0), 1),
}


@pytest.mark.parametrize("way", ["fit", "with"])
@pytest.mark.parametrize("name", MODELS)
def test_a_ledger_counts_private_fits_and_knows_no_more(name, way, ledger, data):
    make, n_fits = MODELS[name]
    model = make()
    if way == "fit":
        assert ledger.fit(model, *data) is model
    else:
        with ledger:
            model.fit(*data)
    found = ledger.report()
    assert found.n_fits == found.n_private == len(ledger.frame()) == n_fits
    assert found.reasons == (UNKNOWN,) and not found.known
    assert found.epsilon == ledger.epsilon() < found.epsilon_total == math.inf
    assert "as a whole     unknown" in repr(found) and "inf" not in repr(found)
    assert VARIABLE not in os.environ and str(ledger.path).encode() not in pickle.dumps(model)


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"keep_reference": True}, REFERENCE),
        ({"callbacks": [GroupRecorder(terms=False)]}, DIAGNOSTICS),
    ],
)
def test_a_ledger_knows_what_a_fit_keeps(params, reason, ledger, data):
    ledger.fit(quick(**params), *data)
    assert ledger.report().reasons == (reason,) and ledger.report().known
    assert "as a whole     epsilon=inf" in repr(ledger.report())


def test_fit_warns_of_a_step_that_learns_before_it_learns(ledger, data):
    with pytest.warns(PrivacyLeakWarning, match="StandardScaler learns statistics") as caught:
        ledger.fit(make_pipeline(StandardScaler(), quick()), *data)
    assert caught[0].filename == __file__


@tasks
def test_a_fit_inside_a_search_knows_that_it_is_scored(ledger, data):
    with ledger:
        grid(quick(), cv=2, lr=[0.1]).fit(*data)
    assert ledger.report().reasons == (SCORES,) and ledger.report().epsilon_total == math.inf


def test_scores_that_somebody_reads_are_not_known(ledger, data):
    with ledger:
        cross_validate(quick(), *data, cv=2)
    assert ledger.report().reasons == (UNKNOWN,)


@tasks
@pytest.mark.parametrize(
    ("cv", "fits", "n_jobs"),
    [
        (4, 9, 1),
        pytest.param(4, 9, 2, marks=pytest.mark.slow),
        (ShuffleSplit(3, random_state=0), 7, 1),
    ],
)
def test_a_search_spends_its_forecast(ledger, data, cv, fits, n_jobs):
    model, name = make_pipeline(FunctionTransformer(), quick()), "dpfairclassifier__"
    search = grid(model, cv, n_jobs, **{name + "max_steps": [4], name + "lr": [0.1, 0.2]})
    ledger.fit(search, *data)
    found = ledger.report()
    assert (found.n_fits, found.reasons) == (fits, planned(search).reasons)
    assert found.epsilon == pytest.approx(planned(search).epsilon, rel=1e-9)
    quick().fit(*data)  # outside
    assert ledger.report().n_fits == fits


@tasks
def test_a_search_over_a_reference_spends_its_forecast(ledger, data):
    search = grid(quick(), cv=3, noise_multiplier=[3.0, None])
    ledger.fit(search, *data)
    found, foreseen = ledger.report(), planned(search)
    assert found.epsilon_total == ledger.epsilon() == math.inf
    assert found.reasons == foreseen.reasons and len(found.reasons) == 2 and found.n_fits == 7
    if search.best_params_["noise_multiplier"] is not None:
        assert found.epsilon == pytest.approx(foreseen.epsilon, rel=1e-9)
    assert found.epsilon <= foreseen.epsilon * (1 + 1e-9)


def test_the_forecast_of_a_search_is_a_budget_for_it_and_no_more(tmp_path, data):
    search = grid(quick(), cv=4, lr=[0.1, 0.2])
    enough = planned(search).epsilon * (1 + 1e-9)
    for budget, is_enough in ((enough, True), (0.6 * enough, False)):
        path = tmp_path / f"{budget}"
        ledger = PrivacyLedger(path, epsilon=budget, delta=DELTA, accountant="rdp")
        if is_enough:
            ledger.fit(search, *data)
            assert ledger.report().n_fits == 9
        with pytest.raises(BudgetExceededError, match="Nothing was fitted"):
            ledger.fit(search, *data)
        assert 0.5 * budget < ledger.epsilon() <= budget and VARIABLE not in os.environ


def test_every_fit_of_other_searches_counts(ledger, data):
    space, counted = {"lr": [0.1, 0.2, 0.3]}, []

    def count(fit):
        before = ledger.report().n_fits
        with ledger:
            fit()
        counted.append(ledger.report().n_fits - before)

    search = RandomizedSearchCV(quick(), space, n_iter=2, cv=3, random_state=0)
    halving = HalvingGridSearchCV(quick(batch_size=20), space, cv=2, random_state=0)
    nested = grid(quick(), cv=2, lr=[0.1, 0.2])
    count(lambda: search.fit(*data))
    count(lambda: halving.fit(*data))
    count(lambda: cross_validate(nested, *data, cv=3, error_score="raise"))
    assert counted == [7, 2 * sum(halving.n_candidates_) + 1, 15]


class Elsewhere(ParallelBackendBase):
    """A backend whose workers were started before, as dask's."""

    def effective_n_jobs(self, n_jobs):
        return 1


def test_workers_that_run_already_are_refused(ledger, data, monkeypatch):
    monkeypatch.setitem(joblib.parallel.BACKENDS, "elsewhere", Elsewhere)
    with joblib.parallel_config("elsewhere"), pytest.raises(RuntimeError, match="Elsewhere"):
        ledger.fit(grid(quick(), lr=[0.1]), *data)
    for backend in ("loky", "threading", "multiprocessing", "sequential"):
        with joblib.parallel_config(backend), ledger:
            assert VARIABLE in os.environ
    assert ledger.frame().empty


def test_another_budget_is_named_by_the_forecast():
    class OtherBudget(TransformerMixin, BaseEstimator):
        def __init__(self, epsilon=1.0, delta=1e-5):
            self.epsilon, self.delta = epsilon, delta

        def fit(self, X, y=None):
            return self

    found = planned(make_pipeline(OtherBudget(), quick()))
    assert found.epsilon_total == math.inf
    assert found.reasons == ("OtherBudget spends another budget, which is not counted here",)
