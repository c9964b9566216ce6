"""Steps of the engine against loops over the records, written from the formulas of papers."""

import itertools
import math

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from docs.methods_table import sensitivities
from skdpfair import get_method
from skdpfair.engine import Batch, Streams, private_step, select_strategy
from skdpfair.engine.flat import split
from skdpfair.engine.mechanism import Mechanism, Task
from skdpfair.testing import example_task
from skdpfair.training.batches import records_at

N, FEATURES, RATE, LR, STEPS, SIGMA = 60, 4, 0.3, 0.5, 4, 0.7
SHARES = (0.5, 0.3, 0.2)


class Problem:
    """Data, batches and a module whose parameters are one vector theta."""

    def __init__(self, n_groups, n_classes, hidden=3):
        rng = torch.Generator().manual_seed(1)
        self.n_groups, self.n_classes = n_groups, n_classes
        self.group = torch.randint(0, n_groups, (N,), generator=rng)
        self.x = 3 * torch.rand((N, FEATURES), generator=rng, dtype=torch.float64) - 1
        self.x *= (1 + self.group)[:, None]
        self.y = torch.randint(0, n_classes, (N,), generator=rng)
        layers = [nn.Linear(FEATURES, n_classes)]
        if hidden:
            layers = [nn.Linear(FEATURES, hidden), nn.Tanh(), nn.Linear(hidden, n_classes)]
        self.module = nn.Sequential(*layers).double()
        self.parameters = dict(self.module.named_parameters())
        self.size = sum(p.numel() for p in self.module.parameters())
        self.theta = torch.rand(self.size, generator=rng, dtype=torch.float64) - 0.5
        self.batches = [
            torch.nonzero(torch.rand(N, generator=rng) < RATE)[:, 0] for _ in range(STEPS)
        ]
        self.batches[1] = self.batches[1][:0]  # an empty batch
        absent = self.batches[2]
        self.batches[2] = absent[self.group[absent] != 0]  # a group that is absent

    def parts(self, theta):
        return dict(zip(self.parameters, split(theta, self.parameters.values()), strict=True))

    def logits(self, theta, i):
        return functional_call(self.module, self.parts(theta), (self.x[i : i + 1],))

    def loss(self, theta, i):
        return cross_entropy(self.logits(theta, i), self.y[i : i + 1])

    def gradient(self, theta, i, create_graph=False):
        theta = theta if theta.requires_grad else theta.detach().requires_grad_()
        (g,) = torch.autograd.grad(self.loss(theta, i), theta, create_graph=create_graph)
        return g

    def score(self, theta, i):
        return torch.softmax(self.logits(theta, i), dim=1)[0, 1]

    def set_theta(self, theta):
        with torch.no_grad():
            for name, part in self.parts(theta).items():
                self.parameters[name].copy_(part)


def clip(g, c):
    return g * min(1.0, c / float(g.norm())) if g.norm() > 0 else g


def add(rows, size):
    return sum(rows, torch.zeros(size, dtype=torch.float64))


def draw(noise, size, sd):
    out = torch.empty(size, dtype=torch.float64)
    return noise.fill_(out, 1.0, sd) if sd > 0 else out.zero_()


class DPSGD:
    """The naive loop: ``step`` returns the sum that the optimizer gets, over the batch size B."""

    params = {"max_grad_norm": 0.8}
    strata = ()

    def __init__(self, problem, noise):
        self.p, self.noise, self.size, self.kept = problem, noise, N * RATE, {}

    def step(self, theta, batch):
        return self.noisy_mean(clip(g, 0.8) for g in self.gradients(theta, batch))

    def gradients(self, theta, batch):
        return [self.p.gradient(theta, i) for i in batch]

    def noisy_mean(self, rows, bound=0.8, sd=SIGMA):
        return (add(rows, self.p.size) + draw(self.noise, self.p.size, sd * bound)) / self.size

    def counted(self, counts, sd=3.0):
        """Return a list of counts with noise."""
        noise = draw(self.noise, len(counts), sd)
        return [count + float(e) for count, e in zip(counts, noise, strict=True)]

    def groups(self, batch):
        return [self.p.group[i].item() for i in batch]

    def factor(self, t):
        """Return what multiplies the learning rate."""
        return 1.0

    def after(self, theta):
        """Return the feasible parameters."""
        return theta


class SGD(DPSGD):
    """No clipping, and noise that buys no epsilon."""

    params = {"gradient_noise": 0.05}

    def step(self, theta, batch):
        return self.noisy_mean(self.gradients(theta, batch), sd=0.0) + self.added_noise()

    def added_noise(self):
        return draw(self.noise, self.p.size, 0.05)


class Adaptive(DPSGD):
    """The rule of Andrew et al. (2021) for the bound: C exp(0.2 (count / B - q))."""

    params = {"max_grad_norm": 0.8, "target_share": 0.2, "count_noise_multiplier": 3.0}
    lowest = 0.0

    def weighted(self, g, c):
        return clip(g, c)

    def step(self, theta, batch):
        c, rows = self.kept.get("c", 0.8), self.gradients(theta, batch)
        (count,) = self.counted([sum(float(g.norm()) > c for g in rows)])
        self.kept["c"] = max(self.lowest, c * math.exp(0.2 * (count / self.size - 0.2)))
        return self.noisy_mean((self.weighted(g, c) for g in rows), c)


def trajectory(problem, step):
    """Return theta (steps, parameters) after each ``step(theta, index)``."""
    thetas = [problem.theta]
    for index in problem.batches:
        thetas.append(step(thetas[-1], index))
    return torch.stack(thetas[1:])


def of_engine(problem, mechanism):
    """Return the trajectory of the engine, hooks in the order in which a fit calls them."""
    method, every = mechanism.method, Batch(problem.x, problem.y, problem.group)
    noise, state, t = Streams.seeded(0, digest=b"").noise(), method.start(mechanism.task), 0
    with select_strategy(problem.module, problem.x[:1], problem.n_classes) as engine:

        def step(theta, index):
            nonlocal state, t
            problem.set_theta(theta)
            found = private_step(engine, records_at(every, index), mechanism, state, noise)
            state, t = found.state, t + 1
            theta = theta - LR * method.step_size(t - 1) * found.gradient
            return method.project({"theta": theta}, state)["theta"]

        return trajectory(problem, step)


def of_formula(problem, formula):
    loop, steps = formula(problem, Streams.seeded(0, digest=b"").noise()), itertools.count()
    return trajectory(
        problem,
        lambda theta, index: loop.after(
            theta - LR * loop.factor(next(steps)) * loop.step(theta, index)
        ),
    )


def assert_steps(name, formula):
    """Compare steps of the engine with those of a formula, with noise if the method takes any."""
    method = get_method(name, **formula.params)
    n = 2 if method.binary else 3
    shares = torch.tensor(SHARES).double() if method.needs_group_fractions else None
    task, problem = Task(N, n, RATE, shares, formula.strata), Problem(n, n)
    found = of_engine(problem, Mechanism(method, task, SIGMA if method.takes_noise else 0.0))
    torch.testing.assert_close(found, of_formula(problem, formula), rtol=1e-8, atol=1e-8)
    assert float((found[-1] - problem.theta).norm()) > 0.1


def releases(name, **params):
    """Return sensitivity (None if it moves) and noise multiplier of each release, at noise 2."""
    method, task = get_method(name, **params), example_task()
    noise = Mechanism(method, task, 2.0 if method.takes_noise else 0.0).release.noise_multipliers
    bounds = sensitivities(method, task)
    return {what: (bounds[what], sd) for what, sd in zip(bounds, noise, strict=True)}
