"""One step of a method on a small batch."""

from dataclasses import replace

import torch

from skdpfair import get_method
from skdpfair.engine import Streams, private_step, select_strategy
from skdpfair.engine.mechanism import Mechanism
from skdpfair.methods import METHODS
from skdpfair.testing import example_task

PRIVATE = sorted(name for name, method in METHODS.items() if method.private)


def mechanism_of(name, noise_multiplier=0.0, n_groups=2, **settings):
    task = example_task(n_groups=n_groups)
    return Mechanism(get_method(name, **settings), task, noise_multiplier)


def step_of(module, batch, mechanism, noise=None, **options):
    """Return a step with a gradient of its own; its noise is that of a fixed seed, by default."""
    noise = Streams.seeded(0, digest=b"").noise() if noise is None else noise
    n_outputs = module(torch.zeros(1, *batch.x.shape[1:])).shape[1]
    state = mechanism.method.start(mechanism.task)
    with select_strategy(module, batch.x, n_outputs) as model:
        step = private_step(model, batch, mechanism, state, noise, **options)
        return replace(step, gradient=step.gradient.clone())
