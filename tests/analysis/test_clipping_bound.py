"""Equation 1 of Xu et al. against per-record gradients, a search, and exact errors."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.exceptions import UndefinedMetricWarning
from torch import nn
from torch.nn.functional import cross_entropy

from skdpfair import DPFairClassifier, Groups
from skdpfair.analysis import clipping_error_bound
from skdpfair.privacy import gdp_epsilon


def case(n=40):
    rng = np.random.default_rng(0)
    group = np.where(rng.random(n) < 0.3, "a", "b")
    x = rng.normal(size=(n, 3)) * np.where(group == "a", 3.0, 1.0)[:, None]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    return module, x, (x[:, 0] > 0).astype(int), group


def norms_of(module, x, y):
    found = []
    for record, label in zip(x, y, strict=True):
        loss = cross_entropy(module(torch.from_numpy(record)[None]), torch.tensor([label]))
        parts = torch.autograd.grad(loss, list(module.parameters()))
        found.append(math.sqrt(sum(float((part**2).sum()) for part in parts)))
    return np.array(found)


@pytest.mark.parametrize("batch_size", [None, 10.0])
@pytest.mark.parametrize("epsilon", [0.01, 0.15, 0.37, 5.0])
def test_equation_1_and_its_best_bound(epsilon, batch_size):
    module, x, y, group = case()
    norms, b = norms_of(module, x, y), batch_size or len(x)
    table = clipping_error_bound(
        module, x, y, 0.4, epsilon=epsilon, batch_size=batch_size, sensitive_features=group
    )
    for level, row in table.iterrows():
        own = norms[group == level]
        b_k = b * len(own) / len(x)

        def bound(c, own=own, b_k=b_k):
            return c / (b_k * epsilon) + np.maximum(own - c, 0).mean()

        assert row["n_samples"] == len(own)
        assert row["noise"] == pytest.approx(0.4 / (b_k * epsilon), rel=1e-9)
        assert row["bound"] == pytest.approx(bound(0.4), rel=1e-9)
        best = row["best_max_grad_norm"]
        assert row["best_bound"] == pytest.approx(bound(best), rel=1e-9)
        search = np.append(np.linspace(0, own.max() * 1.1, 2000), own)
        assert bound(best) <= min(map(bound, search)) + 1e-12
        quantile = max(0.0, 1 - 1 / (b_k * epsilon))
        assert row["quantile"] == pytest.approx(quantile, abs=1e-12)
        if quantile > 0:
            by_numpy = np.quantile(own, quantile, method="inverted_cdf")
            assert best == pytest.approx(by_numpy)
        else:
            assert best == 0


@pytest.mark.parametrize("signs", [(1, 1, 1), (1, -1, 0)])
def test_the_error_lies_below_the_bound_and_above_half_of_it_in_one_direction(signs):
    """E|Laplace(s) - bias| is s exp(-|bias| / s) + |bias|; opposite gradients have no bias."""
    module = nn.Linear(1, 2, bias=False).double()
    nn.init.zeros_(module.weight)
    x = 5 * math.sqrt(2) * np.array(signs, dtype=float)[:, None]  # gradients 5 * signs
    row = clipping_error_bound(module, x, np.zeros(3, dtype=int), 1.0, epsilon=2.0).loc["all"]
    clipped = 5.0 * np.array(signs)
    bias, scale = abs((clipped - np.clip(clipped, -1, 1)).mean()), 1 / (3 * 2.0)
    error = quad(lambda z: abs(z - bias) * math.exp(-abs(z) / scale) / (2 * scale), -9, 9,
                 points=[0, bias], epsabs=1e-12)[0]  # fmt: skip
    assert error == pytest.approx(scale * math.exp(-bias / scale) + bias)
    assert row["noise"] == pytest.approx(scale)
    assert error <= row["bound"]
    assert (error >= row["bound"] / 2) == (min(signs) > 0)


def test_gaussian_noise_of_the_stated_epsilon():
    """The mean norm of sigma C N(0, I_d) is at most C / epsilon, and near it for many d."""
    sigma, d = 0.8, 50
    draws = np.random.default_rng(0).normal(scale=sigma, size=(20_000, d))
    assert 0.98 < np.linalg.norm(draws, axis=1).mean() / (sigma * math.sqrt(d)) < 1


def test_the_printed_epsilon_of_a_group_is_too_small():
    """With ratio 1 / 101, the counts alone exceed the printed guarantee, by quadrature."""
    delta, sigma = 1e-6, 10.0
    printed = gdp_epsilon(math.hypot(1.0, 1 / sigma), delta) / 101

    def excess(z):
        return max(0.0, norm.pdf(z, 1, sigma) - math.exp(printed) * norm.pdf(z, 0, sigma))

    root = sigma**2 * printed + 0.5
    assert quad(excess, root, 200)[0] == pytest.approx(0.021, abs=5e-4)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"max_grad_norm": 0}, ValueError, "max_grad_norm must be a number > 0"),
        ({"epsilon": 0.0}, ValueError, "epsilon must be a number > 0"),
        ({"epsilon": math.inf}, ValueError, "epsilon must be"),
        ({"batch_size": 41}, ValueError, "batch_size must be a number > 0 and <= 40"),
        ({"batch_size": "all"}, TypeError, "batch_size must be"),
    ],
)
def test_unusable_numbers_are_named(change, error, message):
    module, x, y, _ = case()
    given = {"max_grad_norm": 1.0, "epsilon": 1.0} | change
    with pytest.raises(error, match=message):
        clipping_error_bound(module, x, y, **given)


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")
@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning")
def test_a_group_without_records_is_nan(two_groups):
    X, y, sex = two_groups.data, two_groups.target, two_groups.sensitive_features
    clf = DPFairClassifier(
        "dpsgd",
        epsilon=4.0,
        max_steps=5,
        group_col=Groups(levels=["a", "b", "c"]),
        lr=0.5,
        random_state=0,
    ).fit(X, y, sensitive_features=sex)
    with pytest.warns(UndefinedMetricWarning, match="no record of some"):
        found = clipping_error_bound(clf, X, y, 0.5, epsilon=1.0, sensitive_features=sex)
    assert found["n_samples"].tolist()[2] == 0
    assert found.loc["c"].drop("n_samples").isna().all()
    assert found.loc[["a", "b"]].notna().all(axis=None)
