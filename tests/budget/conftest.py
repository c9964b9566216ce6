import numpy as np
import pytest

from skdpfair.budget import PrivacyLedger


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
