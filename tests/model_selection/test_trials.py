"""Trials of a private search: the law of their number, their scores, and what they may release."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import special, stats

from skdpfair._utils.keystream import Keystream
from skdpfair.budget.charging import ledger_suspended
from skdpfair.exceptions import PrivacyAccountingError
from skdpfair.model_selection import _trials
from skdpfair.privacy import NoisyRelease
from skdpfair.privacy.renyi import rdp_curve, stop_parameter
from skdpfair.training.plan import Plan
from tests.model_selection.searches import base

X = np.random.default_rng(0).normal(size=(200, 3))
Y = (X[:, 0] > 0).astype(int)


@pytest.mark.parametrize("mean", [1.5, 6.0, 1000.0])
@pytest.mark.parametrize("shape", [0.0, 1e-3, 0.5, 1.0, 30.0, math.inf])
def test_draw_count_follows_its_law(shape, mean):
    """False alarms: 1e-6 each, and the seed is fixed."""
    stream, k = Keystream(b"seed"), np.arange(1, 10**6)
    drawn = np.array([_trials.draw_count(stream, mean, shape) for _ in range(4000)])
    if shape == math.inf:
        logs = np.append(0.0, k * math.log(mean) - special.gammaln(k + 1))
    else:  # Papernot and Steinke, definition 1
        logs = special.gammaln(k + shape) - special.gammaln(k + 1)
        logs = np.append(-math.inf, logs + k * math.log1p(-stop_parameter(mean, shape)))
    law = np.exp(logs - logs.max())
    law /= law.sum()
    assert law @ np.append(0, k) == pytest.approx(mean, rel=1e-6)
    upto = law.cumsum()[drawn]
    between = upto - law[drawn] * stream.random(len(drawn))
    assert stats.kstest(between, "uniform").pvalue > 1e-6


def test_best_of_draws_from_the_pool_and_keeps_the_best(trials):
    trials(50)
    rng = np.random.default_rng(0)
    found = _trials.best_of(rng, (50.0, 1.0), [3, 1, 2], lambda p: -p, lambda model: model)
    assert found == (1, -1)


def score_without_noise(monkeypatch, labels=Y):
    """Return the function that counts correct predictions of a trial."""
    monkeypatch.setattr(_trials, "private_logits", lambda model, X: np.eye(2)[model.predicted])
    score = _trials.scorer(X, labels, 0.0, np.random.default_rng(0))
    classes = np.array([0, 1])
    return lambda predicted: score(SimpleNamespace(classes_=classes, predicted=predicted))


def test_scorer_moves_with_one_record_by_one_at_most(monkeypatch):
    score, other = score_without_noise(monkeypatch), Y.copy()
    other[0] = 1 - Y[0]
    assert (score(Y), score(1 - Y), score(other)) == (200, 0, 199)
    assert score_without_noise(monkeypatch, other)(Y) == 199
    for predicted in (Y[:1], Y[:199], np.append(Y, 1)):
        with pytest.raises(ValueError, match="of 200 rows"):
            score(predicted)


def test_trainer_ends_a_search_whose_trial_released_more_than_planned(monkeypatch):
    rng, low = np.random.default_rng(0), rdp_curve([NoisyRelease("steps", 0.1, (100.0,), 1)])
    train = _trials.trainer(base(), (X, Y), {}, low, rng, False, {})
    with ledger_suspended(), pytest.raises(PrivacyAccountingError, match="one model each"):
        train({})
    less = property(lambda plan: (replace(plan.mechanism.release, steps=0),))  # than it releases
    monkeypatch.setattr(Plan, "releases", less)
    with ledger_suspended(), pytest.raises(PrivacyAccountingError, match="released more"):
        train({})
