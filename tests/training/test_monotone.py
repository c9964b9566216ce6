"""Monotone curves: of noise, in fits to numbers and amounts, and where they are refused."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline

from skdpfair import DPFairClassifier, DPFairRegressor
from skdpfair.preprocessing import public_preprocessor
from tests.quick_fits import QUIET

pytestmark = QUIET
BOUNDS = {"age": (18, 98), "income": (0, 1e6)}


def table(n=4000, seed=0):
    """Return rows of which income acts increasingly, and age does not act."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {"age": rng.uniform(18, 98, n), "income": np.exp(rng.uniform(0, 13, n)).clip(0, 1e6)}
    )
    score = np.log(X["income"]) - 6.5
    return X, (score + 2 * rng.logistic(size=n) > 0).astype(int)


def fitted(X, y, monotone, estimator=None, **how):
    estimator = estimator or DPFairClassifier(epsilon=1.0, random_state=0)
    features = public_preprocessor(BOUNDS, monotone=monotone, **{"n_intervals": 8} | how)
    return make_pipeline(features, estimator).fit(X, y)


def curve(model, column):
    """Return the score of rows that differ in one column, in its order."""
    low, high = BOUNDS[column]
    values = np.unique([np.linspace(low, high, 500), np.expm1(np.linspace(0, np.log1p(high), 500))])
    values = values[(values >= low) & (values <= high)]
    rows = pd.DataFrame({"age": 50.0, "income": 500.0, column: values})
    is_regressor = isinstance(model[-1], DPFairRegressor)
    return model.predict(rows) if is_regressor else model.decision_function(rows)


@pytest.mark.parametrize("directions", [("increasing", "decreasing"), ("decreasing", "increasing")])
@pytest.mark.parametrize("how", [{}, {"n_intervals": 0}, {"encoding": "linear"}], ids=str)
def test_curves_of_noise_are_monotone(directions, how):
    X, y = table(400)
    y = np.random.default_rng(1).permutation(y)
    model = fitted(X, y, dict(zip(BOUNDS, directions, strict=True)), **how)
    for column, direction in zip(BOUNDS, directions, strict=True):
        steps = np.diff(curve(model, column))
        assert (steps >= -1e-5).all() if direction == "increasing" else (steps <= 1e-5).all()


def rough(n=8000):
    """Return rows of which the exact income acts."""
    X, y = table(n)
    X["income"] = np.round(X["income"], -3)
    return X, y ^ np.random.default_rng(0).integers(0, 2, 1001)[(X["income"] // 1000).astype(int)]


def test_fine_curves_and_those_of_the_first_class_are_monotone():
    X, y = rough()
    for pos_label in (0, 1):
        clf = DPFairClassifier(epsilon=8.0, random_state=0, pos_label=pos_label)
        model = fitted(X, y, {"income": "increasing"}, clf)
        assert model[-1].net_.module.params["fine"]
        steps = np.diff(curve(model, "income"))
        assert (steps >= -1e-5).all() if pos_label else (steps <= 1e-5).all()


@pytest.mark.parametrize("n_intervals", [2, 4, 10])
def test_curves_are_fine_or_monotone_if_they_cannot_be_both(n_intervals):
    clf = DPFairClassifier(epsilon=8.0, random_state=0)
    model = fitted(*rough(), {"income": "increasing"}, clf, n_intervals=n_intervals)
    assert (np.diff(curve(model, "income")) >= -1e-5).all()


def test_a_true_direction_keeps_what_was_learned():
    X, y = table(20_000)
    X_test, y_test = table(20_000, seed=1)
    scores = [
        roc_auc_score(y_test, fitted(X, y, monotone).decision_function(X_test))
        for monotone in (None, {"income": "increasing"})
    ]
    assert scores[1] > scores[0] - 0.002


def test_predictions_of_a_regression_are_monotone():
    X, y = table()
    regressor = DPFairRegressor(epsilon=1.0, y_range=(-5, 5), random_state=0)
    rise = np.random.default_rng(0).normal(size=len(y))
    model = fitted(X, rise, {"income": "increasing"}, regressor)
    assert (np.diff(curve(model, "income")) >= -1e-5).all()


def test_unusable_directions_are_refused():
    X, y = table(300)
    for monotone in ({"wage": "increasing"}, "income", {"income": "up"}):
        with pytest.raises(ValueError, match="monotone"):
            public_preprocessor(BOUNDS, monotone=monotone)
    with pytest.raises(ValueError, match="3 classes"):
        fitted(X, np.arange(300) % 3, {"income": "increasing"})
    with pytest.raises(ValueError, match="no curves"):
        fitted(X, y, {"income": "increasing"}, DPFairClassifier(module="mlp"))


def test_a_clear_regression_stays_linear_and_monotone():
    X, _ = table(20_000)
    regressor = DPFairRegressor(epsilon=8.0, y_range=(0, 14), random_state=0)
    model = fitted(X, np.log1p(X["income"]).to_numpy(), {"income": "increasing"}, regressor)
    assert (np.diff(curve(model, "income")) >= -1e-5).all() and curve(model, "income")[-1] > 10
