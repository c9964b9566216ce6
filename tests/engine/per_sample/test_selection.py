"""Common modules get the cheapest exact strategy; others are refused with a remedy."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from skdpfair._networks import small_cnn
from skdpfair.engine import select_strategy
from skdpfair.testing import check_engine
from tests.engine.per_sample.modules import Net, chain, seeded


def words(x):
    return (10 * x).long().abs() % 7


class Step(torch.autograd.Function):
    """A step forward, straight through backward."""

    @staticmethod
    def forward(x):
        return (x > 0).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return grad


class Reverse(torch.autograd.Function):
    """The same forward, the opposite backward."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.scale * grad, None


class Block(nn.Module):
    """A pre-norm transformer block, its attention written by hand."""

    def __init__(self, width=8):
        super().__init__()
        self.norm, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        parts = self.qkv(self.norm(x)).unflatten(2, (3, 2, -1))  # of two heads
        q, k, v = parts.permute(0, 2, 3, 1, 4).unbind(1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.last(x))))


def activations():
    kinds = nn.SiLU(), nn.LeakyReLU(), nn.ELU(inplace=True), nn.GELU(), nn.Softplus(), nn.Mish()
    layers = [part for kind in (*kinds, nn.Hardswish()) for part in (nn.Linear(6, 6), kind)]
    return nn.Sequential(*layers, nn.Linear(6, 3))


def masked_words(m, x):
    codes = words(x)
    kept = codes > 0
    total = (m.e(codes) * kept[..., None]).sum(1)
    return m.c(total / kept.sum(1, keepdim=True).clamp(min=1))


def fourier():
    net = Net(lambda m, x: m.c(torch.cat([(x @ m.waves).sin(), (x @ m.waves).cos()], -1)), c=(8, 3))
    net.register_buffer("waves", torch.linspace(-1, 1, 24).view(6, 4))
    return net


def frozen():
    layers = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.LayerNorm(8))
    return nn.Sequential(layers.requires_grad_(False), nn.Linear(8, 3))


def skip(m, x):
    return (F.interpolate(m.b(F.max_pool2d(x, 2)), scale_factor=2) + m.a(x)).flatten(1)


def ending(features, **layers):
    """Return how to make a module whose last layer is ``c``, of ``features(module, x)``."""
    return lambda: Net(lambda m, x: m.c(features(m, x)), **layers)


def pictures():
    return small_cnn((8, 8, 3), 3, channels=(4, 2))


ROWS = {
    "activations": activations,
    "glu": lambda: chain((6, 16), nn.GLU(), (8, 3)),
    "features of a buffer": fourier,
    "bag of words": ending(lambda m, x: m.e(words(x)).mean(1), e=(nn.Embedding, 7, 4), c=(4, 3)),
    "masked words": lambda: Net(masked_words, e=(nn.Embedding, 7, 4, 0), c=(4, 3)),
    "frozen backbone": frozen,
    "straight-through": ending(lambda m, x: Step.apply(m.a(x)), a=(6, 4), c=(4, 3)),
    "reversed gradient": ending(lambda m, x: Reverse.apply(m.a(x), 0.5), a=(6, 4), c=(4, 3)),
    "parametrised": lambda: chain(
        nn.utils.parametrizations.weight_norm(nn.Linear(6, 4)), nn.Tanh(), (4, 3)
    ),
}
ENCODER = partial(nn.TransformerEncoderLayer, batch_first=True)
SEQUENCES = {
    "signals": lambda: chain(
        *((nn.Conv1d, 5, 4, 3), nn.ReLU(), nn.MaxPool1d(2), (nn.Conv1d, 4, 2, 2)),
        *(nn.Flatten(), (4, 3)),
    ),
    "mixer": ending(
        lambda m, x: (x + m.a(x.transpose(1, 2)).permute(0, 2, 1) + m.b(x)).amax(dim=1),
        **{"a": (5, 5), "b": (8, 8), "c": (8, 3)},
    ),
    "transformer blocks": ending(
        lambda m, x: m.b(m.a(x)).mean(1), a=(Block,), b=(Block,), c=(8, 3)
    ),
    "einsum": ending(
        lambda m, x: torch.einsum("bti,btj->bij", m.a(x), x).flatten(1), a=(8, 2), c=(16, 3)
    ),
    "learned positions": ending(
        lambda m, x: (x + m.p(torch.arange(5))).mean(1), p=(nn.Embedding, 5, 8), c=(8, 3)
    ),
    "torch's encoder": ending(lambda m, x: m.a(x).mean(1), a=(ENCODER, 8, 2, 16), c=(8, 3)),
    "recurrent": ending(
        lambda m, x: m.a(x)[0][:, -1], a=(partial(nn.GRU, batch_first=True), 8, 4), c=(4, 3)
    ),
}
IMAGES = {
    "pooled cnn": lambda: chain(
        *((partial(nn.Conv2d, padding=1), 2, 4, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        *(nn.AvgPool2d(2, 1), (nn.Conv2d, 4, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
        *(nn.Flatten(), (6, 3)),
    ),
    "skip with interpolation": ending(
        skip, a=(nn.Conv2d, 2, 2, 1), b=(nn.Conv2d, 2, 2, 1), c=(128, 3)
    ),
    "reflection and shuffle": lambda: chain(
        *(nn.ReflectionPad2d(1), (nn.Conv2d, 2, 4, 3), nn.PixelShuffle(2), nn.Flatten(), (256, 3))
    ),
    "volumes": lambda: chain(
        *(nn.Unflatten(1, (1, 2)), (nn.Conv3d, 1, 2, 2), nn.ReLU(), nn.AdaptiveMaxPool3d(2)),
        *(nn.Flatten(), (16, 3)),
    ),
}
MODULES = {
    name: (make, shape, strategy)
    for modules, shape, strategy in (
        (ROWS, (6,), "bookkeeping"),
        (SEQUENCES, (5, 8), "bookkeeping"),
        (IMAGES, (2, 8, 8), "bookkeeping"),
        ({"small cnn": lambda: small_cnn((8, 8), 3, channels=(4, 2))}, (8, 8), "bookkeeping"),
        (
            {"channels last": lambda: small_cnn((8, 8, 3), 3, channels=(4, 2))},
            (8, 8, 3),
            "bookkeeping",
        ),
    )
    for name, make in modules.items()
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODULES)
def test_select_strategy_of_common_modules(name):
    make, shape, expected = MODULES[name]
    module = seeded(make).eval()  # without dropout
    assert check_engine(module, torch.zeros(1, *shape), 3) == expected


def deep(activation, hidden=40, width=64):
    layers = [nn.Linear(6, width), activation()]
    for _ in range(hidden):
        layers += [nn.Linear(width, width), activation()]
    return nn.Sequential(*layers, nn.Linear(width, 3))


def wide_cnn():
    layers = nn.Conv2d(3, 64, 3), nn.ReLU(), nn.GroupNorm(8, 64), nn.Conv2d(64, 128, 3, stride=2)
    layers += nn.ReLU(), nn.GroupNorm(8, 128), nn.Conv2d(128, 128, 3, stride=2), nn.ReLU()
    layers += nn.Flatten(), nn.Linear(128 * 9, 512), nn.ReLU(), nn.LayerNorm(512)
    return nn.Sequential(*layers, nn.Linear(512, 3))


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
def test_select_strategy_of_large_modules(make, shape, name):
    assert select_strategy(make(), torch.zeros(1, *shape), 3).name == name


def test_select_strategy_logs_its_reason(caplog):
    with caplog.at_level("INFO", logger="skdpfair"):
        strategy = select_strategy(nn.Linear(6, 3), torch.zeros(4, 6), 3)
    assert strategy.name in caplog.text and strategy.reason in caplog.text
