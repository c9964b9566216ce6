"""Convolutions of random shapes: their gradients by groups, as on a CPU, and by windows."""

from itertools import pairwise
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from skdpfair.engine.per_sample.proof import decompositions
from tests.engine.per_sample.modules import assert_equals_loop, seeded


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


@pytest.mark.parametrize("copies", [False, True], ids=["groups", "windows"])
@settings(max_examples=6, deadline=None)
@given(net=convolutional_nets(), n=st.integers(1, 9))
def test_convolutions_of_random_shapes_equal_a_loop(copies, net, n):
    module, shape, seed = net

    def drawn():
        for p in module.parameters():
            nn.init.normal_(p)
        x, weight = torch.randn(n, *shape).double(), torch.rand(n).double()
        return module, x, torch.randint(0, 3, (n,)), weight

    with mock.patch.object(decompositions, "_copies_windows", lambda x: copies):
        assert_equals_loop(*seeded(drawn, seed=seed), 1e-10, "bookkeeping")
