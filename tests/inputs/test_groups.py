"""Codes and levels of groups, from columns of a table or from sensitive features."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpfair.inputs.groups import MAX_READ, as_columns, encode, encode_features, variables_of


def coded(column, **params):
    table = pd.DataFrame({"g": column})
    defaults = {"group_col": "g", "sensitive_features": None}
    return encode(table, np.zeros(len(table)), **(defaults | params))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "c", "<script>", "ü", ""]), min_size=2, max_size=30))
def test_codes_are_positions_of_the_levels(values):
    if len(set(values)) < 2:
        with pytest.raises(ValueError, match="one group"):
            coded(values)
        return
    groups = coded(values)
    assert [groups.levels[c] for c in groups.code] == values and not groups.declared


def test_declared_levels_have_their_order_and_may_be_absent():
    groups = coded(["b", "a"], levels=["c", "b", "a"])
    assert list(groups.code) == [1, 2] and groups.n_groups == 3 and groups.undeclared is None
    for levels, match in (
        (["a", "c"], "outside levels="),
        (["a", "b", "a"], "twice"),
        ([], "at least one"),
    ):
        with pytest.raises(ValueError, match=match):
            coded(["b", "a"], levels=levels)


def test_intersections_are_the_product_of_columns():
    table, y = pd.DataFrame({"s": ["f", "m", "f"], "r": [1, 1, 2]}), np.zeros(3)
    pairs = [("f", 1), ("f", 2), ("m", 1), ("m", 2)]
    by_column = encode(table, y, group_col=["s", "r"], sensitive_features=None)
    by_values = encode(None, y, group_col=None, sensitive_features=table)
    for groups in (by_column, by_values):
        assert list(groups.levels) == pairs and list(groups.code) == [0, 2, 1]
    with pytest.raises(ValueError, match="tuples of 2"):
        encode(table, y, group_col=["s", "r"], levels=["f"], sensitive_features=None)


def test_encode_without_groups_is_one_group():
    rows = np.zeros((3, 1)), np.zeros(3)
    groups = encode(*rows, group_col=None, sensitive_features=None)
    assert groups.n_groups == 1 and groups.levels is None and not groups.code.any()
    with pytest.raises(ValueError, match="group_col or by sensitive_features"):
        encode(*rows, group_col=0, sensitive_features=[0, 1, 0])


def test_as_columns_refuses_durations_and_levels_may_be_half_a_character():
    for wrong in (np.timedelta64(1, "D"), [np.timedelta64(1)]):
        with pytest.raises(TypeError, match="group_col must be"):
            as_columns(wrong)
    names = np.array([["\ud800", "b"], ["b", "b"], ["b", "\ud800"]], dtype=object)
    for values in (names, names[:, 0]):
        found = encode(None, np.zeros(3), group_col=None, sensitive_features=values)
        assert found.n_groups == 2**values.ndim


def test_the_target_may_be_a_group_but_no_column_of_that_name():
    labels, target = np.array([0, 1, 1]), {"group_col": "target", "sensitive_features": None}
    table, last = pd.DataFrame({"a": [0, 1, 1]}), target | {"group_col": -1}
    for found in (encode(np.zeros((3, 1)), labels, **target), encode(table, labels, **last)):
        assert list(found.code) == [0, 1, 1]
    with pytest.raises(ValueError, match="column named 'target'"):
        encode(pd.DataFrame({"target": [0, 1, 1]}), labels, **target)
    with pytest.raises(ValueError, match="names a column twice"):
        encode(table, labels, **target | {"group_col": ["a", 0]})


def test_encode_features_drops_groups_without_records():
    many, columns = np.arange(3 * MAX_READ), {"s": ["f", "m"], "r": pd.Series([1, 2])}
    assert encode_features(many, len(many)).n_groups == len(many)
    found = encode_features(columns, 2)
    assert (list(found.levels), list(found.code)) == ([("f", 1), ("m", 2)], [0, 1])
    assert list(encode_features(columns, 2, [("f", 1), ("f", 2), ("m", 2)]).code) == [0, 2]


def test_variables_of_are_names_that_are_no_measurements():
    table, y = pd.DataFrame({"sex": [0, 1], "0.5": [1, 2]}), pd.Series([0, 1], name="deny")
    assert variables_of(y, table, ["sex", "target", "0.5"], None) == ("deny", "sex", "deny", "")
    assert variables_of([0, 1], table, None, {"area": [0, 1]}) == ("", "area")
