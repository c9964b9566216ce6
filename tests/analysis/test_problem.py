"""Means over the groups of a problem, against autograd."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.papers.clipping import problem_of

from .problems import gradient, loss_of, records, seeded

GROUPS = np.array(["a", "b", "b"])[np.arange(17) % 3]


def normed():
    return nn.Sequential(nn.Linear(3, 5), nn.GELU(), nn.LayerNorm(5), nn.Linear(5, 2)).double()


@pytest.mark.parametrize("chunk", [None, 4])
def test_group_gradients_are_those_of_the_means(chunk):
    module, (x, y) = seeded(lambda: (normed(), records(17, 3, 2)))
    problem = problem_of(module, x, y, GROUPS)
    problem = replace(problem, chunk=chunk or problem.chunk)
    with problem.strategy() as strategy:
        found, facts = problem.group_gradients(strategy)
    for k, level in enumerate("ab"):
        own = x[level == GROUPS], y[level == GROUPS]
        loss, at = loss_of(module, *own)
        expected = gradient(module, *own)
        torch.testing.assert_close(found[k], expected)
        names = ["loss", "n_samples", "group_gradient_norm"]
        values = float(loss(at)), len(own[1]), float(expected.norm())
        assert [facts[name][k] for name in names] == pytest.approx(values)
    assert (facts["gradient_norm"] >= facts["group_gradient_norm"]).all()


def test_of_each_group_draws_at_most_n_records():
    problem = problem_of(seeded(normed), *seeded(lambda: records(17, 3, 2)), GROUPS)
    part = problem.of_each_group(4, np.random.default_rng(0))
    assert part.sizes.tolist() == [4, 4] and problem.of_each_group(11, None) is problem
    rows = {tuple(row) for row in problem.batch.x.tolist()}
    assert len(rows & {tuple(row) for row in part.batch.x.tolist()}) == 8
