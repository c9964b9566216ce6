"""Where groups come from, and which of them are refused."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpfair.inputs.groups import as_columns, encode, group_names


def coded(column, **params):
    table = pd.DataFrame({"g": column})
    defaults = {"group_col": "g", "levels": None, "sensitive_features": None}
    return encode(table, np.zeros(len(table)), **(defaults | params))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "c", "<script>", "ü", ""]), min_size=2, max_size=30))
def test_codes_point_at_the_levels(values):
    if len(set(values)) < 2:
        with pytest.raises(ValueError, match="one group"):
            coded(values)
        return
    groups = coded(values)
    assert [groups.levels[c] for c in groups.code] == values and not groups.declared


@pytest.mark.parametrize(
    "values",
    [
        [1, 2, 1],
        [True, False, True],
        [1.5, 2.5, 1.5],
        ["x", 1, "x"],
        pd.Categorical(["a", "b", "a"]),
    ],
)
def test_kinds_of_values(values):
    groups = coded(values)
    assert list(groups.code) in ([0, 1, 0], [1, 0, 1]) and groups.n_groups == 2


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_missing_values_need_a_level(missing):
    with pytest.raises(ValueError, match="missing values"):
        coded(["a", "b", missing])
    groups = coded(["a", "b", missing], levels=["a", "b", None])
    assert list(groups.code) == [0, 1, 2] and groups.declared


def test_declared_levels_keep_their_order_and_may_be_absent():
    groups = coded(["b", "a"], levels=["c", "b", "a"])
    assert list(groups.code) == [1, 2] and groups.n_groups == 3
    with pytest.raises(ValueError, match="outside groups"):
        coded(["b", "z"], levels=["a", "b"])
    with pytest.raises(ValueError, match="twice"):
        coded(["b", "a"], levels=["a", "b", "a"])


def test_intersections_are_the_product():
    table = pd.DataFrame({"s": ["f", "m", "f"], "r": [1, 1, 2]})
    groups = encode(table, np.zeros(3), group_col=["s", "r"], sensitive_features=None)
    assert list(groups.levels) == [("f", 1), ("f", 2), ("m", 1), ("m", 2)]
    assert list(groups.code) == [0, 2, 1]
    with pytest.raises(ValueError, match="tuples of 2"):
        encode(table, np.zeros(3), group_col=["s", "r"], levels=["f"], sensitive_features=None)


def test_no_groups_at_all():
    none = {"group_col": None, "sensitive_features": None}
    groups = encode(np.zeros((3, 1)), np.zeros(3), **none)
    assert groups.n_groups == 1 and groups.levels is None and not groups.code.any()
    with pytest.raises(ValueError, match=r"no groups are given.*sensitive_features"):
        encode(np.zeros((3, 1)), np.zeros(3), levels=["a"], **none)


@pytest.mark.parametrize("shape", [(6,), (6, 2)])
def test_groups_may_have_names_that_are_half_a_character(shape):
    names = np.array(["\ud800", "b"], dtype=object)[np.arange(np.prod(shape)) % 3 // 2]
    found = encode(None, np.zeros(6), group_col=None, sensitive_features=names.reshape(shape))
    assert found.n_groups == 2 ** len(shape)


@pytest.mark.parametrize("wrong", [np.timedelta64(1, "D"), [np.timedelta64(1)]])
def test_a_duration_is_no_column(wrong):
    with pytest.raises(TypeError, match="group_col must be"):
        as_columns(wrong)


@pytest.mark.parametrize(
    ("levels", "names"),
    [
        (["F", "x, y", 1, 0.5, None], ["F", "x, y", "1", "0.5", "None"]),
        ([1, "1"], ["1", "'1'"]),
        ([1.0, "1"], ["1.0", "'1'"]),
        ([True, "True", "F"], ["True", "'True'", "F"]),
        ([None, "None"], ["None", "'None'"]),
        ([1, "1", "'1'"], ["1", "'1'", "\"'1'\""]),
        (["F", "F ", "M"], ["'F'", "'F '", "M"]),
        (["F", "\u200bF"], ["'F'", "'\\u200bF'"]),
        (["\xe5", "a\u030a"], ["'\\xe5'", "'a\\u030a'"]),
        ([("F", "a"), ("M", "a")], ["F, a", "M, a"]),
        ([("x, y", "z"), ("x", "y, z"), ("x", "y")], ["'x, y', z", "x, 'y, z'", "x, y"]),
        ([("a", 1), ("a", "1")], ["a, 1", "a, '1'"]),
    ],
)
def test_no_two_groups_have_one_name(levels, names):
    assert group_names(levels) == names and len(set(names)) == len(levels)
    assert group_names(levels[::-1]) == names[::-1]
