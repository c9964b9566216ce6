"""The table of a fit: its records, weights, persons and validation records."""

import numpy as np
import pandas as pd
import pytest

from skdpfair import DPFairClassifier
from skdpfair.inputs.groups import GroupCodes
from skdpfair.inputs.table import Table

N = 240
X = np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)
pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")


def quick(**params):
    given = {"epsilon": 8.0, "max_steps": 2, "module": "logistic", "max_sample_weight": 100.0}
    return DPFairClassifier("dpsgd", **given | params)


@pytest.mark.parametrize(
    "given, params, match",
    [
        (np.full(N, 1e16), {"max_sample_weight": None}, r"one number from 0 to 1e\+15"),
        (np.ones(N), {"max_sample_weight": 0.0}, "max_sample_weight"),
        (np.ones(N - 1), {}, r"240 rows, got an array of \(239,\)"),
        (np.ones((N, 1)), {}, "sample_weight .* 0 to max_sample_weight=100"),
        (np.full(N, 101.5), {}, "larger max_sample_weight"),
        (np.full(N, -1.5), {}, "outside or NaN"),
        (np.full(N, np.nan), {}, "outside or NaN"),
        (["x"] * N, {}, "sample_weight must hold one number"),
        (np.ma.masked_equal(np.arange(N), 7), {}, "masked values"),
    ],
)
def test_weights_that_cannot_be_used_are_refused(given, params, match):
    with pytest.raises(ValueError, match=match) as caught:
        quick(**params).fit(X, Y, sample_weight=given)
    assert "101.5" not in str(caught.value) and "-1.5" not in str(caught.value)


def test_all_records_of_a_person_vote_on_the_group_before_a_table_is_thinned():
    code, x = np.tile([0] * 9 + [1], 50), np.eye(500, 3, dtype=np.float32)
    groups, person = GroupCodes(code, np.array(["a", "b"]), True), np.repeat(np.arange(50), 10)
    whole = Table(x, code, np.array([0, 1]), groups, [], person=person)
    drawn = whole.thinned(1, np.random.default_rng(0))
    taken = drawn.person >= 0
    assert code[taken].any() and not drawn.groups.code[taken].any()
    shuffled = Table(x[::-1], code[::-1], whole.classes, groups, [])
    flipped = Table(x, 1 - code, whole.classes, groups, [])
    assert whole.digest(b"key") == shuffled.digest(b"key") != flipped.digest(b"key")


def test_rows_of_a_prediction_may_lack_the_group_columns():
    frame = pd.DataFrame(X, columns=list("abc")).assign(sex=Y)
    model = quick(group_col="sex").fit(frame, Y)
    expected = model.predict_proba(frame)
    np.testing.assert_array_equal(model.predict_proba(frame.drop(columns="sex")), expected)
    with pytest.warns(UserWarning, match="feature names"):
        np.testing.assert_array_equal(model.predict_proba(frame.to_numpy()), expected)


def test_a_memory_map_holds_no_columns_of_groups(tmp_path):
    np.c_[X[:, :2], Y].astype(np.float32).tofile(tmp_path / "rows")
    rows = np.memmap(tmp_path / "rows", dtype=np.float32, shape=X.shape, mode="r")
    with pytest.raises(ValueError, match=r"numpy.memmap.*sensitive_features="):
        quick(group_col=2).fit(rows, Y)
