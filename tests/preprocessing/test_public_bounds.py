"""Scaling by public bounds: values by hand, floats, and refusals that name the column."""

import numpy as np
import pandas as pd
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from skdpfair.preprocessing import BoundedScaler


@parametrize_with_checks([BoundedScaler()])
def test_bounded_scaler_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture
def rows():
    return pd.DataFrame({"age": [17, 90, 130], "hours": [1.0, np.nan, 50.0]})


@pytest.mark.parametrize(
    "bounds",
    [{"hours": (1, 99), "age": (17, 90)}, [(17, 90), (1, 99)], np.array([(17, 90), (1, 99)])],
)
def test_bounded_scaler_by_hand(bounds, rows):
    scaled = BoundedScaler(bounds).fit_transform(rows)
    np.testing.assert_allclose(scaled, [[-1, -1], [1, np.nan], [1, 0]])
    scaled = BoundedScaler((0, 100)).fit_transform(rows[["age"]])  # one pair for all columns
    np.testing.assert_allclose(scaled.ravel(), [-0.66, 0.8, 1.0])


def test_bounded_scaler_of_float32_stays_within_the_range():
    values = np.linspace(-10, 10, 101, dtype=np.float32)[:, None]
    scaled = BoundedScaler((-0.1, 0.7)).fit_transform(values)
    assert (scaled.dtype, scaled.min(), scaled.max()) == (np.float32, -1, 1)


@pytest.mark.parametrize(
    ("bounds", "message", "change"),
    [
        ((1, 1), r"low < high .*got \(1, 1\) for column 'age'", None),
        ((0, np.inf), "finite", None),
        ((-1e308, 1e308), "finite", None),  # as their width is not
        ((0, 10**400), "float", None),
        (("a", "b"), "finite numbers", None),
        ({"age": (17, 90), "hours": (99, 1)}, r"got \(99, 1\) for column 'hours'", None),
        ({"age": (17, 90)}, r"none for \['hours'\]", None),
        ({"age": (17, 90), "hours": (1, 99), "sex": (0, 1)}, r"some for \['sex'\]", None),
        *((bounds, "each of the 2 columns", None) for bounds in ([(0, 1)], None)),
        ({"age": (17, 90)}, "Pass a DataFrame", pd.DataFrame.to_numpy),
        ((0, 1), "infinity", lambda rows: rows.replace(50.0, np.inf)),
        ((0, 1), "Complex data not supported", lambda rows: rows.to_numpy() + 0.125j),
    ],
)
def test_bounded_scaler_refuses_bounds_and_rows(bounds, message, change, rows):
    with pytest.raises(ValueError, match=message):
        BoundedScaler(bounds).fit(change(rows) if change else rows)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("low, width", [(-8e307, 1.7e308), (1.7e9, 60.0), (0.0, 1e39)])
def test_bounded_scaler_computes_with_bounds_in_float64(low, width, dtype):
    values = np.clip(low + width * np.array([[0.0], [0.5], [1.0]]), -3e38, 3e38).astype(dtype)
    scaled = BoundedScaler((low, low + width)).fit_transform(values)
    share = (np.clip(values.astype(float), low, low + width) - low) / width
    np.testing.assert_allclose(scaled, 2 * share - 1, rtol=1e-6)
