"""Gradients at parameters that each example moves along its own gradient, in parts or not."""

import pytest
import torch
from torch import nn

from skdpfair.engine import Batch, select_strategy
from skdpfair.engine.per_sample import ascent, bookkeeping
from tests.engine.per_sample.modules import Net, chain, seeded


def decided(m, x):
    h = m.drop(m.a(x))
    return m.out(m.drop(m.b(torch.where(h > 0, h, 0.1 * h))))


@pytest.mark.parametrize("most", [200, 2**26], ids=["in parts", "at once"])
@pytest.mark.parametrize("run", [decided, lambda m, x: m.out(torch.tanh(m.drop(m.a(x))))])
def test_masks_at_ascent_are_those_of_the_gradients(most, run, monkeypatch):
    monkeypatch.setattr(bookkeeping, "_MAX_MADE", most)
    module = seeded(lambda: Net(run, drop=nn.Dropout(0.5), a=(6, 10), b=(10, 10), out=(10, 3)))
    batch = Batch(seeded(torch.randn, 100, 6), torch.arange(100) % 3)
    with select_strategy(module, batch.x, 3) as strategy:
        state = strategy.rng_state()
        gradients = strategy.per_sample_gradients(batch)
        strategy.set_rng_state(state)
        ahead = gradients.at_ascent(torch.zeros(100))
        torch.testing.assert_close(ahead.norm, gradients.norm)


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
