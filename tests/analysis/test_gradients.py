"""Gradients of the groups' losses against autograd."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from skdpfair.analysis import group_gradients


@pytest.mark.parametrize("chunk", ["auto", 4])
@pytest.mark.parametrize("layers", [(nn.Tanh,), (nn.GELU, nn.LayerNorm)])
def test_they_are_those_of_the_means(layers, chunk):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        middle = [kind(5) if kind is nn.LayerNorm else kind() for kind in layers]
        module = nn.Sequential(nn.Linear(3, 5), *middle, nn.Linear(5, 2)).double()
        x, y = torch.randn(17, 3).double(), torch.randint(0, 2, (17,))
    groups = np.array(["a", "b", "b"])[np.arange(17) % 3]
    found = group_gradients(
        module, x.numpy(), y.numpy(), sensitive_features=groups, chunk_size=chunk
    )
    rows = []
    for level in "ab":
        own = torch.from_numpy(groups == level)
        loss = cross_entropy(module(x[own]), y[own])
        grads = torch.autograd.grad(loss, list(module.parameters()))
        rows.append(torch.cat([g.flatten() for g in grads]))
        assert found.groups.loc[level, "loss"] == pytest.approx(loss.item())
        assert found.groups.loc[level, "n_samples"] == int(own.sum())
    torch.testing.assert_close(found.gradients, torch.stack(rows))
    a, b = rows
    assert found.cosines.loc["a", "b"] == pytest.approx(float(a @ b / a.norm() / b.norm()))
    lengths = found.groups["group_gradient_norm"]
    np.testing.assert_allclose(lengths, [float(a.norm()), float(b.norm())])
    assert (found.groups["gradient_norm"] >= lengths).all()
