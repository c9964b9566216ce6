import numpy as np
import pytest

from skdpfair.budget import PrivacyLedger


def pytest_itemcollected(item):
    """Let the fits of these tests have few records."""
    low_signal = "ignore::skdpfair.exceptions.LowSignalWarning"
    item.add_marker(pytest.mark.filterwarnings(low_signal))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    return X, (X[:, 0] > 0).astype(int)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def ledger(path):
    """A ledger without a budget."""
    return PrivacyLedger(path, delta=1e-5, accountant="rdp")
