"""Random modules: with one operation that brings records together, and without."""

import random
import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from skdpfair.engine import Batch, select_strategy
from skdpfair.exceptions import UnsupportedModuleError
from skdpfair.testing import check_engine

ROW, SEQUENCE, IMAGE = (6,), (5, 8), (2, 8, 8)


class Apply(nn.Module):
    """A function of the tensor, as a layer."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Around(nn.Module):
    """Layers whose result is put together with their input."""

    def __init__(self, join, *layers):
        super().__init__()
        self.join, self.layers = join, nn.Sequential(*layers)

    def forward(self, x):
        return self.join(x, self.layers(x))


class Scaled(nn.Module):
    """A factor that is learned."""

    def __init__(self, size):
        super().__init__()
        self.factor = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x * self.factor


class Attention(nn.Module):
    """torch's attention, of a record to itself."""

    def __init__(self, width):
        super().__init__()
        self.inner = nn.MultiheadAttention(width, 2, batch_first=True)

    def forward(self, x):
        return self.inner(x, x, x, need_weights=False)[0]


def activations(rng):
    known = (nn.ReLU, nn.Tanh, nn.GELU, nn.SiLU, nn.ELU, nn.Softplus, nn.LeakyReLU, nn.Sigmoid)
    return rng.choice(known)()


def flat(rng, width):
    """Return a layer on (n, width), and the width after it."""
    out = rng.randint(3, 9)
    kinds = [
        lambda: (nn.Linear(width, out), out),
        lambda: (activations(rng), width),
        lambda: (nn.Dropout(rng.random() / 2), width),
        lambda: (nn.LayerNorm(width), width),
        lambda: (Around(torch.add, nn.Linear(width, width), activations(rng)), width),
        lambda: (Around(lambda x, h: x * torch.sigmoid(h), nn.Linear(width, width)), width),
        lambda: (Around(lambda x, h: torch.cat([x, h], 1), nn.Linear(width, out)), width + out),
        lambda: (Apply(lambda x: x[:, :3]), 3),
        lambda: (Apply(lambda x: F.normalize(x, dim=1)), width),
        lambda: (Apply(lambda x: x - x.mean(1, keepdim=True)), width),
        lambda: (Apply(lambda x: torch.where(x > 0, x, 0.1 * x)), width),
        lambda: (Apply(lambda x: x.view(x.size(0), 1, -1).squeeze(1)), width),
        lambda: (Scaled(width), width),
    ]
    return rng.choice(kinds)()


def along(rng, shape):
    """Return a layer on (n, length, width), and the shape after it."""
    (length, width), out, dim = shape, rng.choice([4, 6, 8]), rng.choice([1, 2])
    kinds = [
        lambda: (nn.Linear(width, out), (length, out)),
        lambda: (activations(rng), shape),
        lambda: (nn.LayerNorm(width), shape),
        lambda: (nn.Conv1d(length, length, 3, padding=1), shape),
        lambda: (Apply(lambda x: x.softmax(dim=dim)), shape),
        lambda: (Around(torch.add, nn.Linear(width, width), nn.Dropout(0.1)), shape),
        lambda: (Apply(lambda x: x.transpose(1, 2) @ x), (width, width)),
        lambda: (Apply(lambda x: x.roll(1, 1) + x.flip(2)), shape),
        lambda: (Apply(lambda x: x.cumsum(1)), shape),
        lambda: (Attention(width) if width % 2 == 0 else nn.Identity(), shape),
        lambda: (Scaled(width), shape),
    ]
    return rng.choice(kinds)()


def picture(rng, shape):
    """Return a layer on (n, channels, height, width), and the shape after it."""
    depth, size = shape[0], shape[1:]
    out = rng.choice([2, 4])
    kinds = [
        lambda: (nn.Conv2d(depth, out, 3, padding=1), (out, *size)),
        lambda: (activations(rng), shape),
        lambda: (nn.GroupNorm(1, depth), shape),
        lambda: (nn.InstanceNorm2d(depth, affine=True), shape),
        lambda: (nn.AdaptiveAvgPool2d(4), (depth, 4, 4)),
        lambda: (nn.AdaptiveMaxPool2d(4), (depth, 4, 4)),
        lambda: (nn.Dropout2d(0.2), shape),
        lambda: (Around(torch.add, nn.Conv2d(depth, depth, 3, padding=1), nn.ReLU()), shape),
        lambda: (
            Around(lambda x, h: torch.cat([x, h], 1), nn.Conv2d(depth, 2, 1)),
            (depth + 2, *size),
        ),
        lambda: (Apply(lambda x: x - x.amax((2, 3), keepdim=True)), shape),
    ]
    return rng.choice(kinds)()


def clean(rng):
    """Return the layers of a random network, and the shape of its records."""
    shape = inner = rng.choice([ROW, SEQUENCE, IMAGE])
    layers = []
    if shape is not ROW:
        for _ in range(rng.randint(1, 4)):
            layer, inner = (along if shape is SEQUENCE else picture)(rng, inner)
            layers.append(layer)
        layers.append(nn.Flatten())
    width = int(np.prod(inner))
    layers.append(nn.Linear(width, 6))
    width = 6
    for _ in range(rng.randint(1, 5)):
        layer, width = flat(rng, width)
        layers.append(layer)
    return [*layers, nn.Linear(width, 3)], shape


COUPLINGS = {
    "centre": lambda x: x - x.mean(0),
    "centre by all": lambda x: x - x.square().mean(),
    "scale": lambda x: x / (1 + x.std(0)),
    "largest": lambda x: x / (1 + x.abs().max()),
    "shift": lambda x: 0.5 * (x + x.roll(1, 0)),
    "turn": lambda x: 0.5 * (x + x.flip(0)),
    "sort": lambda x: x.sort(0)[0],
    "sum": lambda x: x.cumsum(0),
    "softmax": lambda x: x.softmax(0),
    "mix-up": lambda x: 0.7 * x + 0.3 * x[torch.randperm(x.shape[0])],
    "first": lambda x: x + 0.5 * x[0],
    "last": lambda x: x + 0.5 * x[-1:],
    "norm": lambda x: x / (1 + x.norm()),
    "normalize": lambda x: F.normalize(x, dim=0),
    "concatenate": lambda x: torch.cat([x[1:], x[:1]]) + x,
    "flat shift": lambda x: x + x.reshape(-1).roll(1).reshape(x.shape),
    "similar records": lambda x: similar(x),
    "einsum": lambda x: x + torch.einsum("b...->...", x),
    "distances": lambda x: far(x),
    "axes": lambda x: x + x.transpose(0, 1).flip(1).transpose(0, 1),
    "unfolded": lambda x: x + x.unsqueeze(0).mean(1),
    "stacked": lambda x: torch.stack([x, x.flip(0)]).mean(0),
    "written": lambda x: written(x),
    "ones": lambda x: x + by_record(x, x.new_ones(x.shape[0], x.shape[0]).sum(1)) * x.cos(),
    "fill": lambda x: x + x.new_full((x.shape[0], *[1] * (x.dim() - 1)), x.shape[0]) * x.cos(),
    "own operator": lambda x: centre(x),
    "layout": lambda x: x + torch.as_strided(x, (1,), (1,), 0),
    "bytes": lambda x: x + x.contiguous().view(torch.int8).flatten()[:1],
}  # fmt: skip


@torch.library.custom_op("skdpfair_tests::centre", mutates_args=())
def centre(x: torch.Tensor) -> torch.Tensor:
    return x - x.mean(0)


centre.register_fake(torch.empty_like)
centre.register_autograd(lambda ctx, grad: grad)
centre.register_vmap(lambda info, axes, x: (x - x.mean(axes[0], keepdim=True), axes[0]))


def similar(x):
    rows = x.flatten(1)
    return x + by_record(x, (rows @ rows.t()).softmax(1)[0]) * x.cos()


def far(x):
    rows = x.flatten(1)
    return x + by_record(x, torch.cdist(rows, rows).sum(1)) * x.cos()


def by_record(x, numbers):
    return numbers.view(-1, *[1] * (x.dim() - 1))


def written(x):
    x = x.clone()
    x[1:] = x[:-1].detach() + x[1:]
    return x


class Planted(nn.Module):
    """A coupling that is active under a condition."""

    def __init__(self, couple, condition, rng):
        super().__init__()
        self.couple, self.condition = couple, condition
        self.least, self.often = rng.choice([2, 5, 8, 20, 60]), rng.choice([0.02, 0.3, 0.9])
        self.level, self.calls, self.seen = rng.choice([0.3, 1.0, 5.0]), 0, []
        self.register_buffer("counter", torch.zeros(()))

    def forward(self, x):
        return self.condition(self, x)


def counts(m, x):
    m.calls += 1
    return m.couple(x) if m.calls > m.least else x


def counts_in_a_list(m, x):
    m.seen.append(1)
    return m.couple(x) if len(m.seen) > m.least else x


def counts_in_a_buffer(m, x):
    m.counter += 1
    return m.couple(x) if m.counter > m.least else x


CONDITIONS = {
    "always": lambda m, x: m.couple(x),
    "large": lambda m, x: m.couple(x) if x.abs().max() > m.level else x,
    "any": lambda m, x: m.couple(x) if bool((x > m.level).any()) else x,
    "one number": lambda m, x: m.couple(x) if x.flatten()[0].item() > m.level else x,
    "long": lambda m, x: m.couple(x) if len(x) >= m.least else x,
    "shape": lambda m, x: m.couple(x) if x.shape[0] > m.least else x,
    "size": lambda m, x: m.couple(x) if x.size(0) % 2 == 0 else x,
    "training": lambda m, x: m.couple(x) if m.training else x,
    "prediction": lambda m, x: x if m.training else m.couple(x),
    "chance": lambda m, x: m.couple(x) if random.random() < m.often else x,
    "numpy's chance": lambda m, x: m.couple(x) if np.random.rand() < m.often else x,
    "torch's chance": lambda m, x: m.couple(x) if torch.rand(()) < m.often else x,
    "torch's number": lambda m, x: m.couple(x) if torch.rand(1).item() < m.often else x,
    "calls": counts,
    "calls in a list": counts_in_a_list,
    "calls in a buffer": counts_in_a_buffer,
    "where": lambda m, x: torch.where((37 * x).sin() > 0.95, m.couple(x), x),
}


def uneven(couple):
    """Return a coupling that no later layer can undo by centring or scaling."""

    def change(x):
        return x + (couple(x) - x) * torch.linspace(0.5, 1.5, x.shape[-1]).cos()

    return change


def planted(seed, rng):
    """Return a random network with one coupling, the shape of its records, and what it is."""
    layers, shape = clean(rng)
    # the quick seeds have each coupling and each condition, all seeds have each pair
    coupling, condition = (list(names)[seed % len(names)] for names in (COUPLINGS, CONDITIONS))
    place = rng.randint(0, len(layers) - 1)
    layers.insert(place, Planted(uneven(COUPLINGS[coupling]), CONDITIONS[condition], rng))
    what = f"{coupling}, {condition}, {layers[place].least}, at {place}"
    return nn.Sequential(*layers), shape, what


def seeds(n_quick, n_all):
    return [*range(n_quick), *(pytest.param(range(n_quick, n_all), marks=pytest.mark.slow),)]


def each(seeds):
    for seed in [seeds] if isinstance(seeds, int) else seeds:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            yield seed, random.Random(seed)


def refusal(module, shape):
    try:
        select_strategy(module, torch.zeros(1, *shape), 3)
    except UnsupportedModuleError as error:
        return str(error)


def acts_alone(module, shape):
    """Whether a record has the gradient norm in a large batch that it has alone."""
    for layer in module.modules():
        if isinstance(layer, (nn.Dropout, nn.Dropout2d)):
            layer.p = 0.0
    x, y = torch.randn(80, *shape), torch.arange(80) % 3
    with select_strategy(module, x[:1], 3) as strategy:
        norms = [strategy.per_sample_gradients(Batch(x[:n], y[:n])).norm for n in (1, 80)]
    return torch.allclose(norms[0], norms[1][:1], rtol=1e-4)


def couples(module, shape):
    """Whether the outputs of a record differ in a batch."""
    x = torch.randn(8, *shape)
    alone = torch.cat([module(one) for one in x.split(1)])
    return not torch.allclose(module(x), alone, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("seeds", seeds(60, 500))
def test_no_module_with_a_coupling_is_accepted(seeds):
    for seed, rng in each(seeds):
        module, shape, what = planted(seed, rng)
        if not refusal(module, shape):
            # later layers undo it, or it wants more records than are compared: training sees one
            large = re.search(", (shape|long), 60, ", what)
            assert large or not couples(module.eval(), shape), what
            assert acts_alone(module.train(), shape), what


@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(500), marks=pytest.mark.slow)])
def test_modules_without_one_have_autograds_gradients_on_their_fast_path(seeds):
    refused = []
    for seed, rng in each(seeds):
        layers, shape = clean(rng)
        module = nn.Sequential(*layers).eval()  # without dropout
        by_vmap = any(isinstance(m, (Scaled, Attention)) for m in module.modules())
        try:
            strategy = check_engine(module, torch.zeros(1, *shape), 3)
        except UnsupportedModuleError as error:
            refused.append(str(error))
        else:
            assert (strategy == "vmap") == by_vmap, seed
    assert len(refused) <= 0.02 * len(seeds), refused
