"""Dropout masks, rounding, underflow and reduced precision move no sum beyond its bound."""

import threading

import numpy as np
import pytest
import torch
from torch import nn

from skdpfair import get_method
from skdpfair.engine import Batch, Streams, private_step, select_strategy
from skdpfair.engine.batch import Examples
from skdpfair.engine.losses import CrossEntropy
from skdpfair.engine.mechanism import Mechanism, Task
from skdpfair.engine.per_sample import ClosedForm, capped, layers, linear_layers
from skdpfair.engine.precision import full_precision

C = 0.01


def batch_of(x):
    codes = torch.zeros(len(x), dtype=torch.int64)
    return Batch(x, codes, codes)


def gradient_of(strategy, x, bound=C, *, size=1, chunk_size=None):
    """Return the sum of the clipped gradients of all records, over the size of a batch."""
    mechanism = Mechanism(get_method("dpsgd", max_grad_norm=bound), Task(size, 1, 1.0), 0.0)
    noise = Streams.fresh().noise()
    return private_step(
        strategy, batch_of(x), mechanism, None, noise, chunk_size=chunk_size
    ).gradient


@pytest.fixture(autouse=True)
def seed():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


LAST = {"book-keeping": nn.Identity, "vmap": lambda: nn.PReLU()}


def with_dropout(last):
    return nn.Sequential(nn.Linear(6, 50), nn.Dropout(0.5), nn.Linear(50, 3), LAST[last]())


@pytest.mark.parametrize("last", LAST)
def test_private_step_bounds_sums_if_the_second_pass_draws_other_masks(last):
    with select_strategy(with_dropout(last), torch.rand(2, 6), 3) as strategy:
        strategy.set_rng_state = lambda rng_state: None
        for n in (1, 2) * 10:
            found = gradient_of(strategy, 9 * torch.rand(n, 6), chunk_size=1)
            assert found.norm() <= n * C * (1 + 1e-6)


@pytest.mark.parametrize("chunk_size", [None, 1])
@pytest.mark.parametrize("last", LAST)
def test_private_step_draws_the_same_masks_in_both_passes(last, chunk_size):
    busy, x = threading.Event(), 9 * torch.rand(2, 6)

    def draw():
        while not busy.is_set():
            torch.rand(64)

    other = threading.Thread(target=draw)
    with select_strategy(with_dropout(last), x, 3) as strategy:
        other.start()
        try:
            for _ in range(5):
                state, expected = strategy.generator.get_state(), strategy.flat()
                found = gradient_of(strategy, x, 1e9, chunk_size=chunk_size)
                strategy.generator.set_state(state)
                for part in batch_of(x).split(chunk_size or 2):
                    gradients = strategy.per_sample_gradients(part)
                    gradients.weighted_sum(torch.ones(len(part)), expected)
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
        finally:
            busy.set()
            other.join()


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
        assert gradient_of(strategy, x).norm() <= C * (1 + 1e-6)
        records = strategy.per_sample_gradients(Batch(x, torch.zeros(1, dtype=torch.int64)))
        weight = (1 / records.norm).clamp(max=1.0).nan_to_num(0.0)
        noise = torch.randn(strategy.n_parameters)
        records.weighted_sum(weight, with_noise := noise.clone())
        records.weighted_sum(weight, alone := strategy.flat())
    assert ((with_noise - alone) - noise).norm() < 1e-4


@pytest.mark.parametrize(("a", "b"), [(1e-23, 1e18), (1e18, 1e-23), (1e-21, 1e15), (1.0, 1e-22)])
def test_norms_exceed_gradients_whose_squares_underflow(a, b):
    layer = nn.Linear(6, 3, bias=False)
    sampler = layers.sampler_of(layer)(layer, torch.full((1, 6), a), torch.full((1, 3), b))
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
    sampler = layers.sampler_of(layer)(layer, a, b)
    totals = {layer.weight: torch.zeros(64, 128), layer.bias: torch.zeros(64)}
    sampler.add(torch.ones(1), totals)
    true = sum(float(t.double().square().sum()) for t in totals.values()) ** 0.5
    assert float(sampler.norm2(Examples(1, 1))[0]) ** 0.5 >= true * (1 - 1e-5)


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
            assert gradient_of(strategy, x).double().norm() <= C * (1 + 1e-6)


@pytest.mark.parametrize("n", [8, 1024, 4096])
def test_sums_of_many_equal_records_do_not_add_up_their_rounding(n):
    module, x = nn.Linear(60, 2), 10 * torch.randn(1, 60).repeat(n, 1)
    with select_strategy(module, x, 2) as strategy:
        every, without = (gradient_of(strategy, x[i:], 1.0, size=n).double() for i in (0, 1))
    assert n * float((every - without).norm()) <= 1 + 1e-6


def test_private_step_runs_in_full_precision_whatever_the_process_prefers():
    module, x = nn.Sequential(nn.Linear(6, 200), nn.GELU(), nn.Linear(200, 3)), torch.rand(9, 6)
    used = []
    with select_strategy(module, x, 3) as strategy:
        exact = gradient_of(strategy, x)
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu"), select_strategy(module, x, 3) as strategy:
            records = strategy.per_sample_gradients

            def observed(*args):
                used.append(torch.backends.mkldnn.matmul.fp32_precision)
                used.append(torch.is_autocast_enabled("cpu"))
                return records(*args)

            strategy.per_sample_gradients = observed
            found = gradient_of(strategy, x)
            assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"  # as it was before
    finally:
        torch.set_float32_matmul_precision("highest")
    assert used == ["ieee", False]
    torch.testing.assert_close(found, exact, rtol=1e-6, atol=1e-9)
    with full_precision("cpu"):
        assert not torch.is_autocast_enabled("cpu")
