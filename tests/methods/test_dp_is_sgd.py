"""DP-IS-SGD: groups are drawn equally often, at rates whose epsilon is reported by group."""

from dataclasses import replace

import numpy as np
import pytest

from skdpfair import DPFairClassifier, get_method
from skdpfair.datasets import make_two_groups
from skdpfair.privacy import NoisyRelease, accounting, compute_epsilon
from tests.methods.formula_steps import DPSGD, RATE, SHARES, N, assert_steps, releases

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
CHEAP = {"epsilon": None, "noise_multiplier": 3.0, "accountant": "rdp", "max_steps": 3}
DATA = make_two_groups(900, random_state=0)
GROUPS = np.random.default_rng(0).choice(["a", "b", "c"], 900, p=[0.6, 0.3, 0.1])


class DPISSGD(DPSGD):
    params = {"max_grad_norm": 0.8, "group_probabilities": SHARES, "max_sample_rate": 0.4}

    def step(self, theta, batch):
        rates = [min(0.4, RATE / (3 * q)) for q in SHARES]
        self.size = N * sum(q * r for q, r in zip(SHARES, rates, strict=True))
        return super().step(theta, batch)


def fitted(method="dp_is_sgd", groups=GROUPS, **params):
    params = {"module": "logistic", "epsilon": 2.0, "random_state": 0, "max_epochs": 5} | params
    if not isinstance(method, str):
        params = {"batch_size": 90} | params
    model = DPFairClassifier(method, **params)
    return model.fit(DATA.data, DATA.target, sensitive_features=groups)


def with_shares(shares, **params):
    return fitted(get_method("dp_is_sgd", group_probabilities=shares), **params)


def test_dp_is_sgd_steps_are_those_of_the_formula():
    assert_steps("dp_is_sgd", DPISSGD)
    assert releases("dp_is_sgd", max_grad_norm=0.75) == {"gradient sum": (0.75, 2.0)}


def test_group_epsilons_of_public_shares_are_those_of_their_rates():
    report = with_shares((0.6, 0.3, 0.1)).privacy_
    rates = {"a": 0.1 / 1.8, "b": 0.1 / 0.9, "c": 0.1 / 0.3}
    assert report.sample_rate == pytest.approx(rates["c"])
    alone = {
        group: NoisyRelease("steps", rate, (report.noise_multiplier,), report.steps)
        for group, rate in rates.items()
    }
    expected = {group: compute_epsilon([steps], report.delta) for group, steps in alone.items()}
    paid = report.group_epsilons
    assert paid == pytest.approx(expected)
    assert report.facts()["group_epsilons"].keys() == rates.keys()
    assert paid["a"] < paid["b"] < paid["c"] == pytest.approx(report.epsilon) and paid["c"] <= 2.0
    assert any("shares of the groups" in text for text in report.assumptions)
    assert "epsilon[c]" in report.details()


def test_group_counts_with_noise_are_released_and_part_of_epsilon():
    method = get_method("dp_is_sgd", group_count_noise_multiplier=30.0, max_sample_rate=0.25)
    report = fitted(method).privacy_
    first, *rest = report.releases
    counts = ("group counts", (30.0,), 1.0)
    assert (first.what, first.noise_multipliers, first.sample_rate) == counts
    assert report.sample_rate == 0.25 and all(e.sample_rate == 0.25 for e in rest)
    both = [NoisyRelease("counts", 1.0, (30.0,)), *rest]
    assert report.epsilon == pytest.approx(compute_epsilon(both, report.delta))
    assert 1.9 < report.epsilon <= 2.0
    assert all(0 < e <= report.epsilon for e in report.group_epsilons.values())


def test_group_epsilons_follow_the_shares_in_any_order():
    groups = np.array(["b", "c", "a"])[np.searchsorted(["a", "b", "c"], GROUPS)]
    report = with_shares((0.1, 0.6, 0.3), groups=groups, **CHEAP).privacy_
    paid = report.group_epsilons
    assert paid["b"] < paid["c"] < paid["a"] == pytest.approx(report.epsilon)


def test_group_counts_take_a_small_part_of_the_budget_by_default():
    report = fitted(get_method("dp_is_sgd", max_sample_rate=0.5)).privacy_
    assert 0.9 < compute_epsilon(report.releases[1:], report.delta) / report.epsilon < 1.0


def test_batch_size_and_reference_follow_counted_shares():
    model = fitted(batch_size=90, keep_reference=True)
    assert model.batch_size_ == round(model.privacy_.expected_batch_size)
    assert abs(model.reference_.batch_size_ - model.batch_size_) <= 0.1 * model.batch_size_


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_sample_rate", 0.01),  # below the sample rate
        ("max_sample_rate", 1.5),
        ("group_count_noise_multiplier", 0.0),
        ("group_count_noise_multiplier", 0.1),
    ],
)
def test_dp_is_sgd_refuses_parameters_out_of_range(name, value):
    model = DPFairClassifier(get_method("dp_is_sgd", **{name: value}), epsilon=0.5, batch_size=90)
    with pytest.raises(ValueError, match=name):
        model.fit(DATA.data, DATA.target, sensitive_features=GROUPS)
    assert not hasattr(model, "net_")


def test_group_epsilons_of_many_groups_are_no_less_than_at_their_own_rates(monkeypatch):
    group = np.repeat(np.arange(30), np.arange(1, 31))
    X, y = np.ones((len(group), 2)), np.arange(len(group)) % 2
    priced, real = [], accounting.compute_epsilon
    monkeypatch.setattr(accounting, "compute_epsilon", lambda *a: priced.append(a) or real(*a))
    method = get_method("dp_is_sgd", group_probabilities=tuple(np.arange(1, 31) / 465))
    model = DPFairClassifier(method, **CHEAP | {"noise_multiplier": 1.0, "batch_size": 60})
    report = model.fit(X, y, sensitive_features=group).privacy_
    paid, (entry,) = report.group_epsilons, report.releases
    assert len(priced) <= 1 + 8 and list(paid) == list(range(30))
    for k in (0, 3, 12, 20, 29):
        own = replace(entry, sample_rate=entry.group_rates[k])
        assert compute_epsilon([own], report.delta, "rdp") <= paid[k] <= report.epsilon
    assert paid[0] == pytest.approx(report.epsilon)
