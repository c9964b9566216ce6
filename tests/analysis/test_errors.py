"""Steps with one error of clipping, against gradients taken one record at a time."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from skdpfair import get_method
from skdpfair.analysis import train_with_error


@pytest.fixture
def case():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
        x, y = 3 * torch.randn(20, 3).double(), torch.arange(20) % 2
    return module, x.numpy(), y.numpy()


def flat(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def one_step(case, error, bound=0.4):
    """Return by what one step on all records moved the parameters, at learning rate 1."""
    module, x, y = case
    run = train_with_error(
        module,
        x,
        y,
        get_method("dpsgd", max_grad_norm=bound),
        error=error,
        lr=1.0,
        n_epochs=1,
        batch_size=len(y),
        random_state=0,
    )
    return flat(module) - flat(run.module)


def gradients(case, bound):
    module, x, y = case
    rows = []
    for record, label in zip(torch.from_numpy(x), torch.from_numpy(y), strict=True):
        loss = cross_entropy(module(record[None]), label[None])
        grads = torch.autograd.grad(loss, list(module.parameters()))
        rows.append(torch.cat([g.flatten() for g in grads]))
    rows = torch.stack(rows)
    weights = (bound / rows.norm(dim=1)).clamp(max=1.0)
    return rows.mean(0), (weights[:, None] * rows).mean(0)


def test_each_error_is_what_it_says(case):
    plain, clipped = gradients(case, 0.4)
    s = clipped.norm() / plain.norm()
    expected = {"none": plain, "both": clipped, "magnitude": s * plain, "direction": clipped / s}
    for error, step in expected.items():
        torch.testing.assert_close(one_step(case, error), step, rtol=1e-9, atol=1e-12)


def test_a_wide_bound_leaves_no_error(case):
    plain = one_step(case, "none")
    for error in ("both", "magnitude", "direction"):
        torch.testing.assert_close(one_step(case, error, bound=1e6), plain, rtol=1e-9, atol=1e-12)


def test_losses_are_those_before_the_last_epochs_steps(case):
    module, x, y = case
    groups = np.where(y == 1, "b", "a")
    run = train_with_error(
        module, x, y, error="none", lr=0.1, n_epochs=1, batch_size=20, sensitive_features=groups
    )
    with torch.no_grad():
        loss = cross_entropy(
            module(torch.from_numpy(x)), torch.from_numpy(y), reduction="none"
        ).numpy()
    for level in "ab":
        assert run.losses.loc[level, "loss"] == pytest.approx(loss[groups == level].mean())


def test_the_module_given_stays(case):
    before = flat(case[0]).clone()
    one_step(case, "both")
    assert torch.equal(flat(case[0]), before)


@pytest.mark.parametrize(
    "change", [{"error": "both ways"}, {"lr": -1.0}, {"n_epochs": 0}, {"batch_size": 0}]
)
def test_what_cannot_be_used_is_named(case, change):
    with pytest.raises(ValueError, match=next(iter(change))):
        train_with_error(*case, **{"error": "none", "lr": 0.1, "n_epochs": 1} | change)
