"""The terms of a step's risk against finite differences of the loss, and its noise."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from skdpfair import get_method
from skdpfair.analysis._step_risk import noise_term, step_terms
from skdpfair.engine import Batch, Streams, private_step, select_strategy
from skdpfair.methods import METHODS

from .problems import PARAMS, case, dense, gradient, loss_of, mechanism, risk_of


def noiseless_gradient(module, x, y, groups, mechanism):
    """Return the method's own gradient of all records without noise."""
    codes = torch.from_numpy((groups == "b").astype(np.int64))
    batch = Batch(torch.from_numpy(x), torch.from_numpy(y), codes)
    noise = Streams.seeded(0, digest=bytes(32)).noise()
    with select_strategy(module, batch.x[:1], 2) as strategy:
        state = mechanism.method.start(mechanism.task)
        return private_step(strategy, batch, mechanism, state, noise).gradient


def differences(loss, plain, clipped, s):
    """Return the terms as differences of the loss after five steps."""
    short, turned = s * plain, clipped / s
    return {
        "clip": loss(clipped) - loss(plain),
        "magnitude": loss(short) - loss(plain),
        "direction": loss(clipped) - loss(short),
        "direction_star": loss(turned) - loss(plain),
        "magnitude_star": loss(clipped) - loss(turned),
    }


vectors = st.lists(st.floats(-10, 10).map(lambda v: round(v, 3)), min_size=3, max_size=3)


@given(vectors, vectors, vectors, vectors, st.floats(0.01, 2.0))
def test_step_terms_of_a_quadratic_are_its_differences(theta, plain, clipped, scales, lr):
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
    tolerance = tolerance * (max(s, 1 / s) ** 2 + 1) + 1e-9 * abs(loss(clipped / s))
    expected = differences(loss, plain, clipped, s)
    assert {k: terms[k].item() for k in expected} == pytest.approx(expected, rel=0, abs=tolerance)


@pytest.mark.parametrize("hidden", [(), (3,)])
@pytest.mark.parametrize("name", list(PARAMS))
def test_step_risk_has_finite_differences_of_the_loss(name, hidden):
    module, x, y, groups = case(hidden=hidden)
    lr = 1e-3
    risk = risk_of(module, x, y, groups, mechanism(name), lr, n_batches=2)
    plain = gradient(module, x, y)
    clipped = noiseless_gradient(module, x, y, groups, mechanism(name))
    for level, row in risk.groups.iterrows():
        loss, at = loss_of(module, x[groups == level], y[groups == level])
        s = float(clipped.norm() / plain.norm())
        expected = differences(lambda v: float(loss(at - lr * v)), plain, clipped, s)  # noqa: B023
        tolerance = 1e-4 * abs(expected["clip"])
        assert row[list(expected)].to_dict() == pytest.approx(expected, rel=1e-4, abs=tolerance)
        assert row["loss"] == pytest.approx(float(loss(at)))


@pytest.mark.parametrize("name", sorted(m for m in METHODS if m != "pcsgd"))
def test_terms_of_step_risk_add_up_for_every_method(name):
    params = {"max_grad_norm": 0.3} if "max_grad_norm" in get_method(name).get_params() else {}
    if name in ("global", "global_adapt"):
        params["strict_max_grad_norm"] = 0.6
    own = mechanism(name, 1.0 if METHODS[name].takes_noise else 0.0, 0.3, **params)
    found = risk_of(*case(hidden=(3,)), own, n_batches=4, n_vectors=2).groups
    for star in ("", "_star"):
        total = found[f"magnitude{star}"] + found[f"direction{star}"]
        np.testing.assert_allclose(total, found["clip"], rtol=1e-6, atol=1e-12)
    if not METHODS[name].private and name != "fairlens":
        assert (found["clipped_share"] == 0).all()


def test_noise_term_is_half_the_trace_times_the_variance():
    """On a quadratic, the mean of 40,000 draws; 5 standard errors, at a fixed seed."""
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(5, 5))
    hessian = factor @ factor.T
    lr, bound, sigma, size = 0.3, 0.5, 2.0, 8.0
    steps = lr * bound * sigma / size * rng.normal(size=(40_000, 5))
    added = np.einsum("ni,ij,nj->n", steps, hessian, steps) / 2
    expected = noise_term(np.trace(hessian), lr, bound, sigma, size)
    assert abs(added.mean() - expected) < 5 * added.std() / 200


@pytest.mark.parametrize(
    "own, deviation",
    [
        # of noise over EXPECTED batch size, and the method's bound
        (mechanism("dpsgd", 1.0, 0.5), 0.3 / 30),
        (mechanism("dpsgd", 3.0, 0.5), 3 * 0.3 / 30),
        (mechanism("dpsgd", 1.0, 0.25), 0.3 / 15),
        (mechanism("sgd", 0.0, 0.5, gradient_noise=0.2), 0.2),
    ],
)
def test_step_risk_has_the_noise_of_the_step_in_training(own, deviation):
    found = risk_of(*case(), own, n_vectors=4).groups
    np.testing.assert_allclose(found["noise"], 0.1**2 / 2 * found["trace"] * deviation**2)


def test_step_risk_at_another_state():
    """Global-Adapt at another Z; DP-SAT takes its gradients ahead along the last noisy one."""
    module, *data = case()
    adapt = mechanism("global_adapt")
    start = adapt.method.start(adapt.task)
    found = risk_of(module, *data, adapt, state=start._replace(z=2.5 * start.z)).groups
    np.testing.assert_allclose(found["threshold"], 2.5 * float(start.z), rtol=1e-6)

    ahead = mechanism("dp_sat", max_grad_norm=0.3, perturbation_radius=0.5)
    last = torch.arange(1.0, 11.0).double()
    moved = dense(4, 2)
    at = torch.nn.utils.parameters_to_vector(module.parameters())
    torch.nn.utils.vector_to_parameters(at + 0.5 * last / last.norm(), moved.parameters())
    risks = (
        risk_of(module, *data, ahead, state=last / last.norm()),
        risk_of(moved, *data, mechanism("dpsgd")),
        risk_of(module, *data, mechanism("dpsgd")),
    )
    norms = [r.batches.loc[0, "clipped_gradient_norm"] for r in risks]
    assert norms[0] == pytest.approx(norms[1], rel=1e-6) and norms[0] != pytest.approx(norms[2])
    # what it is compared with is the gradient at the parameters themselves
    plain = [r.batches.loc[0, "gradient_norm"] for r in risks]
    assert plain[0] == pytest.approx(plain[2], rel=1e-9)


def test_gradients_of_step_risk_are_over_the_expected_size():
    """At rate .5 the batch's sums are over n / 2, whoever was drawn."""
    module, x, y, groups = case()
    wide = mechanism("dpsgd", 0.0, 0.5, max_grad_norm=1e6)
    frame = risk_of(module, x, y, groups, wide, n_batches=400).batches
    np.testing.assert_allclose(frame["gradient_norm"], frame["clipped_gradient_norm"], rtol=1e-9)
    # the mean gradient of all, in the mean over batches: linear in the batch's size
    assert np.corrcoef(frame["gradient_norm"], frame["size"])[0, 1] > 0
    assert abs(frame["gradient_norm"].mean() / float(gradient(module, x, y).norm()) - 1) < 0.3
