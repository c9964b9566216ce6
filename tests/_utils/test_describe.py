"""Descriptions and digests differ wherever what they describe does."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from skdpfair import get_method
from skdpfair._utils.describe import describe, digest, state_of


def test_digest_differs_with_values_shapes_and_types():
    x = np.arange(6.0)
    parts = [(x,), (x + 1e-12,), (x.reshape(2, 3),), (x.astype(np.float32),), (x, "a"), (x, "b")]
    assert len({digest(*p) for p in parts}) == len(parts)


class Attack:
    def __init__(self, size):
        self.size = size


class Slotted:
    __slots__ = ("size",)

    def __init__(self, size):
        self.size = size


def attack(module, x, y, size):
    return x


def network(width):
    class Net(nn.Module):
        def __init__(self, n_features, n_outputs):
            super().__init__()
            self.linear = nn.Linear(n_features, width)

    return Net


def itself(size):
    return (same := lambda: (same, size))


def by_global(size):
    space = {"SIZE": size}
    exec("def attack(x):\n    return x + SIZE", space)
    return space["attack"]


def shares(moved, kind):
    values = np.full(60, 1 / 60)
    values[[30, 31]] += np.array([1, -1]) * 1e-9 * (moved == 3)
    return get_method("dp_is_sgd", group_probabilities=kind(values))


KINDS = {
    "partial": lambda size: partial(attack, size=size),
    "object": Attack,
    "slots": Slotted,
    "tuple of a method": lambda size: shares(size, tuple),
    "array of a method": lambda size: shares(size, np.asarray),
    "function": lambda size: lambda n, m: nn.Sequential(nn.Linear(n, size), nn.Linear(size, m)),
    "class": network,
    "sets": lambda size: [lambda x: {x, "a"}, lambda x: {x, "b"}][size % 2],
    "itself": itself,
    "global": by_global,
    "table": lambda size: pd.DataFrame({"a": ["x", "yz"[size % 2]]}),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_describe_differs_with_any_value_and_code(kind):
    assert describe(kind(3)) == describe(kind(3)) != describe(kind(4))


def test_describe_has_no_text_of_what_a_function_holds():
    """It is written beside the results of sweeps."""
    secret = ["patient Zero", 0.739085]
    described = describe(lambda x: secret)
    assert "Zero" not in described and "0.739" not in described


def test_state_of_without_weights_does_not_follow_them():
    module = torch.nn.BatchNorm1d(1)
    before = state_of(module), state_of(module, weights=False)
    with torch.no_grad():
        module.weight += 1
    assert state_of(module) != before[0] and state_of(module.eval(), weights=False) == before[1]
    module.running_mean += 1
    assert state_of(module, weights=False) != before[1]
