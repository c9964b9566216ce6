"""Layers that normalise each record on its own: which are covered, and their gradients."""

import pytest
import torch
from torch import nn

from skdpfair.engine.batch import Examples
from skdpfair.engine.per_sample.layers import is_covered, sampler_of
from tests.engine.per_sample.modules import seeded

LAYERS = {
    "layer norm": (lambda: nn.LayerNorm(4), (3, 4)),
    "layer norm of two axes": (lambda: nn.LayerNorm((3, 4)), (2, 3, 4)),
    "group norm": (lambda: nn.GroupNorm(2, 4), (4, 5)),
    "group norm of rows": (lambda: nn.GroupNorm(2, 4), (4,)),
    "instance norm": (lambda: nn.InstanceNorm2d(4, affine=True), (4, 3, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_scale_grad_sampler_equals_autograd(name):
    make, shape = LAYERS[name]
    layer = make().double()
    a, b = seeded(torch.randn, 2, 5, *shape).double()
    sampler = sampler_of(layer)(layer, a, b)
    rows = torch.cat([sampler.rows, sampler.bias_rows], 1)
    for row, *record in zip(rows, a.split(1), b.split(1), strict=True):
        parts = torch.autograd.grad(layer(record[0]), tuple(layer.parameters()), record[1])
        torch.testing.assert_close(row, torch.cat([part.flatten() for part in parts]))
    torch.testing.assert_close(sampler.norm2(Examples(1, 5)), rows.square().sum(1))


def test_layers_without_a_scale_or_with_statistics_are_not_covered():
    others = [nn.LayerNorm(4, elementwise_affine=False), nn.GroupNorm(2, 4, affine=False)]
    others += [nn.InstanceNorm1d(4, affine=True, track_running_stats=True)]
    assert [is_covered(layer) for layer in others] == [False] * 3
