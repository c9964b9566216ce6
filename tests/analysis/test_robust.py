"""Robust accuracy against a count by hand, and its gap."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch import nn

from skdpfair import DPFairClassifier
from skdpfair.analysis import robust_accuracy, robust_generalisation_gap
from skdpfair.attacks import PGD

pytestmark = pytest.mark.filterwarnings(
    "ignore::skdpfair.exceptions.InsecureSeedWarning",
    "ignore::skdpfair.exceptions.LowSignalWarning",
)


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = rng.random((300, 5), dtype=np.float32)
    y = np.where(X[:, 0] + X[:, 1] > 1, "yes", "no")
    model = DPFairClassifier(
        "dpsgd", epsilon=8.0, module="logistic", lr=2.0, max_epochs=30, batch_size=100,
        random_state=0,
    )  # fmt: skip
    return model.fit(X, y), X, y


def test_of_a_linear_model_it_is_the_margin(fitted):
    model, X, y = fitted
    weight = model.net_.module_.weight.detach().numpy()
    slope = weight[1] - weight[0]
    for radius in (0.01, 0.05, 0.2):
        sign = np.where(y == "yes", 1, -1)
        margin = sign * model.decision_function(X) - radius * np.abs(slope).sum()
        found = robust_accuracy(model, X, y, PGD(radius, input_range=None))
        assert found == pytest.approx((margin > 0).mean(), abs=2 / len(y))


def test_the_attack_that_does_nothing_leaves_accuracy(fitted):
    model, X, y = fitted
    assert robust_accuracy(model, X, y, lambda module, x, y: x) == model.score(X, y)
    assert robust_accuracy(model, X, y, PGD(1e-9)) == model.score(X, y)


def test_batches_pickles_and_left_behinds(fitted):
    model, X, y = fitted
    whole = robust_accuracy(model, X, y, PGD(0.05))
    assert robust_accuracy(model, X, y, PGD(0.05), batch_size=7) == whole
    assert robust_accuracy(pickle.loads(pickle.dumps(model)), X, y, PGD(0.05)) == whole

    def backward(module, x, y):
        nn.functional.cross_entropy(module(x), y).backward()
        return x

    state = torch.get_rng_state()
    robust_accuracy(model, X, y, backward)
    assert all(p.grad is None for p in model.net_.module_.parameters())
    assert torch.equal(torch.get_rng_state(), state)


def test_the_gap_is_train_minus_test(fitted):
    model, X, y = fitted
    attack, train, test = PGD(0.05), slice(200), slice(200, None)
    gap = robust_generalisation_gap(model, X[train], y[train], X[test], y[test], attack)
    parts = [robust_accuracy(model, X[part], y[part], attack) for part in (train, test)]
    assert gap == parts[0] - parts[1]


def test_group_columns_and_images(two_groups):
    X, y = two_groups.frame.drop(columns="target"), two_groups.target
    model = DPFairClassifier("dpsgd_f", group_col="group", max_steps=5, random_state=0).fit(X, y)
    attack = PGD(0.1, input_range=None)
    assert robust_accuracy(model, X, y, attack) <= model.score(X, y)
    images = np.random.default_rng(0).random((60, 6, 6), dtype=np.float32)
    y = np.arange(60) % 2
    model = DPFairClassifier("dpsgd", module="cnn", max_steps=2, random_state=0).fit(images, y)
    assert 0 <= robust_accuracy(model, images, y, PGD(0.1)) <= 1


def test_what_is_refused(fitted):
    model, X, y = fitted
    with pytest.raises(TypeError, match=r"attack must be a callable.*got 'pgd'"):
        robust_accuracy(model, X, y, "pgd")
    with pytest.raises(ValueError, match=r"radius of PGD must be .*got -1"):
        robust_accuracy(model, X, y, PGD(-1.0))
    with pytest.raises(ValueError, match="batch_size must be an integer >= 1, got 0"):
        robust_accuracy(model, X, y, PGD(0.1), batch_size=0)
    with pytest.raises(TypeError, match=r"estimator must be a fitted DPFairClassifier.*Linear"):
        robust_accuracy(nn.Linear(5, 2), X, y, PGD(0.1))
    with pytest.raises(NotFittedError):
        robust_accuracy(DPFairClassifier(), X, y, PGD(0.1))
    with pytest.raises(ValueError, match="labels outside the model's classes"):
        robust_accuracy(model, X, np.where(y == "yes", "maybe", y), PGD(0.1))
    with pytest.raises(ValueError, match="inconsistent"):
        robust_accuracy(model, X, y[:-1], PGD(0.1))
    with pytest.raises(ValueError, match="0 sample"):
        robust_accuracy(model, X[:0], y[:0], PGD(0.1))
    with pytest.raises(ValueError, match="set input_range"):
        robust_accuracy(model, X + 5, y, PGD(0.1))
    with pytest.raises(ValueError, match="for x of shape"):
        robust_accuracy(model, X, y, lambda module, x, y: x[:, :2])
