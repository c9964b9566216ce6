"""scikit-learn's callbacks and clones: epochs, and the mark of a ledger."""

import copy
import pickle
from importlib.util import find_spec

import numpy as np
import pytest
from sklearn.base import clone

from skdpfair import DPFairClassifier
from skdpfair.budget import PrivacyLedger
from skdpfair.exceptions import UnaccountedWarning
from skdpfair.model_selection import DPRandomizedSearch
from tests.quick_fits import QUIET, X, Y

HAS_CALLBACKS = find_spec("sklearn.callback") is not None
# of each test, not of the file: mutants name one
pytestmark = [QUIET, pytest.mark.skipif(not HAS_CALLBACKS, reason="scikit-learn < 1.9")]
DATA = X[:200], Y[:200]


def quick(**params):
    params = {"noise_multiplier": 3.0, "max_steps": 4, "batch_size": 50} | params
    return DPFairClassifier("dpsgd", epsilon=None, accountant="rdp", **params)


class Recorded:
    """Records the tasks that it is called for."""

    max_propagation_depth = None

    def __init__(self):
        self.begun, self.ended = [], []

    def setup(self, estimator, context):
        pass

    teardown = setup

    def on_fit_task_begin(self, estimator, context):
        self.begun.append((type(estimator).__name__, context.task_name))

    def on_fit_task_end(self, estimator, context):
        self.ended.append((type(estimator).__name__, context.task_name))


def test_callbacks_are_called_for_fits_and_epochs_and_change_nothing():
    recorded = Recorded()
    model = quick(max_steps=8, random_state=0)  # 4 steps an epoch
    plain = model.fit(*DATA).predict_proba(DATA[0])
    assert np.array_equal(model.set_callbacks(recorded).fit(*DATA).predict_proba(DATA[0]), plain)
    assert recorded.begun == [("DPFairClassifier", "fit")] + 2 * [("DPFairClassifier", "epoch")]
    assert sorted(recorded.ended) == sorted(recorded.begun)


def test_begin_needs_no_callback_context(monkeypatch):
    monkeypatch.delattr("sklearn.callback.CallbackSupportMixin._init_callback_context")
    assert quick().fit(*DATA).n_steps_ == 4


def test_set_callbacks_refuses_a_privacy_ledger(tmp_path):
    with pytest.raises(TypeError, match="callbacks must be"):
        quick().set_callbacks(PrivacyLedger(tmp_path / "ledger"))


def released(model):
    return model.release() if hasattr(model, "release") else model  # a search has none


COPIES = {
    "itself": lambda model: model,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "clone": clone,
    "release": released,
    "clone of a release": lambda model: clone(released(model)),
}
MODELS = {
    "classifier": quick,
    "search": lambda: DPRandomizedSearch(quick(), {"lr": [0.1]}, mean_trials=1.0),
}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("kind", MODELS)
def test_fit_outside_the_ledger_of_its_original_warns(tmp_path, kind, name):
    with PrivacyLedger(tmp_path / "ledger.jsonl", delta=1e-4) as ledger:
        model = MODELS[kind]().fit(*DATA)
    with pytest.warns(UnaccountedWarning):
        COPIES[name](model).fit(*DATA)
    with ledger:
        COPIES[name](model).fit(*DATA)
    assert ledger.report().n_fits == 2
