"""Operations that are traced as others: no index or size reaches beyond a record."""

from functools import partial
from itertools import pairwise
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from skdpfair.engine import Batch, select_strategy
from skdpfair.engine.per_sample.proof import RecordTrace, TraceError, decompositions, trace
from tests.engine.per_sample.modules import assert_equals_loop, chain, loop, seeded

ATEN, ONES = torch.ops.aten, ([1, 1], [1, 1], [0, 0], [1, 1])
BEYOND = {  # torch's own kernels of these do not ask where an index or a size ends
    "embedding": lambda x, i: F.embedding(i, x.view(6, 1)),
    "embedding_dense_backward": lambda x, i: ATEN.embedding_dense_backward(
        x.view(6, 1), i, 6, -1, False
    ),
    "_embedding_bag_dense_backward": lambda x, i: ATEN._embedding_bag_dense_backward(
        x.view(6, 1), 0 * i, i, 1 + 0 * i, i, 6, False, 0, None
    ),
    "max_pool2d_with_indices_backward": lambda x, i: ATEN.max_pool2d_with_indices_backward(
        *x.view(1, 1, 1, 6).expand(2, -1, -1, -1), *ONES, False, i.view(1, 1, 6)
    ),
    "adaptive_max_pool2d_backward": lambda x, i: ATEN.adaptive_max_pool2d_backward(
        *x.view(1, 1, 1, 6).expand(2, -1, -1, -1), i.view(1, 1, 6)
    ),
    "native_layer_norm_backward": lambda x, i: ATEN.native_layer_norm_backward(
        *x.view(1, 6, 1).expand(2, -1, -1), [1], *x[:2].view(2, 1, 1), None, None, [True] * 3
    )[0],
}


@pytest.mark.parametrize("name", BEYOND)
def test_decompositions_reach_no_index_or_size_beyond_a_record(name):
    """A record with an index out of bounds may have no result, and changes no other's."""
    x, inside = torch.linspace(0.1, 0.9, 6), torch.arange(6)
    one = RecordTrace(BEYOND[name], (), (x, inside))

    def results(a, b):
        return one(None, (), torch.stack([a, b]), torch.stack([inside + 6, inside]))

    first, second = results(x, x)
    others = results(x, -x)[0], results(-x, x)[1]
    torch.testing.assert_close(others, (first, second), equal_nan=True)
    assert second.isfinite().all()


@pytest.mark.parametrize("index", [-1, 8])
def test_index_fill_stays_within_its_record(index):
    fill = RecordTrace(lambda h, i: h.index_fill(0, i, 9.0), (), (torch.ones(8), torch.tensor([0])))
    filled = fill(None, (), torch.ones(3, 8), torch.tensor([[0], [index], [0]]))
    assert filled[[0, 2]].eq(9.0).sum(1).tolist() == [1, 1]
    assert filled[1].isnan().all() or filled[1].eq(9.0).sum() == 1


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bag_backward_sums_codes_by_record(mode):
    module = seeded(chain, (partial(nn.EmbeddingBag, mode=mode, padding_idx=0), 10, 4), (4, 3))
    x, y = torch.arange(30).view(5, 6) % 10, torch.arange(5) % 3
    with select_strategy(module, x[:1], 3) as strategy:
        norm = strategy.per_sample_gradients(Batch(x, y)).norm
    torch.testing.assert_close(norm, loop(module, x, y).norm(dim=1))


class Bag(nn.Module):
    """A bag of codes, or of two by offsets that come first; its weights may train."""

    def __init__(self, mode, offsets=False, weighted=False):
        super().__init__()
        self.bag, self.out = nn.EmbeddingBag(6, 4, mode=mode), nn.Linear(4, 3)
        self.scale = nn.Parameter(torch.tensor([0.5, -1.0, 2.0])) if weighted else None
        self.offsets = offsets

    def forward(self, x):
        if not self.offsets:
            weight = None if self.scale is None else self.scale.expand(len(x), 3)
            return self.out(self.bag(x.long(), per_sample_weights=weight))
        bags = [self.bag(row[2:].long(), row[:2].long()) for row in x]
        return self.out(torch.stack(bags).sum(1))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize(
    ("offsets", "wrong"),
    [(False, [0.0, 1, 9]), (False, [0.0, 1, -1]), (True, [0, 7.0, 1, 2]), (True, [1, 2.0, 1, 2])],
)
def test_bags_of_codes_or_offsets_that_torch_refuses_count_for_nothing(mode, offsets, wrong):
    module, right = seeded(Bag, mode, offsets), [0.0, 1, 2, 3][: len(wrong)]
    x, y = torch.tensor([wrong, right]), torch.tensor([0, 1])
    with select_strategy(module, torch.tensor([right]), 3) as strategy:
        norm = strategy.per_sample_gradients(Batch(x, y)).norm
    assert norm[0].isnan() and norm[1].isfinite()


def test_weights_of_bags_train():
    module, x = (
        seeded(lambda: Bag("sum", weighted=True)).double(),
        torch.tensor([[0.0, 1, 4], [2, 2, 3]]),
    )
    weight = torch.tensor([0.5, 2.0]).double()
    assert_equals_loop(module, x.double(), torch.tensor([0, 1]), weight, 1e-10, "bookkeeping")


def test_embedding_backward_refuses_gradients_over_counts():
    def counted(table):
        table = table.detach().requires_grad_()
        rows = F.embedding(torch.tensor([0, 0]), table, scale_grad_by_freq=True)
        return torch.autograd.grad(rows.sum(), table)[0]

    with pytest.raises(TraceError, match="scale_grad_by_freq"):
        trace(counted, (torch.ones(3, 2),))


@st.composite
def convolutional_nets(draw):
    """A random net of one or two convolutions with a linear head, its input shape and a seed."""
    axes, seed = draw(st.integers(1, 2)), draw(st.integers(0, 99))
    conv = {1: nn.Conv1d, 2: nn.Conv2d}[axes]
    groups = draw(st.integers(1, 2))
    channels = [groups * draw(st.integers(1, 2)) for _ in range(3)]
    layers = []
    for a, b in pairwise(channels[: draw(st.integers(2, 3))]):
        options = {
            "stride": draw(st.integers(1, 2)),
            "padding": draw(st.integers(0, 2)),
            "dilation": draw(st.integers(1, 2)),
            "padding_mode": draw(st.sampled_from(["zeros", "circular", "reflect"])),
        }
        kernel = draw(st.integers(1, 3))
        layers += [conv(a, b, kernel, groups=groups, bias=draw(st.booleans()), **options)]
        layers += [draw(st.sampled_from([nn.Tanh(), nn.ReLU(inplace=True)]))]
    shape = (channels[0], *[13] * axes)  # room for two strided, dilated kernels
    with torch.no_grad():
        width = nn.Sequential(*layers, nn.Flatten())(torch.zeros(1, *shape)).shape[1]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width, 3)).double(), shape, seed


@pytest.mark.parametrize("copies", [False, True], ids=["groups", "windows"])
@settings(max_examples=6, deadline=None)
@given(net=convolutional_nets(), n=st.integers(1, 9))
def test_convolutions_of_random_shapes_equal_a_loop(copies, net, n):
    module, shape, seed = net

    def drawn():
        for p in module.parameters():
            nn.init.normal_(p)
        x, weight = torch.randn(n, *shape).double(), torch.rand(n).double()
        return module, x, torch.randint(0, 3, (n,)), weight

    with mock.patch.object(decompositions, "_copies_windows", lambda x: copies):
        assert_equals_loop(*seeded(drawn, seed=seed), 1e-10, "bookkeeping")
