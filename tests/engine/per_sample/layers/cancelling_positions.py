"""Records with long gradients at some positions, which may cancel."""

import torch
from torch import nn

from skdpfair.engine import Batch, select_strategy
from tests.engine.per_sample.modules import loop, seeded


class Positions(nn.Module):
    """The positions of a record are added up, each times a factor that the record gives."""

    def __init__(self, layer, width):
        super().__init__()
        self.layer, self.out = layer, nn.Linear(width, 3).requires_grad_(False)

    def forward(self, x):
        factor, x = x[..., :1], x[..., 1:]
        x = x[..., 0].long() if isinstance(self.layer, nn.Embedding) else x
        return self.out((self.layer(x) * factor).sum(1))


def opposite(n, length, size):
    """Return factors (n, length, 1) of a size that add up to about 0.1, in pairs."""
    one = size * (1 + torch.rand(n, length // 2, 1))
    rest = 0.1 * torch.randn(n, length // 2, 1)
    return torch.cat([one, rest - one], dim=1)[:, torch.randperm(length)]


def assert_clipped(make, bound=1e-2):
    """Check that no clipped record of ``make()``, a module and x, exceeds the bound, in float64."""
    module, x, y = seeded(lambda: (*make(), torch.randint(0, 3, (40,))))
    y = y[: len(x)]
    with select_strategy(module, x, 3) as strategy:
        assert strategy.name == "bookkeeping"
        gradients = strategy.per_sample_gradients(Batch(x, y))
        weight = (bound / gradients.norm).clamp(max=1.0)
        assert bool((weight > 0).all()) and bool((weight < 1).any())
        for one in torch.eye(len(x)):
            gradients.weighted_sum(weight * one, total := strategy.flat())
            assert float(total.double().norm()) <= bound * (1 + 1e-5)


def assert_norms_equal_a_loop(make):
    """Compare the norms of records of a module, ``make()``, with those of a loop in float64."""
    module, x = seeded(make)
    y = torch.arange(len(x)) % 3
    with select_strategy(module, x, 3) as strategy:
        assert strategy.name == "bookkeeping"
        norm = strategy.per_sample_gradients(Batch(x, y)).norm.double()
    exact = loop(module.double(), x.double(), y).norm(dim=1)
    assert bool((norm >= exact * (1 - 1e-5)).all() and (norm <= exact * 1.01).all())
