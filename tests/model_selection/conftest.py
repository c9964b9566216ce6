import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin

from skdpfair import DPFairClassifier
from skdpfair.model_selection import _trials, sweep


def pytest_itemcollected(item):
    """Let the fits of these tests have few records."""
    low_signal = "ignore::skdpfair.exceptions.LowSignalWarning"
    item.add_marker(pytest.mark.filterwarnings(low_signal))


@pytest.fixture
def routed():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.fixture(scope="session")
def frame(two_groups):
    """X with the group as a column, and y."""
    return two_groups.data.assign(group=two_groups.sensitive_features), two_groups.target


@pytest.fixture(scope="session")
def quick():
    """Settings of a fit that takes a few hundredths of a second."""
    return {"module": "logistic", "max_steps": 12, "batch_size": 128, "accountant": "rdp"}


@pytest.fixture
def classifier(quick):
    def make(method="dpsgd", **params):
        return DPFairClassifier(method, **{"random_state": 0, **quick, **params})

    return make


class FromFirstColumn(ClassifierMixin, BaseEstimator):
    """Predicts whether the first column is positive: no randomness, no fit."""

    classes_ = np.array([0, 1])

    def __init__(self, groups=None, reference=None):
        self.groups, self.reference = groups, reference
        if groups is not None:
            self.levels_ = np.array(groups, dtype=object)
        if reference is not None:
            self.reference_ = reference

    def predict(self, X):
        return (np.asarray(X)[:, 0].astype(float) > 0).astype(int)


@pytest.fixture
def from_first_column():
    return FromFirstColumn


@pytest.fixture
def trials(monkeypatch):
    """Return a function that sets the number of trials, which is 2 until it is called."""

    def set_count(count):
        monkeypatch.setattr(_trials, "draw_count", lambda *_: count)

    set_count(2)
    return set_count


@pytest.fixture(scope="session")
def small_sweep(two_groups, quick):
    """Return a function that compares quick fits on two groups, with changed arguments."""
    call = {"X": two_groups.data, "y": two_groups.target}
    call |= {"sensitive_features": two_groups.sensitive_features}
    call |= {"methods": ["dpsgd"], "epsilons": [2.0], "seeds": 1, "lr": 0.5, "max_steps": 6}

    def run(**changes):
        return sweep(**quick | call | changes)

    return run
