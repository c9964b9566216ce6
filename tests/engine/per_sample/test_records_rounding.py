"""Rounding and underflow move no sum beyond its bound."""

import numpy as np
import pytest
import torch
from torch import nn

from skdpfair import get_method
from skdpfair.engine import Batch, Streams, private_step, select_strategy
from skdpfair.engine.batch import Examples
from skdpfair.engine.losses import CrossEntropy
from skdpfair.engine.mechanism import Mechanism, Task
from skdpfair.engine.per_sample import ClosedForm, capped, linear_layers
from skdpfair.engine.per_sample.samplers import (
    ProductGradSampler,
    RowsGradSampler,
    VectorGradSampler,
)
from tests.engine.per_sample.modules import clipped_mean


@pytest.fixture(autouse=True)
def seed():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def test_capped_only_lowers_weights():
    weight, then = torch.full((5,), 0.5), torch.tensor([2.0, 2.0, 2.0, 0.0, 2.0])
    now = torch.tensor([1.0, 2.0, 8.0, 1.0, torch.inf])
    assert capped(weight, then, now).tolist() == [0.5, 0.5, 0.125, 0.0, 0.0]


class Mean(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.out = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.a(x).mean(1))


@pytest.mark.parametrize("size", [2.0**k for k in (10, 20, 34, 40, 50, 60)])
def test_values_that_cancel_neither_exceed_the_bound_nor_erase_noise(size):
    module, part, rest = Mean(), torch.randn(1, 20, 6), torch.randn(1, 40, 6)
    x = torch.cat([size * part, -size * part], dim=1) + rest
    with select_strategy(module, x, 3) as strategy:
        assert clipped_mean(strategy, x).norm() <= 0.01 * (1 + 1e-6)
        records = strategy.per_sample_gradients(Batch(x, torch.zeros(1, dtype=torch.int64)))
        weight = (1 / records.norm).clamp(max=1.0).nan_to_num(0.0)
        noise = torch.randn(strategy.n_parameters)
        records.weighted_sum(weight, with_noise := noise.clone())
        records.weighted_sum(weight, alone := strategy.flat())
    assert ((with_noise - alone) - noise).norm() < 1e-4


@pytest.mark.parametrize(("a", "b"), [(1e-23, 1e18), (1e18, 1e-23), (1e-21, 1e15), (1.0, 1e-22)])
def test_norms_exceed_gradients_whose_squares_underflow(a, b):
    layer = nn.Linear(6, 3, bias=False)
    factors = torch.full((1, 6), a), torch.full((1, 3), b)
    sampler = VectorGradSampler(*factors, layer.weight)
    sampler.add(torch.ones(1), {layer.weight: (total := torch.zeros(3, 6))})
    least = float(total.double().norm()) * (1 - 1e-5)
    chain = nn.Sequential(layer, nn.ReLU())
    closed = ClosedForm(chain, CrossEntropy(3), linear_layers(chain, torch.zeros(1, 6)))
    assert float(sampler.norm2(Examples(1, 1))[0]) ** 0.5 >= least
    assert float(closed._norm([sampler])[0]) >= least


@pytest.mark.parametrize("gate", [-40.0, -42.0, -44.0, -46.0])
def test_norms_exceed_gradients_of_sequences_whose_output_gradients_underflow(gate):
    layer = nn.Linear(128, 64)
    a, b = torch.full((1, 20, 128), 1.2e18), torch.full((1, 20, 64), 1e-6 * float(np.exp(gate)))
    sampler = ProductGradSampler(a, b, layer.weight)
    sampler.add(torch.ones(1), {layer.weight: (total := torch.zeros(64, 128))})
    assert float(sampler.norm2(Examples(1, 1))[0]) ** 0.5 >= float(total.double().norm()) * (
        1 - 1e-5
    )


@pytest.mark.parametrize("size", [1e10, 1e18])
def test_norms_exceed_gradients_of_sure_predictions_of_large_records(size):
    module = nn.Linear(2, 3, bias=False)
    nn.init.zeros_(module.weight)
    module.weight.data[0, 1] = 1.0
    x, y = torch.tensor([[size, 46.0], [size, 90.0]]), torch.tensor([0, 0])
    with select_strategy(module, x, 3) as strategy:
        records = strategy.per_sample_gradients(Batch(x, y))
        for i in range(2):
            records.weighted_sum(torch.eye(2)[i], total := strategy.flat())
            assert float(records.norm[i]) >= float(total.double().norm()) * (1 - 1e-5)


@pytest.mark.parametrize("width", [4096, 49152, 2**18])
def test_norms_of_wide_rows_do_not_add_up_their_rounding(width):
    module = nn.Linear(width, 2)
    nn.init.zeros_(module.weight)
    nn.init.zeros_(module.bias)
    for k in range(6, 18, 2):  # squares whose running sums are always rounded down
        x = torch.full((1, width), (1 + 2.0**-k - 2.0**-22) ** 0.5)
        with select_strategy(module, x, 2) as strategy:
            assert clipped_mean(strategy, x).double().norm() <= 0.01 * (1 + 1e-6)


@pytest.mark.parametrize("n", [8, 1024, 4096])
def test_sums_of_many_equal_records_do_not_add_up_their_rounding(n):
    module, x = nn.Linear(60, 2), 10 * torch.randn(1, 60).repeat(n, 1)
    with select_strategy(module, x, 2) as strategy:
        every, without = (clipped_mean(strategy, x[i:], 1.0, size=n).double() for i in (0, 1))
    assert n * float((every - without).norm()) <= 1 + 1e-6


class Codes(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(4, 3), nn.Linear(3, 2)

    def forward(self, x):
        return self.out(self.table(x).mean(1))


def test_sums_of_a_frequent_code_do_not_add_up_their_rounding():
    n, module, x = 2048, Codes(), torch.ones(2048, 10, dtype=torch.int64)
    with select_strategy(module, x, 2) as strategy:
        every, without = (clipped_mean(strategy, x[i:], 1e-3, size=n).double() for i in (0, 1))
    assert n * float((every - without).norm()) <= 1e-3 * (1 + 1e-5)


def movement(module, x, sizes, n_classes, bound=1e-2):
    """Return how far the sum moves, over the bound, where the first person leaves."""
    n, found = len(sizes), []
    mechanism = Mechanism(get_method("dpsgd", max_grad_norm=bound), Task(n, 1, 1.0), 0.0)
    with select_strategy(module, x[1:2], n_classes) as strategy:
        for i, first in ((0, 0), (1, sizes[0])):
            rows, y = x[first:], torch.zeros(len(x) - first, dtype=torch.int64)
            batch = Batch(rows, y, examples=Examples(torch.tensor(sizes[i:]), len(rows)))
            step = private_step(strategy, batch, mechanism, None, Streams.fresh().noise())
            found.append(step.gradient.double() * n)
    return float((found[0] - found[1]).norm()) / bound


class Scales(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(4))

    def forward(self, x):
        return x * self.w.exp()


@pytest.mark.parametrize("first", [1.0, torch.nan], ids=["finite", "not finite"])
def test_person_with_the_most_records_does_not_change_how_others_are_rounded(first):
    module = nn.Linear(6, 5)
    x = torch.cat([torch.rand(5, 6) * first, torch.rand(4, 6).repeat(20000, 1)])
    assert movement(module, x, [5] + [4] * 20000, 5) <= 1.001


def test_persons_with_many_equal_records_stay_within_the_bound():
    assert movement(Scales(), torch.ones(60000, 4), [20000] * 3, 4) <= 1.00001


def test_norms_exceed_rows_whose_squares_underflow():
    sampler = RowsGradSampler(torch.full((1, 20000), 2.6e-23), nn.Parameter(torch.ones(20000)))
    assert float(sampler.norm2(Examples(1, 1))[0]) ** 0.5 >= 2.6e-23 * 20000**0.5
