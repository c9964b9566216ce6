"""Losses of single records, and their gradients in the outputs."""

import pytest
import torch

from skdpfair.engine.losses import REGRESSION, CrossEntropy

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


def test_loss_terms_never_underflow():
    """A norm whose square is 0 would let a long gradient pass."""
    certain = torch.tensor([[200.0, -200.0]])
    slopes = [CrossEntropy(2).terms(certain, torch.tensor([0]))[2]]
    slopes += [make().terms(torch.ones(1, 1), torch.ones(1))[2] for make in REGRESSION.values()]
    assert all((slope.square().sum(1) > 0).all() for slope in slopes)
