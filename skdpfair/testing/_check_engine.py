"""Check of a module's gradients, for this package and for third parties."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from skdpfair._networks import copied
from skdpfair.engine import Batch, select_strategy
from skdpfair.engine.per_sample.proof import hold_statistics


def check_engine(module: nn.Module, example: Tensor, n_classes: int) -> str:
    """Raise AssertionError if the engine's gradients of a module differ from autograd's.

    Norms and a random weighted sum must agree to 1e-10 with one backward pass per record.

    Parameters
    ----------
    module : torch.nn.Module
        Maps (batch, ...) to logits (batch, n_classes); a float64 copy is used, in the same mode,
        frozen batch normalisation in evaluation mode.  A module with dropout must be in evaluation
        mode, and code that makes tensors must take their type from its inputs.
    example : Tensor of shape (1, ...)
        An example with the shape of a record; random numbers take the place of its own, unless it
        is of integers.
    n_classes : int
        Number of classes.

    Returns
    -------
    str
        The name of the strategy: "closed_form" or "bookkeeping".

    Raises
    ------
    UnsupportedModuleError
        If no strategy supports the module.
    AssertionError
        If a gradient differs.

    Examples
    --------
    >>> from torch import nn
    >>> module = nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2))
    >>> check_engine(module, torch.zeros(1, 1, 6), n_classes=2)
    'bookkeeping'
    """
    module = hold_statistics(copied(module)).double()
    generator = torch.Generator().manual_seed(0)
    x = torch.rand((8, *example.shape[1:]), generator=generator, dtype=torch.float64)
    x = x if example.is_floating_point() else example.repeat(8, *[1] * (example.dim() - 1))
    y = torch.randint(0, n_classes, (8,), generator=generator)
    weight = torch.rand(8, generator=generator, dtype=torch.float64)
    with select_strategy(module, x, n_classes) as strategy:
        gradients, total = strategy.per_sample_gradients(Batch(x, y)), strategy.flat()
        gradients.weighted_sum(weight, total)
    rows = []
    for one, label in zip(x.split(1), y.split(1), strict=True):
        loss = cross_entropy(module(one), label)
        parts = torch.autograd.grad(loss, strategy.parameters, materialize_grads=True)
        rows.append(torch.cat([part.flatten() for part in parts]))
    expected = torch.stack(rows)
    torch.testing.assert_close(gradients.norm, expected.norm(dim=1), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(total, weight @ expected, rtol=1e-10, atol=1e-10)
    return strategy.name
