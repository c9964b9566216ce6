"""Chains of Linear layers by formulas, of any widths."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from skdpfair.engine.per_sample.closed_form import linear_layers
from skdpfair.engine.per_sample.proof import TraceError
from tests.engine.per_sample.modules import assert_equals_loop, seeded


@settings(max_examples=25, deadline=None)
@given(
    widths=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    n=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_closed_form_of_random_widths_equals_a_loop(widths, n, seed):
    def drawn():
        layers = []
        for a, b in pairwise([5, *widths]):
            layers += [nn.Linear(a, b, bias=bool(seed % 2)), nn.Tanh()]
        x, weight = torch.randn(n, 5).double(), torch.rand(n).double()
        module = nn.Sequential(*layers, nn.Linear(widths[-1], 3)).double()
        return module, x, torch.randint(0, 3, (n,)), weight

    assert_equals_loop(*seeded(drawn, seed=seed), 1e-12, "closed_form")


def test_linear_layers_of_a_nested_chain():
    layer = nn.Linear(3, 3)
    module = nn.Sequential(nn.Flatten(), nn.Sequential(layer, nn.Tanh()))
    ((found, activation),) = linear_layers(module, torch.zeros(1, 3))
    assert found is layer and activation is not None


SHARED = nn.Linear(3, 3)
OTHERS = [nn.Sequential(SHARED, SHARED), nn.Sequential(nn.Linear(3, 3), nn.GELU()), nn.Tanh()]


@pytest.mark.parametrize("module", OTHERS, ids=["twice", "GELU", "no layer"])
def test_linear_layers_refuse_what_has_no_formula(module):
    with pytest.raises(TraceError):
        linear_layers(module, torch.zeros(1, 3))
