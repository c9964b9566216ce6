"""Frozen batch normalisation normalises by constants, and couples no records."""

import copy
from functools import partial

import pytest
import torch
from torch import nn

from skdpfair.engine import Batch, select_strategy
from skdpfair.engine.memory import affordable_batch
from skdpfair.engine.per_sample.proof import hold_statistics
from skdpfair.exceptions import UnsupportedModuleError
from skdpfair.testing import check_engine
from tests.engine.per_sample.modules import Net, chain, loop, seeded


def around(m, x):
    out = m.last_norm(m.second(m.relu(m.norm(m.first(x)))))
    out += x
    return m.relu(out)


def residual(width):
    """Return two convolutions with batch normalisation, and the way around them."""
    conv = partial(nn.Conv2d, bias=False), width, width, 3, 1, 1
    layers = {"first": conv, "second": conv, "relu": nn.ReLU(inplace=True)}
    layers |= {"norm": nn.BatchNorm2d(width), "last_norm": nn.BatchNorm2d(width)}
    return Net(around, **layers)


def backbone(width=4):
    """A small ResNet whose statistics were learned from what is not the data."""
    layers = [nn.Conv2d(1, width, 3), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    layers += [nn.InstanceNorm2d(width, affine=True, track_running_stats=True)]
    module = chain(*layers, residual(width), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    for _ in range(20):
        module(2.0 * torch.randn(16, 1, 8, 8) + 1.0)
    return module.requires_grad_(False)


def with_head(*, of_block=False, custom=False):
    module = seeded(lambda: chain(backbone(), (4, 3), nn.PReLU() if custom else nn.Identity()))
    module[0][4].second.requires_grad_(of_block)
    return module.train()


def records():
    return seeded(torch.rand, 12, 1, 8, 8), torch.arange(12) % 3


CASES = {
    "head": ({}, "bookkeeping"),
    "last layers": ({"of_block": True}, "bookkeeping"),
    "custom head": ({"custom": True, "of_block": True}, "bookkeeping"),
}


@pytest.mark.parametrize("case", CASES)
def test_frozen_normalisation_has_gradients_of_each_record_and_moves_no_statistic(case):
    options, name = CASES[case]
    module = with_head(**options).double()
    before = copy.deepcopy(module.state_dict())
    assert check_engine(module, torch.zeros(1, 1, 8, 8), 3) == name
    x, y = records()
    x[-1] *= 1000.0  # in training mode, this one would move all others
    x, weight = x.double(), torch.linspace(0.0, 1.0, len(y), dtype=torch.float64)
    rows = loop(copy.deepcopy(module).eval(), x, y)
    with select_strategy(module, x, 3) as strategy:
        assert strategy.name == name
        module.train()  # whatever mode the module is put in afterwards
        batch, total = Batch(x, y), strategy.flat()
        found = strategy.per_sample_gradients(batch)
        found.weighted_sum(weight, total)
        matrix, _, _ = strategy.gradient_matrix(batch)
    expected = rows.norm(dim=1), weight @ rows, rows
    torch.testing.assert_close((found.norm, total, matrix), expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(module.state_dict(), before, rtol=0, atol=0)


def test_frozen_layers_take_no_gradient_and_no_memory():
    module, x = with_head(), records()[0]
    with select_strategy(module, x, 3) as strategy:
        assert strategy.n_parameters == 15  # of the head
        operations = strategy._code.gradients.one.graph.nodes
        n_backward = sum("backward" in str(node.target) for node in operations)
        assert n_backward == 1  # that of the outputs' choice: nothing behind the head's input
    trained = affordable_batch(with_head().requires_grad_(True), x[:1])
    assert affordable_batch(module, x[:1]) > 3 * trained


def normalised(frozen="", **options):
    """Return a module whose parameters of the normalisation, by their names, are not trained."""
    module = chain(nn.BatchNorm1d(6, **options), (6, 3))
    for name in frozen.split():
        module[0].get_parameter(name).requires_grad_(False)
    return module


def relapsing():
    """Return a module that puts its frozen layer back into training mode when it is called."""
    norm = nn.BatchNorm1d(6).requires_grad_(False)
    return Net(lambda m, x: m.out(m.norm.train()(x)), norm=norm, out=(6, 3))


class Own(nn.BatchNorm1d):
    """Normalises by the batch, whatever its mode."""

    def forward(self, x):
        return nn.functional.batch_norm(x, None, None, self.weight, self.bias, training=True)


NOT_FROZEN = {
    "trains": (normalised, "requires_grad_.False"),
    "no parameters": (lambda: normalised(affine=False), "BatchNorm1d at '0'.*GroupNorm"),
    "half frozen": (lambda: normalised("weight"), "BatchNorm1d at '0'.*GroupNorm"),
    "no statistics": (
        lambda: normalised("weight bias", track_running_stats=False),
        "BatchNorm1d at '0'.*GroupNorm",
    ),
    "relapsing": (relapsing, "mixes"),
    "own forward": (lambda: chain(Own(6).requires_grad_(False), (6, 3)), "mixes"),
}


@pytest.mark.parametrize("make, match", NOT_FROZEN.values(), ids=NOT_FROZEN)
def test_normalisation_that_is_not_frozen_is_refused(make, match):
    with pytest.raises(UnsupportedModuleError, match=match):
        select_strategy(make(), torch.zeros(4, 6), 3)


def test_hold_statistics_of_frozen_normalisation_alone():
    module = chain(with_head(), nn.Dropout(), nn.BatchNorm1d(3)).train()
    hold_statistics(module)
    held = {type(m) for m in module.modules() if not m.training}
    assert held == {nn.BatchNorm2d, nn.InstanceNorm2d} and module[2].training


def test_spectral_norm_trains_and_keeps_its_directions():
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(6, 4))
    module, x, y = (
        chain(layer, nn.Tanh(), (4, 3)).train(),
        seeded(torch.randn, 5, 6),
        torch.arange(5) % 3,
    )
    before = copy.deepcopy([*module.buffers()])
    with select_strategy(module, x, 3) as strategy:
        found = strategy.per_sample_gradients(Batch(x, y))
    torch.testing.assert_close(found.norm, loop(module.eval(), x, y).norm(dim=1))
    assert all(map(torch.equal, before, module.buffers()))
