"""Intervals of means over runs and of shares of records."""

import numpy as np
import pytest
from scipy.stats import binomtest

from skdpfair.metrics._intervals import of_share, overlap, seeds_for, wilson


def test_overlap_of_runs_but_not_of_folds():
    assert overlap(0.2, [1, 1, 1]) == 0.2 and overlap(0.2, [5]) == 0.0
    assert overlap(0.2, [5, 5]) == pytest.approx(0.2 * (1 - 40 / 90))


def test_seeds_for_an_interval_that_no_seeds_shorten():
    """Nadeau and Bengio's variance has a part that no seed lowers."""
    assert seeds_for(0.5, 0.2, 3) == 7 and seeds_for(0.5, 0.2, 5) is None


def test_wilson_is_that_of_scipy():
    for hits, n in ((90, 100), (0, 12), (5, 5)):
        own = binomtest(hits, n).proportion_ci(method="wilson")
        assert wilson(hits / n, n) == pytest.approx((own.low, own.high), abs=1e-12)


def test_of_share_takes_the_records_of_the_measure():
    row = {"n": 50, "rarest_class_share": 0.1, "accuracy": 0.9, "false_positive_rate": 0.2}
    row |= {"roc_auc": 0.9}
    assert of_share(row, "accuracy", 1) == wilson(0.9, 50)
    assert of_share(row, "false_positive_rate", 1) == wilson(0.2, 45)  # of the other class
    assert np.isnan(of_share(row, "roc_auc", 1)).all()
