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


@pytest.mark.parametrize("name", ["is_sgd", "iw_sgd", "dp_sat", "global_adapt", "gdro"])
def test_methods_train_as_themselves(case, name):
    """Rates, weights and states are the method's: the path is not that of SGD or DP-SGD."""
    module, x, y = case
    groups = np.where(np.arange(len(x)) % 5 == 0, "b", "a")
    params = {"dp_sat": {"max_grad_norm": 0.3, "perturbation_radius": 5.0}}
    params["global_adapt"] = {"max_grad_norm": 0.3, "strict_max_grad_norm": 0.6, "lr_z": 0.5}
    data = {"lr": 0.5, "n_epochs": 2, "batch_size": 10, "sensitive_features": groups}
    runs = [
        train_with_error(module, x, y, method, error="both", random_state=0, **data)
        for method in (
            get_method(name, **params.get(name, {})),
            get_method("sgd") if "sgd" in name or name == "gdro" else _still(name, params),
        )
    ]
    assert not torch.equal(*(flat(run.module) for run in runs))


def _still(name, params):
    """The method whose state never moves: DP-SGD, or Global-Adapt with a rate of zero."""
    if name == "dp_sat":
        return get_method("dpsgd", max_grad_norm=0.3)
    return get_method("global_adapt", **params[name] | {"lr_z": 1e-12})


def test_rates_that_differ_by_group_are_drawn(case):
    module, x, y = case
    groups = np.where(np.arange(len(x)) % 5 == 0, "b", "a")
    method = get_method("dp_is_sgd", max_grad_norm=0.3)
    run = train_with_error(
        module, x, y, method, error="both", lr=0.1, n_epochs=1, sensitive_features=groups,
        random_state=0, batch_size=10,
    )  # fmt: skip
    assert run.losses.notna().all(axis=None)
