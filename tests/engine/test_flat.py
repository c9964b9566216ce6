"""Updates of one vector are torch's updates of many tensors."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import embedding, embedding_bag

from skdpfair.engine.flat import FlatSGD, fixed_places, flatten_, rejoin_, split, unflatten_


def module():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 3), nn.Conv1d(1, 2, 2), nn.Linear(3, 2)).double()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight_decay": 0.1},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    ],
)
def test_flat_sgd_equals_torchs(options):
    theirs, ours = module(), module()
    parameters = list(ours.parameters())
    flat = flatten_(parameters)
    reference = torch.optim.SGD(theirs.parameters(), lr=0.1, **options)
    optimizer = FlatSGD([flat], lr=0.1, **options)
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        flat.grad = torch.randn(flat.shape, generator=generator, dtype=flat.dtype)
        gradients = split(flat.grad.clone(), parameters)
        for p, g in zip(theirs.parameters(), gradients, strict=True):
            p.grad = g
        reference.step()
        optimizer.step()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dampening", [0.9, 0.5])
def test_flat_sgd_with_dampening_starts_at_rest(dampening):
    flat = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = FlatSGD([flat], lr=1.0, momentum=0.9, dampening=dampening)
    buffer = position = 0.0
    for gradient in (1.0, -2.0, 3.0):
        flat.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
        buffer = 0.9 * buffer + (1 - dampening) * gradient
        position -= buffer
        assert flat.item() == pytest.approx(position, rel=1e-12)


def test_flatten_makes_views_that_unflatten_releases():
    net = module()
    before = copy.deepcopy(net)
    flat = flatten_(list(net.parameters()))
    for p, q in zip(net.parameters(), before.parameters(), strict=True):
        assert torch.equal(p, q)
    with torch.no_grad():
        flat.zero_()
    assert all(not p.any() for p in net.parameters())
    unflatten_(list(net.parameters()))
    with torch.no_grad():
        flat.fill_(1.0)
    assert all(not p.any() for p in net.parameters())
    assert len({p.untyped_storage().data_ptr() for p in net.parameters()}) == 6


def test_rejoin_takes_over_replaced_data():
    net = module()
    parameters = list(net.parameters())
    flat = flatten_(parameters)
    parameters[0].data = parameters[0].data.clamp(-0.1, 0.1)
    rejoin_(flat, parameters)
    assert float(split(flat.detach(), parameters)[0].abs().max()) <= 0.1
    with torch.no_grad():
        flat.zero_()
    assert not parameters[0].any()


class Words(nn.Module):
    """A table, two layers and a buffer, which ``read(module, x)`` reads."""

    def __init__(self, read):
        super().__init__()
        self.table, self.out = nn.Embedding(5, 3, padding_idx=-1), nn.Linear(3, 2)
        self.spare = nn.Parameter(torch.ones(2, 3))
        self.register_buffer("mask", torch.tensor([[True, False, True], [True, True, True]]))
        self.register_buffer("factor", torch.tensor([0.0, 1.0, 2.0]))
        self.read = read

    def forward(self, x):
        return self.read(self, x)


READ = {
    "padding": lambda m, x: m.out(m.table(x).mean(1)),
    "bag": lambda m, x: m.out(embedding_bag(x, m.table.weight, padding_idx=1) + m.spare[0]),
    "sliced": lambda m, x: m.out(m.table(x).mean(1) + m.spare[:1]),
    "two paddings": lambda m, x: m.out((m.table(x) + embedding(x, m.table.weight, 0)).sum(1)),
    "tied": lambda m, x: m.out(m.table(x).mean(1) @ m.table.weight.T @ m.table.weight),
    "detached": lambda m, x: m.out(m.table(x).mean(1) * m.spare.detach()[0]),
    "masked": lambda m, x: m.table(x).mean(1) @ torch.where(m.mask, m.spare, m.factor).T,
    "multiplied": lambda m, x: m.out(m.table(x).mean(1) + (m.factor * m.spare).sum(0)),
    "filled": lambda m, x: m.table(x).mean(1) @ m.spare.masked_fill(m.mask, 1.0).T,
    "by records": lambda m, x: m.out(m.table(x)[:, 0]) + (x[:, :1, None] * m.spare).sum(2),
}


@pytest.mark.parametrize("read", READ.values(), ids=READ)
def test_fixed_places_are_those_without_a_gradient(read):
    module = Words(read)
    x = torch.cartesian_prod(torch.arange(5), torch.arange(5))
    found = fixed_places(module, module(x[:2] * 0))
    moved = 0
    for _ in range(3):
        for p in module.parameters():
            nn.init.uniform_(p)
        sums = module(x)[:, 0].square().sum() + module(x)[:, 1].exp().sum()
        gradients = torch.autograd.grad(
            sums, list(module.parameters()), allow_unused=True, materialize_grads=True
        )
        moved = moved + torch.cat([g.flatten().abs() for g in gradients])
    assert found.tolist() == (moved == 0).nonzero().flatten().tolist()
