"""Factors of gradients, whatever the code does with its parameters: random uses against a loop."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from skdpfair.engine import Batch, select_strategy
from skdpfair.engine.batch import Examples
from skdpfair.engine.per_sample import terms
from tests.engine.per_sample.modules import loop, seeded

D, T = 4, 2  # few positions, so that products are booked


def codes(h):
    return (h[..., 0].detach() * 8).long().abs() % 6


def cut(h):
    h = h.clone()
    h[h < 0] = 0.0
    h[h.isnan().any(-1)] = 1.0
    return h


USES = {  # of records h (batch, T, D) and parameters: w (6, D) and v, of which parts are taken
    "linear": lambda h, w, v: F.linear(h, w[:D]),
    "product": lambda h, w, v: h @ w[:D],
    "turned": lambda h, w, v: h @ w[2:].t(),
    "not contiguous": lambda h, w, v: F.linear(h, v[::2, 1::2]),
    "every second row": lambda h, w, v: F.linear(h, w[::2], v[0, :3]) @ w[3:],
    "rows in another order": lambda h, w, v: F.linear(h, w.flip(0)[:D]),
    "viewed": lambda h, w, v: h @ w.view(D, 6) @ w,
    "of two": lambda h, w, v: F.linear(h, torch.cat([w[:2], v[:D].t()[:2, :D]])),
    "chunks": lambda h, w, v: sum(F.linear(h, part) @ part for part in w.chunk(3)),
    "unbound": lambda h, w, v: F.linear(h, torch.stack(w.unbind()[1:5])),
    "symmetric": lambda h, w, v: h @ (w[:D] + w[:D].t()),
    "scaled": lambda h, w, v: h @ (w[:D] * w[0]),
    "low rank": lambda h, w, v: (h @ w[:2].t()) @ w[4:],
    "in a batch": lambda h, w, v: torch.bmm(h, w[:D].expand(len(h), D, D)),
    "einsum": lambda h, w, v: torch.einsum("bti,ij->btj", h, w[:D]),
    "in heads": lambda h, w, v: torch.einsum(
        "btki,kij->btkj", h.view(-1, T, 2, 2), w.view(6, 2, 2)[:2]
    ).flatten(2),
    "along the positions": lambda h, w, v: (h.mT @ w[:T, :T]).mT,
    "at some positions": lambda h, w, v: torch.cat([h[:, :1] @ w[:D], h[:, 1:]], 1),
    "scale and shift": lambda h, w, v: h * w[0] + w[1],
    "one for each position": lambda h, w, v: h + w[:T],
    "one more position": lambda h, w, v: torch.cat([h, w[:1].expand(len(h), 1, D)], 1)[:, 1:],
    "normalised": lambda h, w, v: F.layer_norm(h, (D,), w[0], w[1]),
    "convolution": lambda h, w, v: F.conv1d(h.mT, w[:D, :, None]).mT,
    "wide convolution": lambda h, w, v: (
        F.conv1d(h.mT, v[:D, :D, None].expand(D, D, 3), padding=1).mT
    ),
    "transposed convolution": lambda h, w, v: F.conv_transpose1d(h.mT, w[:D, :, None]).mT,
    "embedding": lambda h, w, v: h + F.embedding(codes(h), w),
    "embedding of a part": lambda h, w, v: h + F.embedding(codes(h) % 3, w[:3]),
    "bag": lambda h, w, v: h + F.embedding_bag(codes(h), w, mode="mean", padding_idx=2)[:, None],
    "bag of the largest": lambda h, w, v: h + F.embedding_bag(codes(h), w, mode="max")[:, None],
    "bilinear": lambda h, w, v: F.bilinear(h, torch.tanh(h), v[:D].reshape(D, D, 2)[..., [0] * D]),
    "index": lambda h, w, v: h * w[codes(h)],
    "index from the end": lambda h, w, v: h + w[codes(h) - 6],
    "index from both ends": lambda h, w, v: h * w[codes(h) - 6] + w[codes(h)],
    "index of rows": lambda h, w, v: h + w.index_select(0, codes(h).flatten()).view(h.shape),
    "a row for each number": lambda h, w, v: torch.stack(
        [r + w.gather(0, codes(r[0][:, None]).expand(D, D)).mean(0) for r in h]
    ),
    "one number": lambda h, w, v: h * w[0, 0] + w.view(-1)[3].exp(),
    "table and weight": lambda h, w, v: F.embedding(codes(h), w) @ w[:D],
    "counts": lambda h, w, v: (
        (h @ w[:D]) * torch.add(*[(h[..., :1] > 0).sum(-1, keepdim=True)] * 2)
    ),
    "quadratic": lambda h, w, v: (h * (h @ w[:D])) @ w[:D],
    "without gradient": lambda h, w, v: F.linear(h, w[:D].detach()) + w[0],
    "Cayley map": lambda h, w, v: (
        h @ torch.linalg.solve(w[:D] - w[:D].mT + torch.eye(D).to(w), w[2:])
    ),
    "exponential of a matrix": lambda h, w, v: h @ torch.linalg.matrix_exp(w[:D] - w[:D].mT),
    "one number where a mask says so": lambda h, w, v: cut(h @ w[:D]) @ w[2:],
    "softmax of weights": lambda h, w, v: h @ w[:D].softmax(0),
}


class Uses(nn.Module):
    """Some of the uses above, one after the other, of three parameters."""

    def __init__(self, seed):
        super().__init__()
        rng = np.random.default_rng(seed)
        self.w, self.u = (nn.Parameter(torch.randn(6, D) / 2) for _ in range(2))
        self.v = nn.Parameter(torch.randn(8, 8).t() / 2)
        self.out = nn.Linear(D, 3)
        self.uses = [USES[name] for name in rng.choice([*USES], rng.integers(1, 5))]
        self.of = rng.integers(2, size=len(self.uses))
        frozen = rng.choice(["", "", "w", "u", "v"])
        if frozen:
            self.get_parameter(frozen).requires_grad_(False)

    def forward(self, x):
        h = x
        for use, i in zip(self.uses, self.of, strict=True):
            h = torch.tanh(use(h, (self.w, self.u)[i], self.v))
        return self.out(h).mean(1)


@pytest.mark.parametrize(
    ("seeds", "dtype"),
    [
        (range(8), torch.float64),
        (range(8, 12), torch.float32),
        pytest.param(range(12, 200), torch.float64, marks=pytest.mark.slow),
        pytest.param(range(12, 200), torch.float32, marks=pytest.mark.slow),
    ],
    ids=["few", "few-32", "many", "many-32"],
)
def test_terms_of_random_uses_equal_a_loop(seeds, dtype):
    for seed in seeds:
        check(seeded(lambda seed=seed: Uses(seed), seed=seed).to(dtype), seed)


@pytest.mark.parametrize("name", USES)
def test_terms_of_each_use_equal_a_loop(name):
    module = seeded(Uses, 0).double().requires_grad_(True)
    module.uses, module.of = [USES[name]] * 2, [0, 1]
    check(module, 1)


def test_numbers_that_come_twice_have_no_places():
    graph, value = torch.fx.Graph(), torch.ones(2, 3)
    leaf = graph.placeholder("leaf")
    twice = graph.call_function(torch.ops.aten.cat.default, ([leaf, leaf],))
    turned = graph.call_function(torch.ops.aten.t.default, (leaf,))
    leaf.meta["val"], twice.meta["val"], turned.meta["val"] = value, value.repeat(2, 1), value.t()
    assert terms._places(leaf, [(twice, leaf)], 12) is None
    assert terms._places(leaf, [(turned, leaf)], 6).tolist() == [0, 2, 4, 1, 3, 5]


def test_leaves_of_many_uses_take_no_recursion():
    graph = torch.fx.Graph()
    total, leaf = graph.placeholder("total"), graph.placeholder("leaf")
    total.meta["val"] = leaf.meta["val"] = torch.ones(2)
    for _ in range(5000):
        total = graph.call_function(torch.ops.aten.add.Tensor, (total, leaf))
        total.meta["val"] = torch.ones(2)
    assert len([*terms._leaves(total)]) == 5001


def check(module, seed):
    dtype = module.w.dtype
    # norms are rounded up by what sums may err
    tolerances = (1e-10, 1e-10) if dtype is torch.float64 else (1e-5, 2e-4)
    x, y = seeded(torch.randn, 7, T, D, seed=seed).to(dtype), torch.arange(7) % 3
    rows = loop(module, x, y)
    persons = torch.stack([part.mean(0) for part in rows.split([2, 1, 4])])
    weight = torch.linspace(0.5, 2.0, 7, dtype=dtype)
    with select_strategy(module, x, 3) as strategy:
        parts = (rows, 1), (persons, torch.tensor([2, 1, 4]))
        for (expected, sizes), tolerance in zip(parts, tolerances, strict=True):
            found = strategy.per_sample_gradients(Batch(x, y, examples=Examples(sizes, 7)))
            found.weighted_sum(weight[: len(expected)], total := strategy.flat())
            each = expected.norm(dim=1), weight[: len(expected)] @ expected
            torch.testing.assert_close((found.norm, total), each, rtol=tolerance, atol=tolerance)
