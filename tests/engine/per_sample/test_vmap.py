"""Gradients of any module by a few records at a time."""

import pytest
import torch
from torch import nn

from skdpfair.engine import Batch, select_strategy
from skdpfair.engine.batch import Examples
from skdpfair.engine.memory import affordable_batch
from tests.engine.per_sample.modules import loop, seeded


@pytest.mark.filterwarnings("ignore")
def test_micro_vmap_takes_scripted_parts():
    scripted = torch.jit.script(nn.Sequential(nn.Linear(6, 4), nn.Tanh()))
    module, x = nn.Sequential(scripted, nn.Linear(4, 3)), torch.ones(1, 6)
    assert affordable_batch(module, x) > 0
    with select_strategy(module, x, 3) as strategy:
        assert strategy.name == "vmap"


@pytest.mark.parametrize("micro_batch", [1, 4, 32])
def test_micro_batch_changes_no_gradient_and_splits_no_example(micro_batch):
    module = seeded(lambda: nn.Sequential(nn.Linear(6, 4), nn.PReLU(), nn.Linear(4, 3))).double()
    x, y = seeded(torch.randn, 14, 6).double(), torch.arange(14) % 3
    sizes = torch.tensor([7, 1, 6])
    rows = torch.stack([part.mean(0) for part in loop(module, x, y).split(sizes.tolist())])
    with select_strategy(module, x, 3) as strategy:
        strategy.micro_batch = micro_batch
        gradients = strategy.per_sample_gradients(Batch(x, y, examples=Examples(sizes)))
        weight = torch.tensor([1.0, 0.5, 2.0]).double()
        gradients.weighted_sum(weight, total := strategy.flat())
    torch.testing.assert_close((gradients.norm, total), (rows.norm(dim=1), weight @ rows))
