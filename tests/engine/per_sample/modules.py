"""Modules put together by functions, and naive loops over their records."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from skdpfair import get_method
from skdpfair.engine import Batch, Streams, private_step, select_strategy
from skdpfair.engine.mechanism import Mechanism, Task


def made(layer):
    """Return a layer that is written as (type, *arguments), or a Linear as (in, out)."""
    if not isinstance(layer, tuple):
        return layer
    return layer[0](*layer[1:]) if callable(layer[0]) else nn.Linear(*layer)


def chain(*layers):
    """Return layers one after the other, each as `made` takes it."""
    return nn.Sequential(*map(made, layers))


class Net(nn.Module):
    """Named layers, each as `made` takes it, put together by ``forward(module, x)``."""

    def __init__(self, forward, **layers):
        super().__init__()
        self.run = forward
        for name, layer in layers.items():
            setattr(self, name, made(layer))

    def forward(self, x):
        return self.run(self, x)


@torch.library.custom_op("skdpfair_tests::own", mutates_args=())
def own(x: torch.Tensor) -> torch.Tensor:
    """Bring records together where vmap calls it, in code of its own."""
    return x.clone()


own.register_fake(torch.empty_like)
own.register_autograd(lambda ctx, grad: grad)
own.register_vmap(lambda info, axes, x: (x - x.mean(axes[0], keepdim=True), axes[0]))


def linears(forward):
    """Return three linear layers and a factor of six numbers, put together by a function."""
    scale = nn.Parameter(torch.ones(6))
    return Net(forward, a=(6, 6), b=(6, 6), out=(6, 3), scale=scale)


def seeded(make, *args, seed=0):
    """Return what a function makes of torch's random numbers from a seed on."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make(*args)


def trained(module):
    return [p for p in module.parameters() if p.requires_grad]


def gradient(module, x, y):
    """Return the gradient of one record as a vector."""
    loss = cross_entropy(module(x[None]), y[None])
    parts = torch.autograd.grad(loss, trained(module), materialize_grads=True)
    return torch.cat([part.flatten() for part in parts]).detach()


def loop(module, x, y):
    """Return the gradients (records, parameters), one backward pass each."""
    return torch.stack([gradient(module, *record) for record in zip(x, y, strict=True)])


def assert_close(gradients, total, rows, weight, tolerance, of_norms=1.0):
    """Compare norms and a weighted sum with the gradients (records, parameters) of a loop."""
    expected = weight @ rows
    largest = float(expected.abs().max())
    norm = rows.norm(dim=1)
    torch.testing.assert_close(gradients.norm, norm, rtol=of_norms * tolerance, atol=tolerance)
    torch.testing.assert_close(total, expected, rtol=tolerance, atol=tolerance * largest)


def assert_equals_loop(module, x, y, weight, atol, name):
    """Compare the norms and the weighted sum of a strategy with those of a loop."""
    rows = loop(module, x, y)
    with select_strategy(module, x, 3) as strategy:
        assert strategy.name == name
        gradients, total = strategy.per_sample_gradients(Batch(x, y)), strategy.flat()
        gradients.weighted_sum(weight, total)
    torch.testing.assert_close(gradients.norm, rows.norm(dim=1), rtol=1e-10, atol=atol)
    torch.testing.assert_close(total, weight @ rows, rtol=1e-10, atol=atol)


def sums(module, batches, mechanism, n_outputs=3, *, name=None, **options):
    """Return the gradient sums of a step on each of the batches, with equal noise."""
    method, task = mechanism.method, mechanism.task
    with select_strategy(module, batches[0].dense_x[:1], n_outputs) as strategy:
        assert name in (None, strategy.name)
        found = []
        for batch in batches:
            noise = Streams.seeded(0, digest=b"").noise()
            step = private_step(strategy, batch, mechanism, method.start(task), noise, **options)
            assert step.sound or name is None
            found.append(step.gradient * mechanism.expected_batch_size)
    return found


def of_one_class(x):
    """Return a batch of records without groups, which are all of class 0."""
    codes = torch.zeros(len(x), dtype=torch.int64)
    return Batch(x, codes, codes)


def clipped_mean(strategy, x, bound=0.01, *, size=1, chunk_size=None):
    """Return the sum of the clipped gradients of all records, over the expected batch size."""
    mechanism = Mechanism(get_method("dpsgd", max_grad_norm=bound), Task(size, 1, 1.0), 0.0)
    noise = Streams.fresh().noise()
    return private_step(
        strategy, of_one_class(x), mechanism, None, noise, chunk_size=chunk_size
    ).gradient
