"""Norms and weighted sums equal a naive loop, whatever the module."""

import copy
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from skdpfair.engine import Batch, select_strategy
from skdpfair.engine.batch import Examples
from skdpfair.engine.flat import split
from skdpfair.engine.per_sample import ascent, bookkeeping
from tests.engine.per_sample.modules import Net, assert_close, chain, linears, loop, seeded, trained


def frozen(module, *names):
    """Return a module whose parameters of these names are not trained."""
    for name in names:
        module.get_parameter(name).requires_grad_(False)
    return module


def mlp(*names):
    return frozen(chain((6, 5), nn.Tanh(), (5, 3)), *names)


def deep(*names):
    return frozen(chain((6, 5), nn.GELU(), (5, 4), nn.ELU(), (4, 3)), *names)


def nested():
    inner = chain((6, 5), nn.Sigmoid(), nn.Identity())
    return chain(nn.Flatten(), inner, (5, 4), nn.ReLU(inplace=True), (4, 3))


def tied():
    module = linears(lambda m, x: m.out(torch.tanh(m.b(torch.tanh(m.a(x)))) * m.scale))
    module.b.weight = module.a.weight
    return module


def hooked():
    module = mlp()
    module[0].register_forward_pre_hook(lambda layer, inputs: (inputs[0] * 2.0,))
    return module


def twice():
    layer = nn.Linear(6, 6)
    return chain(layer, nn.Tanh(), layer, (6, 3))


def words():
    """Return embeddings of a few words that repeat, one of them padding."""

    def forward(m, x):
        found = m.table((x * 10).long().abs() % 4)
        return m.out(torch.tanh(m.mix(m.norm(found))).flatten(1))

    layers = {"table": nn.Embedding(4, 5, padding_idx=1), "norm": nn.LayerNorm((7, 5))}
    return Net(forward, **layers, mix=(5, 4), out=(28, 3))


def convolutions():
    first = partial(nn.Conv2d, stride=2, padding=1), 2, 4, 3
    second = partial(nn.Conv2d, dilation=2, bias=False), 4, 3, (2, 3)
    return chain(first, nn.Tanh(), second, nn.Flatten(), (3 * 4 * 2, 3))


def padded():
    first = partial(nn.Conv1d, padding="same"), 2, 3, 3
    second = partial(nn.Conv1d, padding=2, padding_mode="circular", bias=False), 3, 4, 3
    third = partial(nn.Conv1d, padding=1, padding_mode="replicate", stride=2), 4, 4, 2
    return chain(first, nn.Tanh(), second, third, nn.Flatten(), (24, 3))


def normalised(*names):
    layers = (nn.Conv2d, 2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(inplace=True)
    layers += (partial(nn.Conv2d, bias=False), 4, 4, 2), nn.InstanceNorm2d(4, affine=True)
    return frozen(chain(*layers, nn.Flatten(), (36, 3)), *names)


def positions(m, x):
    """Call layers on all positions of all records as if they were records."""
    rows = torch.tanh(m.a(x.reshape(-1, 6)))
    return m.out(m.b(rows).view(len(x), -1, 6).mean(1) * m.scale)


def sequence(width, length):
    return lambda: chain((6, width), nn.Tanh(), nn.Flatten(), (width * length, 3))


CASES = {  # strategy -> name -> how the module is made, and the shape of its records
    "closed_form": {
        "linear": (lambda: nn.Linear(6, 3), (6,)),
        "no bias": (lambda: nn.Linear(6, 3, bias=False), (6,)),
        "mlp": (mlp, (6,)),
        "frozen weight": (lambda: mlp("0.weight"), (6,)),
        "frozen bias": (lambda: mlp("0.bias", "2.bias"), (6,)),
        "frozen first layer": (lambda: mlp("0.weight", "0.bias"), (6,)),
        "frozen, then bias only": (lambda: mlp("0.weight", "0.bias", "2.weight"), (6,)),
        "nested chain with other activations": (nested, (2, 3)),
    },
    "bookkeeping": {
        "layer norm": (lambda: chain((6, 5), nn.LayerNorm(5), (5, 3)), (6,)),
        "layers in between": (deep, (6,)),
        "one of them frozen": (lambda: deep("2.weight"), (6,)),
        "hooked chain": (hooked, (6,)),
        "activation twice": (lambda: chain((6, 5), nn.ReLU(), nn.Tanh(), (5, 3)), (6,)),
        "long sequence": (sequence(4, 20), (20, 6)),
        "gram sequence": (sequence(40, 3), (3, 6)),
        "convolutions": (convolutions, (2, 12, 12)),
        "grouped convolution": (
            lambda: chain(nn.Conv2d(2, 4, 3, groups=2), nn.Flatten(), (16, 3)),
            (2, 4, 4),
        ),
        "padding of every kind": (padded, (2, 9)),
        "convolution in space": (
            lambda: chain(nn.Conv3d(1, 2, 2), nn.Tanh(), nn.Flatten(), (16, 3)),
            (1, 3, 3, 3),
        ),
        "normalised convolutions": (normalised, (2, 6, 6)),
        "frozen scale": (lambda: normalised("1.weight", "4.bias"), (2, 6, 6)),
        "words": (words, (7,)),
        "called twice": (
            lambda: linears(lambda m, x: m.out(torch.tanh(m.a(torch.tanh(m.a(x)))))),
            (6,),
        ),
        "tied weights": (tied, (6,)),
        "bare parameter": (lambda: linears(lambda m, x: m.out(m.b(m.a(x)) * m.scale)), (6,)),
        "weight outside its layer": (
            lambda: linears(
                lambda m, x: m.out(m.b(m.a(x) * m.scale)) + m.a.weight.sum() * x[:, :3]
            ),
            (6,),
        ),
        "a layer twice in a chain": (twice, (6,)),
        "short sequence": (
            lambda: linears(lambda m, x: m.out(torch.tanh(m.b(m.a(x)) * m.scale).mean(1))),
            (2, 6),
        ),
        "rows that are not records": (lambda: linears(positions), (5, 6)),
    },
}
MODULES = {name: (*of, how) for how, cases in CASES.items() for name, of in cases.items()}
TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-10}


@pytest.fixture(scope="module")
def problem(request):
    """A module with its strategy, traced once for all statements."""
    case, dtype = request.param
    make, shape, expected = MODULES[case]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = make().to(dtype)
        x, y = torch.randn(37, *shape, dtype=dtype), torch.randint(0, 3, (37,))
        own, weight = torch.rand(37, dtype=dtype), torch.rand(37, dtype=dtype)
    with select_strategy(module, x, 3) as strategy:
        assert strategy.name == expected and strategy.reason
        yield SimpleNamespace(**{k: v for k, v in locals().items() if k != "request"})
    assert all(type(p) is nn.Parameter for p in module.parameters())


def problems(*dtypes):
    cases = [
        pytest.param((case, dtype), id=case if dtype is dtypes[0] else f"{case}-{dtype}")
        for case in MODULES
        for dtype in dtypes
    ]
    return pytest.mark.parametrize("problem", cases, indirect=True)


@problems(torch.float32, torch.float64)
def test_norm_and_weighted_sum_equal_a_loop(problem):
    p, tolerance = problem, TOLERANCES[problem.dtype]
    gradients = p.strategy.per_sample_gradients(Batch(p.x, p.y, weight=p.own))
    gradients.weighted_sum(p.weight, total := p.strategy.flat())
    assert_close(gradients, total, loop(p.module, p.x, p.y), p.weight, tolerance)
    odds = p.module(p.x).softmax(1)
    torch.testing.assert_close(gradients.probability, odds, rtol=tolerance, atol=1e-6)


def ahead(module, x, y, step, own):
    """Return the weighted gradient of rows where a step along it leads, by ``own`` weights."""
    moved = copy.deepcopy(module)
    along = own @ loop(module, x, y)
    with torch.no_grad():
        for parameter, g in zip(trained(moved), split(along, trained(moved)), strict=True):
            parameter.add_(step * g)
    return own @ loop(moved, x, y)


@pytest.mark.parametrize("most", [0, 2**25], ids=["made twice", "kept"])
@problems(torch.float64)
def test_at_ascent_equals_a_loop(problem, most, monkeypatch):
    monkeypatch.setattr(ascent, "MAX_KEPT", most)
    p, scale = problem, torch.linspace(1.0, 0.1, 5, dtype=torch.float64)
    x, y, weight = (values[:5] for values in (p.x, p.y, p.weight))
    one = torch.ones(1, dtype=torch.float64)
    rows = [ahead(p.module, x[i : i + 1], y[i : i + 1], scale[i], one) for i in range(5)]
    gradients = p.strategy.per_sample_gradients(Batch(x, y)).at_ascent(scale)
    gradients.weighted_sum(weight, total := p.strategy.flat())
    assert_close(gradients, total, torch.stack(rows), weight, 1e-9)


@pytest.mark.parametrize("sizes", [[1, 3, 2], [2, 2]], ids=["unequal", "equal"])
@problems(torch.float64)
def test_gradients_of_persons_equal_a_loop(problem, sizes):
    """Norms and sums of the weighted mean gradients of each person, here and ahead."""
    p, dtype, tolerance = problem, problem.dtype, TOLERANCES[problem.dtype]
    n, of_each = sum(sizes), torch.tensor(sizes)
    x, y, own = p.x[:n], p.y[:n], p.own[:n]
    scale, weight = p.weight[: 2 * len(sizes)].view(2, -1)
    persons = torch.eye(len(sizes), dtype=dtype).repeat_interleave(of_each, 0).t()
    persons = persons * own / (persons @ own)[:, None]
    moved = [
        ahead(p.module, x[part > 0], y[part > 0], step, part[part > 0])
        for step, part in zip(scale, persons, strict=True)
    ]
    examples = Examples(sizes[0] if len(set(sizes)) == 1 else of_each, n)
    here = p.strategy.per_sample_gradients(Batch(x, y, weight=own, examples=examples))
    expected = persons @ loop(p.module, x, y), torch.stack(moved)
    for found, rows in zip((here, here.at_ascent(scale)), expected, strict=True):
        found.weighted_sum(weight, total := p.strategy.flat())
        # 100 positions of one person: norms are rounded up by what their sum may err
        of_norms = 2.0 if p.case == "long sequence" else 1.0
        assert_close(found, total, rows, weight, tolerance, of_norms)
        assert (found.norm >= rows.norm(dim=1) * (1 - 4 * torch.finfo(dtype).eps)).all()


@problems(torch.float32)
def test_gradients_of_persons_do_not_depend_on_sizes_of_others(problem):
    """Even where the gradients of a person nearly cancel, so that rounding decides the norm."""
    n, more, shape, strategy = 64, 30, problem.shape, problem.strategy
    x = torch.cat([problem.x[:1].expand(2 * n, *shape), problem.x[1 : 1 + more]])
    y, sums, norms = torch.zeros(len(x), dtype=torch.int64), [], []
    output_gradients = torch.tensor([[1.0, -0.7, -0.3]]) * torch.tensor([[1.0], [-1.001]])
    for last in (1, 2, 3, 6, more):
        m = 2 * n + last
        wanted = torch.cat([output_gradients.repeat(n, 1), torch.zeros(last, 3)])
        plain = torch.softmax(strategy.forward(x[:m]).detach(), 1) - torch.eye(3)[y[:m]]
        sizes = 2 if last == 2 else torch.tensor([2] * n + [last])
        batch = Batch(x[:m], y[:m], logit_gradient=wanted - plain, examples=Examples(sizes, m))
        gradients = strategy.per_sample_gradients(batch)
        weight = 1.0 / gradients.norm
        weight[n] = 0.0
        gradients.weighted_sum(weight, total := strategy.flat())
        norms.append(gradients.norm[:n])
        sums.append(total)
    assert torch.stack([(a - sums[0]).norm() for a in sums]).max() <= 0.02
    assert torch.stack([(a / norms[0] - 1).abs().max() for a in norms]).max() <= 1e-3


CANCELLING = {
    "linear": lambda: nn.Linear(6, 3, bias=False),
    "convolution": lambda: chain(
        nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 3, 6, bias=False), nn.Flatten()
    ),
    "product": lambda: linears(lambda m, x: x @ m.out.weight.t()),
}


@pytest.mark.parametrize("make", CANCELLING.values(), ids=CANCELLING)
def test_norm_of_a_person_whose_long_gradients_cancel_bounds_the_sum(make):
    x = seeded(torch.randn, 1, 6) * torch.tensor([[1e6], [-1e6], [1e6], [-1e6 + 1], [1.0]])
    module = make()
    with torch.no_grad():
        for p in module.parameters():
            p.fill_(0.0 if p.dim() > 1 else 1.0)
    batch = Batch(x, torch.zeros(5, dtype=torch.int64), examples=Examples(torch.tensor([4, 1])))
    with select_strategy(module, x, 3) as strategy:
        gradients, total = strategy.per_sample_gradients(batch), strategy.flat()
        gradients.weighted_sum(torch.tensor([1.0, 0.0]) / gradients.norm, total)
    assert total.norm() <= 1 + 1e-5


@pytest.mark.parametrize("most", [0, 2**26], ids=["two passes", "one pass"])
def test_dropout_masks_of_norm_and_weighted_sum_are_the_same(most, monkeypatch):
    monkeypatch.setattr(bookkeeping, "_MAX_MADE", most)
    module = chain((6, 50), nn.Dropout(0.5), (50, 3), nn.PReLU())
    x, y = torch.ones(40, 6), torch.zeros(40, dtype=torch.int64)
    with select_strategy(module, x, 3) as strategy:
        gradients = strategy.per_sample_gradients(Batch(x, y))
        torch.rand(64)  # somebody else draws: it changes nothing
        for i in range(20):  # other masks give half of them a shorter sum
            gradients.weighted_sum(torch.eye(40)[i], alone := strategy.flat())
            torch.testing.assert_close(alone.norm(), gradients.norm[i])
