"""Bad values for every public parameter, as hypothesis strategies in one table."""

import datetime
import decimal
import fractions

import numpy as np
import pandas as pd
import torch
from hypothesis import strategies as st
from sklearn.utils._param_validation import Interval, StrOptions

from skdpfair._utils.validate import safe_repr
from skdpfair.methods import METHODS


class Boxed:
    """A value that hypothesis may show."""

    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return safe_repr(self.value)


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
OBJECTS = CONTAINERS + ARRAYS + ODD + HOSTILE + FLAGS


def among(*lists):
    values = [value for part in lists for value in part]
    # by number, since hypothesis shows what it samples from
    return st.integers(0, len(values) - 1).map(lambda i: values[i])


def texts_besides(*options):
    known = {o.lower() for o in options}
    texts = st.sampled_from(TEXTS) | st.text(max_size=20)
    return texts.filter(lambda text: text.lower() not in known)


def not_a_number(*options):
    """Draw what is no number, nor one of some texts."""
    return among(OBJECTS) | texts_besides("auto", *options)


def not_positive(*options):
    small = st.floats(max_value=0, allow_nan=False) | st.just(fractions.Fraction(-1, 2))
    return not_a_number(*options) | among(NOT_FINITE, HUGE, [0, 0.0, np.int8(-3)]) | small


def below_zero(*options):
    small = st.floats(max_value=0, exclude_max=True).filter(lambda value: value < 0)
    return not_a_number(*options) | among(NOT_FINITE, HUGE, [np.int8(-3)]) | small


def not_a_count(*options):
    broken = st.floats(allow_nan=True) | st.integers(max_value=0)
    return not_a_number(*options) | among(NOT_FINITE, HUGE) | broken


def not_among(*options):
    return among(OBJECTS, NOT_FINITE) | texts_besides(*options)


NOT_A_FLAG = among(CONTAINERS, ARRAYS, ANY, [0, 1, None, 1.0])
NOT_A_LIST = among(
    [{}, {"a": 1}, set(), {"u"}, [[1]], [{}, 1], ["u", "u"], [None, None], [HostileRepr()]],
    [np.array([["u", "v"]]), pd.DataFrame({"a": ["u", "v"]}), iter(["u", "v"])],
    [value for value in ANY if value is not ...],
    FLAGS,
    HUGE,
)
NOT_SHARES = among(
    [[0.5], [0.2, 0.2, 0.6], [0.5, 0.6], [0.0, 1.0], [-1.0, 2.0], ["a", "b"], [None, 1.0]],
    [[float("nan"), 1.0], [[0.5, 0.5]], {0.5: 1, 0.25: 2}, {0.5}, [True, False], 0.5],
    ANY,
)
NOT_A_CALLABLE = among(CONTAINERS, ARRAYS, [o for o in ODD if not callable(o)], NOT_FINITE, TEXTS)
NOT_A_MODULE = [lambda: None, lambda: 1, lambda x: x, lambda: 1 / 0, int, torch.nn.Linear(1, 1)]
NOT_AN_ATTACK = [lambda: None, int, torch.nn.Linear, lambda module, x, y: None, torch.nn.Tanh()]
NOT_AN_AUGMENT = [lambda: None, int, torch.nn.Linear, lambda x: None, torch.nn.Tanh()]
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
# (parameter, what goes with it, strategy of bad values)
TABLE = [
    ("method", {}, not_among(*METHODS) | st.none()),
    ("epsilon", {}, not_positive()),
    ("delta", {}, not_positive() | st.floats(min_value=1 / 120, allow_nan=False)),
    ("noise_multiplier", {"epsilon": None}, below_zero() | st.just(1e-300)),
    ("group_col", {}, among([[], (), ["g", "g"], "h", 99, -99, 1.5, ["g", None], True, ["g", 3]])),
    ("group_col", {}, among(ARRAYS, ANY, HUGE)),
    ("group_col__levels", {}, NOT_A_LIST | among([["u"], ["x", "y"], ["u", "v", "u"], []])),
    ("classes", {}, NOT_A_LIST | among([[0], [5, 6], [0, 1, 1], [0, "1"], [0, None], []])),
    ("group_col__as_feature", {}, NOT_A_FLAG),
    ("persons", {}, NOT_A_FLAG | among([True, "id"]).filter(lambda v: v is not None)),
    ("persons__column", {}, among([[], (), ["g"], "h", 99, -99, 1.5, True])),
    ("persons__column", {}, among(ARRAYS, ANY, HUGE)),
    ("persons__max_records", {}, not_a_count()),
    ("persons__surplus", {}, among(ODD, HOSTILE, NOT_FINITE, [None, "drop", "THIN", True, 1])),
    ("module", {}, NOT_A_CALLABLE | among(NOT_A_MODULE)),
    ("module__hidden_layer_sizes", MLP, among(ANY, FLAGS)),
    ("module__hidden_layer_sizes", MLP, st.lists(st.integers(max_value=0), min_size=1)),
    ("module__hidden_layer_sizes", MLP, among([(10**9,), (10**7, 10**7), (2.5,), {1: 2}])),
    ("module__activation", {}, not_among("tanh", "relu", "sigmoid", "gelu") | st.none()),
    ("optimizer", {}, NOT_A_CALLABLE | among([int, torch.nn.Linear, lambda p: p, "lbfgs", None])),
    ("optimizer__momentum", {}, among([-1.0, "a"])),
    ("lr", {}, not_positive()),
    ("batch_size", {}, not_a_count()),
    ("max_epochs", {"max_steps": None}, not_a_count()),
    ("max_steps", {}, not_a_count()),
    ("iterate_average", {}, below_zero() | st.floats(min_value=1, exclude_min=True)),
    ("logit_scale", {}, not_positive()),
    ("max_physical_batch_size", {}, not_a_count()),
    ("attack", {}, NOT_A_CALLABLE | among(NOT_AN_ATTACK)),
    ("augment", {}, NOT_A_CALLABLE | among(NOT_AN_AUGMENT)),
    ("augment__n", {"augment": lambda x: x}, not_a_count()),
    ("pos_label", {}, among(ANY, ARRAYS, [[0], 7])),
    ("class_weight", {}, among(ANY, FLAGS, ARRAYS, ["balanced"])),
    ("class_weight", {}, among([{0: -1.0}, {9: 1.0}, {0: True}, {0: float("nan")}, {0: "1"}])),
    ("max_sample_weight", {}, not_positive()),
    ("validation_data", {}, among(CONTAINERS, ANY, FLAGS)),
    ("validation_data", {}, among(PAIRS)),
    ("warm_start", {}, NOT_A_FLAG),
    ("accountant", {}, not_among("pld", "prv", "rdp") | st.none()),
    ("noise_sampler", {}, not_among("standard", "gaussian_sum") | st.none()),
    ("keep_reference", {}, NOT_A_FLAG),
    ("callbacks", {}, among([[1], [None], ["a"], {"a": 1}, [("a", 1)], (1, 2)], ODD, HOSTILE)),
    ("callbacks", {}, among(ARRAYS, TEXTS, NOT_FINITE, FLAGS, HUGE)),
    ("device", {}, not_among("auto", "cpu") | among(["meta", "cuda:9999", 0, None])),
    ("distributed", {}, not_among("auto")),
    ("random_state", {}, not_a_count().filter(lambda v: not (type(v) is int and v >= 0))),
    ("verbose", {}, among(CONTAINERS, ARRAYS, ANY, [-1, 1.5, None])),
]


def of_a_field(name, field, ranges):
    """Return the bad values of a method's parameter, from the ranges that it declares."""
    if field == "group_probabilities":
        return NOT_SHARES
    if field == "schedule":
        pairs = [(), (1.0,), (0.0, 1.0), (1.0, float("nan")), ("a", 1.0), (True, 1.0), [1.0, 2.0]]
        return among(pairs, ANY)
    if "boolean" in ranges:
        return NOT_A_FLAG
    options = {o for r in ranges if isinstance(r, StrOptions) for o in r.options}
    intervals = [r for r in ranges if isinstance(r, Interval)]
    if not intervals:
        return not_among(*options)
    return below_zero(*options) if 0 in intervals[0] else not_positive(*options)


FIELDS = [
    (name, field, of_a_field(name, field, ranges))
    for name, method in sorted(METHODS.items())
    for field, ranges in method()._parameter_constraints.items()
]
