"""The ledger as a callback of scikit-learn: it follows searches and their workers."""

import copy
import json
import math
import os
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.experimental import enable_halving_search_cv  # noqa: F401  (lets the next import find the halving search)
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    ShuffleSplit,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skdpfair import DPFairClassifier
from skdpfair.budget import PrivacyLedger
from skdpfair.budget.active_ledger import VARIABLE
from skdpfair.budget.spending import SCORES, UNKNOWN
from skdpfair.exceptions import BudgetExceededError, InsecureSeedWarning, UnaccountedWarning
from skdpfair.model_selection import DPRandomizedSearch, forecast
from skdpfair.privacy import compute_epsilon

callback = pytest.importorskip("sklearn.callback", reason="scikit-learn < 1.9 has no callbacks")
pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")
DELTA, NAME = 1e-4, "dpfairclassifier__"


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    return X, (X[:, 0] > 0).astype(int)


def quick(**params):
    params = {"noise_multiplier": 3.0, "max_steps": 4, "batch_size": 50} | params
    return DPFairClassifier("dpsgd", epsilon=None, accountant="rdp", **params)


def books(tmp_path, **params):
    return PrivacyLedger(
        tmp_path / "ledger.jsonl", **{"delta": DELTA, "accountant": "rdp"} | params
    )


def grid(estimator, cv=4, n_jobs=None, **spaces):
    return GridSearchCV(estimator, spaces, cv=cv, n_jobs=n_jobs, error_score="raise")


def forecast_of_200(search):
    return forecast(search, 200, delta=DELTA, accountant="rdp")


@pytest.mark.parametrize(
    ("cv", "fits", "n_jobs"),
    [
        (4, 9, 1),
        pytest.param(4, 9, 2, marks=pytest.mark.slow),
        (ShuffleSplit(3, random_state=0), 7, 1),
    ],
)
def test_a_search_spends_what_was_planned(tmp_path, data, cv, fits, n_jobs):
    model = make_pipeline(FunctionTransformer(), quick())
    search = grid(model, cv, n_jobs, **{NAME + "max_steps": [4], NAME + "lr": [0.1, 0.2]})
    foreseen, ledger = forecast_of_200(search), books(tmp_path)
    search.set_callbacks(ledger).fit(*data)
    found = ledger.report()
    assert found.n_fits == fits and SCORES in found.reasons
    assert found.epsilon == pytest.approx(foreseen.epsilon, rel=1e-9)
    assert found.epsilon == ledger.epsilon()
    assert VARIABLE not in os.environ
    quick().fit(*data)  # no callback, no block
    assert ledger.report().n_fits == fits


def test_a_reference_and_scores_are_reasons_and_the_private_fits_are_told_apart(tmp_path, data):
    search = grid(quick(), cv=3, noise_multiplier=[3.0, None])
    ledger = books(tmp_path)
    search.set_callbacks(ledger).fit(*data)
    found, foreseen = ledger.report(), forecast_of_200(search)
    assert found.epsilon_total == ledger.epsilon() == math.inf
    assert found.reasons == foreseen.reasons and len(found.reasons) == 2
    private_refit = search.best_params_["noise_multiplier"] is not None
    assert found.n_fits == 7
    if private_refit:
        assert found.epsilon == pytest.approx(foreseen.epsilon, rel=1e-9)
    assert found.epsilon <= foreseen.epsilon * (1 + 1e-9)


def test_a_budget_that_was_planned_is_enough_and_no_more(tmp_path, data):
    search = grid(quick(), cv=4, lr=[0.1, 0.2])
    enough = forecast_of_200(search).epsilon * (1 + 1e-9)
    ledger = books(tmp_path, epsilon=enough)
    search.set_callbacks(ledger).fit(*data)
    with pytest.raises(BudgetExceededError, match="Nothing was fitted"):
        quick().set_callbacks(ledger).fit(*data)
    assert ledger.report().n_fits == 9
    assert VARIABLE not in os.environ  # also after an error
    ledger = PrivacyLedger(tmp_path / "small", epsilon=0.6 * enough, delta=DELTA, accountant="rdp")
    with pytest.raises(BudgetExceededError, match="Nothing was fitted"):
        search.set_callbacks(ledger).fit(*data)
    assert 0.3 * enough < ledger.epsilon() <= 0.6 * enough
    assert VARIABLE not in os.environ


def test_other_searches_and_searches_within_cross_validation(tmp_path, data):
    ledger, space = books(tmp_path), {"lr": [0.1, 0.2, 0.3]}
    RandomizedSearchCV(quick(), space, n_iter=2, cv=3, random_state=0).set_callbacks(ledger).fit(
        *data
    )
    assert ledger.report().n_fits == 7
    halving = HalvingGridSearchCV(quick(batch_size=20), space, cv=2, random_state=0)
    halving.set_callbacks(ledger).fit(*data)
    assert ledger.report().n_fits - 7 == 2 * sum(halving.n_candidates_) + 1
    before = ledger.report()
    inner = grid(quick(), cv=2, lr=[0.1, 0.2]).set_callbacks(ledger)
    cross_validate(inner, *data, cv=3, error_score="raise")
    assert ledger.report().n_fits - before.n_fits == 15


def test_a_file_serves_blocks_and_callbacks_together(tmp_path, data):
    ledger = books(tmp_path)
    with ledger:
        quick().fit(*data)
        grid(quick(), cv=2, lr=[0.1]).set_callbacks(ledger).fit(*data)
        assert json.loads(os.environ[VARIABLE])["path"] == str(ledger.path)
        quick().fit(*data)
        with pytest.raises(RuntimeError, match="already open"):
            quick().set_callbacks(PrivacyLedger(tmp_path / "other")).fit(*data)
    assert ledger.report().n_fits == len(ledger.frame()) == 5


def test_one_fit_and_its_pickle(tmp_path, data):
    ledger = books(tmp_path)
    clf = quick().set_callbacks(ledger).fit(*data)
    found = ledger.report()
    assert (found.n_fits, found.reasons) == (1, (UNKNOWN,))  # a clone has the callbacks, too
    assert found.epsilon == pytest.approx(compute_epsilon(clf.privacy_.releases, DELTA, "rdp"))
    content = pickle.dumps(clf)
    assert str(tmp_path).encode() not in content and b"PrivacyLedger" not in content
    assert pickle.loads(pickle.dumps(ledger)).path == ledger.path


class Heard:
    """Records the tasks it hears of."""

    max_propagation_depth = None

    def __init__(self):
        self.begun, self.ended = [], []

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        self.begun.append((type(estimator).__name__, context.task_name))

    def on_fit_task_end(self, estimator, context):
        self.ended.append((type(estimator).__name__, context.task_name))


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning")
def test_other_callbacks_hear_of_fits_and_epochs(data):
    heard = Heard()
    clf = quick(max_steps=8).set_callbacks(heard).fit(*data)  # 4 steps an epoch
    assert heard.begun == [("DPFairClassifier", "fit")] + 2 * [("DPFairClassifier", "epoch")]
    assert sorted(heard.ended) == sorted(heard.begun)
    same = quick(max_steps=8, random_state=0)
    assert np.array_equal(
        same.fit(*data).predict_proba(data[0]),
        same.set_callbacks(Heard()).fit(*data).predict_proba(data[0]),
    )
    assert clf.n_steps_ == 8


def test_without_callbacks_a_fit_is_a_fit(data, monkeypatch):
    monkeypatch.delattr(callback.CallbackSupportMixin, "_init_callback_context")
    assert quick().fit(*data).n_steps_ == 4


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "release": lambda model: model.release(),
    "clone of a release": lambda model: clone(model.release()),
}


@pytest.mark.parametrize("name", COPIES)
def test_a_ledger_set_on_a_fitted_estimator_is_not_lost_in_silence(tmp_path, data, name):
    ledger = books(tmp_path)
    model = quick().fit(*data).set_callbacks(ledger)
    copied = COPIES[name](model)
    with pytest.warns(UnaccountedWarning, match="this fit is not counted"):
        copied.fit(*data)
    copied.set_callbacks(ledger).fit(*data)
    clone(model).fit(*data)  # clones of what is no release share the ledger
    assert ledger.report().n_fits == 2


def test_a_ledger_set_on_a_fitted_private_search_is_not_lost_in_silence(tmp_path, data):
    search = DPRandomizedSearch(quick(), {"lr": [0.1]}, mean_trials=1.0, random_state=0)
    with pytest.warns(InsecureSeedWarning):
        search.fit(*data)
    copied = copy.deepcopy(search.set_callbacks(books(tmp_path)))
    with pytest.warns(UnaccountedWarning, match="this fit is not counted"):
        copied.fit(*data)
