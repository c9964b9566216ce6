"""check_engine compares the engine's gradients with autograd's."""

import pytest
import torch
from torch import nn

from skdpfair.engine.per_sample import Strategy
from skdpfair.testing import check_engine


@pytest.mark.parametrize("error", [0.0, 1e-6])
def test_check_engine_names_the_strategy_or_finds_a_sum_that_differs(error, monkeypatch):
    module = nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2))
    flat = Strategy.flat
    monkeypatch.setattr(Strategy, "flat", lambda self: flat(self) + error)
    if error == 0:
        assert check_engine(module, torch.zeros(1, 1, 6), n_classes=2) == "bookkeeping"
        return
    with pytest.raises(AssertionError, match="not close"):
        check_engine(module, torch.zeros(1, 1, 6), n_classes=2)


def test_check_engine_takes_codes():
    module = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(6, 2))
    assert check_engine(module, torch.tensor([[1, 4]]), n_classes=2) == "bookkeeping"
