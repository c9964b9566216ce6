"""scikit-learn's callbacks and clones: epochs, steps around a fit, and the mark of a ledger."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.feature_selection import SelectKBest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdpfair import DPFairClassifier
from skdpfair.budget import PrivacyLedger
from skdpfair.exceptions import UnaccountedWarning
from skdpfair.model_selection import DPRandomizedSearch
from skdpfair.privacy.statement import NOT_ACCOUNTED

callback = pytest.importorskip("sklearn.callback", reason="scikit-learn < 1.9 has no callbacks")
pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning"),
    pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning"),
]


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    return X, (X[:, 0] > 0).astype(int)


def quick(**params):
    params = {"noise_multiplier": 3.0, "max_steps": 4, "batch_size": 50} | params
    return DPFairClassifier("dpsgd", epsilon=None, accountant="rdp", **params)


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


def test_callbacks_hear_of_fits_and_epochs(data):
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


def test_a_ledger_is_no_callback(tmp_path):
    with pytest.raises(TypeError, match="callbacks must be"):
        quick().set_callbacks(PrivacyLedger(tmp_path / "ledger"))


def test_a_fit_in_a_pipeline_names_the_steps_before_it(data):
    inner = make_pipeline("passthrough", quick())
    make_pipeline(StandardScaler(), SelectKBest(k=2), inner).fit(*data)
    first, *others = inner[-1].privacy_.not_accounted
    assert "('standardscaler', 'selectkbest', 'passthrough'): see lint_pipeline" in first
    assert tuple(others) == NOT_ACCOUNTED
    assert quick().fit(*data).privacy_.not_accounted == NOT_ACCOUNTED


COPIES = {
    "itself": lambda model: model,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "clone": clone,
}
MODELS = {
    "classifier": quick,
    "search": lambda: DPRandomizedSearch(quick(), {"lr": [0.1]}, mean_trials=1.0),
}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("kind", MODELS)
def test_a_fit_that_leaves_its_ledger_is_told_of(tmp_path, data, kind, name):
    with PrivacyLedger(tmp_path / "ledger.jsonl", delta=1e-4) as ledger:
        model = MODELS[kind]().fit(*data)
    with pytest.warns(UnaccountedWarning, match="this fit is not counted"):
        COPIES[name](model).fit(*data)
    with ledger:
        COPIES[name](model).fit(*data)
    assert ledger.report().n_fits == 2


def test_a_release_that_leaves_its_ledger_is_told_of(tmp_path, data):
    with PrivacyLedger(tmp_path / "ledger.jsonl", delta=1e-4):
        released = quick().fit(*data).release()
    for model in (released, clone(released)):
        with pytest.warns(UnaccountedWarning, match="this fit is not counted"):
            model.fit(*data)
