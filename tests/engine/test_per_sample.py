"""Norms and weighted sums equal a naive loop, whatever the module; what cannot is refused."""

import copy
import warnings
from itertools import pairwise
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from skdpfair.engine import Batch, select_strategy
from skdpfair.engine.batch import Examples
from skdpfair.engine.flat import split
from skdpfair.engine.per_sample.layers import convolution
from skdpfair.exceptions import UnsupportedModuleError


class Layers(nn.Module):
    """Two linear layers, put together as each case needs."""

    def __init__(self, forward):
        super().__init__()
        self.a, self.b, self.out = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.scale = nn.Parameter(torch.ones(6))
        self.run = forward

    def forward(self, x):
        return self.run(self, x)


def tied():
    module = Layers(lambda m, x: m.out(torch.tanh(m.b(torch.tanh(m.a(x)))) * m.scale))
    module.b.weight = module.a.weight
    return module


def without(names, *layers):
    """Return a chain of layers, whose parameters of these names are not trained."""
    module = nn.Sequential(*layers)
    for name in names:
        module.get_parameter(name).requires_grad_(False)
    return module


def frozen(*names):
    return without(names, nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def between(*names):
    return without(names, nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 4), nn.ELU(), nn.Linear(4, 3))


def nested():
    inner = nn.Sequential(nn.Linear(6, 5), nn.Sigmoid(), nn.Identity())
    outer = nn.Linear(5, 4), nn.ReLU(inplace=True), nn.Linear(4, 3)
    return nn.Sequential(nn.Flatten(), inner, *outer)


def remembering():
    norm = nn.InstanceNorm1d(2, track_running_stats=True)
    return nn.Sequential(nn.Unflatten(1, (2, 3)), norm, nn.Flatten(), nn.Linear(6, 3))


def hooked():
    module = frozen()
    module[0].register_forward_pre_hook(lambda layer, inputs: (inputs[0] * 2.0,))
    return module


def twice():
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Linear(6, 3))


class Words(nn.Module):
    """Embeddings of a few words that repeat, one of them padding."""

    def __init__(self, **options):
        super().__init__()
        self.table = nn.Embedding(4, 5, padding_idx=1, **options)
        self.norm = nn.LayerNorm((7, 5))
        self.mix, self.out = nn.Linear(5, 4), nn.Linear(28, 3)

    def forward(self, x):
        words = self.table((x * 10).long().abs() % 4)
        return self.out(torch.tanh(self.mix(self.norm(words))).flatten(1))


def convolutions():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, padding=1),
        nn.Tanh(),
        nn.Conv2d(4, 3, (2, 3), dilation=2, bias=False),
        nn.Flatten(),
        nn.Linear(3 * 4 * 2, 3),
    )


def padded():
    return nn.Sequential(
        nn.Conv1d(2, 3, 3, padding="same"),
        nn.Tanh(),
        nn.Conv1d(3, 4, 3, padding=2, padding_mode="circular", bias=False),
        nn.Conv1d(4, 4, 2, padding=1, padding_mode="replicate", stride=2),
        nn.Flatten(),
        nn.Linear(24, 3),
    )


def normalised(*names):
    layers = [nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(inplace=True)]
    layers += [nn.Conv2d(4, 4, 2, bias=False), nn.InstanceNorm2d(4, affine=True)]
    return without(names, *layers, nn.Flatten(), nn.Linear(36, 3))


class TimeDistributed(Layers):
    """A layer that is called on all positions of all records as if they were records."""

    def __init__(self):
        super().__init__(None)

    def forward(self, x):
        rows = torch.tanh(self.a(x.reshape(-1, 6)))
        return self.out(self.b(rows).view(len(x), -1, 6).mean(1) * self.scale)


ROWS = {
    "linear": lambda: nn.Linear(6, 3),
    "no bias": lambda: nn.Linear(6, 3, bias=False),
    "mlp": lambda: frozen(),
    "frozen weight": lambda: frozen("0.weight"),
    "frozen bias": lambda: frozen("0.bias", "2.bias"),
    "frozen first layer": lambda: frozen("0.weight", "0.bias"),
    "frozen, then bias only": lambda: frozen("0.weight", "0.bias", "2.weight"),
}
ROWS_BY_BOOKKEEPING = {
    "layer norm": lambda: nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 3)),
    "layers in between": lambda: between(),
    "one of them frozen": lambda: between("2.weight"),
    "hooked chain": lambda: hooked(),
    "activation twice": lambda: nn.Sequential(
        nn.Linear(6, 5), nn.ReLU(), nn.Tanh(), nn.Linear(5, 3)
    ),
}
ROWS_BY_VMAP = {
    "called twice": lambda: Layers(lambda m, x: m.out(torch.tanh(m.a(torch.tanh(m.a(x)))))),
    "tied weights": lambda: tied(),
    "bare parameter": lambda: Layers(lambda m, x: m.out(m.b(m.a(x)) * m.scale)),
    "weight outside its layer": lambda: Layers(
        lambda m, x: m.out(m.b(m.a(x) * m.scale)) + m.a.weight.sum() * x[:, :3]
    ),
    "a layer twice in a chain": lambda: twice(),
}
OTHERS = {
    "nested chain with other activations": (lambda: nested(), (2, 3), "closed_form"),
    "short sequence": (
        lambda: Layers(lambda m, x: m.out(torch.tanh(m.b(m.a(x)) * m.scale).mean(1))),
        (2, 6),
        "vmap",
    ),
    "rows that are not records": (lambda: TimeDistributed(), (5, 6), "vmap"),
    "long sequence": (
        lambda: nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Flatten(), nn.Linear(80, 3)),
        (20, 6),
        "bookkeeping",
    ),
    "gram sequence": (
        lambda: nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Flatten(), nn.Linear(120, 3)),
        (3, 6),
        "bookkeeping",
    ),
    "convolutions": (lambda: convolutions(), (2, 12, 12), "bookkeeping"),
    "grouped convolution": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.Flatten(), nn.Linear(16, 3)),
        (2, 4, 4),
        "bookkeeping",
    ),
    "padding of every kind": (lambda: padded(), (2, 9), "bookkeeping"),
    "convolution in space": (
        lambda: nn.Sequential(nn.Conv3d(1, 2, 2), nn.Tanh(), nn.Flatten(), nn.Linear(16, 3)),
        (1, 3, 3, 3),
        "bookkeeping",
    ),
    "normalised convolutions": (lambda: normalised(), (2, 6, 6), "bookkeeping"),
    "frozen scale": (lambda: normalised("1.weight", "4.bias"), (2, 6, 6), "bookkeeping"),
    "words": (lambda: Words(), (7,), "bookkeeping"),
}
MODULES = OTHERS | {
    name: (make, (6,), strategy)
    for modules, strategy in (
        (ROWS, "closed_form"),
        (ROWS_BY_BOOKKEEPING, "bookkeeping"),
        (ROWS_BY_VMAP, "vmap"),
    )
    for name, make in modules.items()
}


def gradient(module, x, y):
    """The gradients of one record."""
    trained = [p for p in module.parameters() if p.requires_grad]
    loss = cross_entropy(module(x[None]), y[None], reduction="sum")
    grads = torch.autograd.grad(loss, trained, allow_unused=True)
    return [p * 0 if g is None else g for p, g in zip(trained, grads, strict=True)]


def loop(module, x, y, scale=None):
    """Per-record gradients, one backward each; where ``scale`` times each one leads, if given."""
    rows = []
    trained = [p for p in module.parameters() if p.requires_grad]
    for i in range(len(x)):
        before = [p.detach().clone() for p in trained]
        grads = gradient(module, x[i], y[i])
        if scale is not None:
            with torch.no_grad():
                for p, g in zip(trained, grads, strict=True):
                    p.add_(scale[i] * g)
            grads = gradient(module, x[i], y[i])
            with torch.no_grad():
                for p, b in zip(trained, before, strict=True):
                    p.copy_(b)
        rows.append(torch.cat([g.reshape(-1) for g in grads]))
    return torch.stack(rows).detach()


def close(records, total, rows, weight, tolerance, rounded_up=1.0):
    """Compare norms and a weighted sum with the gradients (records, parameters) of a loop."""
    largest = float((weight @ rows).abs().max())
    norm = rows.norm(dim=1)
    torch.testing.assert_close(records.norm, norm, rtol=rounded_up * tolerance, atol=tolerance)
    torch.testing.assert_close(total, weight @ rows, rtol=tolerance, atol=tolerance * largest)


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
def test_norms_and_sums_equal_a_loop(problem):
    p, tolerance = problem, TOLERANCES[problem.dtype]
    rows = loop(p.module, p.x, p.y)
    records = p.strategy.per_sample_gradients(Batch(p.x, p.y, weight=p.own))
    records.weighted_sum(p.weight, total := p.strategy.flat())
    close(records, total, rows, p.weight, tolerance)
    odds = p.module(p.x).softmax(1)
    torch.testing.assert_close(records.probability, odds, rtol=tolerance, atol=1e-6)


@problems(torch.float64)
def test_gradients_ahead_equal_a_loop(problem):
    p, scale = problem, torch.linspace(1.0, 0.1, 5, dtype=torch.float64)
    x, y, weight = (values[:5] for values in (p.x, p.y, p.weight))
    rows = loop(p.module, x, y, scale)
    records = p.strategy.per_sample_gradients(Batch(x, y)).at_ascent(scale)
    records.weighted_sum(weight, total := p.strategy.flat())
    close(records, total, rows, weight, 1e-9)


@pytest.mark.parametrize("sizes", [[1, 3, 2], [2, 2]], ids=["unequal", "equal"])
@problems(torch.float64)
def test_persons_equal_a_loop(problem, sizes):
    """Norms and sums of the weighted mean gradients of each person, here and ahead."""
    p, dtype, tolerance = problem, problem.dtype, TOLERANCES[problem.dtype]
    n, of_each = sum(sizes), torch.tensor(sizes)
    x, y, own = p.x[:n], p.y[:n], p.own[:n]
    scale, weight = p.weight[: 2 * len(sizes)].view(2, -1)
    persons = torch.eye(len(sizes), dtype=dtype).repeat_interleave(of_each, 0).t()
    persons = persons * own / (persons @ own)[:, None]
    here = persons @ loop(p.module, x, y)
    ahead = []
    for u, (step, part) in enumerate(zip(scale, persons, strict=True)):
        moved, of = copy.deepcopy(p.module), part > 0
        trained = [parameter for parameter in moved.parameters() if parameter.requires_grad]
        with torch.no_grad():
            for parameter, g in zip(trained, split(here[u], trained), strict=True):
                parameter.add_(step * g)
        ahead.append(part[of] @ loop(moved, x[of], y[of]))
    examples = Examples(sizes[0] if len(set(sizes)) == 1 else of_each, n)
    records = p.strategy.per_sample_gradients(Batch(x, y, weight=own, examples=examples))
    for found, rows in ((records, here), (records.at_ascent(scale), torch.stack(ahead))):
        found.weighted_sum(weight, total := p.strategy.flat())
        # 100 positions of one person: norms are rounded up by what their sum may err
        close(found, total, rows, weight, tolerance, 2.0 if p.case == "long sequence" else 1.0)
        assert (found.norm >= rows.norm(dim=1) * (1 - 4 * torch.finfo(dtype).eps)).all()


@problems(torch.float32)
def test_how_many_records_one_person_has_changes_nobody_else(problem):
    """Even where the gradients of a person nearly cancel, so that rounding decides the norm."""
    n, more, shape, strategy = 64, 30, problem.shape, problem.strategy
    x = torch.cat([problem.x[:1].expand(2 * n, *shape), problem.x[1 : 1 + more]])
    y, sums, norms = torch.zeros(len(x), dtype=torch.int64), [], []
    slope = torch.tensor([[1.0, -0.7, -0.3]]) * torch.tensor([[1.0], [-1.001]])
    for last in (1, 2, 3, 6, more):
        m = 2 * n + last
        wanted = torch.cat([slope.repeat(n, 1), torch.zeros(last, 3)])
        plain = torch.softmax(strategy.forward(x[:m]).detach(), 1) - torch.eye(3)[y[:m]]
        sizes = 2 if last == 2 else torch.tensor([2] * n + [last])
        batch = Batch(x[:m], y[:m], logit_gradient=wanted - plain, examples=Examples(sizes, m))
        records = strategy.per_sample_gradients(batch)
        weight = 1.0 / records.norm
        weight[n] = 0.0
        records.weighted_sum(weight, total := strategy.flat())
        norms.append(records.norm[:n])
        sums.append(total)
    assert torch.stack([(a - sums[0]).norm() for a in sums]).max() <= 0.02
    assert torch.stack([(a / norms[0] - 1).abs().max() for a in norms]).max() <= 1e-3


@pytest.mark.parametrize("case", ["linear", "convolution", "vmap"])
def test_long_gradients_of_one_person_that_cancel_stay_within_the_bound(case):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        x = torch.randn(1, 6) * torch.tensor([[1e6], [-1e6], [1e6], [-1e6 + 1], [1.0]])
        module = {
            "linear": lambda: nn.Linear(6, 3, bias=False),
            "convolution": lambda: nn.Sequential(
                nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 3, 6, bias=False), nn.Flatten()
            ),
            "vmap": lambda: Layers(lambda m, x: x @ m.out.weight.t()),
        }[case]()
        with torch.no_grad():
            for p in module.parameters():
                p.fill_(0.0 if p.dim() > 1 else 1.0)
    batch = Batch(x, torch.zeros(5, dtype=torch.int64), examples=Examples(torch.tensor([4, 1])))
    with select_strategy(module, x, 3) as strategy:
        records, total = strategy.per_sample_gradients(batch), strategy.flat()
        records.weighted_sum(torch.tensor([1.0, 0.0]) / records.norm, total)
    assert total.norm() <= 1 + 1e-5


def check_random(module, x, y, w, atol, strategy_name=None):
    rows = loop(module, x, y)
    with select_strategy(module, x, 3) as strategy:
        assert strategy_name in (None, strategy.name)
        records, total = strategy.per_sample_gradients(Batch(x, y)), strategy.flat()
        records.weighted_sum(w, total)
    torch.testing.assert_close(records.norm, rows.norm(dim=1), rtol=1e-10, atol=atol)
    torch.testing.assert_close(total, w @ rows, rtol=1e-10, atol=atol)


@settings(max_examples=25, deadline=None)
@given(
    widths=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    n=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_random_architectures(widths, n, seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        sizes, layers = [5, *widths], []
        for a, b in pairwise(sizes):
            layers += [nn.Linear(a, b, bias=bool(seed % 2)), nn.Tanh()]
        module = nn.Sequential(*layers, nn.Linear(sizes[-1], 3)).double()
        x, y, w = torch.randn(n, 5).double(), torch.randint(0, 3, (n,)), torch.rand(n).double()
    check_random(module, x, y, w, 1e-12)


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


@pytest.mark.parametrize("correlate", [convolution._by_groups, convolution._by_windows])
@settings(max_examples=6, deadline=None)
@given(net=convolutional_nets(), n=st.integers(1, 9))
def test_random_convolutions(correlate, net, n):
    """On a CPU and on a GPU."""
    module, shape, seed = net
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for p in module.parameters():
            nn.init.normal_(p)
        x, y, w = torch.randn(n, *shape).double(), torch.randint(0, 3, (n,)), torch.rand(n).double()
    with mock.patch.object(convolution, "_by_groups", correlate):
        check_random(module, x, y, w, 1e-10, "bookkeeping")


def test_the_choice_is_logged(caplog):
    with caplog.at_level("INFO", logger="skdpfair"):
        strategy = select_strategy(nn.Linear(6, 3), torch.zeros(4, 6), 3)
    assert strategy.name in caplog.text and strategy.reason in caplog.text


@pytest.mark.parametrize("last", [nn.Identity, nn.PReLU], ids=["bookkeeping", "vmap"])
def test_dropout_masks_are_the_same_for_norms_and_sums(last):
    module = nn.Sequential(nn.Linear(6, 50), nn.Dropout(0.5), nn.Linear(50, 3), last())
    x, y = torch.ones(40, 6), torch.zeros(40, dtype=torch.int64)
    with select_strategy(module, x, 3) as strategy:
        assert strategy.name == ("vmap" if last is nn.PReLU else "bookkeeping")
        records = strategy.per_sample_gradients(Batch(x, y))
        torch.rand(64)  # somebody else draws: it changes nothing
        for i in range(20):  # other masks give half of them a shorter sum
            alone = strategy.flat()
            records.weighted_sum(torch.eye(40)[i], alone)
            torch.testing.assert_close(alone.norm(), records.norm[i])


@pytest.mark.parametrize(
    "make, match",
    [
        (lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)), "GroupNorm"),
        (lambda: remembering(), "InstanceNorm1d.*GroupNorm"),
        (lambda: nn.Sequential(Words(max_norm=1.0)), "max_norm"),
        (lambda: weight_normed(), "parametrizations"),
        (lambda: Layers(lambda m, x: m.out(x.flip(0))), "mixes.*among 4"),
        (lambda: Layers(lambda m, x: m.out(torch.cat([x, -x]))[:4]), "mixes.*among 2"),
        (lambda: own_forward(), "a parameter that is not its own"),
        (lambda: nn.Linear(6, 2), r"\(batch, 3\)"),
        (lambda: Layers(lambda m, x: m.out(x).sum()), r"\(batch, 3\)"),
        (lambda: frozen("0.weight", "0.bias", "2.weight", "2.bias"), "no trainable"),
    ],
)
def test_what_cannot_be_private_is_refused(make, match):
    with pytest.raises(UnsupportedModuleError, match=match):
        select_strategy(make(), torch.zeros(4, 6), 3)


def test_an_input_changed_after_use_is_noticed():
    def forward(m, x):
        x = x.clone()
        out = m.a(x)
        with torch.no_grad():
            x.mul_(0.5)
        return m.out(m.b(out * m.scale) * 1.0)

    module = Layers(forward)
    module.scale.requires_grad_(False)
    with pytest.raises(UnsupportedModuleError, match="modified by an inplace operation"):
        select_strategy(module, torch.zeros(4, 6), 3)


def weight_normed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.Sequential(nn.utils.weight_norm(nn.Linear(6, 4)), nn.GELU(), nn.Linear(4, 3))


def own_forward():
    module = nn.Sequential(nn.Linear(6, 3))
    module[0].forward = lambda x: 2.0 * nn.functional.linear(x, module[0].weight)
    return module


def unscaled(forward):
    module = Layers(forward)
    module.scale.requires_grad_(False)
    return module


def test_a_layer_that_takes_the_batch_as_a_sequence_is_named():
    module = Layers(lambda m, x: m.out(m.gru(x)[0].mean(1)))
    module.gru = nn.GRU(6, 6)
    with pytest.raises(UnsupportedModuleError, match="Set batch_first=True of 'gru'"):
        select_strategy(module, torch.zeros(4, 5, 6), 3)


@pytest.mark.parametrize("size", [1e2, 1e4, 1e6])
def test_norms_stay_above_the_gradients_where_a_sequence_cancels(size):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = unscaled(lambda m, x: m.out(m.a(x).mean(1)))
        module.b.requires_grad_(False)
        direction, rest = torch.randn(2, 20, 1, 6)
    x = torch.cat([size * direction + 0.1 * rest, -size * direction], dim=1)
    y = torch.zeros(20, dtype=torch.int64)
    with select_strategy(module, x, 3) as strategy:
        assert strategy.name == "bookkeeping"
        records = strategy.per_sample_gradients(Batch(x, y))
        for i in range(20):
            records.weighted_sum(torch.eye(20)[i] / records.norm[i], total := strategy.flat())
            assert total.norm() <= 1 + 1e-5


def deep(activation, hidden=40, width=64):
    layers = [nn.Linear(6, width), activation()]
    for _ in range(hidden):
        layers += [nn.Linear(width, width), activation()]
    return nn.Sequential(*layers, nn.Linear(width, 3))


def wide_cnn():
    return nn.Sequential(
        nn.Conv2d(3, 64, 3), nn.ReLU(), nn.GroupNorm(8, 64), nn.Conv2d(64, 128, 3, stride=2),
        nn.ReLU(), nn.GroupNorm(8, 128), nn.Conv2d(128, 128, 3, stride=2), nn.ReLU(), nn.Flatten(),
        nn.Linear(128 * 9, 512), nn.ReLU(), nn.LayerNorm(512), nn.Linear(512, 3),
    )  # fmt: skip


@pytest.mark.parametrize(
    "make, shape, name",
    [
        (lambda: deep(nn.ReLU), (6,), "closed_form"),
        (lambda: deep(nn.GELU), (6,), "bookkeeping"),
        (lambda: deep(nn.Tanh, hidden=3, width=2048), (6,), "closed_form"),
        (wide_cnn, (3, 18, 18), "bookkeeping"),
    ],
    ids=["deep chain", "deep", "wide chain", "wide convolutions"],
)
def test_large_modules_keep_the_fast_path(make, shape, name):
    assert select_strategy(make(), torch.zeros(1, *shape), 3).name == name


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused(dtype):
    with pytest.raises(UnsupportedModuleError, match="float32"):
        select_strategy(nn.Linear(6, 3).to(dtype), torch.zeros(4, 6, dtype=dtype), 3)


def test_the_module_itself_is_never_called_on_a_batch():
    def called(*args):
        pytest.fail("a batch passes through the module's own code")

    module = nn.Sequential(nn.Linear(6, 3), nn.GELU())
    with select_strategy(module, torch.zeros(4, 6), 3) as strategy:
        assert strategy.name == "bookkeeping"
        module.forward = module[0].forward = called
        strategy.per_sample_gradients(Batch(torch.ones(2, 6), torch.zeros(2, dtype=torch.int64)))
        strategy.forward(torch.ones(2, 6))


class Positions(nn.Module):
    """The positions of a record are added up, each times a factor that the record gives."""

    def __init__(self, layer, width):
        super().__init__()
        self.layer, self.out = layer, nn.Linear(width, 3)
        self.out.requires_grad_(False)

    def forward(self, x):
        factor, x = x[..., :1], x[..., 1:]
        x = x[..., 0].long() if isinstance(self.layer, nn.Embedding) else x
        return self.out((self.layer(x) * factor).sum(1))


def opposite(n, length, size):
    """Return factors (n, length, 1) of a size that add up to about 0.1, in pairs."""
    one = size * (1 + torch.rand(n, length // 2, 1))
    rest = 0.1 * torch.randn(n, length // 2, 1)
    return torch.cat([one, rest - one], dim=1)[:, torch.randperm(length)]


def longest_part(module, x, y, bound=1e-2):
    """Return by which factor the longest clipped record exceeds the bound, in float64."""
    with select_strategy(module, x, 3) as strategy:
        assert strategy.name == "bookkeeping"
        records, found = strategy.per_sample_gradients(Batch(x, y)), []
        weight = (bound / records.norm).clamp(max=1.0)
        assert bool((weight > 0).all()) and bool((weight < 1).any())
        for i in range(len(x)):
            records.weighted_sum(weight * (torch.arange(len(x)) == i), total := strategy.flat())
            found.append(float(total.double().norm()))
    return max(found) / bound


@pytest.mark.parametrize("size", [1.0, 1e2, 1e4, 1e6])
@pytest.mark.parametrize("length", [2, 8, 40])
def test_norms_of_embeddings_stay_above_slopes_that_cancel(length, size):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = Positions(nn.Embedding(5, 16), 16)
        words = torch.randint(0, 5, (40, 1, 1)).repeat(1, length, 1).float()  # one, all along
        words[::2, : length // 2] = torch.randint(0, 5, (20, length // 2, 1)).float()
        x = torch.cat([opposite(40, length, size), words], dim=2)
        y = torch.randint(0, 3, (40,))
    assert longest_part(module, x, y) <= 1 + 1e-5


# a Linear along a sequence takes Gram matrices where 2 length^2 <= width^2
@pytest.mark.parametrize("size", [0.5, 1e6])
@pytest.mark.parametrize("length, width", [(42, 60), (100, 144), (42, 58), (64, 6)])
def test_norms_of_long_sequences_stay_above_slopes_that_cancel(length, width, size):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = Positions(nn.Linear(width, width), width)
        rows = torch.randn(12, 1, width) + 0.01 * torch.randn(12, length, width)
        x = torch.cat([opposite(12, length, size), rows], dim=2)
        y = torch.randint(0, 3, (12,))
    assert longest_part(module, x, y) <= 1 + 1e-5


@pytest.mark.parametrize("length", [39, 40, 41, 64, 100])
@pytest.mark.parametrize("layer", ["words", "short rows", "long rows"])
def test_norms_of_long_records_equal_a_loop(layer, length):
    width = {"words": 16, "short rows": 6, "long rows": 144}[layer]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        inner = nn.Embedding(9, 16) if layer == "words" else nn.Linear(width, width)
        module = Positions(inner, width)
        rows, words = torch.randn(7, length, width), torch.randint(0, 9, (7, length, 1)).float()
        factor = torch.randn(7, length, 1) / length**0.5
        x = torch.cat([factor, words if layer == "words" else rows], dim=2)
        y = torch.randint(0, 3, (7,))
    with select_strategy(module, x, 3) as strategy:
        assert strategy.name == "bookkeeping"
        found = strategy.per_sample_gradients(Batch(x, y)).norm.double()
    exact = loop(module.double(), x.double(), y).norm(dim=1)
    assert bool((found >= exact * (1 - 1e-5)).all() and (found <= exact * 1.01).all())


@pytest.mark.parametrize("factor", [0.0, 1e-30, 1e-12])
def test_a_small_weight_in_a_person_does_not_hide_a_large_input(factor):
    """Squares of the slopes would underflow, and the norm that clipping needs with them."""
    x, y = torch.tensor([[1e16], [0.0]]), torch.zeros(2, dtype=torch.int64)
    for layers in (nn.Linear(1, 2), nn.Sequential(nn.Linear(1, 1), nn.Tanh(), nn.Linear(1, 2))):
        with select_strategy(layers, x, 2) as strategy:
            batch = Batch(x, y, weight=torch.tensor([factor, 1.0]), examples=Examples(2, 2))
            records = strategy.per_sample_gradients(batch)
            records.weighted_sum(torch.ones(1), total := strategy.flat())
        assert total.norm() <= records.norm[0] * (1 + 1e-5)
        assert factor > 0 or total.norm() < 10
