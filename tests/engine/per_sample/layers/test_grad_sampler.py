"""What all grad samplers keep to: a registry, and norms above sums where squares underflow."""

import pytest
import torch
from torch import nn

from skdpfair.engine import Batch, select_strategy
from skdpfair.engine.batch import Examples
from skdpfair.engine.per_sample.layers import is_covered
from tests.engine.per_sample.modules import chain, seeded


class Linear(nn.Linear):
    """A subclass, whose forward may differ."""


def test_registry_covers_exactly_the_registered_types():
    layers = [nn.Linear(2, 2), nn.Embedding(2, 2), Linear(2, 2), nn.PReLU()]
    assert [is_covered(layer) for layer in layers] == [True, True, False, False]
    assert not is_covered(nn.Embedding(2, 2, scale_grad_by_freq=True))


@pytest.mark.parametrize("factor", [0.0, 1e-30, 1e-12])
@pytest.mark.parametrize("layers", [[(1, 2)], [(1, 1), nn.Tanh(), (1, 2)]], ids=["one", "two"])
def test_underflow_of_a_small_weight_does_not_hide_a_large_input(layers, factor):
    """Squares of output gradients would underflow, and the norm that clipping needs with them."""
    x, y = torch.tensor([[1e16], [0.0]]), torch.zeros(2, dtype=torch.int64)
    with select_strategy(seeded(chain, *layers), x, 2) as strategy:
        batch = Batch(x, y, weight=torch.tensor([factor, 1.0]), examples=Examples(2, 2))
        gradients = strategy.per_sample_gradients(batch)
        gradients.weighted_sum(torch.ones(1), total := strategy.flat())
    assert total.norm() <= gradients.norm[0] * (1 + 1e-5)
    assert factor > 0 or total.norm() < 10
