"""The terms against finite differences of the loss, the bounds against the measured gaps."""

from dataclasses import asdict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from skdpfair import METHODS, DPFairClassifier, get_method
from skdpfair.analysis import excessive_risk_terms, noise_term, step_terms
from skdpfair.engine import Batch, Streams, choose, private_step
from skdpfair.mechanism import Mechanism, Task

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
    with choose(module, batch.x[:1], 2) as strategy:
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

    terms = step_terms(hessian @ theta, plain, clipped, hessian @ plain, hessian @ clipped, lr)
    tolerance = 1e-9 * (1 + abs(loss(plain)) + abs(loss(clipped)))
    assert terms.clip == pytest.approx(loss(clipped) - loss(plain), abs=tolerance)
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
        assert asdict(terms)[name] == pytest.approx(value, abs=tolerance)


@pytest.mark.parametrize("hidden", [None, 3])
@pytest.mark.parametrize("name", list(PARAMS))
def test_the_terms_are_finite_differences_of_the_loss(name, hidden):
    module, x, y, groups = case(hidden=hidden)
    lr = 1e-3
    risk = excessive_risk_terms(
        module,
        x,
        y,
        mechanism(name),
        sensitive_features=groups,
        lr=lr,
        n_batches=2,
        n_vectors=0,
        random_state=0,
    )
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
    found = excessive_risk_terms(
        module,
        x,
        y,
        Mechanism(get_method(name, **params), task, 1.0 if METHODS[name].takes_noise else 0.0),
        sensitive_features=groups,
        lr=0.1,
        n_batches=4,
        n_vectors=2,
        random_state=0,
    ).groups
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
        found[sigma, rate] = excessive_risk_terms(
            module,
            x,
            y,
            mechanism(name, sigma, rate),
            sensitive_features=groups,
            lr=0.1,
            n_batches=1,
            n_vectors=4,
            random_state=0,
        ).groups
    one, more, rarer = (found[k]["noise"] for k in ((1.0, 0.5), (3.0, 0.5), (1.0, 0.25)))
    trace = found[1.0, 0.5]["trace"]
    np.testing.assert_allclose(one, 0.1**2 / 2 * trace * (0.3 / 30) ** 2)
    np.testing.assert_allclose(more, 9 * one)
    np.testing.assert_allclose(rarer / found[1.0, 0.25]["trace"], 4 * one / trace)


@pytest.mark.parametrize("lr", [0.01, 0.1])
def test_no_bound_is_above_its_gap_where_its_condition_holds(lr):
    """Softmax regression is convex: Proposition 3 and the bound of Tran et al., 60 problems."""
    held = 0
    for seed in range(60):
        module, x, y, groups = case(seed)
        name = ("dpsgd", "global", "dpsgd_f")[seed % 3]
        pairs = excessive_risk_terms(
            module,
            x,
            y,
            mechanism(name, rate=0.3),
            sensitive_features=groups,
            lr=lr,
            n_batches=3,
            n_vectors=0,
            random_state=seed,
        ).pairs
        pairs = pairs[pairs["condition"]]
        held += len(pairs) > 0
        assert (pairs["prop3_bound"] <= pairs["direction_gap"] + 1e-12).all()
        assert (pairs["tran_bound"] <= pairs["clip_gap"] + 1e-12).all()
        assert (pairs["direction_gap"] == -pairs["direction_gap"].iloc[::-1].to_numpy()).all()
    assert held >= 50


def test_the_condition_is_about_the_largest_eigenvalue():
    module, x, y, groups = case()
    data = {"sensitive_features": groups, "n_batches": 1, "n_vectors": 0, "random_state": 0}
    first = excessive_risk_terms(module, x, y, mechanism("dpsgd"), lr=0.1, **data)
    limit = 1 / first.groups["lambda_max"].max()
    for lr, holds in ((0.99 * limit, True), (1.01 * limit, False)):
        found = excessive_risk_terms(module, x, y, mechanism("dpsgd"), lr=lr, **data)
        assert (found.pairs["condition"] == holds).all()


def test_thresholds_and_clipped_shares_are_the_methods():
    module, x, y, groups = case()
    data = {"sensitive_features": groups, "lr": 0.1, "n_batches": 1, "n_vectors": 0}
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
        found = excessive_risk_terms(module, x, y, mechanism(name), **data).groups
        np.testing.assert_allclose(found["threshold"], threshold, rtol=1e-6)
        for level in "ab":
            share = np.mean(np.array(norms[level]) > threshold)
            assert found.loc[level, "clipped_share"] == pytest.approx(share)
            assert found.loc[level, "gradient_norm"] == pytest.approx(np.mean(norms[level]))
    found = excessive_risk_terms(module, x, y, mechanism("dpsgd_f"), **data).groups
    above = {k: np.mean(np.array(v) > 0.3) for k, v in norms.items()}
    whole = np.mean(np.concatenate(list(norms.values())) > 0.3)
    for level in "ab":
        expected = 0.3 * (1 + min(above[level] / whole, 2.0))
        assert found.loc[level, "threshold"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")
@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning")
def test_an_estimators_own_step(two_groups):
    """Learning rate, noise, bounds and the state that training ended in are the estimator's."""
    sex = two_groups.sensitive_features
    model = DPFairClassifier("global_adapt", epsilon=2.0, max_steps=40, random_state=0)
    model.fit(two_groups.data, two_groups.target, sensitive_features=sex)
    found = excessive_risk_terms(
        model, two_groups.data, two_groups.target, sensitive_features=sex, n_vectors=2
    )
    assert found.lr == model.lr_
    assert found.noise_multiplier == model.privacy_.noise_multiplier
    assert found.expected_batch_size == pytest.approx(model.privacy_.expected_batch_size)
    z = float(model.net_.state_.z)
    assert z != model.method_.strict_max_grad_norm
    np.testing.assert_allclose(found.groups["threshold"], z, rtol=1e-5)
    assert list(found.groups.index) == list(model.groups_)
    with pytest.raises(ValueError, match="sensitive_features"):
        excessive_risk_terms(model, two_groups.data, two_groups.target)


def test_what_is_missing_is_named():
    module, x, y, groups = case()
    with pytest.raises(ValueError, match="mechanism and lr must be given"):
        excessive_risk_terms(module, x, y, sensitive_features=groups)
    with pytest.raises(ValueError, match="for 3 groups, but there are 2"):
        excessive_risk_terms(
            module, x, y, mechanism("dpsgd", n_groups=3), sensitive_features=groups, lr=0.1
        )
    with pytest.raises(TypeError, match="mechanism must be a Mechanism"):
        excessive_risk_terms(module, x, y, "dpsgd", sensitive_features=groups, lr=0.1)
    with pytest.raises(ValueError, match="lr"):
        excessive_risk_terms(module, x, y, mechanism("dpsgd"), sensitive_features=groups, lr=0)
