"""Hessian products, traces and eigenvalues against the dense matrix of autograd, in float64."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from benchmarks.papers.clipping import problem_of
from skdpfair._networks import small_cnn
from skdpfair.analysis._curvature import largest_eigenvalues, products, traces
from skdpfair.analysis._problem import of_tensors
from skdpfair.engine import Batch

N = 23


def modules():
    frozen = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    frozen[0].weight.requires_grad_(False)
    twice = nn.Tanh()
    return {
        "tanh": nn.Sequential(
            nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)
        ),
        "one activation twice": nn.Sequential(
            nn.Linear(4, 5), twice, nn.Sequential(nn.Linear(5, 4), twice), nn.Linear(4, 3)
        ),
        "sigmoid": nn.Sequential(nn.Linear(4, 3), nn.Sigmoid()),
        "relu": nn.Sequential(nn.Linear(4, 6, bias=False), nn.ReLU(), nn.Linear(6, 3)),
        "frozen": frozen,
        "gelu": nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Dropout(0.5), nn.Linear(5, 3)),
        "norm": nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 3)),
    }


def case(name):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = modules()[name].double()
        for p in module.parameters():
            nn.init.normal_(p)
        x, y = torch.randn(N, 4).double(), torch.randint(0, 3, (N,))
    return module, x.numpy(), y.numpy(), np.array(["a", "b", "c"])[np.arange(N) % 3]


def dense(module, x, y):
    """Return the Hessian of the mean loss in the parameters that train."""
    module.eval()
    named = {k: v.detach() for k, v in module.named_parameters() if v.requires_grad}
    flat = torch.cat([v.reshape(-1) for v in named.values()])

    def loss(vector):
        parts = vector.split([v.numel() for v in named.values()])
        given = {k: p.view_as(v) for (k, v), p in zip(named.items(), parts, strict=True)}
        out = torch.func.functional_call(module, given, torch.from_numpy(x))
        return cross_entropy(out, torch.from_numpy(y))

    return torch.autograd.functional.hessian(loss, flat)


@pytest.mark.parametrize("chunk", [None, 5])
@pytest.mark.parametrize("name", list(modules()))
def test_products_are_those_of_the_matrix(name, chunk):
    module, x, y, groups = case(name)
    problem = problem_of(module, x, y, groups)
    problem = problem if chunk is None else replace(problem, chunk=chunk)
    for k, level in enumerate("abc"):
        matrix = dense(module, x[groups == level], y[groups == level])
        vectors = torch.eye(len(matrix)).double()
        torch.testing.assert_close(products(problem, vectors)[k], matrix, rtol=1e-9, atol=1e-12)


def test_products_of_a_convolution():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = small_cnn((6, 6), 3, channels=(2, 2)).double()
        x, y = torch.randn(6, 6, 6).double().numpy(), np.array([0, 1, 2, 0, 1, 2])
    matrix = dense(module, x, y)
    found = products(problem_of(module, x, y), torch.eye(len(matrix)).double())[0]
    torch.testing.assert_close(found, matrix, rtol=1e-9, atol=1e-12)


def test_traces_are_unbiased():
    """Within 4 standard errors in both groups; 1 of 8,000 seeds would fail, and one is fixed."""
    rng = np.random.default_rng(0)
    x = (rng.random((400, 59)) < 0.2).astype(float)  # as wide as the paper's Dutch census
    y, groups = rng.integers(0, 2, 400), np.array(["f", "m"])[rng.integers(0, 2, 400)]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(59, 2), nn.Sigmoid()).double()
    found = traces(problem_of(module, x, y, groups), 100, np.random.default_rng(0))
    for level, values in zip("fm", found, strict=True):
        exact = float(dense(module, x[groups == level], y[groups == level]).trace())
        error = values.std(ddof=1) / 10
        assert abs(values.mean() - exact) <= 4 * error
        assert 0 < error < 0.2 * abs(exact)


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "gelu"])
def test_largest_eigenvalues(name):
    """By the matrix where it is small, by Lanczos' method where it is not."""
    module, x, y, groups = case(name)
    found = largest_eigenvalues(problem_of(module, x, y, groups), np.random.default_rng(0))
    for value, level in zip(found, "abc", strict=True):
        matrix = dense(module, x[groups == level], y[groups == level])
        exact = float(torch.linalg.eigvalsh(matrix)[-1])
        assert value == pytest.approx(exact, rel=1e-3)


def test_a_wide_network_takes_lanczos():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 2)).double()
        x, y = torch.randn(40, 8).double().numpy(), np.arange(40) % 2
    (found,) = largest_eigenvalues(problem_of(module, x, y), np.random.default_rng(0))
    exact = float(torch.linalg.eigvalsh(dense(module, x, y))[-1])
    assert found == pytest.approx(exact, rel=1e-3)


def test_a_loss_without_curvature_has_none():
    """Records of a class that is certain: the Hessian is zero, above the dense limit, too."""
    rng = np.random.default_rng(0)
    x, y = torch.from_numpy(rng.normal(size=(60, 20))), torch.arange(60) % 2
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(20, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    module[-1].bias.data = torch.tensor([1e3, -1e3]).double()
    problem = of_tensors(module, Batch(x, y, y), 2, [0, 1])
    found = largest_eigenvalues(problem, np.random.default_rng(0))
    assert found[0] == 0.0 and np.isfinite(found[1])
