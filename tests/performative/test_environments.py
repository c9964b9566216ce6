"""Populations that react: who moves, where to, how far."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from skdpfair import DPFairClassifier
from skdpfair.performative import StrategicResponse

RNG = np.random.default_rng(0)


def linear(coef, intercept):
    model = LogisticRegression()
    model.classes_, model.coef_ = np.array([0, 1]), np.array([coef], dtype=float)
    model.intercept_, model.n_features_in_ = np.array([intercept]), len(coef)
    return model


def people(n=60, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X[:, 0] + 0.3 * rng.normal(size=n) > 0).astype(int)


@given(
    coef=st.lists(st.floats(-3, 3), min_size=3, max_size=3),
    intercept=st.floats(-2, 2),
    budget=st.floats(0, 2),
    seed=st.integers(0, 99),
)
@settings(deadline=None, max_examples=50)
def test_the_response_to_a_linear_model_is_its_best_response(coef, intercept, budget, seed):
    X, y = people(seed=seed)
    model, changeable = linear(coef, intercept), [0, 2]
    moved = StrategicResponse(X, y, budget=budget, changeable=changeable).sample(model, None)[0]
    before, w = model.decision_function(X), np.array(coef)[changeable]
    distance = np.linalg.norm(moved - X, axis=1)
    assert (moved[:, 1] == X[:, 1]).all()
    assert (distance <= budget * (1 + 1e-9) + 1e-14).all()  # the distance of numbers near 1
    assert (moved[before > 0] == X[before > 0]).all()
    if np.linalg.norm(w) > 1e-3:
        needed = np.minimum(-before / np.linalg.norm(w), budget)
        denied = before <= 0
        np.testing.assert_allclose(distance[denied], needed[denied], atol=1e-5)
        able = denied & (-before / np.linalg.norm(w) < budget * 0.999)
        assert (model.decision_function(moved)[able] > 0).all()
        after = model.decision_function(moved)
        assert (after[denied] >= before[denied] - 1e-9).all()


@pytest.mark.parametrize("model", [LogisticRegression(), GaussianNB()])
def test_people_move_towards_a_higher_score_of_any_model(model):
    X, y = people()
    model.fit(X, y)
    moved = StrategicResponse(X, y, budget=0.5).sample(model, None)[0]
    assert model.predict(moved).sum() > model.predict(X).sum()
    assert (np.linalg.norm(moved - X, axis=1) <= 0.5 + 1e-9).all()


def test_nobody_moves_where_the_score_is_flat():
    X, y = people()
    tree = DecisionTreeClassifier(max_depth=1, random_state=0).fit(X.round(1), y)
    response = StrategicResponse(X.round(1) + 0.02, y, budget=9.0, step=1e-4)
    np.testing.assert_array_equal(response.sample(tree, None)[0], response.X)


def test_frames_stay_frames_and_the_base_is_never_changed():
    X, y = people()
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(sex="F", age=40)
    frame.index = frame.index[::-1]
    base = frame.copy()
    model = LogisticRegression().fit(X[:, :2], y)

    class OnTwo:
        classes_ = model.classes_

        def decision_function(self, X):
            return model.decision_function(X[["a", "b"]].to_numpy())

    response = StrategicResponse(frame, y, budget=1.0, changeable=["b", "a"])
    moved, _, groups = response.sample(OnTwo(), RNG)
    pd.testing.assert_frame_equal(frame, base)
    assert groups is None
    pd.testing.assert_frame_equal(moved[["c", "sex", "age"]], base[["c", "sex", "age"]])
    array = StrategicResponse(X[:, :2], y, budget=1.0).sample(model, None)[0]
    np.testing.assert_allclose(moved[["a", "b"]], array, atol=1e-9)


def test_a_private_classifier_is_reacted_to():
    X, y = people(200)
    clf = DPFairClassifier(
        "dpsgd", module="logistic", noise_multiplier=1.0, epsilon=None, max_steps=20, lr=0.5
    ).fit(X, y)
    moved = StrategicResponse(X, y, budget=1.0).sample(clf, None)[0]
    assert (clf.decision_function(moved) >= clf.decision_function(X) - 1e-4).all()
    assert clf.predict(moved).sum() > clf.predict(X).sum()


X, Y = people()
JOBS = pd.DataFrame({"job": ["clerk", "cook"], "age": [30, 40]})


REACT = StrategicResponse(X, Y, budget=1.0)
REFUSED = [
    ("budget must be a number >= 0, got -1.0", lambda: StrategicResponse(X, Y, budget=-1.0)),
    (
        r"got \['age'\], X has \[0, 1, 2\]",
        lambda: StrategicResponse(X, Y, budget=1, changeable=["age"]),
    ),
    (r"samples: \[60, 60, 1\]", lambda: StrategicResponse(X, Y, ["F"], budget=1)),
    ("must name columns of numbers", lambda: StrategicResponse(JOBS, [0, 1], budget=1.0)),
    (
        "two classes, the second one favourable, got 3",
        lambda: REACT.sample(GaussianNB().fit(X, np.arange(60) % 3), None),
    ),
]


@pytest.mark.parametrize("message, call", REFUSED, ids=[message for message, _ in REFUSED])
def test_what_no_population_can_react_to_is_refused_without_a_cell(message, call):
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "clerk" not in str(caught.value)
