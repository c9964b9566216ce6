"""Rounds of training and reaction, and what they spend."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression, SGDClassifier

from skdpfair import DPFairClassifier
from skdpfair.datasets import make_two_groups
from skdpfair.performative import StrategicResponse, repeated_deployment
from skdpfair.privacy import NoisyRelease, compute_epsilon

pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")


@pytest.fixture
def data():
    return make_two_groups(300, random_state=0)


@pytest.fixture
def population(data):
    return StrategicResponse(
        data.data, data.target, data.sensitive_features, budget=0.4, changeable=["x0", "x1"]
    )


class Fake(ClassifierMixin, BaseEstimator):
    """Predicts 1, and records ten releases for each fit; composes them if warm_start."""

    def __init__(self, noise=2.0, warm_start=False):
        self.noise, self.warm_start = noise, warm_start

    def fit(self, X, y, sensitive_features=None):
        self.classes_, self.groups = np.array([0, 1]), sensitive_features
        last = self.privacy_.releases if self.warm_start and self.fitted else ()
        releases = (*last, NoisyRelease("gradient sum", 0.1, (self.noise,), 10))
        self.privacy_ = SimpleNamespace(
            releases=releases, epsilon=compute_epsilon(releases, 1e-5), delta=1e-5, accountant="pld"
        )
        return self

    @property
    def fitted(self):
        return hasattr(self, "privacy_")

    def predict(self, X):
        return np.ones(len(X), dtype=int)

    def decision_function(self, X):
        return np.ones(len(X))


def test_accuracies_are_those_of_a_loop_written_out(data, population):
    table = repeated_deployment(LogisticRegression(), population, 3)
    assert (table["epsilon_spent"] == math.inf).all()
    table = table.set_index(["round", "group"])
    assert list(table["n_samples"]) == [300, 210, 90] * 3
    X, y = data.data, data.target
    in_b = data.sensitive_features == "b"
    for number in (1, 2, 3):
        model = LogisticRegression().fit(X, y)
        row = table.loc[number, "overall"], table.loc[number, "b"]
        assert [r["accuracy"] for r in row] == [model.score(X, y), model.score(X[in_b], y[in_b])]
        X, _, _ = population.sample(model, None)
        assert [r["accuracy_after"] for r in row] == [
            model.score(X, y),
            model.score(X[in_b], y[in_b]),
        ]


def test_epsilon_composes_the_ledgers_of_all_rounds_in_both_modes(population):
    expected = [
        compute_epsilon([NoisyRelease("gradient sum", 0.1, (2.0,), 10 * k)], 1e-5)
        for k in (1, 2, 3)
    ]
    for mode in ("repeated", "greedy"):
        table = repeated_deployment(Fake(), population, 3, mode=mode)
        spent = table.loc[table["group"] == "overall", "epsilon_spent"]
        np.testing.assert_allclose(spent, expected, rtol=1e-9)
    assert expected[2] < 3 * expected[0]


def test_a_round_without_privacy_is_never_forgotten(population):
    table = repeated_deployment(Fake(noise=0.0), population, 2)
    assert (table["epsilon_spent"] == math.inf).all()


@pytest.mark.parametrize("mode", ["repeated", "greedy"])
def test_clones_get_the_groups_and_the_estimator_is_not_changed(population, mode):
    seen = []

    class Listening(Fake):
        def fit(self, X, y, sensitive_features=None):
            seen.append(sensitive_features)
            return super().fit(X, y)

    fake = Listening()
    repeated_deployment(fake, population, 2, mode=mode)
    assert not fake.fitted and fake.warm_start is False
    assert len(seen) == 2 and all(groups is population.sensitive_features for groups in seen)


def test_greedy_fits_one_estimator_on(population):
    params = {"loss": "log_loss", "max_iter": 1, "tol": None, "random_state": 0}
    table = repeated_deployment(SGDClassifier(**params), population, 3, mode="greedy")
    model = SGDClassifier(**params, warm_start=True)
    X, y, _ = population.sample(None, None)
    for number in (1, 2, 3):
        model.fit(X, y)
        row = table[(table["round"] == number) & (table["group"] == "overall")]
        assert row["accuracy"].item() == model.score(X, y)
        X, _, _ = population.sample(model, None)
    fresh = SGDClassifier(**params).fit(X, y)
    assert not np.allclose(fresh.coef_, model.coef_)


@pytest.mark.parametrize("mode", ["repeated", "greedy"])
def test_a_private_estimator_pays_for_every_round(population, mode):
    clf = DPFairClassifier(
        "dpsgd", epsilon=None, noise_multiplier=2.0, module="logistic", max_steps=5, lr=0.5
    )
    table = repeated_deployment(clf, population, 2, mode=mode)
    first, second = table.loc[table["group"] == "overall", "epsilon_spent"]
    assert 0 < first < second < 2 * first


def test_groups_may_be_crossed_and_absent(data):
    crossed = pd.DataFrame({"sex": data.sensitive_features, "young": data.data["x2"] > 0})
    population = StrategicResponse(data.data, data.target, crossed, budget=0.1)
    table = repeated_deployment(Fake(), population, 1)
    assert set(table["group"]) == {
        "overall", ("a", True), ("a", False), ("b", True), ("b", False),
    }  # fmt: skip
    assert table["n_samples"].iloc[1:].sum() == 300
    without = StrategicResponse(data.data, data.target, budget=0.1)
    assert list(repeated_deployment(Fake(), without, 2)["group"]) == ["overall"] * 2


class Drawing:
    """Draws new people each round."""

    def sample(self, model, rng):
        X = rng.normal(size=(20, 3))
        return X, (X[:, 0] > 0).astype(int), None


def test_a_seed_reproduces_the_draws():
    tables = [repeated_deployment(Fake(), Drawing(), 2, random_state=s) for s in (0, 0, 1)]
    pd.testing.assert_frame_equal(tables[0], tables[1])
    assert not tables[0].equals(tables[2])


@pytest.mark.parametrize(
    "given, message",
    [
        ({"mode": "greed"}, "mode must be one of .*'greed'. Did you mean 'greedy'"),
        ({"n_rounds": 0}, "n_rounds must be an integer >= 1, got 0"),
    ],
)
def test_unusable_deployments_are_refused(given, message):
    given = {"estimator": Fake(), "environment": Drawing(), "n_rounds": 2} | given
    with pytest.raises(ValueError, match=message):
        repeated_deployment(**given)
