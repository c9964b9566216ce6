"""The books know what stood around a fit where it was looked at, and nowhere else."""

import json
import math
import pickle
import threading

import numpy as np
import pytest
from fairlearn.postprocessing import ThresholdOptimizer
from fairlearn.reductions import DemographicParity, ExponentiatedGradient
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.feature_selection import RFECV, SelectKBest, SequentialFeatureSelector
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
    cross_validate,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier
from skorch.callbacks import Callback

from skdpfair import DPFairClassifier
from skdpfair.analysis import GroupRecorder
from skdpfair.budget import PrivacyLedger, active_ledger
from skdpfair.budget.spending import SCORES, UNKNOWN
from skdpfair.exceptions import PrivacyLeakWarning
from skdpfair.model_selection import DPRandomizedSearch, forecast
from skdpfair.preprocessing import BoundedScaler, DPQuantileScaler, lint_pipeline
from skdpfair.privacy.statement import NOT_ACCOUNTED
from skdpfair.training import sklearn_callbacks

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning"),
    pytest.mark.filterwarnings("ignore::skdpfair.exceptions.PrivacyLeakWarning"),
    pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning"),  # of ensembles
    pytest.mark.filterwarnings("ignore:Setting a"),  # of fairlearn
]
callbacks = pytest.mark.skipif(
    not hasattr(Pipeline, "set_callbacks"), reason="scikit-learn < 1.9 has no callbacks"
)


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
    return PrivacyLedger(tmp_path / "ledger", delta=1e-4, accountant="rdp")


class OverSampler(BaseEstimator):
    """As in imbalanced-learn: repeats every record."""

    def fit_resample(self, X, y):
        return np.repeat(X, 3, axis=0), np.repeat(y, 3)


class ResamplingPipeline(Pipeline):
    """As in imbalanced-learn: its samplers resample."""

    def fit(self, X, y=None, **params):
        for _, step in self.steps[:-1]:
            X, y = step.fit_resample(X, y)
        self.steps[-1][1].fit(X, y)
        return self

    def __sklearn_tags__(self):
        return BaseEstimator.__sklearn_tags__(self)


class Twice(BaseEstimator):
    """A meta-estimator of somebody's own, which shows the classifier each record twice."""

    def __init__(self, estimator):
        self.estimator = estimator

    def fit(self, X, y):
        self.estimator.fit(np.concatenate([X, X]), np.concatenate([y, y]))
        return self


class Centred(TransformerMixin, BaseEstimator):
    """A transformer of somebody's own."""

    def fit(self, X, y=None):
        self.mean_ = X.mean(axis=0)
        return self

    def transform(self, X):
        return X - self.mean_


class Meanwhile(Callback):
    """Does something while a classifier is trained."""

    def __init__(self, does):
        self.does = does

    def on_train_begin(self, net, **kwargs):
        self.does(net)


BAGS = {"max_sample_weight": 100.0}
FREE = {
    "alone": quick,
    "bounds": lambda: make_pipeline(BoundedScaler((-5, 5)), make_pipeline(quick())),
    "quantiles": lambda: make_pipeline(DPQuantileScaler((-5, 5)), quick()),
    "subsets": lambda: BaggingClassifier(
        quick(max_sample_weight=1.0), 2, max_samples=0.5, bootstrap=False
    ),
    "voting": lambda: VotingClassifier([("a", quick()), ("b", quick())]),
    "one-rest": lambda: OneVsRestClassifier(quick()),
    "stacking": lambda: StackingClassifier([("a", quick())], quick(), cv=2),
    "private search": lambda: DPRandomizedSearch(quick(), {"lr": [0.1]}, mean_trials=1.0),
}
LEAKING = {
    "scaler": lambda: make_pipeline(StandardScaler(), quick()),
    "scaler in a union": lambda: make_pipeline(FeatureUnion([("s", StandardScaler())]), quick()),
    "own step": lambda: make_pipeline(Centred(), quick()),
    "bootstrap": lambda: BaggingClassifier(quick(**BAGS), 2),
    "isotonic": lambda: CalibratedClassifierCV(quick(), method="isotonic", cv=2),
    "tuned threshold": lambda: TunedThresholdClassifierCV(quick(), cv=2),
    "one-one": lambda: OneVsOneClassifier(quick()),
    "over-sampler": lambda: ResamplingPipeline([("over", OverSampler()), ("clf", quick())]),
    "own meta-estimator": lambda: Twice(quick()),
    "random search": lambda: RandomizedSearchCV(quick(), {"lr": [0.1, 0.2]}, n_iter=1, cv=2),
    "reduction": lambda: ExponentiatedGradient(quick(**BAGS), DemographicParity(), max_iter=2),
    "reference": lambda: quick(keep_reference=True),
    "diagnostics": lambda: quick(callbacks=[GroupRecorder(terms=False)]),
}


WRAPPERS = {  # by whether they learn from the records beside the private fits
    FixedThresholdClassifier(quick(), threshold=0.4): False,
    MultiOutputClassifier(quick()): False,
    ClassifierChain(quick()): False,
    OutputCodeClassifier(quick()): False,
    SelfTrainingClassifier(quick()): True,
    SequentialFeatureSelector(quick()): True,
    RFECV(quick()): True,
    AdaBoostClassifier(quick()): True,
    CalibratedClassifierCV(quick(), ensemble=False): True,
    StackingClassifier([("a", quick())]): True,
    ThresholdOptimizer(estimator=quick()): True,
    make_pipeline(SelectKBest(), quick()): True,
}


@pytest.mark.parametrize("model", WRAPPERS, ids=lambda model: type(model).__name__)
def test_wrappers_that_learn_are_findings(model):
    assert bool(lint_pipeline(model).findings) == WRAPPERS[model]


def groups_for(name):
    """Return the groups of what takes them."""
    return {"sensitive_features": np.arange(120) % 2} if name == "reduction" else {}


@pytest.mark.parametrize("name", FREE)
def test_a_call_around_which_nothing_learns_is_known_as_a_whole(name, ledger, data):
    model = FREE[name]()
    groups = groups_for(name)
    assert lint_pipeline(model).findings == []
    assert ledger.fit(model, *data, **groups) is model
    found = ledger.report()
    assert found.n_fits >= 1 and found.reasons == () and found.known
    assert found.epsilon_total == found.epsilon == ledger.epsilon() < math.inf
    assert set(ledger.frame().around) == {"nothing"}
    assert "unknown" not in repr(found)


@pytest.mark.parametrize("name", LEAKING)
def test_a_call_around_which_something_learns_is_infinite_as_a_whole(name, ledger, data):
    groups = groups_for(name)
    ledger.fit(LEAKING[name](), *data, **groups)
    found = ledger.report()
    assert found.n_fits >= 1 and found.epsilon_total == math.inf and found.reasons and found.known
    assert "as a whole     epsilon=inf" in repr(found)


INNER = [
    "bootstrap",
    "isotonic",
    "tuned threshold",
    "one-one",
    "over-sampler",
    "own meta-estimator",
]


@pytest.mark.parametrize("name", ["alone", "scaler", "stacking", "reduction", *INNER])
def test_where_nobody_looked_the_whole_is_unknown(name, ledger, data):
    groups = groups_for(name)
    with ledger:
        (FREE | LEAKING)[name]().fit(*data, **groups)
    found = ledger.report()
    assert found.n_fits >= 1 and found.reasons == (UNKNOWN,) and not found.known
    assert set(ledger.frame().around) == {"unknown"}
    assert "as a whole     unknown" in repr(found) and "inf" not in repr(found)
    assert found.epsilon == ledger.epsilon() < found.epsilon_total == math.inf


@pytest.mark.parametrize("name", ["reference", "diagnostics"])
def test_what_a_fit_keeps_is_known_even_where_nobody_looked(name, ledger, data):
    with ledger:
        LEAKING[name]().fit(*data)
    assert ledger.report().n_fits >= 1 and ledger.report().epsilon_total == math.inf


@callbacks
@pytest.mark.parametrize("name", INNER)
def test_clones_carry_callbacks_so_these_do_not_tell_who_is_outermost(name, ledger, data):
    model = LEAKING[name]()
    inner = [part for part in model.get_params().values() if isinstance(part, DPFairClassifier)]
    inner[0].set_callbacks(ledger)
    model.fit(*data)
    found = ledger.report()
    assert found.n_fits >= 1 and found.epsilon_total == math.inf and not found.known


@callbacks
@pytest.mark.parametrize("name", ["scaler", "scaler in a union", "own step"])
def test_a_pipeline_that_the_ledger_is_set_on_is_looked_at(name, ledger, data):
    model = LEAKING[name]()
    with pytest.warns(PrivacyLeakWarning, match="These steps learn"):
        model.set_callbacks(ledger).fit(*data)
    assert ledger.report().epsilon_total == math.inf and ledger.report().known
    assert "learns from private records" in ledger.frame().around[0]


def test_a_leak_is_told_before_the_fit(ledger, data):
    with pytest.warns(PrivacyLeakWarning, match="StandardScaler learns statistics") as caught:
        ledger.fit(LEAKING["scaler"](), *data)
    assert caught[0].filename == __file__


def test_a_step_that_learned_counts_even_if_no_private_fit_followed(ledger, data):
    with pytest.raises(ValueError, match="y"):
        ledger.fit(LEAKING["scaler"](), data[0], np.full(120, np.nan))
    assert ledger.report().n_fits == 0 and ledger.report().epsilon_total == math.inf


def test_one_fit_that_nobody_looked_at_makes_the_whole_unknown(ledger, data):
    ledger.fit(quick(), *data)
    known = ledger.report().epsilon_total
    with ledger:
        quick().fit(*data)
    assert known < ledger.report().epsilon_total == math.inf and not ledger.report().known
    assert ledger.frame().around.tolist() == ["nothing", "unknown"]


def test_a_fit_of_another_thread_is_not_of_the_call(ledger, data):
    def meanwhile(net):
        bags = BaggingClassifier(quick(max_sample_weight=100.0), 2)
        other = threading.Thread(target=bags.fit, args=data)
        other.start()
        other.join()

    ledger.fit(quick(callbacks=[Meanwhile(meanwhile)]), *data)
    assert ledger.frame().around.tolist() == ["nothing"] + 2 * ["unknown"]


def test_a_call_ends_with_its_fit(ledger, data):
    model = make_pipeline(Normalizer(), quick())
    ledger.fit(model, *data)
    with ledger:
        model.fit(*data)
    assert ledger.frame().around.tolist() == ["nothing", "unknown"]
    assert not hasattr(model, "_skl_callbacks")
    assert str(ledger.path).encode() not in pickle.dumps(model)


@callbacks
def test_callbacks_that_were_set_before_a_call_stay(ledger, data):
    model = quick().set_callbacks(ledger)
    ledger.fit(model, *data)
    assert model._skl_callbacks == [ledger] and ledger.report().epsilon_total < math.inf
    assert ledger.report().n_fits == 1


def test_where_there_are_no_folds_scores_are_seen_all_the_same(ledger, data, monkeypatch):
    """As before scikit-learn 1.9, and in searches of other libraries."""
    for kind in GridSearchCV.__mro__:
        if "set_callbacks" in vars(kind):
            monkeypatch.delattr(kind, "set_callbacks")
    monkeypatch.setattr(sklearn_callbacks, "_SEARCH_TASKS", set())
    ledger.fit(GridSearchCV(quick(), {"lr": [0.1]}, cv=2), *data)
    assert ledger.report().reasons == (SCORES,) and ledger.report().epsilon_total == math.inf


@callbacks
def test_a_fit_inside_a_search_knows_that_it_is_scored(ledger, data):
    with ledger:
        GridSearchCV(quick(), {"lr": [0.1]}, cv=2).fit(*data)
    assert ledger.report().reasons == (SCORES,) and ledger.report().epsilon_total == math.inf


def test_scores_that_somebody_reads_are_not_known(ledger, data):
    with ledger:
        cross_validate(quick(), *data, cv=2)
    assert ledger.report().reasons == (UNKNOWN,)


def test_books_written_before_there_was_a_word_of_it_are_unknown(ledger, data):
    ledger.fit(quick(), *data)
    lines = [json.loads(line) for line in ledger.path.read_text().splitlines()]
    kept = [line for line in lines if "outermost" not in line]
    assert len(kept) < len(lines)
    for line in kept:
        line.pop("around", None)
        line.pop("seal", None)
    older = ledger.path.with_name("older")
    older.write_text("".join(json.dumps(line) + "\n" for line in kept))
    assert PrivacyLedger(older).report().reasons == (UNKNOWN,)


def test_another_budget_is_named_and_not_counted(ledger, data):
    class Elsewhere(TransformerMixin, BaseEstimator):
        def __init__(self, epsilon=1.0, delta=1e-5):
            self.epsilon, self.delta = epsilon, delta

        def fit(self, X, y=None):
            return self

        def transform(self, X):
            return X

    model = make_pipeline(Elsewhere(), quick())
    ledger.fit(model, *data)
    for found in (ledger.report(), forecast(model, 120, delta=1e-4, accountant="rdp")):
        assert found.epsilon_total == math.inf
        assert found.reasons == ("Elsewhere spends another budget, which is not counted here",)


def test_what_is_taken_on_trust_is_noted(ledger, data):
    ledger.fit(make_pipeline(FunctionTransformer(np.sign), quick()), *data)
    assert ledger.report().notes == ()
    ledger.fit(make_pipeline(FunctionTransformer(lambda X: X + 1), quick()), *data)
    assert "each row by itself" in ledger.report().notes[0]
    assert "\n  note: " in repr(ledger.report())
    assert ledger.report().epsilon_total < math.inf


@callbacks
def test_a_fit_in_a_pipeline_names_the_steps_before_it(data):
    inner = make_pipeline("passthrough", quick())
    make_pipeline(StandardScaler(), SelectKBest(k=2), inner).fit(*data)
    first, *others = inner[-1].privacy_.not_accounted
    assert "('standardscaler', 'selectkbest', 'passthrough'): see lint_pipeline" in first
    assert tuple(others) == NOT_ACCOUNTED
    assert quick().fit(*data).privacy_.not_accounted == NOT_ACCOUNTED


def test_where_no_estimator_with_a_budget_was_imported_all_that_is_fitted_leaks(
    ledger, data, monkeypatch
):
    monkeypatch.setattr(active_ledger, "_LINTERS", [])
    ledger.fit(StandardScaler(), *data)
    (why,) = ledger.report().reasons
    assert why.startswith("StandardScaler learns from private records")
