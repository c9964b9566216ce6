import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpfair.metrics import accuracy_difference

bit = st.integers(0, 1)
tables = st.lists(st.tuples(bit, bit, st.sampled_from("abc")), min_size=1, max_size=20)


def test_values_by_hand(case):
    groups = {"sensitive_features": case.groups}
    assert accuracy_difference(case.y_true, case.y_ref, **groups) == pytest.approx(1 - 1 / 3)
    assert accuracy_difference(
        case.y_true, case.y_ref, sample_weight=case.weight, **groups
    ) == pytest.approx(1 - 1 / 4)


@settings(deadline=None, max_examples=30)
@given(tables)
def test_it_is_the_largest_difference_over_pairs(rows):
    y_true, y_pred, groups = zip(*rows, strict=True)
    hits = pd.Series([a == b for a, b, _ in rows]).groupby(list(groups)).mean()
    pairs = [abs(a - b) for a in hits for b in hits]
    found = accuracy_difference(y_true, y_pred, sensitive_features=groups)
    assert 0 <= found <= 1
    assert found == pytest.approx(max(pairs))


BAD_LABELS = {
    "complex": np.ones(4) + 1j,
    "records": np.zeros(4, dtype=[("a", int)]),
    "texts": np.array(["a"] * 4),
    "masked": np.ma.masked_equal([0, 1, 0, 1], 1),
    "columns": np.ones((4, 2)),
    "dict": dict.fromkeys(range(4)),
    "bytes": np.array([b"a"] * 4),
}


@pytest.mark.parametrize("kind", list(BAD_LABELS))
@pytest.mark.parametrize("name", ["y_true", "y_pred"])
def test_labels_of_another_kind_are_named(kind, name):
    given = {"y_true": [0, 1, 0, 1], "y_pred": [0, 1, 1, 1]} | {name: BAD_LABELS[kind]}
    with pytest.raises((ValueError, TypeError), match=r"^y_(true|pred) ") as caught:
        accuracy_difference(**given, sensitive_features=list("abab"))
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "groups",
    [
        np.zeros((4, 1, 1)),
        np.zeros((4, 0)),
        scipy.sparse.eye_array(4).tocsr(),
        [{"a": 1}] * 4,
        np.ma.masked_equal([0, 1, 0, 1], 1),
        {},
        np.random.default_rng(0).normal(size=(4, 9)),
    ],
)
def test_groups_that_are_no_groups_are_refused_by_name(groups):
    with pytest.raises((ValueError, TypeError), match=r"^sensitive_features "):
        accuracy_difference([0, 1, 0, 1], [0, 1, 1, 1], sensitive_features=groups)


def test_columns_of_numbers_do_not_make_millions_of_groups():
    numbers = np.random.default_rng(0).normal(size=(120, 3))
    with pytest.raises(ValueError, match=r"sensitive_features makes more than 10000 groups"):
        accuracy_difference([0, 1] * 60, [0, 1] * 60, sensitive_features=numbers)


@pytest.mark.parametrize("weights", [[0] * 4, [-1, 1, 1, 1], ["a"] * 4, [np.nan] * 4])
def test_weights_are_checked(weights):
    with pytest.raises((ValueError, TypeError), match=r"^sample_weight must hold one number >= 0"):
        accuracy_difference(
            [0, 1] * 2, [0, 1] * 2, sensitive_features="abab", sample_weight=weights
        )


def test_half_a_character_names_a_group():
    groups = np.array(["\ud800", "b"] * 2, dtype=object)
    assert accuracy_difference([0, 1] * 2, [0, 1, 0, 0], sensitive_features=groups) == 0.5


@pytest.mark.parametrize("as_given", [dict, pd.DataFrame])
def test_intersections_of_a_dict_or_of_columns_of_one_name(as_given):
    groups = as_given({"sex": ["F", "F", "M", "M"], "race": ["w", "b", "w", "w"]})
    if as_given is pd.DataFrame:
        groups.columns = ["a", "a"]
    assert accuracy_difference([0, 1, 0, 1], [0, 0, 0, 1], sensitive_features=groups) == 1
