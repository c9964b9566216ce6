"""Bad values for every public parameter, in one table."""

import datetime
import decimal
import fractions

import numpy as np
import pandas as pd
import torch
from sklearn.utils._param_validation import Interval

from skdpfair.methods import METHODS


class HostileRepr:
    def __repr__(self):
        raise RuntimeError("no repr")

    __str__ = __repr__


class EndlessRepr:
    def __repr__(self):
        return "x" * 10**6


class HostileEq:
    __hash__ = None

    def __eq__(self, other):
        raise RuntimeError("no comparison")

    __ne__ = __eq__


class HostileLen:
    def __len__(self):
        raise RuntimeError("no length")

    def __iter__(self):
        raise RuntimeError("no items")

    def __bool__(self):
        raise RuntimeError("no truth")


class HostileAll:
    def __getattr__(self, name):
        raise RuntimeError("no attributes")

    def __float__(self):
        raise RuntimeError("no number")


HOSTILE = [HostileRepr(), EndlessRepr(), HostileEq(), HostileLen(), HostileAll(), [HostileRepr()]]
CONTAINERS = [[], (), {}, [1], (None,), {"a": 1}, {1: 2}, set(), [[1, [2]]], {"a": HostileRepr()}]
ARRAYS = [
    np.array([1.0, 2.0]),
    np.array([]),
    np.array(["a", "b"]),
    np.array([None, {}], dtype=object),
    pd.Series([1, 2]),
    pd.DataFrame({"a": [1]}),
    torch.tensor([1.0, 2.0]),
]
SCALARS = [object(), ..., 1j, decimal.Decimal("1.5"), datetime.date(2020, 1, 1), pd.NaT, pd.NA]
ODD = [*SCALARS, int, ValueError("x"), b"auto", np.array(1.0)]
TEXTS = ["", " ", "\0", "auto ", "AUTO", "'\"\n", "\ud800", "😀", "None", "a" * 10_000]
NOT_FINITE = [float("nan"), float("inf"), -float("inf"), np.float32("nan"), np.float64("inf")]
HUGE = [10**400, -(10**400), 10**5000]
FLAGS = [True, False, np.True_]


ANY = ODD + HOSTILE + TEXTS + NOT_FINITE
NO_TEXTS = CONTAINERS + ARRAYS + ODD + HOSTILE + FLAGS + NOT_FINITE
OBJECTS = NO_TEXTS + TEXTS
BELOW_ZERO = [*OBJECTS, *HUGE, -1, -0.5, -1e-300, fractions.Fraction(-1, 2), np.int8(-3)]
NOT_POSITIVE = [*BELOW_ZERO, 0, 0.0]
NOT_A_COUNT = [*OBJECTS, *HUGE, 0, -1, 0.5, 1.5, np.int8(-3)]
NOT_A_FLAG = [*CONTAINERS, *ARRAYS, *ANY, 0, 1, None, 1.0]
NOT_A_LIST = [{}, {"a": 1}, set(), {"u"}, [[1]], [{}, 1], ["u", "u"], [None, None], [HostileRepr()]]
NOT_A_LIST += [np.array([["u", "v"]]), pd.DataFrame({"a": ["u", "v"]}), iter(["u", "v"])]
NOT_A_LIST += [*(value for value in ANY if value is not ...), *FLAGS, *HUGE]
NOT_SHARES = [[0.5], [0.2, 0.2, 0.6], [0.5, 0.6], [0.0, 1.0], [-1.0, 2.0], ["a", "b"], [None, 1.0]]
NOT_SHARES += [[float("nan"), 1.0], [[0.5, 0.5]], {0.5: 1, 0.25: 2}, {0.5}, [True, False], 0.5]
NOT_SHARES += ANY
NOT_A_PAIR = [(), (1.0,), (0.0, 1.0), (1.0, float("nan")), ("a", 1.0), (True, 1.0), [1.0, 2.0]]
NOT_A_PAIR += ANY
NOT_A_CALLABLE = CONTAINERS + ARRAYS + [o for o in ODD if not callable(o)] + NOT_FINITE + TEXTS
NOT_A_MODULE = [lambda: None, lambda: 1, lambda x: x, lambda: 1 / 0, int, torch.nn.Linear(1, 1)]
NOT_AN_ATTACK = [lambda: None, int, torch.nn.Linear, lambda module, x, y: None, torch.nn.Tanh()]
NOT_AN_AUGMENT = [lambda: None, int, torch.nn.Linear, lambda x: None, torch.nn.Tanh()]
NO_COLUMN = [[], (), ["g"], "h", 99, -99, 1.5, True]
PAIRS = [
    (1, 2),
    (None, None),
    ([[1.0]], [0]),
    ("ab", "cd"),
    ([[1.0, 2.0, 3.0]], [7]),
    ([["a", "b", "c"]], [0]),
    ([[float("nan")] * 3], [0]),
    ([[1.0, 2.0, 3.0]], [0, 1]),
    (HostileLen(), [0]),
    ([[1.0, 2.0, 3.0]], HostileLen()),
]

MLP = {"module": "mlp"}
# parameter, what goes with it, bad values that are all tried, and others of which some are
TABLE = [
    ("method", {}, [None], OBJECTS),
    ("epsilon", {}, [0], NOT_POSITIVE),
    ("delta", {}, [1 / 120, 1.0, 2.0], NOT_POSITIVE),
    ("noise_multiplier", {"epsilon": None}, [1e-300], BELOW_ZERO),
    ("group_col", {}, [["g", "g"], ["g", None], ["g", 3], *NO_COLUMN[:2], *NO_COLUMN[3:]], []),
    ("group_col", {}, [], ARRAYS + ANY + HUGE),
    ("group_col__levels", {}, [["u"], ["x", "y"], ["u", "v", "u"], []], NOT_A_LIST),
    ("classes", {}, [[0], [5, 6], [0, 1, 1], [0, "1"], [0, None], []], NOT_A_LIST),
    ("group_col__as_feature", {}, [], NOT_A_FLAG),
    ("persons", {}, [True, "id"], [value for value in NOT_A_FLAG if value is not None]),
    ("persons__column", {}, NO_COLUMN, ARRAYS + ANY + HUGE),
    ("persons__max_records", {}, [0], NOT_A_COUNT),
    ("persons__surplus", {}, [None, "drop", "THIN", True, 1], ODD + HOSTILE + NOT_FINITE),
    ("module", {}, NOT_A_MODULE, NOT_A_CALLABLE),
    ("module__hidden_layer_sizes", MLP, [(10**9,), (10**7,) * 2, (2.5,), {1: 2}], ANY + FLAGS),
    ("module__hidden_layer_sizes", MLP, [[0], [-1], [4, 0]], []),
    ("module__activation", {}, [None], OBJECTS),
    ("optimizer", {}, [int, torch.nn.Linear, lambda p: p, "lbfgs", None], NOT_A_CALLABLE),
    ("optimizer__momentum", {}, [-1.0, "a"], []),
    ("lr", {}, [], NOT_POSITIVE),
    ("batch_size", {}, [0], NOT_A_COUNT),
    ("max_epochs", {"max_steps": None}, [0], NOT_A_COUNT),
    ("max_steps", {}, [0], NOT_A_COUNT),
    ("iterate_average", {}, [1 + 1e-15, 2.0], BELOW_ZERO),
    ("logit_scale", {}, [0], NOT_POSITIVE),
    ("max_physical_batch_size", {}, [0], NOT_A_COUNT),
    ("attack", {}, NOT_AN_ATTACK, NOT_A_CALLABLE),
    ("augment", {}, NOT_AN_AUGMENT, NOT_A_CALLABLE),
    ("augment__n", {"augment": lambda x: x}, [0], NOT_A_COUNT),
    ("pos_label", {}, [[0], 7], ANY + ARRAYS),
    ("class_weight", {}, ["balanced"], ANY + FLAGS + ARRAYS),
    ("class_weight", {}, [{0: -1.0}, {9: 1.0}, {0: True}, {0: float("nan")}, {0: "1"}], []),
    ("max_sample_weight", {}, [0], NOT_POSITIVE),
    ("validation_data", {}, PAIRS, CONTAINERS + ANY + FLAGS),
    ("warm_start", {}, [], NOT_A_FLAG),
    ("accountant", {}, [None], OBJECTS),
    ("noise_sampler", {}, [None], OBJECTS),
    ("keep_reference", {}, [], NOT_A_FLAG),
    ("callbacks", {}, [[1], [None], ["a"], {"a": 1}, [("a", 1)], (1, 2)], ODD + HOSTILE),
    ("callbacks", {}, [], ARRAYS + TEXTS + NOT_FINITE + FLAGS + HUGE),
    ("device", {}, ["meta", "cuda:9999", 0, None], OBJECTS),
    ("distributed", {}, [], OBJECTS),
    ("random_state", {}, [-1, 0.5], OBJECTS),
    ("verbose", {}, [-1, 1.5, None], CONTAINERS + ARRAYS + ANY),
]


def of_a_field(field, ranges):
    """Return the bad values of a method's parameter, from the ranges that it declares."""
    if field in ("group_probabilities", "schedule"):
        return NOT_SHARES if field == "group_probabilities" else NOT_A_PAIR
    if "boolean" in ranges:
        return NOT_A_FLAG
    intervals = [r for r in ranges if isinstance(r, Interval)]
    if not intervals:
        return OBJECTS
    return BELOW_ZERO if 0 in intervals[0] else NOT_POSITIVE


# scikit-learn's clone of a method asks a value for attributes, and passes on what that raises
FIELDS = [
    (name, field, [v for v in of_a_field(field, ranges) if type(v) is not HostileAll])
    for name, method in sorted(METHODS.items())
    for field, ranges in method()._parameter_constraints.items()
]
