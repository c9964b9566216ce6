"""Methods that are not private train batch normalisation as torch does."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from skdpfair import get_method
from skdpfair.engine import Batch, Streams, private_step, select_strategy
from skdpfair.engine.units import Units
from skdpfair.exceptions import UnsupportedModuleError
from skdpfair.mechanism import METHODS, Mechanism
from skdpfair.testing import task


def normalised(**options):
    torch.manual_seed(0)
    layers = [nn.Linear(6, 5), nn.BatchNorm1d(5, **options), nn.Tanh(), nn.Linear(5, 3)]
    return nn.Sequential(*layers).double().train()


def records(n=12):
    x = torch.rand((n, 6), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x, torch.arange(n) % 3


def flat(gradients):
    return torch.cat([g.flatten() for g in gradients])


def statistics(module):
    return torch.cat([b.double().flatten() for b in module.buffers()])


@pytest.mark.parametrize("of_persons", [False, True])
def test_the_sum_is_the_gradient_of_the_weighted_loss(of_persons):
    module, (x, y) = normalised(), records()
    expected, before = copy.deepcopy(module), statistics(module)
    weight = torch.linspace(0.5, 1.5, len(y), dtype=torch.float64)
    of_class = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    units = Units(torch.tensor([2] * 3 + [3] * 2)) if of_persons else None
    factor = torch.linspace(0.0, 1.0, 5 if of_persons else 12, dtype=torch.float64)
    with select_strategy(module, x, 3, of_class, may_mix=True) as strategy:
        assert strategy.name == "autograd"
        found = strategy.records(x, y, weight=weight, units=units)
        assert torch.equal(statistics(module), before)  # nobody has learned yet
        total = strategy.flat()
        found.weighted_sum(factor, total)
    loss = cross_entropy(expected(x), y, reduction="none") * weight * of_class[y]
    if of_persons:
        loss = torch.stack([part.mean() for part in loss.split([2, 2, 2, 3, 3])])
    gradient = torch.autograd.grad(factor @ loss, list(expected.parameters()))
    torch.testing.assert_close(total, flat(gradient), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(found.loss, loss.detach(), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(statistics(module), statistics(expected), rtol=1e-14, atol=0.0)


def test_parts_of_a_batch_have_their_own_statistics_and_count_once_each():
    module, (x, y) = normalised(), records(13)  # the last part is one record
    expected = copy.deepcopy(module)
    mechanism = Mechanism(get_method("sgd"), task(), 0.0)
    with select_strategy(module, x, 3, may_mix=True) as strategy:
        step = private_step(
            strategy, Batch(x, y, torch.zeros_like(y)), mechanism, None, Streams.fresh().noise(),
            chunk_size=4,
        )  # fmt: skip
    gradient = 0.0
    for part, labels in zip(x.split(4), y.split(4), strict=True):
        expected.train(len(part) > 1)
        loss = cross_entropy(expected(part), labels, reduction="sum")
        gradient = gradient + flat(torch.autograd.grad(loss, list(expected.parameters())))
    torch.testing.assert_close(
        step.gradient * mechanism.expected_batch_size, gradient, rtol=1e-4, atol=1e-8
    )
    torch.testing.assert_close(statistics(module), statistics(expected))


def test_dropout_follows_the_generator_of_the_fit():
    module, (x, y) = nn.Sequential(normalised(), nn.Dropout(0.5)), records()
    with select_strategy(module, x, 3, may_mix=True) as strategy:
        state, others = strategy.chance(), torch.get_rng_state()
        losses = []
        for begin in (state, strategy.chance(), state):
            strategy.replay(begin)
            losses.append(strategy.records(x, y).loss)
            strategy.records(x, y)
        assert torch.equal(torch.get_rng_state(), others)
        assert torch.equal(losses[0], losses[2])


def test_what_needs_gradients_of_records_is_refused():
    module, (x, y) = normalised(), records()
    with select_strategy(module, x, 3, may_mix=True) as strategy:
        found = strategy.records(x, y)
        with pytest.raises(ValueError, match="GroupNorm"):
            found.ahead(torch.ones(12))
        with pytest.raises(ValueError, match="GroupNorm"):
            strategy.records(x, y, logit_gradient=torch.zeros(12, 3))
    with pytest.raises(UnsupportedModuleError, match="track_running_stats=True"):
        select_strategy(normalised(track_running_stats=False), x, 3, may_mix=True)
    with pytest.raises(UnsupportedModuleError, match="GroupNorm"):
        select_strategy(module, x, 3)


def test_no_private_method_takes_batch_statistics():
    taking = {name for name, method in METHODS.items() if method.takes_batch_statistics}
    assert {"sgd", "is_sgd", "gdro"} <= taking
    assert not any(METHODS[name].private for name in taking)
