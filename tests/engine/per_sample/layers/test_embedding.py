"""Norms of embeddings stay above sums of output gradients that cancel."""

import pytest
import torch
from torch import nn

from tests.engine.per_sample.layers.cancelling_positions import (
    Positions,
    assert_clipped,
    assert_norms_equal_a_loop,
    opposite,
)


@pytest.mark.parametrize("size", [1.0, 1e2, 1e4, 1e6])
@pytest.mark.parametrize("length", [2, 8, 40])
def test_embedding_norms_exceed_output_gradients_that_cancel(length, size):
    def drawn():
        words = torch.randint(0, 5, (40, 1, 1)).repeat(1, length, 1).float()  # one, all along
        words[::2, : length // 2] = torch.randint(0, 5, (20, length // 2, 1)).float()
        x = torch.cat([opposite(40, length, size), words], dim=2)
        return Positions(nn.Embedding(5, 16), 16), x

    assert_clipped(drawn)


@pytest.mark.parametrize("length", [39, 40, 41, 64, 100])
def test_embedding_norms_of_long_records_equal_a_loop(length):
    def drawn():
        factor = torch.randn(7, length, 1) / length**0.5
        words = torch.randint(0, 9, (7, length, 1)).float()
        return Positions(nn.Embedding(9, 16), 16), torch.cat([factor, words], dim=2)

    assert_norms_equal_a_loop(drawn)
