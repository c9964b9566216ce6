"""Changes of traced graphs that leave their results as they are."""

import pytest
import torch
from torch.nn import functional as F

from skdpfair.engine import Batch, select_strategy
from skdpfair.engine.per_sample.proof import RecordTrace, TraceError
from skdpfair.engine.per_sample.proof.graphs import of_any_size
from skdpfair.exceptions import UnsupportedModuleError
from tests.engine.per_sample.modules import Net


def reshaped(*shape):
    return torch.fx.symbolic_trace(lambda x: x.reshape(*shape))


@pytest.mark.parametrize("other", [(8, 6), (7, 12), (7, 6.0), (7, 6, 1)])
def test_of_any_size_takes_only_sizes_that_follow_the_number_of_records(other):
    small = reshaped(5, 6)
    graph = torch.fx.GraphModule(small, of_any_size(small, reshaped(7, 6)))
    assert graph(3, torch.zeros(18)).shape == (3, 6)
    with pytest.raises(TraceError, match="the number of records"):
        of_any_size(reshaped(5, 6), reshaped(*other))


COUNTS = {
    "ones": lambda x: x.new_ones(x.shape[0], x.shape[0]).sum(1, keepdim=True),
    "fill": lambda x: x.new_full((x.shape[0], 1), x.shape[0]),
    "fill by name": lambda x: x.new_full(size=(x.size(0), 1), fill_value=x.size(0)),
    "pad": lambda x: F.pad(x.new_zeros(x.shape[0], 1), (0, x.shape[0]), value=1.0).sum(1)[:, None],
    "repeat": lambda x: torch.ones(1, 1).repeat(1, x.shape[0]).sum(),
    "expand": lambda x: torch.ones(1).expand(x.shape[0]).sum(),
    "range": lambda x: torch.arange(x.shape[0]).max() + 1,
    "steps": lambda x: torch.linspace(1, 1, len(x)).sum(),
    "eye": lambda x: torch.eye(len(x)).sum(),
    "number": lambda x: torch.tensor(float(len(x))),
    "rest": lambda x: 400.0 * (len(x) % 400 == 0),
    "numbers": lambda x: x.numel() / 6,
    "stride": lambda x: x.t().contiguous().stride(0),
    "bytes": lambda x: x.untyped_storage().nbytes() / 24,
    "ones like": lambda x: torch.ones_like(x).cumsum(0)[-1:, :1],
}


@pytest.mark.parametrize("name", COUNTS)
def test_number_of_records_changes_no_gradient(name):
    def forward(m, x):
        gate = 1 - 2 * torch.relu(COUNTS[name](x) - 399.0 + 0 * x[:, :1])
        return m.c(torch.tanh(m.a(x)) * gate)

    try:
        strategy = select_strategy(Net(forward, a=(6, 8), c=(8, 3)), torch.zeros(1, 6), 3)
    except UnsupportedModuleError:
        return
    x, y = torch.linspace(0, 1, 2400).sin().view(400, 6), torch.arange(400) % 3
    with strategy:
        whole, alone = (
            strategy.per_sample_gradients(Batch(x[:n], y[:n])).norm for n in (len(x), 1)
        )
        torch.testing.assert_close(whole[:1], alone)


QUOTIENTS = {
    "floor": (lambda a, b: a // b, [3, -(2**63), -5]),
    "trunc": (lambda a, b: torch.div(a, b, rounding_mode="trunc"), [3, -(2**63), -5]),
    "remainder": (lambda a, b: a % b, [1, 0, 0]),
    "fmod": (torch.fmod, [1, 0, 0]),
    "by a number": (lambda a, b: a // -1 + 0 * b, [-7, -(2**63), -5]),
}


@pytest.mark.parametrize("name", QUOTIENTS)
def test_guard_divisions_of_quotients_without_room(name):
    divided, expected = QUOTIENTS[name]
    a, b = torch.tensor([7, -(2**63), 5]), torch.tensor([2, -1, -1])
    one = RecordTrace(divided, (), (torch.tensor(1), torch.tensor(1)))
    assert one(None, (), a, b).tolist() == expected


KERNEL = torch.ones(4)


@pytest.mark.parametrize("chance", [0.0, 1.0], ids=["any size", "parts of a batch"])
def test_simplify_leaves_copies_of_constants_that_change(chance):
    def flipped(x):
        kernel = KERNEL.clone()
        kernel.mul_(-2)
        return x * kernel + (0 * torch.randperm(4) if chance else 0)

    trace, x = RecordTrace(flipped, (), (torch.ones(4),)), torch.ones(70, 4)
    for _ in range(3):
        assert (trace(torch.Generator(), (), x) == -2).all()
    assert (KERNEL == 1).all()
