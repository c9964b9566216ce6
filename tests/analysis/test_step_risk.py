"""The terms against finite differences of the loss, the bounds against the measured gaps."""

import copy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from benchmarks.papers.bounds import pair_bounds
from benchmarks.papers.clipping import problem_of
from skdpfair import get_method
from skdpfair.analysis._step_risk import noise_term, step_risk, step_terms
from skdpfair.engine import Batch, Streams, private_step, select_strategy
from skdpfair.engine.mechanism import Mechanism, Task
from skdpfair.methods import METHODS

N = 60
PARAMS = {
    "dpsgd": {"max_grad_norm": 0.3},
    "global": {"max_grad_norm": 0.3, "strict_max_grad_norm": 1.5},
    "global_adapt": {"max_grad_norm": 0.3, "strict_max_grad_norm": 0.6},
    "dpsgd_f": {"max_grad_norm": 0.3, "count_noise_multiplier": 1e-9},
    "bam": {"max_grad_norm": 0.3, "perturbation_radius": 0.1},
}


def case(seed=0, hidden=None):
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, N)
    x = rng.normal(size=(N, 4)) * (1 + 2 * group[:, None])
    y = (x @ rng.normal(size=4) + 0.5 * rng.normal(size=N) > 0).astype(int)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [nn.Linear(4, 2)]
        if hidden:
            layers = [nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 2)]
        module = nn.Sequential(*layers).double()
    return module, x, y, np.array(["a", "b"])[group]


def mechanism(name, sigma=0.0, rate=1.0, n_groups=2):
    method = get_method(name, **PARAMS.get(name, {}))
    return Mechanism(method, Task(N, n_groups, rate, torch.tensor([0.5, 0.5])), sigma)


def risk_of(module, x, y, mechanism, groups, lr, state=None, seed=0, **how):
    """Return the step risk of a module, whose mechanism is that of no fit."""
    how = {"n_batches": 2, "n_vectors": 0, "curvature_records": None, "eigenvalues": True} | how
    state = mechanism.method.start(mechanism.task) if state is None else state
    problem, rng = problem_of(module, x, y, groups), np.random.default_rng(seed)
    return step_risk(problem, mechanism, state, lr, rng, **how)


def loss_at(module, x, y, by=None):
    """Return the mean loss with the parameters moved by a flat vector."""
    parts = list(module.parameters())
    before = [p.detach().clone() for p in parts]
    if by is not None:
        with torch.no_grad():
            for p, part in zip(parts, by.split([p.numel() for p in parts]), strict=True):
                p += part.view_as(p)
    with torch.no_grad():
        loss = float(cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(y)))
        for p, value in zip(parts, before, strict=True):
            p.copy_(value)
    return loss


def gradients(module, x, y, mechanism, groups):
    """Return the mean gradient of all records, and the method's own without noise."""
    loss = cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(y))
    plain = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))])
    codes = torch.from_numpy((groups == "b").astype(np.int64))
    batch = Batch(torch.from_numpy(x), torch.from_numpy(y), codes)
    noise = Streams.seeded(0, digest=bytes(32)).noise()
    with select_strategy(module, batch.x[:1], 2) as strategy:
        state = mechanism.method.start(mechanism.task)
        step = private_step(strategy, batch, mechanism, state, noise)
    return plain, step.gradient


vectors = st.lists(st.floats(-10, 10).map(lambda v: round(v, 3)), min_size=3, max_size=3)


@given(vectors, vectors, vectors, vectors, st.floats(0.01, 2.0))
def test_the_terms_of_a_quadratic_are_its_differences(theta, plain, clipped, scales, lr):
    """For loss z'Hz/2 the second order is all there is, whatever the step."""
    theta, plain, clipped = (torch.tensor(v, dtype=torch.float64) for v in (theta, plain, clipped))
    hessian = torch.diag(torch.tensor(scales, dtype=torch.float64))
    hessian[0, 1] = hessian[1, 0] = 0.7

    def loss(step):
        z = theta - lr * step
        return float(z @ hessian @ z / 2)

    bent = torch.stack([hessian @ plain, hessian @ clipped])[None]
    terms = step_terms((hessian @ theta)[None], plain[None], clipped[None], bent, lr)
    tolerance = 1e-9 * (1 + abs(loss(plain)) + abs(loss(clipped)))
    assert terms["clip"] == pytest.approx(loss(clipped) - loss(plain), abs=tolerance)
    lengths = float(plain.norm()), float(clipped.norm())
    if min(lengths) < 1e-2:
        return
    s = lengths[1] / lengths[0]
    turned = clipped / s
    tolerance *= max(s, 1 / s) ** 2 + 1
    expected = {
        "magnitude": loss(s * plain) - loss(plain),
        "direction": loss(clipped) - loss(s * plain),
        "direction_star": loss(turned) - loss(plain),
        "magnitude_star": loss(clipped) - loss(turned),
    }
    tolerance += 1e-9 * abs(loss(turned))
    for name, value in expected.items():
        assert terms[name] == pytest.approx(value, abs=tolerance)


@pytest.mark.parametrize("hidden", [None, 3])
@pytest.mark.parametrize("name", list(PARAMS))
def test_the_terms_are_finite_differences_of_the_loss(name, hidden):
    module, x, y, groups = case(hidden=hidden)
    lr = 1e-3
    risk = risk_of(module, x, y, mechanism(name), groups, lr)
    plain, clipped = gradients(module, x, y, mechanism(name), groups)
    s = float(clipped.norm() / plain.norm())
    for level, row in risk.groups.iterrows():
        own = x[groups == level], y[groups == level]
        at = {k: loss_at(module, *own, -lr * v) for k, v in {
            "plain": plain, "clipped": clipped, "short": s * plain, "turned": clipped / s
        }.items()}  # fmt: skip
        expected = {
            "clip": at["clipped"] - at["plain"],
            "magnitude": at["short"] - at["plain"],
            "direction": at["clipped"] - at["short"],
            "direction_star": at["turned"] - at["plain"],
            "magnitude_star": at["clipped"] - at["turned"],
        }
        for term, value in expected.items():
            assert row[term] == pytest.approx(value, rel=1e-4, abs=1e-4 * abs(expected["clip"]))
        assert row["loss"] == pytest.approx(loss_at(module, *own))


@pytest.mark.parametrize("name", sorted(m for m in METHODS if m != "pcsgd"))
def test_parts_add_up_for_every_method(name):
    module, x, y, groups = case(hidden=3)
    params = {"max_grad_norm": 0.3} if "max_grad_norm" in get_method(name).get_params() else {}
    if name in ("global", "global_adapt"):
        params["strict_max_grad_norm"] = 0.6
    task = Task(N, 2, 0.3, torch.tensor([0.5, 0.5]))
    noise_multiplier = 1.0 if METHODS[name].takes_noise else 0.0
    own = Mechanism(get_method(name, **params), task, noise_multiplier)
    found = risk_of(module, x, y, own, groups, 0.1, n_batches=4, n_vectors=2).groups
    parts = {"": ("magnitude", "direction"), "star": ("magnitude_star", "direction_star")}
    for one, other in parts.values():
        total = found[one] + found[other]
        np.testing.assert_allclose(total, found["clip"], rtol=1e-6, atol=1e-12)
    if not METHODS[name].private and name != "fairlens":
        assert (found["clipped_share"] == 0).all()


def test_noise_adds_half_the_trace_times_its_variance():
    """On a quadratic, the mean of 40,000 draws; 5 standard errors, at a fixed seed."""
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(5, 5))
    hessian = factor @ factor.T
    lr, bound, sigma, size = 0.3, 0.5, 2.0, 8.0
    steps = lr * bound * sigma / size * rng.normal(size=(40_000, 5))
    added = np.einsum("ni,ij,nj->n", steps, hessian, steps) / 2
    expected = noise_term(np.trace(hessian), lr, bound, sigma, size)
    assert abs(added.mean() - expected) < 5 * added.std() / 200


def test_noise_is_that_of_the_step_in_training():
    """The term grows with the square of noise over EXPECTED batch size, and the method's bound."""
    module, x, y, groups = case()
    found = {}
    for name, sigma, rate in (("dpsgd", 1.0, 0.5), ("dpsgd", 3.0, 0.5), ("dpsgd", 1.0, 0.25)):
        own = mechanism(name, sigma, rate)
        found[sigma, rate] = risk_of(
            module, x, y, own, groups, 0.1, n_batches=1, n_vectors=4
        ).groups
    one, more, rarer = (found[k]["noise"] for k in ((1.0, 0.5), (3.0, 0.5), (1.0, 0.25)))
    trace = found[1.0, 0.5]["trace"]
    np.testing.assert_allclose(one, 0.1**2 / 2 * trace * (0.3 / 30) ** 2)
    np.testing.assert_allclose(more, 9 * one)
    np.testing.assert_allclose(rarer / found[1.0, 0.25]["trace"], 4 * one / trace)


def made_risk(lengths, sizes, largest, plain, clipped, sensitivity, rows, lr):
    """Return the parts of a step risk from which bounds follow; a batch is 1.5 times full."""
    groups = {"group_gradient_norm": lengths, "n_samples": sizes, "lambda_max": largest}
    batches = {"gradient_norm": plain, "clipped_gradient_norm": clipped, "size": 15}
    return SimpleNamespace(
        groups=pd.DataFrame(groups, index=["a", "b"]),
        batches=pd.DataFrame(batches | {"sensitivity": sensitivity}),
        by_batch=rows,
        expected_batch_size=10,
        lr=lr,
    )


def test_proposition_3_star_as_printed_is_no_bound():
    """If H_a lies along g_B, H_b across it and lr = 1 / lambda_max, the bound is attained."""
    g, clipped = torch.tensor([2.0, 0.0]), torch.tensor([0.0, 1.0])
    hessians = torch.diag(torch.tensor([1.0, 0.0])), torch.diag(torch.tensor([0.0, 1.0]))
    own = torch.tensor([[0.0, -1.0], [0.0, -2.0]])  # gradients of a and b
    bent = torch.stack([torch.stack([h @ g, h @ clipped]) for h in hessians])
    rows = step_terms(own, g[None], clipped[None], bent, lr=1.0)
    rows |= {"cosine": np.zeros((2, 1)), "clipped_cosine": np.array([[-1.0], [-1.0]])}
    own = own.norm(dim=1).numpy()
    pair = pair_bounds(made_risk(own, [1, 1], [1.0, 1.0], [2.0], [1.0], [1.0], rows, 1.0)).iloc[0]
    assert pair["condition"]
    assert pair["prop3_star_bound"] == pair["direction_star_difference"] == 2.0 - 4.0 - 4.0
    printed = pair["prop3_star_bound"] + 2.0**2 - 2.0
    assert printed > pair["direction_star_difference"]


@pytest.mark.parametrize("lr", [0.01, 0.1])
def test_no_bound_is_above_its_gap_where_its_condition_holds(lr):
    """Softmax regression is convex: Proposition 3 and the bound of Tran et al., 60 problems."""
    held = 0
    for seed in range(60):
        module, x, y, groups = case(seed)
        name = ("dpsgd", "global", "dpsgd_f")[seed % 3]
        own = mechanism(name, rate=0.3)
        pairs = pair_bounds(risk_of(module, x, y, own, groups, lr, seed=seed, n_batches=3))
        pairs = pairs[pairs["condition"]]
        held += len(pairs) > 0
        assert (pairs["prop3_bound"] <= pairs["direction_difference"] + 1e-12).all()
        assert (pairs["tran_bound"] <= pairs["clip_difference"] + 1e-12).all()
        star = pairs["direction_star_difference"]
        assert (pairs["prop3_star_bound"] <= star + 1e-12).all()
        assert (
            pairs["direction_difference"] == -pairs["direction_difference"].iloc[::-1].to_numpy()
        ).all()
    assert held >= 50


def test_the_condition_is_about_the_largest_eigenvalue():
    module, x, y, groups = case()
    data = module, x, y, mechanism("dpsgd"), groups
    first = risk_of(*data, 0.1, n_batches=1)
    limit = 1 / first.groups["lambda_max"].max()
    for lr, holds in ((0.99 * limit, True), (1.01 * limit, False)):
        found = pair_bounds(risk_of(*data, lr, n_batches=1))
        assert (found["condition"] == holds).all()


def test_thresholds_and_clipped_shares_are_the_methods():
    module, x, y, groups = case()
    norms = {}
    for level in "ab":
        for record, label in zip(x[groups == level], y[groups == level], strict=True):
            loss = cross_entropy(module(torch.from_numpy(record)[None]), torch.tensor([label]))
            grads = torch.autograd.grad(loss, list(module.parameters()))
            norms.setdefault(level, []).append(
                float(torch.cat([g.flatten() for g in grads]).norm())
            )
    expected = {"dpsgd": 0.3, "global": 1.5, "global_adapt": 0.6}
    for name, threshold in expected.items():
        found = risk_of(module, x, y, mechanism(name), groups, 0.1, n_batches=1).groups
        np.testing.assert_allclose(found["threshold"], threshold, rtol=1e-6)
        for level in "ab":
            share = np.mean(np.array(norms[level]) > threshold)
            assert found.loc[level, "clipped_share"] == pytest.approx(share)
            assert found.loc[level, "gradient_norm"] == pytest.approx(np.mean(norms[level]))
    found = risk_of(module, x, y, mechanism("dpsgd_f"), groups, 0.1, n_batches=1).groups
    above = {k: np.mean(np.array(v) > 0.3) for k, v in norms.items()}
    whole = np.mean(np.concatenate(list(norms.values())) > 0.3)
    for level in "ab":
        expected = 0.3 * (1 + min(above[level] / whole, 2.0))
        assert found.loc[level, "threshold"] == pytest.approx(expected, rel=1e-4)


def risk_of_two_groups(largest):
    """Two groups, two batches: lengths of gradients and cosines, all by hand."""
    rows = {
        "cosine": np.array([[0.9, 0.8], [0.2, 0.1]]),
        "clipped_cosine": np.array([[0.5, 0.6], [0.4, 0.3]]),
        "clip": np.zeros((2, 2)),
        "direction": np.array([[1.0, 2.0], [0.5, 0.25]]),
        "direction_star": np.array([[3.0, 2.0], [1.0, 0.5]]),
    }
    batches = [2.0, 4.0], [1.0, 3.0], [0.4, 0.5]  # |g_B|, |gbar|, C
    return made_risk([5.0, 2.0], [30, 10], largest, *batches, rows, 0.1)


def test_the_bounds_by_hand():
    """Prop. 3, Prop. 3* and the bound of Tran et al., from the numbers above."""
    table = pair_bounds(risk_of_two_groups([2.0, 4.0])).set_index("group_a")
    # a: 5 (1 * .4 + 3 * .2) / 2 = 2.5; b: 2 (1 * -.2 + 3 * -.2) / 2 = -.8; E|gbar|^2 = 5
    assert table.loc["a", "linear_direction_difference"] == pytest.approx(0.1 * 3.3)
    assert table.loc["a", "prop3_bound"] == pytest.approx(0.1 * (2.5 + 0.8 - 5.0))
    assert table.loc["b", "prop3_bound"] == pytest.approx(0.1 * (-0.8 - 2.5 - 5.0))
    assert table.loc["a", "direction_difference"] == pytest.approx(1.5 - 0.375)
    # with |g_B|: a: 5 (2 * .4 + 4 * .2) / 2 = 4; b: 2 (2 * -.2 + 4 * -.2) / 2 = -1.2; E|g_B|^2 = 10
    assert table.loc["a", "prop3_star_bound"] == pytest.approx(0.1 * (4.0 + 1.2 - 10.0))
    assert table.loc["b", "prop3_star_bound"] == pytest.approx(0.1 * (-1.2 - 4.0 - 10.0))
    assert table.loc["b", "direction_star_difference"] == pytest.approx(0.75 - 2.5)
    # G = .75 * 5 + .25 * 2 = 4.25; C = .5 * 1.5 = .75; E|g_B|^2 = 10
    for a, b, p in ((5.0, 2.0, 0.75), (2.0, 5.0, 0.25)):
        first = a * (2 * p * a - 4.25) - b * 4.25 - 7.0 * 0.75
        expected = 0.1 * first - 0.05 * (10.0 + 0.75**2)
        assert table.loc["a" if a == 5.0 else "b", "tran_bound"] == pytest.approx(expected)
    assert table["condition"].all()
    assert not pair_bounds(risk_of_two_groups([2.0, 11.0]))["condition"].any()


def test_a_state_that_is_given_counts():
    """Global-Adapt at another Z; DP-SAT takes its gradients ahead along the last noisy one."""
    module, x, y, groups = case()
    data = {"groups": groups, "lr": 0.1, "n_batches": 1}
    adapt = mechanism("global_adapt")
    start = adapt.method.start(adapt.task)
    found = risk_of(module, x, y, mechanism=adapt, state=start._replace(z=2.5 * start.z), **data)
    np.testing.assert_allclose(found.groups["threshold"], 2.5 * float(start.z), rtol=1e-6)

    ahead = Mechanism(
        get_method("dp_sat", max_grad_norm=0.3, perturbation_radius=0.5), Task(len(x), 2, 1.0), 0.0
    )
    last = torch.arange(1.0, 1 + sum(p.numel() for p in module.parameters())).double()
    risk = risk_of(module, x, y, mechanism=ahead, state=last / last.norm(), **data)
    moved = copy.deepcopy(module)
    with torch.no_grad():
        step, at = 0.5 * last / last.norm(), 0
        for p in moved.parameters():
            p += step[at : at + p.numel()].view_as(p)
            at += p.numel()
    dpsgd = Mechanism(get_method("dpsgd", max_grad_norm=0.3), Task(len(x), 2, 1.0), 0.0)
    there = risk_of(moved, x, y, mechanism=dpsgd, **data)
    here = risk_of(module, x, y, mechanism=dpsgd, **data)
    norms = [r.batches.loc[0, "clipped_gradient_norm"] for r in (risk, there, here)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-6) and norms[0] != pytest.approx(norms[2])
    # what it is compared with is the gradient at the parameters themselves
    plain = [r.batches.loc[0, "gradient_norm"] for r in (risk, here)]
    assert plain[0] == pytest.approx(plain[1], rel=1e-9)


def test_both_means_are_over_the_expected_size():
    """At rate .5 the batch's sums are over n / 2, whoever was drawn."""
    module, x, y, groups = case()
    wide = Mechanism(get_method("dpsgd", max_grad_norm=1e6), Task(len(x), 2, 0.5), 0.0)
    found = risk_of(module, x, y, wide, groups, 0.1, n_batches=400)
    frame = found.batches
    np.testing.assert_allclose(frame["gradient_norm"], frame["clipped_gradient_norm"], rtol=1e-9)
    # the mean gradient of all, in the mean over batches: linear in the batch's size
    whole = float(gradients(module, x, y, wide, groups)[0].norm())
    share = frame["size"] / (len(x) / 2)
    assert np.corrcoef(frame["gradient_norm"], share)[0, 1] > 0
    assert abs(frame["gradient_norm"].mean() / whole - 1) < 0.3


def test_noise_of_the_baselines_is_told():
    module, x, y, groups = case()
    noisy = Mechanism(get_method("sgd", gradient_noise=0.2), Task(len(x), 2, 0.5), 0.0)
    found = risk_of(module, x, y, noisy, groups, 0.1, n_batches=1, n_vectors=4).groups
    np.testing.assert_allclose(found["noise"], 0.1**2 / 2 * found["trace"] * 0.2**2)


@pytest.mark.parametrize("chunk", [None, 4])
@pytest.mark.parametrize("layers", [(nn.Tanh,), (nn.GELU, nn.LayerNorm)])
def test_group_gradients_are_those_of_the_means(layers, chunk):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        middle = [kind(5) if kind is nn.LayerNorm else kind() for kind in layers]
        module = nn.Sequential(nn.Linear(3, 5), *middle, nn.Linear(5, 2)).double()
        x, y = torch.randn(17, 3).double(), torch.randint(0, 2, (17,))
    groups = np.array(["a", "b", "b"])[np.arange(17) % 3]
    problem = problem_of(module, x.numpy(), y.numpy(), groups)
    problem = replace(problem, chunk=chunk or problem.chunk)
    with problem.strategy() as strategy:
        found, facts = problem.group_gradients(strategy)
    for k, level in enumerate("ab"):
        own = torch.from_numpy(groups == level)
        loss = cross_entropy(module(x[own]), y[own])
        grads = torch.autograd.grad(loss, list(module.parameters()))
        expected = torch.cat([g.flatten() for g in grads])
        torch.testing.assert_close(found[k], expected)
        assert facts["loss"][k] == pytest.approx(loss.item())
        assert facts["n_samples"][k] == int(own.sum())
        assert facts["group_gradient_norm"][k] == pytest.approx(float(expected.norm()))
    assert (facts["gradient_norm"] >= facts["group_gradient_norm"]).all()
