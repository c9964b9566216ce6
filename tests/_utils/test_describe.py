"""Descriptions and digests differ wherever what they describe does."""

from functools import partial
from inspect import Parameter, signature

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from skdpfair import MLP, Factory, Groups, Persons, get_method
from skdpfair._utils.describe import describe, digest, state_of
from skdpfair.augmentations import PGD, FlipAndShift
from skdpfair.methods.dpsgd import DPSGD


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


def longer(kind):
    """Return a class of this package as it is with one more parameter, ``new=3``."""

    def init(self, *args, new=3, **params):
        kind.__init__(self, *args, **params)
        self.new = new

    old = signature(kind.__init__)
    known = [p for p in old.parameters.values() if p.kind is not p.VAR_KEYWORD]
    new = Parameter("new", Parameter.KEYWORD_ONLY, default=3)
    init.__signature__ = old.replace(parameters=[*known, new])
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (kind,), {"__init__": init} | names)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (DPSGD, {"max_grad_norm": 0.5}),
        (MLP, {"hidden_layer_sizes": (4,)}),
        (Factory, {"momentum": 0.9}),
        (Persons, {"max_records": 4}),
        (Groups, {"columns": "sex"}),
        (FlipAndShift, {"shift": 2}),
        (PGD, {"radius": 0.1}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_describe_is_the_same_when_an_object_gets_a_parameter_until_it_is_set(kind, given):
    first = ("SGD",) if kind is Factory else ()
    old, Longer = kind(*first, **given), longer(kind)
    assert describe(old) == describe(Longer(*first, **given))
    assert describe(old) != describe(Longer(*first, **given, new=4))
    assert describe(old) != describe(kind(*first, **dict.fromkeys(given, "other")))


def test_describe_reads_the_defaults_of_a_class_that_is_defined_anew():
    def attack(radius):
        class Attack:
            def __init__(self, radius=radius):
                self.radius = radius

        return Attack()

    assert describe(attack(0.1)) == describe(attack(0.1)) != describe(attack(0.2))


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
