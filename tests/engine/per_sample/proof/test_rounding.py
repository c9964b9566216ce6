"""Where rounding decides, it does not tell how many records there are, nor which stand before."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from skdpfair import get_method
from skdpfair.augmentations import record_by_record
from skdpfair.engine import Batch, select_strategy
from skdpfair.engine.mechanism import Mechanism
from skdpfair.engine.per_sample.proof import RecordTrace, trace
from skdpfair.engine.per_sample.proof.rounding import steady
from skdpfair.testing import example_task
from skdpfair.training.batches import records_at
from tests.engine.per_sample.modules import sums

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
    "choice by NaN": lambda z: torch.fmax(1 + 0 * (z - 0.5).sqrt(), 0 * z),
    "eigenvectors": lambda z: torch.linalg.eigh(
        torch.cat([z, 0.5 + 0 * z], 1).diag_embed()
    ).eigenvectors[:, 0, :1],
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


def halves(n, width):
    """Return rows whose mean is a half in exact arithmetic."""
    x = torch.rand(n, width, generator=torch.Generator().manual_seed(0))
    return x * (width / 2 / x.sum(1, keepdim=True))


def ties(n, width):
    """Return rows whose mean lies between a half and the float32 below it."""
    x, w = halves(n, width), np.longdouble(np.float32(1 / width))
    goal = 0.5 - np.longdouble(2) ** -26
    for row in x.numpy():
        row[-2:] = 0
        for i in (0, -2, -1):
            row[i] += np.float32((goal - (row.astype(np.longdouble) * w).sum()) / w)
    return x


@pytest.mark.parametrize(
    ("rows", "width", "n_columns"),
    [(halves, 30, 3), (halves, 513, 1), (ties, 65, 3)],
    ids=["narrow", "wide", "ties"],
)
@pytest.mark.parametrize("name", GATES)
def test_steady_gates_do_not_depend_on_other_records(name, rows, width, n_columns):
    x = rows(193, width)
    batch = Batch(x, torch.zeros(len(x), dtype=torch.int64))
    mechanism = Mechanism(
        get_method("dpsgd", max_grad_norm=1.0),
        example_task(len(x), n_groups=1, sample_rate=1.0),
        0.0,
    )
    kept = (records_at(batch, torch.arange(193)[i]) for i in (slice(1, 193), slice(0, 192)))
    module = Gated(width, GATES[name], n_columns)
    # book-keeping takes a batch as a whole
    whole, *others = sums(module, [batch, *kept], mechanism, 2, name="bookkeeping")
    assert max((whole - other).norm() for other in others) <= 1.0001


PRODUCTS = {
    "mm": lambda x, w: x[None] @ w,
    "mm of a sequence": lambda x, w: torch.stack([x, x + 1, 2 * x]) @ w,
    "mm of two": lambda x, w: x[None] @ (w * x[:, None]),
    "addmm": lambda x, w: torch.addmm(x[:1], x[None], w, beta=2, alpha=3),
    "mv": lambda x, w: w.T @ x,
    "addmv": lambda x, w: torch.addmv(x[:1], w.T, x, beta=2, alpha=3),
    "dot": lambda x, w: x @ w[:, 0],
    "vdot": lambda x, w: torch.vdot(x, w[:, 0]),
    "bmm": lambda x, w: torch.stack([x[None], x[None] + 1]) @ torch.stack([w, 2 * w]),
    "baddbmm": lambda x, w: torch.baddbmm(x[:1], x[None, None], w[None], beta=2, alpha=3),
    "addbmm": lambda x, w: torch.addbmm(x[:1], x[None, None], w[None], beta=2, alpha=3),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_that_lead_to_a_decision_are_equal_in_all_places(name, dtype):
    for width, n_columns in ((7, 3), (30, 17), (513, 3)):
        x, w = torch.rand(width, dtype=dtype), torch.rand(width, n_columns, dtype=dtype)

        def decided(w, x):
            product = PRODUCTS[name](x, w)
            return product, product > 1

        rows, _ = RecordTrace(decided, [w], [x])(None, [w], x.expand(193, width).clone())
        assert (rows == rows[0]).all()
        scale = 1e-6 if dtype == torch.float32 else 1e-14
        limit = scale * width * PRODUCTS[name](x, w).abs().amax()
        torch.testing.assert_close(rows[0], PRODUCTS[name](x, w), rtol=0, atol=float(limit))


@pytest.mark.parametrize("edge", [torch.acos, torch.atanh, torch.erfinv, torch.bernoulli])
def test_steady_counts_edges_of_domains_as_decisions(edge):
    args = torch.eye(3) / 2, torch.ones(3)
    assert not steady(trace(lambda w, x: edge(w @ x), args), 1)


def test_steady_replaces_products_of_a_batch_that_lead_to_a_decision():
    x, weight = torch.rand(4), torch.rand(4, 4)
    for exceeds, n_products in ((lambda v: v > 0.5, 0), (torch.exp, 1)):
        operations = trace(lambda x, then=exceeds: then(x[None] @ weight).double(), (x,))
        steady(operations, 0)
        named = [str(node.target) for node in operations.graph.nodes]
        assert named.count("aten.mm.default") == n_products


def along_the_sign(module, x, y):
    x = x.detach().requires_grad_()
    (input_gradient,) = torch.autograd.grad(F.cross_entropy(module(x), y, reduction="sum"), x)
    return x.detach() + 0.1 * input_gradient.sign()


along_the_sign.input_range = None


def test_signs_of_a_gradient_of_zero_are_equal_in_all_places():
    module = nn.Linear(65, 3, dtype=torch.float64)
    # equal rows, so that only rounding tells the classes apart
    module.weight.data[:] = module.weight.data[:1]
    x = torch.rand(1, 65, dtype=torch.float64)
    with select_strategy(module, x, 3) as strategy:
        attack = record_by_record(along_the_sign, strategy, x, 3)
        attacked = attack(module, x.expand(193, 65).clone(), torch.zeros(193, dtype=torch.int64))
    assert (attacked == attacked[0]).all()


def is_steady(function, *record):
    return steady(trace(function, record), 0)


def test_steady_where_decisions_are_by_exact_numbers():
    x, weight = torch.rand(4), torch.rand(4, 4)
    assert is_steady(lambda x: (x @ weight).tanh(), x)
    assert is_steady(lambda x: (x > 0.5).float() @ weight, x)
    assert is_steady(lambda x: weight[x.long().clamp(0, 3)] @ x, x)
    assert not is_steady(lambda x: weight[(x @ weight).long().clamp(0, 3)], x)
    assert not is_steady(lambda x: (x.mean() > 0.5).float(), x)
    # the last numbers of an array have another version of it
    assert not is_steady(lambda x: (x.sigmoid() > 0.5).float(), x)
