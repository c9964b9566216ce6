"""Piecewise-linear encodings: independent values, no reading of rows, names, missing values."""

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer

from skdpfair import DPFairClassifier
from skdpfair.preprocessing import lint_pipeline, public_preprocessor
from skdpfair.preprocessing._piecewise_linear import (
    PiecewiseLinearEncoder,
    amounts_among,
    column_name,
    encoded_columns,
    limits_of,
    monotone_axes,
)

BOUNDS = {"age": (17, 90), "gain": (0, 99999)}


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return pd.DataFrame({"age": rng.integers(17, 91, 400), "gain": rng.lognormal(6, 3, 400)})


def test_piecewise_linear_encoder_agrees_with_splines_of_scikit_learn(rows):
    encoder = PiecewiseLinearEncoder(BOUNDS, n_intervals=5)
    knots = np.linspace([17, 0], [90, 99999], 6)
    splines = SplineTransformer(5, degree=1, knots=knots, extrapolation="constant")
    ours, theirs = encoder.fit_transform(rows), splines.fit_transform(rows)
    np.testing.assert_allclose(ours[:, 1:7], theirs[:, :6], atol=1e-6)
    np.testing.assert_allclose(ours[:, 8:], theirs[:, 6:], atol=1e-6)
    np.testing.assert_allclose(ours[:, 0], (rows["age"] - 17) / 36.5 - 1, atol=1e-6)


def test_log_columns_are_linear_between_their_knots():
    encoder = PiecewiseLinearEncoder({"x": (-1e4, 1e4)}, n_intervals=4, log_columns=["x"])
    frame = encoder.set_output(transform="pandas").fit_transform(pd.DataFrame({"x": [0.0, 99.0]}))
    at = np.expm1(np.log1p(1e4) / 2)  # half way to the upper bound
    assert f"x_log_at_{at:.12g}" in frame and frame.loc[0, "x_log_at_0"] == 1.0
    share = np.log1p(99.0) / np.log1p(at)
    assert frame.loc[1, "x_log_at_0"] == pytest.approx(1 - share)
    assert frame.loc[1, f"x_log_at_{at:.12g}"] == pytest.approx(share)


def test_log_columns_by_the_decades_of_their_bounds():
    def names(bounds, **given):
        frame = pd.DataFrame({"x": [bounds["x"][0]]})
        return list(public_preprocessor(bounds, n_intervals=0, **given).fit_transform(frame))

    assert names({"x": (0, 999)}) == ["x"]
    assert names({"x": (0, 1000)}) == ["x", "x_log"] == names({"x": (-1000, 5)})
    assert names({"x": (1950, 2030)}) == ["x"]  # years
    assert names({"x": (0, 0.1)}, log_columns=["x"]) == ["x", "x_log"]
    assert names({"x": (0, 1e6)}, log_columns=[]) == ["x"]


def test_piecewise_linear_encoder_moves_values_to_the_bounds():
    encoder = PiecewiseLinearEncoder((0, 2000)).fit([[0.0]] * 400)
    encoded = encoder.transform([[-5.0], [0.0], [2000.0], [1e9]])
    np.testing.assert_array_equal(encoded[::3], encoded[1:3])


def test_missing_lists_columns_or_names_a_rule():
    table = pd.DataFrame({"age": [np.nan, 53.5], "gain": [np.nan, 49999.5]})
    encoder = PiecewiseLinearEncoder(BOUNDS, missing=["gain"], n_intervals=2).fit(table)
    names = list(encoder.get_feature_names_out())
    encoded = pd.DataFrame(encoder.transform(table), columns=names)
    assert [name for name in names if "missing" in name] == ["gain_missing"]
    age = encoded.filter(like="age")
    np.testing.assert_array_equal(age.loc[0], age.loc[1])  # the middle of its bounds
    assert encoded.filter(like="gain").loc[0].tolist() == [0, 0, 0, 0, 1]
    for encoding in ("auto", "linear"):
        made = public_preprocessor(BOUNDS, encoding=encoding, missing=["gain"], log_columns=[])
        kept = [name for name in made.fit_transform(table) if "_at_" not in name]
        assert kept == [*BOUNDS, "gain_missing"]
        made = public_preprocessor(BOUNDS, encoding=encoding, missing="indicator")
        assert {"age_missing", "gain_missing"} < set(made.fit_transform(table))


def test_public_preprocessor_refuses_columns_with_the_names_of_encodings():
    table = pd.DataFrame({"pay": [1.0], "pay_log": [0.5]})
    with pytest.raises(ValueError, match=r"\['pay_log'.*Rename"):
        public_preprocessor({"pay": (0, 1e6), "pay_log": (0, 1)}).fit(table)


@pytest.mark.parametrize(
    "n_samples, epsilon, n_columns, n_intervals",
    [
        (30_000, 1.0, 5, 8),
        (1000, 1.0, 5, 8),
        (1000, 1.0, 12, 4),
        (300, 0.3, 5, 0),
        (300, None, 5, 8),
    ],
)
def test_n_intervals_falls_with_records_for_each_column(n_samples, epsilon, n_columns, n_intervals):
    encoder = PiecewiseLinearEncoder((0, 1), epsilon=epsilon)
    assert encoder.fit(np.zeros((n_samples, n_columns))).n_intervals_ == n_intervals


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_intervals": -1}, "^n_intervals .*>= 0, got -1"),
        ({"n_intervals": "many"}, "^n_intervals must be an integer"),
        ({"epsilon": 0}, "^epsilon must be a number > 0"),
    ],
)
def test_piecewise_linear_encoder_refuses_parameters(rows, params, message):
    with pytest.raises((ValueError, TypeError), match=message):
        public_preprocessor(BOUNDS, **params).fit(rows)


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning")
def test_piecewise_linear_encoding_lets_a_linear_model_learn_a_curve():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.uniform(17, 90, 4000), "ward": rng.choice(["A", "B"], 4000)})
    y = (np.abs(table["age"] - 53) < 18).astype(int)
    scores = {}
    for encoding in ("linear", "auto"):
        features = public_preprocessor({"age": (17, 90)}, {"ward": ["A", "B"]}, encoding=encoding)
        model = make_pipeline(features, DPFairClassifier(epsilon=1.0, random_state=0))
        assert lint_pipeline(model).findings == []
        scores[encoding] = model.fit(table, y).score(table, y)
    assert scores["auto"] > 0.9 > 0.7 > scores["linear"]


def test_encoded_columns_leaves_monotone_columns_out():
    names = ["x_1:increasing", "x_2:decreasing", "ward_A", "ward_B"]
    assert encoded_columns(names) == ()
    assert [axis[::2] for axis in monotone_axes(names)] == [(0, True), (1, False)]
    knots = [*names[:1], "x_1:increasing_at_0", "x_1:increasing_at_1", *names[1:]]
    assert encoded_columns(knots) == ((4, 2),)
    assert monotone_axes(knots)[0] == (0, [1, 2], True)


def test_column_name_is_that_of_a_column_whatever_its_categories_and_its_end():
    names = ["pay", "pay_at_0", "pay_log", "pay_log_at_0", "rate_log", "rate_log_at_0"]
    names += ["state_New_York", "state_New_Jersey", "state_Ohio"]
    columns = encoded_columns(names)
    assert [column_name(names, *c) for c in columns] == ["pay", "rate_log", "state"]


def test_limits_of_amounts_are_their_bounds_where_the_names_tell():
    features = public_preprocessor({"age": (0, 90), "pay": (-10, 5e6)}, n_intervals=2)
    names = [*features.fit_transform(pd.DataFrame({"age": [1.0], "pay": [1.0]}))]
    (amount,) = amounts_among(names)
    assert limits_of(names, [amount]) == ((-10.0, 5e6),)
    few = [name for name in names if not name.startswith("pay_at")]
    assert limits_of(few, amounts_among(few)) == ()
