"""Where rounding decides, it does not tell how many records there are, nor which stand before."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from skdpfair import get_method
from skdpfair.engine import Batch, Streams, private_step, select_strategy
from skdpfair.engine.mechanism import Mechanism
from skdpfair.engine.per_sample.rounding import steady
from skdpfair.engine.per_sample.tracing import trace
from skdpfair.testing import task

GATES = {  # of products that are a half in exact arithmetic
    "comparison": lambda z: (z >= 0.5).float(),
    "sign": lambda z: (z - 0.5).sign(),
    "round": torch.round,
    "floor": lambda z: torch.floor(2 * z),
    "conversion": lambda z: (2 * z).long().float(),
    "bucketize": lambda z: torch.bucketize(z.contiguous(), torch.tensor([0.25, 0.5])).float(),
    "remainder": lambda z: z.remainder(0.5),
    "floor division": lambda z: torch.div(z, 0.5, rounding_mode="floor"),
    "threshold": lambda z: F.threshold(z, 0.5 - 1e-7, 0.0),
    "argmax": lambda z: torch.stack([z, 0.5 + 0 * z]).argmax(0).float(),
    "top-k": lambda z: torch.stack([z, 0.5 + 0 * z]).topk(1, 0).indices[0].float(),
}


class Gated(nn.Module):
    """Its gate weighs records by a product with fixed numbers, of one column or of several."""

    def __init__(self, width, gate, n_columns):
        super().__init__()
        self.gate, self.head = gate, nn.Linear(width, 2)
        columns = [torch.full((width,), 1 / width) * (1 - 2 * (i == 1)) for i in range(n_columns)]
        self.register_buffer("columns", torch.stack(columns))
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x):
        return self.head(x * self.gate(F.linear(x, self.columns)[:, :1]))


@pytest.mark.parametrize("width", [30, 513])
@pytest.mark.parametrize("n_columns", [1, 3])
@pytest.mark.parametrize("name", GATES)
def test_a_record_that_leaves_turns_no_gate_of_others(name, n_columns, width):
    x = torch.rand(193, width, generator=torch.Generator().manual_seed(0))
    x *= width / 2 / x.sum(1, keepdim=True)
    batch = Batch(x, torch.zeros(len(x), dtype=torch.int64))
    mechanism = Mechanism(
        get_method("dpsgd", max_grad_norm=1.0), task(len(x), n_groups=1, sample_rate=1.0), 0.0
    )
    noise, sums = Streams.fresh().noise(), []
    with select_strategy(Gated(width, GATES[name], n_columns), x[:1], 2) as strategy:
        assert strategy.name == "bookkeeping"  # which takes a batch as a whole
        for kept in (slice(0, 193), slice(1, 193), slice(0, 192)):
            rows = batch.select(torch.arange(193)[kept])
            step = private_step(strategy, rows, mechanism, None, noise)
            sums.append(step.gradient.double() * len(x))
    assert max((sums[0] - other).norm() for other in sums[1:]) <= 1.0001


def is_steady(function, *record):
    return steady(trace(function, record), 0)


def test_decisions_by_exact_numbers_need_no_parts():
    x, weight = torch.rand(4), torch.rand(4, 4)
    assert is_steady(lambda x: (x @ weight).tanh(), x)
    assert is_steady(lambda x: (x > 0.5).float() @ weight, x)
    assert is_steady(lambda x: weight[x.long().clamp(0, 3)] @ x, x)
    assert not is_steady(lambda x: weight[(x @ weight).long().clamp(0, 3)], x)
    assert not is_steady(lambda x: (x.mean() > 0.5).float(), x)
    # the last numbers of an array have another version of it
    assert not is_steady(lambda x: (x.sigmoid() > 0.5).float(), x)
