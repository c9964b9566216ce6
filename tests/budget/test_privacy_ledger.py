"""The budget that a ledger's file holds, and what the ledger reports of fits inside estimators."""

import math
import os
import pickle

import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier, VotingClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401  (lets the next import find the halving search)
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    cross_validate,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from skdpfair.analysis import GroupRecorder
from skdpfair.budget import PrivacyLedger
from skdpfair.budget.active_ledger import VARIABLE
from skdpfair.budget.spending import DIAGNOSTICS, REFERENCE, SCORES, UNKNOWN
from skdpfair.exceptions import PrivacyLeakWarning
from skdpfair.model_selection import DPRandomizedSearch
from skdpfair.preprocessing import BoundedScaler, DPQuantileScaler
from tests.budget.charged_fits import COST, classifier, spend

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpfair.exceptions.PrivacyLeakWarning"),
    pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning"),  # of ensembles
]


def test_data_keeps_the_budgets_of_data_sets_apart(path):
    for name in ("adult", "dutch"):
        with PrivacyLedger(path, epsilon=1.1 * COST, delta=1e-5, data=name):
            spend()
    dutch = PrivacyLedger(path, data="dutch")
    assert dutch.epsilon() == PrivacyLedger(path, data="adult").epsilon() == COST
    assert list(dutch.frame().data) == ["adult", "dutch"]


def test_ledger_has_the_budget_of_its_file(path):
    PrivacyLedger(path, epsilon=1.0, delta=1e-5)
    assert (PrivacyLedger(path).budget, PrivacyLedger(path).delta) == (1.0, 1e-5)
    assert "epsilon=1, delta=1e-05, data='data'" in repr(PrivacyLedger(path))


@pytest.mark.parametrize(
    ("params", "error", "match"),
    [
        ({"epsilon": 2.0, "delta": 1e-5}, ValueError, r"epsilon=2\.0 .*epsilon=1\.0"),
        ({"accountant": "rdp"}, ValueError, "accountant='rdp' .*accountant='pld'"),
        ({"epsilon": 2.0}, ValueError, "delta .*None"),
        ({"path": None}, TypeError, "path .*None"),
        ({"data": 3}, TypeError, "data .*3"),
    ],
)
def test_ledger_refuses_other_budgets_and_names(path, params, error, match):
    PrivacyLedger(path, epsilon=1.0, delta=1e-5)
    with pytest.raises(error, match=match):
        PrivacyLedger(**{"path": path} | params)


@pytest.mark.parametrize(
    "first",
    [
        '{"budget": {"epsilon": 1.0, "delta": null, "accountant": "pld"}}',
        '{"budget": {"epsilon": 1.0}}',
        '{"budget": 1.0}',
        '{"budget": {"epsilon": "1", "delta": 1e-5, "accountant": "pld"}}',
        '{"budget": {"epsilon": NaN, "delta": 1e-5, "accountant": "pld"}}',
        '{"budget": {"epsilon": 1.0, "delta": 2, "accountant": "pld"}}',
        '{"budget": {"epsilon": 1.0, "delta": 1e-5, "accountant": ["pld"]}}',
        "{}",
        "null",
        "[1]",
        "hello",
    ],
)
def test_ledger_refuses_a_first_line_that_holds_no_budget(path, first):
    path.write_text(first + "\n")
    with pytest.raises(ValueError, match=f"{path}.*line 1 "):
        PrivacyLedger(path)


MODELS = {
    "alone": (classifier, 1),
    "bounds": (lambda: make_pipeline(BoundedScaler((-5, 5)), make_pipeline(classifier())), 1),
    "quantiles": (lambda: make_pipeline(DPQuantileScaler((-5, 5)), classifier()), 2),
    "scaler": (lambda: make_pipeline(StandardScaler(), classifier()), 1),
    "voting": (lambda: VotingClassifier([("a", classifier()), ("b", classifier())]), 2),
    "bootstrap": (lambda: BaggingClassifier(classifier(max_sample_weight=100.0), 2), 2),
    "isotonic": (lambda: CalibratedClassifierCV(classifier(), method="isotonic", cv=2), 2),
    "private search": (lambda: DPRandomizedSearch(classifier(), {"lr": [0.1]}, mean_trials=1.0), 1),
}


@pytest.mark.parametrize("way", ["fit", "with"])
@pytest.mark.parametrize("name", MODELS)
def test_report_counts_private_fits_and_no_estimator_around_them(name, way, ledger, data):
    make, n_fits = MODELS[name]
    model = make()
    if way == "fit":
        assert ledger.fit(model, *data) is model
    else:
        with ledger:
            model.fit(*data)
    spent = ledger.report()
    assert spent.n_fits == spent.n_private == len(ledger.frame()) == n_fits
    assert spent.reasons == (UNKNOWN,) and not spent.known
    assert spent.epsilon == ledger.epsilon() < spent.epsilon_total == math.inf
    assert VARIABLE not in os.environ and str(ledger.path).encode() not in pickle.dumps(model)


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"keep_reference": True}, REFERENCE),
        ({"callbacks": [GroupRecorder(terms=False)]}, DIAGNOSTICS),
    ],
)
def test_report_has_the_reason_that_a_fit_gives(params, reason, ledger, data):
    ledger.fit(classifier(**params), *data)
    assert ledger.report().reasons == (reason,) and ledger.report().known


def test_fit_warns_of_a_step_that_learns_before_it_learns(ledger, data):
    with pytest.warns(PrivacyLeakWarning, match="StandardScaler") as caught:
        ledger.fit(make_pipeline(StandardScaler(), classifier()), *data)
    assert caught[0].filename == __file__


@pytest.mark.skipif(
    not hasattr(Pipeline, "set_callbacks"), reason="scikit-learn < 1.9 tells of no folds"
)
def test_report_has_the_scores_of_a_search(ledger, data):
    with ledger:
        GridSearchCV(classifier(), {"lr": [0.1]}, cv=2).fit(*data)
    assert ledger.report().reasons == (SCORES,) and ledger.report().epsilon_total == math.inf


def test_report_counts_every_fit_of_searches(ledger, data):
    space = {"lr": [0.1, 0.2, 0.3]}
    with ledger:
        cross_validate(classifier(), *data, cv=2)
    assert ledger.report().reasons == (UNKNOWN,)  # whether somebody reads the scores
    counted = [ledger.report().n_fits]
    search = RandomizedSearchCV(classifier(), space, n_iter=2, cv=3, random_state=0)
    halving = HalvingGridSearchCV(classifier(batch_size=20), space, cv=2, random_state=0)
    nested = GridSearchCV(classifier(), {"lr": [0.1, 0.2]}, cv=2)
    for fit in (
        lambda: search.fit(*data),
        lambda: halving.fit(*data),
        lambda: cross_validate(nested, *data, cv=3, error_score="raise"),
    ):
        with ledger:
            fit()
        counted.append(ledger.report().n_fits - sum(counted))
    assert counted == [2, 7, 2 * sum(halving.n_candidates_) + 1, 15]
