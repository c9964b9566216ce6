"""Losses of single records, their gradients in the outputs, and clipped sums of these."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from skdpfair import get_method
from skdpfair.engine import Batch, Streams, private_step, select_strategy
from skdpfair.engine.losses import HUBER_THRESHOLD, REGRESSION, CrossEntropy
from skdpfair.engine.mechanism import Mechanism
from skdpfair.engine.step import measure
from skdpfair.testing import example_task

LOSSES = {f"{n} classes": CrossEntropy(n) for n in (3, 100, 101, 2000)}
LOSSES |= {name: make() for name, make in REGRESSION.items()}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_loss_terms_are_autograds(loss):
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn((5, loss.n_outputs), generator=generator).requires_grad_()
    y = loss.probe_targets(5, outputs.device)
    each = loss.each(outputs, y)
    expected = torch.autograd.grad(each.sum(), outputs)[0]
    found, predicted, slope = loss.terms(outputs, y)
    torch.testing.assert_close((found, slope), (each.detach(), expected))
    torch.testing.assert_close(predicted, loss.predicted(outputs.detach()))
    assert (slope != 0).all()


@pytest.mark.parametrize("n", [2, 3, 10, 100])
def test_output_growth_is_that_of_the_gradients_over_that_of_two_classes(n):
    def growth(n):
        logits, y = torch.zeros(2, n), torch.zeros(2, dtype=torch.int64)
        logits[1, 1] = 100.0
        equal, wrong = CrossEntropy(n).terms(logits, y)[2].norm(dim=1)
        return float(wrong / equal)

    assert CrossEntropy(n).output_growth == pytest.approx(growth(n) / growth(2), rel=1e-5)
    assert {make().output_growth for make in REGRESSION.values()} == {1.0}


def test_loss_terms_never_underflow():
    """A norm whose square is 0 would let a long gradient pass."""
    certain = torch.tensor([[200.0, -200.0]])
    slopes = [CrossEntropy(2).terms(certain, torch.tensor([0]))[2]]
    slopes += [make().terms(torch.ones(1, 1), torch.ones(1))[2] for make in REGRESSION.values()]
    assert all((slope.square().sum(1) > 0).all() for slope in slopes)


def value_and_slope(name, error):
    """Return loss and slope of one error, in float64 and by their definitions."""
    if name == "squared":
        return error**2 / 2, error
    if name == "absolute":
        return abs(error), np.sign(error)
    t = HUBER_THRESHOLD
    if abs(error) <= t:
        return error**2 / 2 / t, error / t
    return abs(error) - t / 2, np.sign(error)


class Product(nn.Module):
    """A module that only vmap covers."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([[0.3], [-0.2], [0.5], [0.1]]))

    def forward(self, x):
        return x @ self.w + (x @ self.w) ** 2


MODULES = {
    "closed_form": lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1)),
    "book-keeping": lambda: nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 1)),
    "vmap": Product,
}


def clipped_sum(module, name, batch, bound):
    """Return the sample of a batch, and its step without noise."""
    task = example_task(len(batch), 1, 1.0)
    mechanism = Mechanism(get_method("dpsgd", max_grad_norm=bound), task, 0.0)
    with select_strategy(module, batch.x[:1], 1, loss=REGRESSION[name]()) as engine:
        sample = measure(engine, batch, batch, None, 0.0)[0]
        return sample, private_step(engine, batch, mechanism, None, Streams.fresh().noise())


@pytest.mark.parametrize("name", REGRESSION)
@pytest.mark.parametrize("kind", MODULES)
def test_clipped_sums_of_each_loss_are_those_of_a_loop_over_records(name, kind):
    torch.manual_seed(1)
    module, rng, bound = MODULES[kind](), np.random.default_rng(2), 0.4
    numbers = rng.normal(size=(12, 4)), rng.uniform(-1, 1, 12), rng.uniform(0, 1, 12)
    x, y, weight = (torch.from_numpy(part.astype(np.float32)) for part in numbers)
    double = MODULES[kind]().double()
    double.load_state_dict(module.state_dict())
    total, losses = 0.0, []
    for i in range(12):
        output = double(x[i : i + 1].double())[0, 0]
        gradient = torch.autograd.grad(output, list(double.parameters()))
        loss, slope = value_and_slope(name, float(output.detach()) - float(y[i]))
        losses.append(loss)
        g = slope * torch.cat([part.flatten() for part in gradient])
        total = total + float(weight[i]) * g * min(1.0, bound / max(float(g.norm()), 1e-300))
    batch = Batch(x, y, torch.zeros(12).long(), weight=weight)
    sample, step = clipped_sum(module, name, batch, bound)
    assert step.sound
    expected = torch.tensor(losses).double()
    torch.testing.assert_close(sample.loss.double(), expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(step.gradient.double() * 12, total.double(), rtol=3e-4, atol=1e-5)


@pytest.mark.parametrize("name", REGRESSION)
@given(
    x=st.floats(-(2.0**100), 2.0**100, width=32),
    y=st.floats(-1, 1, width=32),
    weight=st.sampled_from([None, 0.0, 1e-30, 1.0]),
)
def test_clipped_sum_of_each_loss_moves_by_no_more_than_the_bound(name, x, y, weight):
    module = nn.Linear(1, 1)
    nn.init.constant_(module.weight, 0.5)
    nn.init.zeros_(module.bias)
    weight = None if weight is None else torch.tensor([weight])
    batch = Batch(torch.tensor([[x]]), torch.tensor([y]), torch.zeros(1).long(), weight=weight)
    sample, step = clipped_sum(module, name, batch, 0.5)
    moved = float(step.gradient.double().norm())
    assert moved <= 0.5
    assert sample.norm > 0 or moved == 0  # a norm that underflows would hide a gradient
