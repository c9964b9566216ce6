"""Numbers, names and words as pages write them."""

import re

import numpy as np
import pytest

from skdpfair.metrics._measures import described
from skdpfair.report import model_page
from skdpfair.report._rendering import error_in_words, in_words, isolated, points, written


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


def test_isolated_parts_from_right_to_left():
    assert isolated("a, \u05d0; b") == "a, \u2068\u05d0\u2069; b" and isolated("a: b") == "a: b"
    assert isolated("\u202eM") == r"\u202eM"


def test_words_of_pages_are_explained_where_they_occur(fitted, by_hand):
    clf, data, _ = fitted
    for page, words in (
        (model_page(clf), {"ε and δ", "SHA-256"}),
        (model_page(clf, data.data, data.target), {"95 % interval"}),
        (by_hand.results().to_html(measures=["accuracy"]), {"95 % interval", "sampling rate"}),
    ):
        before, after = page.split('id="words"')
        explained = re.findall(r"<dt>(.*?)</dt>", after.split("</details>")[0])
        assert all(word in before for term in explained for word in term.split(" and "))
        assert len(explained) <= 14 and words - {"SHA-256"} <= set(explained)
        assert ("95 % interval" in explained) == ("95 % interval" in before)
