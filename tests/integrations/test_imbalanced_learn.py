"""A record that a resampler repeats counts several times: nothing calls that private."""

import math

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

from skdpfair import DPFairClassifier
from skdpfair.budget import PrivacyLedger
from skdpfair.exceptions import PrivacyLeakWarning
from skdpfair.model_selection import DPRandomizedSearch, DPThresholdClassifier, forecast
from skdpfair.preprocessing import BoundedScaler, lint_pipeline
from skdpfair.report import model_page
from skdpfair.testing import audit_fit

pytest.importorskip("imblearn")
from imblearn import FunctionSampler
from imblearn.ensemble import BalancedBaggingClassifier, EasyEnsembleClassifier
from imblearn.over_sampling import SMOTE, RandomOverSampler
from imblearn.pipeline import make_pipeline
from imblearn.under_sampling import RandomUnderSampler

pytestmark = pytest.mark.filterwarnings(
    *(f"ignore::skdpfair.exceptions.{w}Warning" for w in ("LowSignal", "PrivacyLeak")),
    "ignore::skdpfair.exceptions.InsecureSeedWarning",  # of ensembles
)


def quick(**params):
    settings = {"epsilon": 3.0, "max_steps": 5, "classes": [0, 1], "accountant": "rdp"}
    return DPFairClassifier("dpsgd", **settings | params)


@pytest.fixture(scope="module")
def data():
    X = np.random.default_rng(0).normal(size=(300, 3))
    return X, (X[:, 0] > 1).astype(int)


@pytest.fixture
def ledger(tmp_path):
    return PrivacyLedger(tmp_path / "ledger", delta=1e-4, accountant="rdp")


RESAMPLING = {
    "over": lambda: make_pipeline(RandomOverSampler(), quick()),
    "smote": lambda: make_pipeline(BoundedScaler((-5, 5)), SMOTE(), quick()),
    "under": lambda: make_pipeline(RandomUnderSampler(), quick()),
    "function": lambda: make_pipeline(FunctionSampler(), quick()),
    "bags": lambda: BalancedBaggingClassifier(quick(max_sample_weight=50.0), 2),
    "easy": lambda: EasyEnsembleClassifier(2, quick()),
}


@pytest.mark.parametrize("name", RESAMPLING)
def test_lint_pipeline_forecast_and_ledger_find_resamplers(name, ledger, data):
    model = RESAMPLING[name]()
    assert lint_pipeline(model).findings[0].learns.startswith("how many rows each")
    with pytest.warns(PrivacyLeakWarning, match="how many rows each"):
        ledger.fit(model, *data)
    found = ledger.report()
    assert found.n_fits >= 1 and found.epsilon_total == math.inf and not found.known
    if name not in ("bags", "easy"):
        assert forecast(model, 300, delta=1e-4, accountant="rdp").epsilon_total == math.inf


def test_ledger_charges_a_search_over_a_resampling_pipeline(ledger, data):
    grid = {"dpfairclassifier__lr": [0.1, 0.2]}
    search = GridSearchCV(RESAMPLING["over"](), grid, cv=2, error_score="raise")
    ledger.fit(search, *data)
    assert ledger.report().n_fits == 5 and ledger.report().epsilon_total == math.inf


@pytest.mark.parametrize("name", ["over", "smote", "under", "function"])
def test_searches_thresholds_and_audits_refuse_resamplers(name, data):
    pipeline = RESAMPLING[name]()
    grid = {"dpfairclassifier__lr": [0.1]}
    for fit in (
        DPThresholdClassifier(pipeline).fit,
        DPRandomizedSearch(pipeline, grid, mean_trials=2.0).fit,
        lambda X, y: audit_fit(pipeline, X, y, n_canaries=10),
    ):
        with pytest.raises(ValueError, match=r"Sampler|SMOTE") as caught:
            fit(*data)
        assert "class_weight={class: public number}" in str(caught.value)
    assert not hasattr(pipeline[-1], "privacy_")


def test_model_page_lists_the_resampler(data):
    pipeline = RESAMPLING["smote"]().fit(*data)
    assert "smote: SMOTE" in model_page(pipeline[-1], pipeline=pipeline)


def test_not_accounted_names_resampling_of_a_pipeline(data):
    """The classifier gets rows alone: it cannot know that a resampler made them."""
    report = RESAMPLING["over"]().fit(*data)[-1].privacy_
    assert "resampling" in report.not_accounted[0] and "lint_pipeline" in report.not_accounted[0]
