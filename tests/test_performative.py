"""Populations that react to a deployed model, and rounds of training on what they become."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from skdpfair import DPFairClassifier
from skdpfair.datasets import make_two_groups
from skdpfair.performative import StrategicResponse, repeated_deployment
from skdpfair.privacy import NoisyRelease, compute_epsilon

pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")
MODES = pytest.mark.parametrize("mode", ["repeated", "greedy"])


def private_classifier():
    return DPFairClassifier(
        "dpsgd", module="logistic", noise_multiplier=1.0, epsilon=None, max_steps=20, lr=0.5
    )


def people(n=60, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X[:, 0] + 0.3 * rng.normal(size=n) > 0).astype(int)


X, Y = people()


@given(
    coef=st.lists(st.floats(-3, 3), min_size=3, max_size=3),
    intercept=st.floats(-2, 2),
    budget=st.floats(0, 2),
    seed=st.integers(0, 99),
)
@settings(deadline=None, max_examples=50)
def test_strategic_response_to_a_linear_model_is_the_best_response(coef, intercept, budget, seed):
    X, y = people(seed=seed)
    model, changeable = LogisticRegression(), [0, 2]
    model.classes_, model.coef_ = np.array([0, 1]), np.array([coef], dtype=float)
    model.intercept_, model.n_features_in_ = np.array([intercept]), len(coef)
    moved = StrategicResponse(X, y, budget=budget, changeable=changeable).sample(model, None)[0]
    before, w = model.decision_function(X), np.array(coef)[changeable]
    distance = np.linalg.norm(moved - X, axis=1)
    assert (moved[:, 1] == X[:, 1]).all()
    assert (distance <= budget * (1 + 1e-9) + 1e-14).all()  # the distance of numbers near 1
    assert (moved[before > 0] == X[before > 0]).all()
    if np.linalg.norm(w) > 1e-3:
        denied, after = before <= 0, model.decision_function(moved)
        needed = -before / np.linalg.norm(w)
        expected = np.minimum(needed, budget)[denied]
        np.testing.assert_allclose(distance[denied], expected, atol=1e-5)
        assert (after[denied & (needed < budget * 0.999)] > 0).all()
        assert (after[denied] >= before[denied] - 1e-9).all()


@pytest.mark.parametrize("model", [LogisticRegression(), GaussianNB(), private_classifier()])
def test_strategic_response_moves_towards_the_favourable_class_of_any_model(model):
    X, y = people(200)
    model.fit(X, y)
    moved = StrategicResponse(X, y, budget=1.0).sample(model, None)[0]
    assert model.predict(moved).sum() > model.predict(X).sum()
    assert (np.linalg.norm(moved - X, axis=1) <= 1.0 + 1e-9).all()
    if hasattr(model, "decision_function"):
        assert (model.decision_function(moved) >= model.decision_function(X) - 1e-4).all()


def test_strategic_response_moves_nobody_where_the_score_is_flat():
    tree = DecisionTreeClassifier(max_depth=1, random_state=0).fit(X.round(1), Y)
    response = StrategicResponse(X.round(1) + 0.02, Y, budget=9.0, step=1e-4)
    np.testing.assert_array_equal(response.sample(tree, None)[0], response.X)


def test_strategic_response_returns_a_frame_and_leaves_the_base_unchanged():
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(sex="F", age=40)
    frame.index = frame.index[::-1]
    base = frame.copy()
    model = LogisticRegression().fit(X[:, :2], Y)
    on_two = SimpleNamespace(
        classes_=model.classes_,
        decision_function=lambda X: model.decision_function(X[["a", "b"]].to_numpy()),
    )
    response = StrategicResponse(frame, Y, budget=1.0, changeable=["b", "a"])
    moved, _, groups = response.sample(on_two, None)
    pd.testing.assert_frame_equal(frame, base)
    assert groups is None
    pd.testing.assert_frame_equal(moved[["c", "sex", "age"]], base[["c", "sex", "age"]])
    array = StrategicResponse(X[:, :2], Y, budget=1.0).sample(model, None)[0]
    np.testing.assert_allclose(moved[["a", "b"]], array, atol=1e-9)


JOBS = pd.DataFrame({"job": ["clerk", "cook"], "age": [30, 40]})
REFUSED = {
    r"budget .*-1\.0": lambda: StrategicResponse(X, Y, budget=-1.0),
    r"\['age'\].*\[0, 1, 2\]": lambda: StrategicResponse(X, Y, budget=1, changeable=["age"]),
    r"\[60, 60, 1\]": lambda: StrategicResponse(X, Y, ["F"], budget=1),
    "changeable": lambda: StrategicResponse(JOBS, [0, 1], budget=1.0),
    "two classes.* 3": lambda: StrategicResponse(X, Y, budget=1.0).sample(
        GaussianNB().fit(X, np.arange(60) % 3), None
    ),
}


@pytest.mark.parametrize("match", REFUSED)
def test_strategic_response_refuses_what_cannot_react_without_naming_a_cell(match):
    with pytest.raises(ValueError, match=match) as caught:
        REFUSED[match]()
    assert "clerk" not in str(caught.value)


# rounds of training


DATA = make_two_groups(300, random_state=0)
PEOPLE = StrategicResponse(
    DATA.data, DATA.target, DATA.sensitive_features, budget=0.4, changeable=["x0", "x1"]
)


class Constant(ClassifierMixin, BaseEstimator):
    """Predicts 1, and records ten releases for each fit; composes them if warm_start."""

    def __init__(self, noise=2.0, warm_start=False):
        self.noise, self.warm_start = noise, warm_start

    def fit(self, X, y, sensitive_features=None):
        self.classes_, self.groups = np.array([0, 1]), sensitive_features
        last = self.privacy_.releases if self.warm_start and hasattr(self, "privacy_") else ()
        releases = (*last, NoisyRelease("gradient sum", 0.1, (self.noise,), 10))
        self.privacy_ = SimpleNamespace(
            releases=releases, epsilon=compute_epsilon(releases, 1e-5), delta=1e-5, accountant="pld"
        )
        return self

    def predict(self, X):
        return np.ones(len(X), dtype=int)

    def decision_function(self, X):
        return np.ones(len(X))


def overall(table, column):
    return table.loc[table["group"] == "overall", column].tolist()


def test_repeated_deployment_has_the_accuracies_of_a_loop_written_out():
    table = repeated_deployment(LogisticRegression(), PEOPLE, 3)
    assert (table["epsilon_spent"] == math.inf).all()
    table = table.set_index(["round", "group"])
    assert list(table["n_samples"]) == [300, 210, 90] * 3
    X, y, in_b = DATA.data, DATA.target, DATA.sensitive_features == "b"
    for number in (1, 2, 3):
        model = LogisticRegression().fit(X, y)
        rows = table.loc[[(number, "overall"), (number, "b")]]
        assert rows["accuracy"].tolist() == [model.score(X, y), model.score(X[in_b], y[in_b])]
        X, _, _ = PEOPLE.sample(model, None)
        after = [model.score(X, y), model.score(X[in_b], y[in_b])]
        assert rows["accuracy_after"].tolist() == after


@MODES
def test_repeated_deployment_composes_the_releases_of_all_rounds(mode):
    expected = [
        compute_epsilon([NoisyRelease("gradient sum", 0.1, (2.0,), 10 * k)], 1e-5)
        for k in (1, 2, 3)
    ]
    found = overall(repeated_deployment(Constant(), PEOPLE, 3, mode=mode), "epsilon_spent")
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert expected[2] < 3 * expected[0]
    without_noise = repeated_deployment(Constant(noise=0.0), PEOPLE, 2, mode=mode)
    assert (without_noise["epsilon_spent"] == math.inf).all()
    private = repeated_deployment(private_classifier(), PEOPLE, 2, mode=mode)
    first, second = overall(private, "epsilon_spent")
    assert 0 < first < second < 2 * first


@MODES
def test_repeated_deployment_passes_groups_to_clones_of_the_estimator(mode):
    passed = []

    class Recording(Constant):
        def fit(self, X, y, sensitive_features=None):
            passed.append(sensitive_features)
            return super().fit(X, y)

    estimator = Recording()
    repeated_deployment(estimator, PEOPLE, 2, mode=mode)
    assert vars(estimator) == {"noise": 2.0, "warm_start": False}
    assert len(passed) == 2 and all(groups is PEOPLE.sensitive_features for groups in passed)


def test_repeated_deployment_in_greedy_mode_continues_one_fit():
    params = {"loss": "log_loss", "max_iter": 1, "tol": None, "random_state": 0}
    table = repeated_deployment(SGDClassifier(**params), PEOPLE, 3, mode="greedy")
    model = SGDClassifier(**params, warm_start=True)
    X, y, _ = PEOPLE.sample(None, None)
    for accuracy in overall(table, "accuracy"):
        assert accuracy == model.fit(X, y).score(X, y)
        X, _, _ = PEOPLE.sample(model, None)
    assert not np.allclose(SGDClassifier(**params).fit(X, y).coef_, model.coef_)


def test_repeated_deployment_takes_crossed_groups_and_none():
    crossed = pd.DataFrame({"sex": DATA.sensitive_features, "young": DATA.data["x2"] > 0})
    population = StrategicResponse(DATA.data, DATA.target, crossed, budget=0.1)
    table = repeated_deployment(Constant(), population, 1)
    pairs = {(sex, young) for sex in "ab" for young in (True, False)}
    assert set(table["group"]) == {"overall", *pairs}
    assert table["n_samples"].iloc[1:].sum() == 300
    without = StrategicResponse(DATA.data, DATA.target, budget=0.1)
    assert list(repeated_deployment(Constant(), without, 2)["group"]) == ["overall"] * 2


class NewPeople:
    """Draws new records each round."""

    def sample(self, model, rng):
        X = rng.normal(size=(20, 3))
        return X, (X[:, 0] > 0).astype(int), None


def test_repeated_deployment_is_reproduced_by_its_seed():
    tables = [repeated_deployment(Constant(), NewPeople(), 2, random_state=s) for s in (0, 0, 1)]
    pd.testing.assert_frame_equal(tables[0], tables[1])
    assert not tables[0].equals(tables[2])


@pytest.mark.parametrize(
    ("params", "match"),
    [({"mode": "greed"}, "mode .*'greed'.*'greedy'"), ({"n_rounds": 0}, "n_rounds .* 0")],
)
def test_repeated_deployment_refuses_unusable_parameters(params, match):
    call = {"estimator": Constant(), "environment": NewPeople(), "n_rounds": 2} | params
    with pytest.raises(ValueError, match=match):
        repeated_deployment(**call)
