"""The plan of a fit follows from public facts alone, and its noise from the budget or the user."""

import math
import re

import numpy as np
import pytest

from skdpfair import DPFairClassifier, get_method
from skdpfair.engine.mechanism import Clip, Method, Query
from skdpfair.exceptions import InfeasibleBudgetError, LowSignalWarning
from skdpfair.model_selection import DPThresholdClassifier
from skdpfair.privacy import NoisyRelease, compute_epsilon
from skdpfair.training.plan import plan
from skdpfair.training.spec import FitSpec
from tests.quick_fits import GROUP, QUIET, X, Y, quick

pytestmark = QUIET


def planned(n_samples=600, n_groups=1, **params):
    return plan(FitSpec.of(quick(**params)), n_samples, n_groups)


@pytest.mark.parametrize("method", ["dpsgd", "global_adapt"])
def test_plan_is_the_same_for_other_rows_of_the_same_number(method):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(400, 4)), rng.integers(0, 2, 400)
    order = rng.permutation(400)
    settings = []
    for rows in ((x, y), (x[order], y[order]), (1e3 * rng.normal(size=(400, 4)), 1 - y)):
        model = DPFairClassifier(method, epsilon=2.0).fit(*rows)
        names = ("batch_size_", "n_steps_", "n_iter_", "signal_to_noise_")
        settings.append(
            [getattr(model, name) for name in names]
            + [repr(model.net_.plan), model.privacy_.noise_multiplier]
        )
    assert settings[0] == settings[1] == settings[2]


def test_plan_calibrates_noise_for_epsilon_or_takes_noise_multiplier():
    for budget in ({"epsilon": 5.0}, {"epsilon": None, "noise_multiplier": 1.3}):
        found = planned(**budget)
        run = NoisyRelease("steps", 1 / 6, (found.mechanism.noise_multiplier,), 20)
        epsilon = compute_epsilon([run], found.delta)
        report = quick(**budget).fit(X, Y).privacy_
        assert report.epsilon == pytest.approx(epsilon, abs=1e-9) and report.is_private
        assert report.noise_multiplier == found.mechanism.noise_multiplier
    assert report.noise_multiplier == 1.3
    clipped = quick(epsilon=None, noise_multiplier=0).fit(X, Y)
    assert clipped.method_.name == "dpsgd" and math.isinf(clipped.privacy_.epsilon)


def test_plan_counts_epochs_and_the_steps_that_enter_the_average():
    found = planned(max_steps=20, batch_size=100, iterate_average=0.5)
    assert (found.steps_per_epoch, found.n_epochs, found.n_steps, found.warm_up) == (6, 4, 20, 5)
    assert (found.n_training_epochs, found.n_before_average) == (4, 20 - 8)
    assert found.is_accounted and not planned(method="sgd", epsilon=None).is_accounted


def test_plan_holds_group_counts_for_methods_that_need_undeclared_fractions():
    counted = planned(method="dp_is_sgd", n_groups=2)
    public = get_method("dp_is_sgd", group_probabilities=(0.3, 0.7))
    assert [release.what for release in counted.releases] == ["group counts", "steps"]
    assert [release.what for release in planned(method=public, n_groups=2).releases] == ["steps"]


def test_plan_refuses_a_budget_that_cannot_be_met():
    with pytest.raises(InfeasibleBudgetError, match="n = 600"):
        planned(epsilon=1e-9)
    with pytest.raises(ValueError, match="1/n_samples"):
        planned(delta=0.01)


FITS = {
    "plain": lambda e: DPFairClassifier("dpsgd", epsilon=e, module="logistic"),
    "counts of groups": lambda e: DPFairClassifier("dp_is_sgd", epsilon=e),
    "threshold": lambda e: DPThresholdClassifier(DPFairClassifier(epsilon=e)),
}


@pytest.mark.parametrize("kind", FITS)
def test_plan_calls_an_epsilon_feasible_that_is_feasible(kind):
    rows = {"X": X[:100], "y": Y[:100], "sensitive_features": GROUP[:100]}
    with pytest.raises(InfeasibleBudgetError) as caught:
        FITS[kind](0.003).fit(**rows)
    named = float(re.search(r"epsilon=([\d.]+) is feasible", str(caught.value))[1])
    FITS[kind](named).fit(**rows)


def test_plan_warns_of_a_low_signal_and_of_coarse_counts():
    with pytest.warns(LowSignalWarning, match=r"n = 100 records .* = 22"):
        planned(100, 2, epsilon=0.5)
    with pytest.warns(LowSignalWarning, match="multiplier of 99"):
        planned(100, 2, method=get_method("dpsgd_f", count_noise_multiplier=99.0))


class Capped(Method):
    """Norms with noise that stays the same below a budget."""

    def clip(self, sample, state, release):
        return Clip(1 / sample.norm.clamp(min=1.0), 1.0)

    def queries(self, task, noise_multiplier):
        rows = lambda sample, state: sample.norm.clamp(max=1.0)[:, None]  # noqa: E731
        return (Query("norms", rows, 1.0, min(noise_multiplier, 1.5)),)


def test_plan_refuses_noise_that_does_not_follow_the_budget():
    with pytest.raises(ValueError, match=r"Capped.*noise_multiplier"):
        planned(method=Capped(), epsilon=1.0)
