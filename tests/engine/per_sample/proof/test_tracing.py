"""Functions of one record are traced, or refused with the line and a remedy."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from skdpfair.engine import select_strategy
from skdpfair.engine.per_sample.proof import TraceError, trace
from skdpfair.exceptions import UnsupportedModuleError
from tests.engine.per_sample.modules import Net, chain, clipped_mean, seeded

KEPT = torch.zeros(8)


def test_trace_may_change_what_a_call_makes_itself():
    def honest(h):
        made = (
            torch.stack([KEPT[0], KEPT[1]]).mul_(2).sum() + (KEPT * 2).add_(1) + KEPT.clone().sin_()
        )
        return h * made + torch.zeros(8).fill_(3.0)

    traced = trace(honest, (torch.ones(8),))
    expected = honest(torch.ones(8))
    with torch.no_grad():
        KEPT.add_(1)  # by whoever holds it: the trace has its own
    torch.testing.assert_close(traced(torch.ones(8)), expected)
    KEPT.zero_()


FOREIGN = nn.Linear(8, 8)
FAULTS = {
    "a branch": lambda x: x if x.sum() > 0 else -x,
    "in place": lambda x: x.add_(1),
    "random numbers": lambda x: x * random.random(),
    "that all records of a batch share": lambda x: x * np.random.rand(),
    "generator of its own": lambda x: x + torch.rand(1, generator=torch.Generator()),
    "parameter": lambda x: FOREIGN(x),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_trace_refuses_what_no_trace_follows(fault):
    with pytest.raises(TraceError, match=rf"{fault}"):
        trace(FAULTS[fault], (torch.ones(8),))


def packed(m, x):
    lengths = torch.full((len(x),), 5)
    found, _ = m.r(nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True))
    return m.c(nn.utils.rnn.pad_packed_sequence(found, batch_first=True)[0][:, -1])


def rounded(m, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = m.c(torch.tanh(m.a(x)))
    return found.float()


def cut(m, x):
    h = x.clone()
    h[h < 0] *= 0.5
    return m.c(h)


def compiled():
    return torch.jit.trace(torch.tanh, torch.ones(1))


REMEDIES = {
    "mask": (lambda: Net(packed, r=nn.LSTM(8, 4, batch_first=True), c=(4, 3)), (5, 8)),
    "autocast": (lambda: Net(rounded, a=(6, 64), c=(64, 3)), (6,)),
    "masked_fill": (lambda: Net(cut, c=(6, 3)), (6,)),
    "x.long": (lambda: chain(nn.EmbeddingBag(10, 4), (4, 3)), (6,)),
    "global variable": (lambda: Net(lambda m, x: m.f(m.c(x)), c=(6, 3), f=compiled()), (6,)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("remedy", REMEDIES)
def test_trace_refuses_modules_with_a_remedy(remedy):
    make, shape = REMEDIES[remedy]
    with pytest.raises(UnsupportedModuleError, match=remedy):
        select_strategy(make(), torch.zeros(1, *shape), 3)


@pytest.mark.parametrize("function", [torch.linalg.inv, torch.linalg.cholesky])
def test_record_whose_matrix_has_no_inverse_ends_no_fit(function):
    def forward(m, x):
        return m.c(function(m.a(x).square().diag_embed()).sum(1))

    module = seeded(lambda: Net(forward, a=(6, 6), c=(6, 3)))
    module.a.weight.data, module.a.bias.data = torch.eye(6), torch.zeros(6)
    x = torch.rand(4, 6) + 0.5
    x[2, 1] = 0.0
    with select_strategy(module, x[:1], 3) as strategy:
        both = [clipped_mean(strategy, rows) for rows in (x, x[[0, 1, 3]])]
    assert torch.isfinite(both[0]).all()
    torch.testing.assert_close(*both)
