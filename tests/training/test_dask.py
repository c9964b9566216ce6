"""Fits on a dask cluster: what is refused before a worker trains; tests/e2e has a cluster."""

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

from skdpfair import DPFairClassifier, fit_on_dask
from skdpfair.training.dask import _check_rows, _rows


class Partitions:
    """A collection of two partitions, as far as a fit looks at it before it computes."""

    def to_delayed(self):
        return np.array([object(), object()])


@pytest.mark.parametrize(
    ("estimator", "X", "y", "error", "match"),
    [
        (make_pipeline(DPFairClassifier()), None, None, TypeError, "Pipeline.*map_partitions"),
        (DPFairClassifier(), np.eye(3), np.arange(3), TypeError, "X must be a dask .*ndarray"),
        (DPFairClassifier(), Partitions(), [0, 1], TypeError, "y must be a dask .*list"),
    ],
)
def test_fit_on_dask_refuses_what_is_no_collection(estimator, X, y, error, match):
    with pytest.raises(error, match=match):
        fit_on_dask(None, estimator, X, y)


def test_check_rows_refuses_partitions_of_other_lengths_or_indexes():
    frame = pd.DataFrame({"a": [1, 2]}, index=[5, 6])
    same = {"X": [_rows(frame)], "y": [_rows(frame["a"])], "sample_weight": [_rows(np.ones(2))]}
    _check_rows(same)
    for other, match in ((np.ones(3), "'y': 3"), (frame["a"].sort_index(ascending=False), "index")):
        with pytest.raises(ValueError, match=f"Partition 0 .*{match}"):
            _check_rows(same | {"y": [_rows(other)]})
