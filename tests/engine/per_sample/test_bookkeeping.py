"""Book-keeping keeps factors where gradients have some, and names what it makes for each record."""

import copy

import pytest
import torch
from torch import nn

from skdpfair import DPFairClassifier
from skdpfair.engine import Batch, select_strategy
from skdpfair.engine.batch import Examples
from skdpfair.engine.memory import affordable_batch
from skdpfair.engine.per_sample import bookkeeping, samplers
from skdpfair.exceptions import UnsupportedModuleError
from tests.engine.per_sample.modules import Net, clipped_mean, linears, loop, seeded


def tied(m):
    m.b.weight = m.a.weight
    return m


def attention(x_dim=6, **params):
    layer = nn.MultiheadAttention(x_dim, 2, batch_first=True, **params)
    return Net(lambda m, x: m.out(m.a(x, x[:, :2], x[:, :2])[0].mean(1)), a=layer, out=(x_dim, 3))


MADE = {  # how the module is made, the shape of its records, and what has no factors
    "bare parameter": (lambda: linears(lambda m, x: m.out(m.b(m.a(x)) * m.scale)), (6,), "scale"),
    "shared": (lambda: tied(without_scale(lambda m, x: m.out(m.b(m.a(x))))), (6,), ""),
    "called twice": (lambda: without_scale(lambda m, x: m.out(m.b(m.b(m.a(x))))), (6,), ""),
    "changes its input": (
        lambda: without_scale(lambda m, x: m.out(m.b(m.a(x.mul_(2))))),
        (6,),
        "",
    ),
    "rows that are not records": (
        lambda: without_scale(lambda m, x: m.out(m.b(m.a(x.view(-1, 6))).view(-1, 2, 6).sum(1))),
        (2, 6),
        "",
    ),
    "parts of a weight": (attention, (2, 6), ""),
    "weights of their own": (lambda: attention(kdim=6, vdim=6), (2, 6), ""),
    "weight and its sum": (
        lambda: without_scale(lambda m, x: m.out(m.b(m.a(x))) + m.a.weight.sum() * x[:, :3]),
        (6,),
        "a.weight",
    ),
    "weight that is made of another": (
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 3))),
        (6,),
        "original0 original1",
    ),
    "long sequences": (
        lambda: Net(lambda m, x: m.out(x).mean(1), out=(6, 3)),
        (9, 6),
        "out.weight",
    ),
    "recurrent": (
        lambda: Net(
            lambda m, x: m.out(m.a(x)[0][:, -1]), a=nn.GRU(6, 8, batch_first=True), out=(8, 3)
        ),
        (3, 6),
        "",
    ),
}


def without_scale(forward):
    module = linears(forward)
    module.scale.requires_grad_(False)
    return module


@pytest.mark.parametrize("name", MADE)
def test_bookkeeping_names_the_gradients_that_it_makes(name):
    make, shape, expected = MADE[name]
    strategy = select_strategy(seeded(make), torch.zeros(4, *shape), 3)
    assert strategy.name == "bookkeeping"
    _, _, names = strategy.reason.partition(": ")
    made = [n for n in names.split(", ") if "bias" not in n and n != "none"]
    assert len(made) == len(expected.split())
    assert all(name.endswith(part) for name, part in zip(made, expected.split(), strict=True))


class Odd(nn.Module):
    """Parameters of one number and of none, and a product over no positions."""

    def __init__(self):
        super().__init__()
        self.a, self.out = nn.Linear(4, 4), nn.Linear(4, 3)
        self.scale, self.none = nn.Parameter(torch.tensor(0.5)), nn.Parameter(torch.ones(0, 4))

    def forward(self, x):
        return self.out(self.a(x[:, :0]).sum(1) + x[:, 0] * self.scale.exp()) + self.none.sum()


@pytest.mark.parametrize("sizes", [1, torch.tensor([2, 1, 4])], ids=["records", "persons"])
def test_parameters_of_one_number_or_none_train(sizes):
    module, x, y = seeded(Odd).double(), seeded(torch.randn, 7, 2, 4).double(), torch.arange(7) % 3
    rows = loop(module, x, y)
    if not isinstance(sizes, int):
        rows = torch.stack([part.mean(0) for part in rows.split(sizes.tolist())])
    weight = torch.linspace(0.5, 1.0, len(rows)).double()
    with select_strategy(module, x, 3) as strategy:
        here = strategy.per_sample_gradients(Batch(x, y, examples=Examples(sizes, 7)))
        for found in (here, here.at_ascent(0.0 * weight)):
            found.weighted_sum(weight, total := strategy.flat())
            torch.testing.assert_close((found.norm, total), (rows.norm(dim=1), weight @ rows))
        matrix, *_ = strategy.gradient_matrix(Batch(x, y))
    torch.testing.assert_close(matrix, loop(module, x, y))


@pytest.mark.parametrize("most", [1, 40, 2**26])
def test_gradients_that_are_made_in_parts_are_the_same_and_split_no_example(most, monkeypatch):
    monkeypatch.setattr(bookkeeping, "_MAX_MADE", most)
    module = seeded(lambda: nn.Sequential(nn.Linear(6, 4), nn.PReLU(), nn.Linear(4, 3))).double()
    x, y = seeded(torch.randn, 14, 6).double(), torch.arange(14) % 3
    sizes = torch.tensor([7, 1, 6])
    rows = torch.stack([part.mean(0) for part in loop(module, x, y).split(sizes.tolist())])
    with select_strategy(module, x, 3) as strategy:
        gradients = strategy.per_sample_gradients(Batch(x, y, examples=Examples(sizes)))
        weight = torch.tensor([1.0, 0.5, 2.0]).double()
        gradients.weighted_sum(weight, total := strategy.flat())
    torch.testing.assert_close((gradients.norm, total), (rows.norm(dim=1), weight @ rows))


COMPILED = {
    "scripted": torch.jit.script,
    "a scripted part": lambda m: nn.Sequential(torch.jit.script(m), nn.Linear(3, 3)),
    "compiled": lambda m: torch.compile(m, backend="eager"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", COMPILED)
def test_bookkeeping_takes_scripted_and_compiled_modules(name):
    plain = seeded(lambda: nn.Sequential(nn.Linear(6, 4), nn.GELU(), nn.Linear(4, 3)))
    module, x, y = COMPILED[name](plain), torch.ones(2, 6), torch.tensor([0, 1])
    assert affordable_batch(module, x) > 0
    with select_strategy(module, x, 3) as strategy:
        found = strategy.per_sample_gradients(Batch(x, y))
    torch.testing.assert_close(found.norm, loop(module, x, y).norm(dim=1))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", COMPILED)
def test_fits_train_all_weights_of_scripted_and_compiled_modules(name):
    def make():
        plain = nn.Sequential(nn.Linear(6, 4), nn.GELU(), nn.Linear(4, 3))
        return COMPILED[name](seeded(lambda: copy.deepcopy(plain)))

    x, y = seeded(torch.randn, 60, 6).numpy(), [0, 1, 2] * 20
    model = DPFairClassifier("dpsgd", module=make, epsilon=3.0, max_steps=2, classes=[0, 1, 2])
    model.fit(x, y)
    assert model.net_.engine_.fixed is None


class LookedUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, index, table):
        ctx.save_for_backward(index, table)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        index, table = ctx.saved_tensors
        return grad, None, torch.zeros_like(table).index_add(0, index, grad)


def test_record_whose_gradient_lies_beyond_a_table_counts_for_nothing():
    def forward(m, x):
        return m.c(LookedUp.apply(x, x[:, 0].long(), m.table))

    module = seeded(lambda: Net(forward, table=nn.Parameter(torch.rand(10, 6)), c=(6, 3)))
    x = torch.rand(4, 6)
    x[2, 0] = 12.0
    with select_strategy(module, x[:1], 3) as strategy:
        torch.testing.assert_close(*(clipped_mean(strategy, r) for r in (x, x[[0, 1, 3]])))


@pytest.mark.parametrize("sizes", [1, torch.tensor([5, 1])], ids=["records", "persons"])
def test_long_sequences_of_codes_take_the_memory_of_the_table(sizes, monkeypatch):
    module = seeded(
        lambda: Net(lambda m, x: m.c(m.e(x).mean(1)), e=nn.Embedding(5, 4), c=(4, 3))
    ).double()
    x, y = torch.arange(6 * 40).view(6, 40) ** 2 % 5, torch.arange(6) % 3
    monkeypatch.setattr(samplers, "_MAX_PAIRS", 8)  # so that each record is a part
    rows = loop(module, x, y)
    if not isinstance(sizes, int):
        rows = torch.stack([part.mean(0) for part in rows.split(sizes.tolist())])
    with select_strategy(module, x, 3) as strategy:
        found = strategy.per_sample_gradients(Batch(x, y, examples=Examples(sizes, 6)))
    torch.testing.assert_close(found.norm, rows.norm(dim=1))


def test_bookkeeping_refuses_an_input_that_changes_after_use():
    def forward(m, x):
        x = x.clone()
        out = m.a(x)
        with torch.no_grad():
            x.mul_(0.5)
        return m.out(m.b(out * m.scale) * 1.0)

    with pytest.raises(UnsupportedModuleError, match="inplace operation"):
        select_strategy(without_scale(forward), torch.zeros(4, 6), 3)
