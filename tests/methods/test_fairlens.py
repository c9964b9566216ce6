"""FairLens: regularisers of the whole batch, and of noisy sums."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from skdpfair import DPFairClassifier, get_method
from skdpfair.datasets import make_two_groups
from skdpfair.engine import Batch, Streams, private_step, select_strategy
from skdpfair.engine.mechanism import Mechanism, Task
from skdpfair.exceptions import UnsupportedModuleError
from skdpfair.methods import METHODS
from skdpfair.training.batches import records_at
from tests.methods.formula_steps import DPSGD, Problem, assert_steps, clip, draw, releases

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
DATA = make_two_groups(900, random_state=0)


def regulariser(p, theta, batch, c, gamma1, gamma2):
    """Return the published regulariser of a batch, to be differentiated through everything."""
    rows = torch.stack([p.gradient(theta, i, create_graph=True) for i in batch])
    scores = torch.stack([p.score(theta, i) for i in batch])
    norm = rows.norm(dim=1, keepdim=True)
    clipped = torch.where(norm > c, rows * c / norm, rows)
    a, b = (p.group[batch] == k for k in (0, 1))
    r1 = torch.dot(rows[a].mean(0) - rows[b].mean(0), clipped.mean(0) - rows.mean(0)).abs()
    r2 = sum(scores[k].mean() * (1 - scores[k].mean()) for k in (a, b)) / 2
    return gamma1 * r1 + gamma2 * r2


def slope(p, theta, batch, *args):
    at = theta.detach().clone().requires_grad_()
    return torch.autograd.grad(regulariser(p, at, batch, *args), at)[0]


class FairLens(DPSGD):
    params = {"max_grad_norm": 0.8, "gamma1": 0.5, "gamma2": 2.0}

    def step(self, theta, batch):
        common = torch.zeros_like(theta)
        if len(set(self.groups(batch))) == 2:
            common = slope(self.p, theta, batch, 0.8, 0.5, 2.0)
        return self.noisy_mean(clip(g + common, 0.8) for g in self.gradients(theta, batch))


class FairLensDP(DPSGD):
    params = {
        "max_grad_norm": 0.8,
        "group_max_grad_norm": 1.1,
        "gamma1": 0.5,
        "gamma2": 2.0,
        "count_noise_multiplier": 0.2,
    }

    def step(self, theta, batch):
        d, c, r, size = self.p.size, 0.8, 1.1, self.size
        stats = torch.zeros(4 + 3 * d, dtype=torch.float64)
        for i, g in zip(batch, self.gradients(theta, batch), strict=True):
            a = int(self.p.group[i])
            stats[a] += 1
            stats[2 + a] += self.p.score(theta, i).detach()
            stats[4 + a * d : 4 + (a + 1) * d] += clip(g, r) / r
            stats[4 + 2 * d :] += clip(g, c) / c
        stats += draw(self.noise, 4 + 3 * d, 0.2 * 2.0)
        b = [max(1.0, float(stats[a])) for a in (0, 1)]
        f = [min(1.0, max(0.0, float(stats[2 + a]) / b[a])) for a in (0, 1)]
        grouped = [r * stats[4 + a * d : 4 + (a + 1) * d] for a in (0, 1)]
        u = c * stats[4 + 2 * d :] / size - (grouped[0] + grouped[1]) / size
        v = grouped[0] / b[0] - grouped[1] / b[1]
        s = math.copysign(1.0, float(torch.dot(u, v).detach()))
        rows = []
        for i in batch:
            at, a = theta.detach().clone().requires_grad_(), int(self.p.group[i])
            g = self.p.gradient(at, i, create_graph=True)
            w = (1 if a == 0 else -1) / b[a]
            shortened = g * c / g.norm() if float(g.norm().detach()) > c else g
            r2 = size * (1 - 2 * f[a]) / (2 * b[a]) * self.p.score(at, i)
            r1 = s * (size * w * torch.dot(g, u) + torch.dot(shortened - g, v))
            own = self.p.loss(at, i) + 0.5 * r1 + 2.0 * r2
            rows.append(clip(torch.autograd.grad(own, at)[0], c))
        return self.noisy_mean(rows)


def test_fairlens_steps_are_those_of_the_formula():
    assert_steps("fairlens", FairLens)


def test_fairlens_dp_steps_are_those_of_the_formula():
    assert_steps("fairlens_dp", FairLensDP)


@pytest.mark.parametrize("gamma1, gamma2", [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0)])
def test_fairlens_dp_without_noise_follows_the_published_regulariser(gamma1, gamma2):
    p, plain = Problem(2, 2, hidden=0), get_method("sgd")
    params = {"max_grad_norm": 0.8, "group_max_grad_norm": 1e6}
    method = get_method("fairlens_dp", gamma1=gamma1, gamma2=gamma2, **params)
    object.__setattr__(method, "clip", plain.clip)
    batch = p.batches[0]
    task = Task(len(batch), 2, 1.0)  # B is the size of the batch
    p.set_theta(p.theta)
    every, sums = records_at(Batch(p.x, p.y, p.group), batch), []
    with select_strategy(p.module, p.x[:1], 2) as engine:
        for m in (method, plain):
            noise = Streams.fresh().noise()
            step = private_step(engine, every, Mechanism(m, task, 0.0), m.start(task), noise)
            sums.append(step.gradient)
    expected = slope(p, p.theta, batch, 0.8, gamma1, gamma2)
    torch.testing.assert_close(sums[0] - sums[1], expected, rtol=1e-10, atol=1e-10)


def test_fairlens_releases_raw_sums_and_fairlens_dp_noisy_ones():
    raw = releases("fairlens", max_grad_norm=0.75)
    assert raw == {"gradient sum": (0.75, 2.0), "groups": (math.inf, 0.0)}
    for gamma1, bound in ((0.0, math.sqrt(2)), (1.0, 2.0)):
        noisy = releases("fairlens_dp", max_grad_norm=0.75, gamma1=gamma1)
        assert noisy == {"gradient sum": (0.75, 2.0), "groups": (bound, 10.0)}


def fitted(method, groups=DATA.sensitive_features, y=DATA.target, **params):
    params = {"module": "logistic", "epsilon": 2.0, "random_state": 0, "max_epochs": 5} | params
    model = DPFairClassifier(method, **params)
    return model.fit(DATA.data, y, sensitive_features=groups)


@pytest.mark.parametrize("name", ["fairlens", "fairlens_dp"])
def test_fairlens_refuses_other_than_two_groups_or_classes(name):
    epsilon, three = 1.0 if METHODS[name].private else None, np.arange(900) % 3
    with pytest.raises(ValueError, match=f"{name}.*two groups"):
        fitted(name, three, epsilon=epsilon)
    with pytest.raises(ValueError, match="Only binary classification"):
        fitted(name, y=three, epsilon=epsilon)


def test_fairlens_takes_noise_that_buys_no_epsilon():
    report = fitted("fairlens", epsilon=None, noise_multiplier=1.0).privacy_
    assert math.isinf(report.epsilon) and report.noise_multiplier == 1.0


def test_fairlens_dp_refuses_gamma1_with_many_parameters():
    method = get_method("fairlens_dp", gamma1=1.0)
    with pytest.raises(ValueError, match=r"gamma1=1 .*1000.*gamma1=0"):
        fitted(method, module="mlp")
    assert fitted(method).privacy_.epsilon <= 2.0


def test_fairlens_dp_accounts_for_sums_of_groups_with_the_gradient():
    entry = fitted("fairlens_dp", lr=0.1).privacy_.releases[-1]
    gradient, sums = entry.noise_multipliers
    assert sums == pytest.approx(5 * gradient) and "groups" in entry.what


def test_fairlens_refuses_dropout():
    def module():
        return nn.Sequential(nn.Dropout(0.5), nn.Linear(DATA.data.shape[1], 2))

    with pytest.raises(UnsupportedModuleError, match="dropout"):
        fitted("fairlens", epsilon=None, module=module)
