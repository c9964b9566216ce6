import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpfair.metrics import accuracy_disparity

bit = st.integers(0, 1)
tables = st.lists(st.tuples(bit, bit, st.sampled_from("abc")), min_size=1, max_size=20)


def test_values_by_hand(case):
    groups = {"sensitive_features": case.groups}
    assert accuracy_disparity(case.y_true, case.y_ref, **groups) == pytest.approx(1 - 1 / 3)
    assert accuracy_disparity(
        case.y_true, case.y_ref, sample_weight=case.weight, **groups
    ) == pytest.approx(1 - 1 / 4)


@settings(deadline=None, max_examples=30)
@given(tables)
def test_it_is_the_largest_difference_over_pairs(rows):
    y_true, y_pred, groups = zip(*rows, strict=True)
    hits = pd.Series([a == b for a, b, _ in rows]).groupby(list(groups)).mean()
    pairs = [abs(a - b) for a in hits for b in hits]
    disparity = accuracy_disparity(y_true, y_pred, sensitive_features=groups)
    assert 0 <= disparity <= 1
    assert disparity == pytest.approx(max(pairs))


def test_lengths_are_checked_and_named():
    with pytest.raises(ValueError, match="y_pred must have one entry"):
        accuracy_disparity([1, 0], [1], sensitive_features=["a", "b"])
    with pytest.raises(ValueError, match=r"sensitive_features has missing values.*fillna"):
        accuracy_disparity([1, 0], [1, 0], sensitive_features=[float("nan"), 1.0])
    with pytest.raises(ValueError, match="sample_weight must have one entry"):
        accuracy_disparity([1, 0], [1, 0], sensitive_features=["a", "b"], sample_weight=[1])
