"""Norms of grad samplers stay above sums of gradients that cancel, or whose squares underflow."""

import pytest
import torch
from torch import nn

from skdpfair.engine import Batch, select_strategy
from skdpfair.engine.batch import Examples
from skdpfair.engine.per_sample.samplers import LookupGradSampler, ProductGradSampler
from tests.engine.per_sample.modules import Net, chain, loop, seeded


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


@pytest.mark.parametrize("size", [1e2, 1e4, 1e6])
def test_products_stay_above_positions_that_cancel(size):
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


# Gram matrices are taken where 2 length^2 <= width^2, else gradients are made for each record
@pytest.mark.parametrize("size", [0.5, 1e6])
@pytest.mark.parametrize("length, width", [(42, 60), (100, 144), (42, 58), (64, 6)])
def test_products_of_many_positions_exceed_output_gradients_that_cancel(length, width, size):
    def drawn():
        module = Positions(nn.Linear(width, width), width)
        rows = torch.randn(12, 1, width) + 0.01 * torch.randn(12, length, width)
        return module, torch.cat([opposite(12, length, size), rows], dim=2)

    assert_clipped(drawn)


@pytest.mark.parametrize("length", [39, 40, 41, 64, 100])
@pytest.mark.parametrize("width", [6, 144])
def test_products_of_many_positions_equal_a_loop(width, length):
    def drawn():
        module = Positions(nn.Linear(width, width), width)
        factor = torch.randn(7, length, 1) / length**0.5
        return module, torch.cat([factor, torch.randn(7, length, width)], dim=2)

    assert_norms_equal_a_loop(drawn)


@pytest.mark.parametrize("length", [12, 13, 14, 20])
@pytest.mark.parametrize("width", [6, 144])
def test_product_norms_of_persons_with_sequences_equal_their_sums(width, length):
    a, b = seeded(torch.randn, 2, 12, length, width)
    sums = torch.einsum("ptm,ptn->pmn", b, a).view(4, 3, width, width).double().sum(1)
    sampler = ProductGradSampler(a, b, torch.zeros(width, width))
    ratio = sampler.norm2(Examples(3, 12)).sqrt() / sums.norm(dim=(1, 2))
    # above, by what a sum of as many products may err
    assert bool(((ratio >= 1 - 1e-6) & (ratio <= 1 + 1e-3)).all())


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


def test_sums_of_lookups_are_rounded_alike_for_few_and_for_many_rows():
    a, b = torch.tensor([[0, 1], [1, 2], [2, 2]]), seeded(torch.rand, 3, 2, 64)
    weight, tables = seeded(torch.rand, 3), [nn.Parameter(torch.zeros(n, 64)) for n in (3, 100)]
    small, large, noise = *tables, seeded(torch.rand, 100, 64)
    views = {small: noise[:3].clone(), large: noise.clone()}
    for table in tables:
        LookupGradSampler(a, b, table).add(weight, views)
    assert torch.equal(views[small], views[large][:3]) and torch.equal(views[large][3:], noise[3:])
