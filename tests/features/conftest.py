"""Pictures that vary smoothly."""

import numpy as np
import pytest


@pytest.fixture
def waves():
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:20, :24] / 6
    waves = rng.uniform(-2, 2, (7, 2, 1, 1)) * np.stack([rows, columns])
    return (np.sin(waves.sum(1)) + rng.random((7, 20, 24)) / 4).astype(np.float32)
