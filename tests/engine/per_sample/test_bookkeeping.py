"""Book-keeping covers modules whose layers are called once each, and names what it does not."""

import pytest
import torch

from skdpfair.engine import select_strategy
from skdpfair.exceptions import UnsupportedModuleError
from tests.engine.per_sample.modules import linears


def tied(m):
    m.b.weight = m.a.weight
    return m


REFUSED = {  # what the slower strategy gives as its reason
    "not in a layer": lambda: linears(lambda m, x: m.out(m.b(m.a(x)) * m.scale)),
    "share a parameter": lambda: tied(linears(lambda m, x: m.out(m.b(m.a(x))))),
    "not called once": lambda: without_scale(lambda m, x: m.out(m.b(m.b(m.a(x))))),
    "not called on one record": lambda: without_scale(
        lambda m, x: m.out(m.b(m.a(x.view(-1, 6))).view(-1, 2, 6).sum(1))
    ),
}


def without_scale(forward):
    module = linears(forward)
    module.scale.requires_grad_(False)
    return module


@pytest.mark.parametrize("reason", REFUSED)
def test_layer_trace_leaves_modules_to_vmap_with_the_reason(reason):
    shape = (2, 6) if "record" in reason else (6,)
    strategy = select_strategy(REFUSED[reason](), torch.zeros(4, *shape), 3)
    assert strategy.name == "vmap" and reason in strategy.reason


def test_layer_trace_refuses_an_input_that_changes_after_use():
    def forward(m, x):
        x = x.clone()
        out = m.a(x)
        with torch.no_grad():
            x.mul_(0.5)
        return m.out(m.b(out * m.scale) * 1.0)

    with pytest.raises(UnsupportedModuleError, match="inplace operation"):
        select_strategy(without_scale(forward), torch.zeros(4, 6), 3)
