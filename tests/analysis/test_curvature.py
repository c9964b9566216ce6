"""Hessian products, traces and eigenvalues against the dense matrix of autograd, in float64."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.papers.clipping import problem_of
from skdpfair._networks import small_cnn
from skdpfair.analysis._curvature import largest_eigenvalues, products, traces
from skdpfair.analysis._problem import of_tensors
from skdpfair.engine import Batch

from .problems import dense, loss_of, records, seeded


def modules():
    frozen, twice = dense(4, 5, 3), nn.Tanh()
    frozen[0].weight.requires_grad_(False)
    return {
        "tanh": dense(4, 5, 4, 3),
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
    module = seeded(modules)[name].double()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for p in module.parameters():
            nn.init.normal_(p)
        x, y = records(23, 4, 3)
    return module.eval(), x, y, np.array(["a", "b", "c"])[np.arange(23) % 3]


def hessian(module, x, y):
    """Return the Hessian of the mean loss in the parameters that train."""
    return torch.autograd.functional.hessian(*loss_of(module, x, y))


def hessians(module, x, y, groups):
    return [hessian(module, x[groups == level], y[groups == level]) for level in np.unique(groups)]


@pytest.mark.parametrize("chunk", [None, 5])
@pytest.mark.parametrize("name", list(modules()))
def test_products_are_those_of_the_matrix(name, chunk):
    problem = problem_of(*case(name))
    problem = problem if chunk is None else replace(problem, chunk=chunk)
    for k, matrix in enumerate(hessians(*case(name))):
        found = products(problem, torch.eye(len(matrix)).double())[k]
        torch.testing.assert_close(found, matrix, rtol=1e-9, atol=1e-12)


def test_products_of_a_convolution():
    module = seeded(lambda: small_cnn((6, 6), 3, channels=(2, 2))).double()
    x, y = np.random.default_rng(0).normal(size=(6, 6, 6)), np.array([0, 1, 2, 0, 1, 2])
    matrix = hessian(module, x, y)
    found = products(problem_of(module, x, y), torch.eye(len(matrix)).double())[0]
    torch.testing.assert_close(found, matrix, rtol=1e-9, atol=1e-12)


def test_traces_are_unbiased():
    """Within 4 standard errors in both groups; 1 of 8,000 seeds would fail, and one is fixed."""
    rng = np.random.default_rng(0)
    x = (rng.random((400, 59)) < 0.2).astype(float)  # as wide as the paper's Dutch census
    y, groups = rng.integers(0, 2, 400), np.array(["f", "m"])[rng.integers(0, 2, 400)]
    module = nn.Sequential(*seeded(lambda: dense(59, 2)), nn.Sigmoid())
    found = traces(problem_of(module, x, y, groups), 100, np.random.default_rng(0))
    for values, matrix in zip(found, hessians(module, x, y, groups), strict=True):
        exact, error = float(matrix.trace()), values.std(ddof=1) / 10
        assert abs(values.mean() - exact) <= 4 * error
        assert 0 < error < 0.2 * abs(exact)


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "gelu", "wide"])
def test_largest_eigenvalues(name):
    """By the matrix where it is small, by Lanczos' method where it is not."""
    if name == "wide":
        data = seeded(lambda: (dense(8, 12, 2), *records(40, 8, 2), np.full(40, "all")))
    else:
        data = case(name)
    found = largest_eigenvalues(problem_of(*data), np.random.default_rng(0))
    exact = [float(torch.linalg.eigvalsh(matrix)[-1]) for matrix in hessians(*data)]
    assert found.tolist() == pytest.approx(exact, rel=1e-3)


def test_largest_eigenvalues_of_a_loss_without_curvature():
    """Records of a class that is certain: the Hessian is zero, above the dense limit, too."""
    x, y = torch.from_numpy(np.random.default_rng(0).normal(size=(60, 20))), torch.arange(60) % 2
    module = seeded(lambda: dense(20, 5, 2))
    module[-1].bias.data = torch.tensor([1e3, -1e3]).double()
    problem = of_tensors(module, Batch(x, y, y), 2, [0, 1])
    found = largest_eigenvalues(problem, np.random.default_rng(0))
    assert found[0] == 0.0 and np.isfinite(found[1])
