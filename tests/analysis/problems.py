"""Small networks and records in float64, their loss in its parameters, and step risks."""

from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from benchmarks.papers.clipping import problem_of
from skdpfair import get_method
from skdpfair.analysis._step_risk import step_risk
from skdpfair.engine.mechanism import Mechanism, Task


def seeded(make, seed=0):
    """Return what a function makes with torch's generator seeded."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make()


def records(n, width, n_classes):
    """Return features and labels of float64, drawn by torch."""
    return torch.randn(n, width).double().numpy(), torch.randint(0, n_classes, (n,)).numpy()


def dense(*widths):
    """Return a fully connected network of float64."""
    layers = [m for a, b in pairwise(widths) for m in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1]).double()


def loss_of(module, x, y):
    """Return the mean loss as a function of a flat vector, and the parameters that train as one."""
    named = {k: v.detach() for k, v in module.named_parameters() if v.requires_grad}
    x, y = torch.as_tensor(x), torch.as_tensor(np.asarray(y))

    def loss(vector):
        parts = vector.split([v.numel() for v in named.values()])
        given = {k: p.view_as(v) for (k, v), p in zip(named.items(), parts, strict=True)}
        return cross_entropy(torch.func.functional_call(module, given, x), y)

    return loss, torch.cat([v.reshape(-1) for v in named.values()])


def gradient(module, x, y, by=0.0):
    """Return the flat gradient of the mean loss, with the parameters moved by a vector."""
    loss, at = loss_of(module, x, y)
    return torch.func.grad(loss)(at + by)


N = 60
PARAMS = {
    "dpsgd": {"max_grad_norm": 0.3},
    "global": {"max_grad_norm": 0.3, "strict_max_grad_norm": 1.5},
    "global_adapt": {"max_grad_norm": 0.3, "strict_max_grad_norm": 0.6},
    "dpsgd_f": {"max_grad_norm": 0.3, "count_noise_multiplier": 1e-9},
    "bam": {"max_grad_norm": 0.3, "perturbation_radius": 0.1},
}


def case(seed=0, hidden=()):
    """Return a module and records of two groups, the gradients of one of which are larger."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, N)
    x = rng.normal(size=(N, 4)) * (1 + 2 * group[:, None])
    y = (x @ rng.normal(size=4) + 0.5 * rng.normal(size=N) > 0).astype(int)
    return seeded(lambda: dense(4, *hidden, 2), seed), x, y, np.array(["a", "b"])[group]


def mechanism(name, sigma=0.0, rate=1.0, **params):
    method = get_method(name, **(PARAMS.get(name, {}) | params))
    return Mechanism(method, Task(N, 2, rate, torch.tensor([0.5, 0.5])), sigma)


def risk_of(module, x, y, groups, mechanism, lr=0.1, state=None, seed=0, **how):
    """Return the step risk of a module, whose mechanism is that of no fit."""
    how = {"n_batches": 1, "n_vectors": 0, "curvature_records": None, "eigenvalues": True} | how
    state = mechanism.method.start(mechanism.task) if state is None else state
    problem, rng = problem_of(module, x, y, groups), np.random.default_rng(seed)
    return step_risk(problem, mechanism, state, lr, rng, **how)
