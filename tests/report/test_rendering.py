"""Numbers and names as pages write them."""

import numpy as np
import pytest

from skdpfair.metrics._measures import described
from skdpfair.report._rendering import error_in_words, in_words, points, written


def test_shares_are_in_per_cent():
    assert [points(v) for v in (0.8312, -0.00001, np.nan)] == ["83.1", "0.0", "–"]
    assert written(0.8312, "roc_auc[F]") == "83.1" and written(0.8312, "log_loss") == "0.831"
    assert written(np.nan, "roc_auc_difference") == "not compared"


def test_measures_have_names_and_units():
    assert in_words("rarest_class_recall") == "recall of the rarest class"
    assert in_words("roc_auc") == "ROC AUC"
    assert described("accuracy[F]") == ("Accuracy of group F", "%", 100.0)
    gap = ("Log loss: difference between groups", "nats", 1.0)
    assert described("log_loss_difference") == gap


@pytest.mark.parametrize("column", ["selection_rate", "true_positive_rate[F]"])
def test_rates_name_the_positive_class(column):
    title, *_ = described(column, ["denied", "approved"])
    assert " of approved" in title
    error = error_in_words("false_negative_rate", ["denied", "approved"])
    assert error == "actual approved predicted as denied"
