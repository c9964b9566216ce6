"""Gradients at parameters that each example moves along its own gradient, in parts or not."""

import pytest
import torch
from torch import nn

from skdpfair.engine import Batch, select_strategy
from skdpfair.engine.per_sample import ascent
from tests.engine.per_sample.modules import chain, seeded


@pytest.mark.parametrize("kept", [0, 2**25])
@pytest.mark.parametrize("activation", [nn.Tanh, nn.GELU, nn.PReLU])
def test_gradients_at_ascent_do_not_depend_on_the_rows_at_a_time(activation, kept, monkeypatch):
    monkeypatch.setattr(ascent, "MAX_KEPT", kept)
    module = seeded(chain, (6, 4), activation(), (4, 3)).double()
    x, y = seeded(torch.randn, 9, 6).double(), torch.arange(9) % 3
    found, scale = [], torch.linspace(0.0, 2.0, 9).double()
    with select_strategy(module, x, 3) as strategy:
        for rows in (1, 4, 32):
            monkeypatch.setattr(ascent, "_MICRO_BATCH", rows)
            gradients = strategy.per_sample_gradients(Batch(x, y)).at_ascent(scale)
            gradients.weighted_sum(scale, total := strategy.flat())
            found.append((gradients.norm, total))
    torch.testing.assert_close(found[1:], found[:1] * 2)
