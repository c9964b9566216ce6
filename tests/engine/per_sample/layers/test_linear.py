"""Norms of Linear layers along sequences stay above sums of output gradients that cancel."""

import pytest
import torch
from torch import nn

from skdpfair.engine import Batch, select_strategy
from tests.engine.per_sample.layers.cancelling_positions import (
    Positions,
    assert_clipped,
    assert_norms_equal_a_loop,
    opposite,
)
from tests.engine.per_sample.modules import Net, seeded


@pytest.mark.parametrize("size", [1e2, 1e4, 1e6])
def test_linear_norms_stay_above_sequences_that_cancel(size):
    def drawn():
        module = Net(lambda m, x: m.out(m.a(x).mean(1)), a=(6, 6), out=(6, 3))
        return module, torch.randn(2, 20, 1, 6)

    module, (direction, rest) = seeded(drawn)
    x = torch.cat([size * direction + 0.1 * rest, -size * direction], dim=1)
    with select_strategy(module, x, 3) as strategy:
        assert strategy.name == "bookkeeping"
        gradients = strategy.per_sample_gradients(Batch(x, torch.zeros(20, dtype=torch.int64)))
        for one in torch.eye(20):
            gradients.weighted_sum(one / gradients.norm, total := strategy.flat())
            assert total.norm() <= 1 + 1e-5


# a Linear along a sequence takes Gram matrices where 2 length^2 <= width^2
@pytest.mark.parametrize("size", [0.5, 1e6])
@pytest.mark.parametrize("length, width", [(42, 60), (100, 144), (42, 58), (64, 6)])
def test_linear_norms_of_long_sequences_exceed_output_gradients_that_cancel(length, width, size):
    def drawn():
        module = Positions(nn.Linear(width, width), width)
        rows = torch.randn(12, 1, width) + 0.01 * torch.randn(12, length, width)
        return module, torch.cat([opposite(12, length, size), rows], dim=2)

    assert_clipped(drawn)


@pytest.mark.parametrize("length", [39, 40, 41, 64, 100])
@pytest.mark.parametrize("width", [6, 144])
def test_linear_norms_of_long_sequences_equal_a_loop(width, length):
    def drawn():
        module = Positions(nn.Linear(width, width), width)
        factor = torch.randn(7, length, 1) / length**0.5
        return module, torch.cat([factor, torch.randn(7, length, width)], dim=2)

    assert_norms_equal_a_loop(drawn)
