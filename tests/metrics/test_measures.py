"""Measures of records: the rare class, calibration, and Fairlearn's rule for groups."""

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import MetricFrame

from skdpfair.metrics._measures import columns_of, leading_measures, values_by_group


def test_difference_and_worst_groups_follow_the_rule_of_fairlearn():
    frame = MetricFrame(
        metrics=lambda y_true, y_pred: np.nan if min(y_true) == 0 else np.mean(y_pred),
        y_true=[0, 1, 2, 2],
        y_pred=[5.0, 1.0, 3.0, 4.0],
        sensitive_features=pd.Series(["a", "b", "c", "c"]),
    )
    values = pd.concat([pd.Series([frame.overall]), frame.by_group])
    score, loss = (columns_of(name, values, "abc") for name in ("roc_auc", "log_loss"))
    assert score["roc_auc_difference"] == frame.difference() == 2.5
    assert score["roc_auc_group_min"] == frame.group_min() == 1.0
    assert loss["log_loss_group_max"] == frame.group_max() == 3.5


@pytest.mark.parametrize(
    "share, n_classes, is_rare",
    [(0.29, 2, True), (0.3, 2, False), (0.19, 3, True), (0.21, 3, False)],
)
def test_leading_measures_of_a_rare_class(share, n_classes, is_rare):
    leads = ["balanced_accuracy", "rarest_class_recall"] if is_rare else ["accuracy"]
    assert leading_measures(share, n_classes) == leads


def measured(y_true, likely):
    likely = np.asarray(likely)
    rows = values_by_group(y_true, likely.argmax(1), likely, classes=range(likely.shape[1]))
    return rows.loc["overall"]


def test_calibration_error_of_two_and_of_three_classes():
    y_true, p = np.array([1, 0, 1, 1, 0, 0]), np.array([0.05, 0.06, 0.95, 0.99, 1.0, 0.5])
    bins = np.minimum((15 * p).astype(int), 14)  # of equal width
    expected = sum(
        (bins == b).mean() * abs(y_true[bins == b].mean() - p[bins == b].mean()) for b in set(bins)
    )
    assert measured(y_true, np.stack([1 - p, p], 1))["calibration_error"] == pytest.approx(expected)
    three = [[0.8, 0.1, 0.1], [0.8, 0.2, 0.0], [0.1, 0.1, 0.8], [0.8, 0.2, 0.0]]
    assert measured([0, 1, 2, 0], three)["calibration_error"] == pytest.approx(abs(0.75 - 0.8))


def test_values_by_group_of_a_model_that_diverged():
    row = measured([0, 0], [[0.5, 0.5], [np.nan, np.nan]])
    assert row[["roc_auc", "log_loss", "calibration_error"]].isna().all()
    assert row["accuracy"] == 1
