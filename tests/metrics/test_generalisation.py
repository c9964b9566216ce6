import math

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import MetricFrame
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import accuracy_score, balanced_accuracy_score, zero_one_loss

from skdpfair.metrics import (
    calibration_gap,
    dg_gap,
    dg_gap_by_group,
    dg_gap_worst_group,
)

bit = st.integers(0, 1)
tables = st.lists(st.tuples(bit, bit, st.booleans(), st.sampled_from("ab")), max_size=20)
every_cell = [(1, 1, True, "a"), (0, 1, False, "a"), (1, 1, True, "b"), (1, 1, False, "b")]


@settings(deadline=None, max_examples=30)
@given(tables)
def test_gaps_are_differences_of_accuracies(rows):
    y_true, y_pred, is_train, groups = map(np.array, zip(*rows, *every_cell, strict=True))
    parts = {
        (g, part): accuracy_score(
            y_true[(groups == g) & (is_train == part)], y_pred[(groups == g) & (is_train == part)]
        )
        for g in "ab"
        for part in (True, False)
    }
    frame = MetricFrame(
        metrics=dg_gap,
        y_true=y_true,
        y_pred=y_pred,
        sensitive_features=groups,
        sample_params={"is_train": is_train},
    )
    table = dg_gap_by_group(y_true, y_pred, is_train=is_train, sensitive_features=groups)
    for g in "ab":
        assert frame.by_group[g] == parts[g, True] - parts[g, False] == table.loc[f"[{g}]", "gap"]
    assert frame.overall == table.loc["overall", "gap"]
    worst = min(parts["a", True], parts["b", True]) - min(parts["a", False], parts["b", False])
    extra = {"is_train": is_train, "sensitive_features": groups}
    assert dg_gap_worst_group(y_true, y_pred, **extra) == worst
    assert list(table.index) == ["overall", "group_min", "[a]", "[b]"]


def test_another_metric_weights_and_losses():
    y, pred, train = [1, 0, 0, 1, 0, 0], [1, 1, 0, 1, 0, 0], [1, 1, 1, 0, 0, 0]
    with pytest.raises(TypeError, match=r"metric must be a function .* got 'accuracy'"):
        dg_gap(y, pred, is_train=train, metric="accuracy")
    gap = dg_gap(y, pred, is_train=train, metric=balanced_accuracy_score)
    assert gap == pytest.approx(3 / 4 - 1)
    assert dg_gap(y, pred, is_train=train, sample_weight=[1, 2, 1, 1, 1, 1]) == pytest.approx(-0.5)
    extra = {"is_train": train, "sensitive_features": ["a", "b", "a"] * 2}
    loss = {"metric": zero_one_loss, "greater_is_better": False}
    assert dg_gap_worst_group(y, pred, **loss, **extra) == 1
    assert "group_max" in dg_gap_by_group(y, pred, **loss, **extra).index
    with pytest.raises(ValueError, match=r"metric must lie in \[0, 1\], got 2.5.*divide"):
        dg_gap(y, pred, is_train=train, metric=lambda y_true, y_pred: 2.5)


def test_a_group_without_records_is_nan_and_warned_of():
    y = [1, 0, 1]
    extra = {"is_train": [True, False, True], "sensitive_features": ["a", "a", "b"]}
    with pytest.warns(UndefinedMetricWarning, match="The gap of a group is NaN"):
        table = dg_gap_by_group(y, y, **extra)
    assert table.loc["[b]", "train"] == 1
    assert math.isnan(table.loc["[b]", "test"])
    assert table.loc["group_min", "test"] == 1  # that of the groups that have records
    assert table.loc["[a]", "gap"] == 0
    with pytest.warns(UndefinedMetricWarning, match="has no records"):
        table = dg_gap_by_group(
            y[:2], y[:2], is_train=[True, False], sensitive_features=["a", "a"], groups=["a", "c"]
        )
    assert table.loc["[c]"].isna().all()
    with pytest.warns(UndefinedMetricWarning, match="there is no test record"):
        assert math.isnan(dg_gap(y, y, is_train=[True] * 3))


def test_bad_input_is_named():
    good = {"is_train": [True, False], "sensitive_features": ["a", "a"]}
    with pytest.raises(ValueError, match=r"is_train must hold only True.* boolean"):
        dg_gap([1, 0], [1, 0], is_train=["train", "test"])
    with pytest.raises(ValueError, match=r"sensitive_features has values outside groups=.*Declare"):
        dg_gap_by_group([1, 0], [1, 0], groups=["b"], **good)
    with pytest.raises(TypeError, match="groups must be a list of the groups, got 'ab'"):
        dg_gap_by_group([1, 0], [1, 0], groups="ab", **good)


def test_intersections_are_named():
    both = pd.DataFrame({"sex": ["F", "F"], "race": ["w", "w"]})
    table = dg_gap_by_group([1, 0], [1, 1], is_train=[True, False], sensitive_features=both)
    assert list(table.index)[2:] == ["[F, w]"]


def by_definition(y_true, y_prob, m):
    """Definition C.7, bin by bin, on probabilities that lie in no bin's ends."""
    total = 0.0
    for p in np.arange(m + 1) / m:
        total += abs(np.mean(((p < y_prob) & (y_prob < p + 1 / m)) * (y_true - p)))
    return total


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(bit, st.floats(0, 1)), min_size=1, max_size=30), st.integers(1, 20))
def test_calibration_gap_is_its_definition(rows, m):
    y_true, y_prob = map(np.array, zip(*rows, strict=True))
    value = calibration_gap(y_true, y_prob, tau=1 / m)
    assert 0 <= value <= 1 + 1e-12
    if not np.isclose(y_prob * m, np.round(y_prob * m)).any():
        assert value == pytest.approx(by_definition(y_true, y_prob, m))


def test_the_lower_end_belongs_to_its_bin_and_one_is_not_lost():
    ends = np.arange(11) / 10
    assert calibration_gap(np.ones(11), ends) == pytest.approx(np.mean(1 - ends))
    assert calibration_gap([0, 1], [1.0, 1.0]) == 0.5
    assert calibration_gap([0, 1], [0.3, 0.3]) == pytest.approx(0.2)


def test_narrow_bins_give_the_expected_calibration_error():
    rng = np.random.default_rng(0)
    y_prob = rng.choice([0.125, 0.375, 0.75], 3000)
    y_true = (rng.random(3000) < y_prob**2).astype(int)
    share, mean = calibration_curve(y_true, y_prob, n_bins=8)
    sizes = pd.Series(y_prob).value_counts(normalize=True).sort_index().to_numpy()
    assert calibration_gap(y_true, y_prob, tau=1 / 8) == pytest.approx(sizes @ np.abs(share - mean))


def test_weights_are_repetitions():
    y, prob, weight = [0, 1, 1], [0.25, 0.3, 0.8], [1, 2, 3]
    repeated = calibration_gap(np.repeat(y, weight), np.repeat(prob, weight), tau=0.25)
    assert calibration_gap(y, prob, tau=0.25, sample_weight=weight) == pytest.approx(repeated)
    gap = dg_gap(y * 2, prob * 2, is_train=[True] * 3 + [False] * 3, metric=calibration_gap)
    assert gap == 0


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"tau": 0.3}, ValueError, r"tau must divide 1, got 0.3. Use tau=1/3"),
        ({"tau": 0}, ValueError, "tau must be a number > 0"),
        ({"tau": "wide"}, TypeError, "tau must be a number"),
        ({"y_true": [1, 2]}, ValueError, r"y_true must hold only labels 0 and 1"),
        ({"y_prob": [0.5, 1.2]}, ValueError, r"y_prob must hold .* got values outside"),
        ({"y_prob": [-1, 1.2]}, ValueError, r"in \[0, 1\], got values outside"),
        ({"y_prob": [0.5, np.nan]}, ValueError, r"in \[0, 1\], got NaN.*diverged"),
        ({"y_prob": ["a", "b"]}, ValueError, r"in \[0, 1\], got values that are not numbers"),
        ({"y_prob": [0.5]}, ValueError, "y_prob must have one entry for each of the 2"),
    ],
)
def test_calibration_gap_names_bad_input(change, error, message):
    with pytest.raises(error, match=message):
        calibration_gap(**({"y_true": [0, 1], "y_prob": [0.5, 0.5]} | change))


def test_greater_is_better_is_a_flag():
    given = {"is_train": [True, True, False, False], "sensitive_features": list("abab")}
    with pytest.raises(TypeError, match=r"^greater_is_better must be True or False"):
        dg_gap_by_group([0, 1] * 2, [0, 1] * 2, greater_is_better="no", **given)


class Shy:
    def __repr__(self):
        raise RuntimeError("private")


@pytest.mark.parametrize("groups", [Shy(), "ab", [[]] * 2, [Shy()], [{}], []])
def test_groups_that_are_no_list_are_named(groups):
    given = {"is_train": [True, True, False, False], "sensitive_features": list("abab")}
    with pytest.raises((ValueError, TypeError), match=r"^groups (must|has)|outside groups="):
        dg_gap_by_group([0, 1] * 2, [0, 1] * 2, groups=groups, **given)
