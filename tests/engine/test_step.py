"""Where a step takes gradients: elsewhere for all, on other inputs, in parts, under dropout."""

import threading
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn

from skdpfair import get_method
from skdpfair._utils.keystream import Keystream
from skdpfair.engine import Batch, Noise, private_step, select_strategy
from skdpfair.engine.batch import Examples
from skdpfair.engine.mechanism import Clip, GradientTerm, Mechanism, Method, Task
from skdpfair.engine.step import mask_non_finite
from skdpfair.exceptions import PrivacyAccountingError
from skdpfair.training.batches import records_at
from tests.engine.per_sample.modules import chain, clipped_mean, of_one_class, seeded, sums

N = 24
ACTIVATIONS = {"closed_form": nn.Tanh, "bookkeeping": nn.GELU, "vmap": nn.PReLU}
by_strategy = pytest.mark.parametrize("name", ACTIVATIONS)
in_chunks = pytest.mark.parametrize("chunk_size", [None, 7])


@dataclass(kw_only=True, repr=False, eq=False)
class Shifted(Method):
    """Sum gradients as they are, taken elsewhere: for all, or ahead for each record."""

    radius: float = 0.0
    by: float = 0.0

    def parameter_perturbation(self, state):
        return None if self.by == 0 else torch.full((43,), self.by, dtype=torch.float64)

    def per_sample_perturbation_radius(self):
        return self.radius

    def clip(self, sample, state, release):
        return Clip(torch.ones_like(sample.norm), torch.inf)


class Averaged(Method):
    """Claim privacy, and add the mean of the batch to each gradient."""

    sees_gradients = True

    def gradient_term(self, sample, state, release):
        return GradientTerm(torch.zeros_like(sample.probability), averaged=True)

    def clip(self, sample, state, release):
        return Clip(torch.zeros_like(sample.norm), 1.0)


class Undecided(Shifted):
    """May add something to the gradients, and adds nothing."""

    def gradient_term(self, sample, state, release):
        return None


def problem(name="closed_form"):
    module = seeded(chain, (4, 5), ACTIVATIONS[name](), (5, 3)).double()
    x, y = seeded(torch.randn, N, 4).double(), torch.arange(N) % 3
    return module, Batch(x, y)


def total(module, batch, method, **options):
    (found,) = sums(module, [batch], Mechanism(method, Task(N, 1, 1.0), 0.0), **options)
    return found / N


def autograd(module, batch):
    loss = nn.functional.cross_entropy(module(batch.x), batch.y)
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))])


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_private_step_refuses_a_private_method_that_adds_a_mean():
    with pytest.raises(PrivacyAccountingError, match=r"Averaged.*mean"):
        total(*problem(), Averaged())


@in_chunks
def test_gradient_term_of_none_is_autograds(chunk_size):
    module, batch = problem()
    close(total(module, batch, Undecided(), chunk_size=chunk_size), autograd(module, batch))


@pytest.mark.parametrize("size", [1, 2])
@in_chunks
@by_strategy
def test_weights_multiply_clipped_gradients(name, chunk_size, size):
    """That of a person is the weighted mean of her rows' gradients; her weight is their mean."""
    module, batch = problem(name)
    n, weight = N // size, torch.arange(N).double() / N
    each = [autograd(module, records_at(batch, torch.tensor([i]))) for i in range(N)]
    weighted = (torch.stack(each) * weight[:, None]).view(n, size, -1).sum(1)
    rows = weighted / weight.view(n, size).sum(1, keepdim=True).clamp(min=1e-9)
    bound = float(rows.norm(dim=1).median())
    clipped = rows * (bound / rows.norm(dim=1).clamp(min=1e-9)).clamp(max=1.0)[:, None]
    clipped *= weight.view(n, size).mean(1, keepdim=True)
    batch = replace(batch, weight=weight, examples=Examples(size, N))
    method = get_method("dpsgd", max_grad_norm=bound)
    close(total(module, batch, method, chunk_size=chunk_size), clipped.sum(0) / N)


@in_chunks
@pytest.mark.parametrize("name", ["closed_form", "bookkeeping"])
def test_parameter_perturbation_moves_all_gradients(name, chunk_size):
    module, batch = problem(name)
    before = [p.detach().clone() for p in module.parameters()]
    moved = total(module, batch, Shifted(by=0.3), chunk_size=chunk_size)
    assert all(map(torch.equal, module.parameters(), before))
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.3)
    close(moved, autograd(module, batch))


@by_strategy
def test_private_step_leaves_out_records_that_are_not_finite(name):
    module, batch = problem(name)
    spoilt = batch.x.clone()
    spoilt[3, 0], spoilt[9, 1], spoilt[11] = float("nan"), float("inf"), 1e300
    rest = records_at(batch, torch.tensor([i for i in range(N) if i not in (3, 9, 11)]))
    for method in (get_method("dpsgd", max_grad_norm=0.5), Shifted(radius=0.2)):
        found = total(module, replace(batch, x=spoilt), method)
        torch.testing.assert_close(found, total(module, rest, method), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("loss", [np.nan, np.inf])
def test_mask_non_finite_zeroes_a_record_whose_loss_overflows(loss):
    batch = Batch(torch.zeros(2, 1), torch.zeros(2, dtype=torch.int64), torch.tensor([0, 1]))
    columns = torch.ones(2), torch.tensor([loss, 1.0]), torch.ones(2, 1)
    sample, finite_mask = mask_non_finite(*columns, batch)
    assert finite_mask.tolist() == [False, True] and sample.loss.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("method", ["dpsgd_f", "bam"])
@by_strategy
def test_chunk_size_changes_no_step(name, method):
    module, batch = problem(name)
    batch = replace(batch, group=torch.arange(N) % 2)
    mechanism = Mechanism(get_method(method), Task(N, 2, 1.0), 1.0)
    state = mechanism.method.start(mechanism.task)
    with select_strategy(module, batch.x, 3) as strategy:
        whole, *others = (
            private_step(strategy, batch, mechanism, state, Noise(Keystream(b"seed")), chunk_size=n)
            for n in (None, 1, 5, 23, 100)
        )
    for other in others:
        torch.testing.assert_close(other.gradient, whole.gradient, rtol=1e-10, atol=1e-12)


def test_fixed_places_get_no_noise_and_all_others_their_own():
    batch, module = Batch(torch.rand(9, 3), *torch.zeros(2, 9, dtype=torch.int64)), nn.Linear(3, 2)
    mechanism = Mechanism(get_method("dpsgd"), Task(9, 1, 1.0), noise_multiplier=1.0)
    steps = []
    for fixed in (None, torch.tensor([0, 5])):
        with select_strategy(module, batch.x, 2) as model:
            model.fixed, noise = fixed, Noise(Keystream(b"seed"))
            steps.append(private_step(model, batch, mechanism, None, noise).gradient)
    others = [1, 2, 3, 4, 6, 7]
    assert not steps[1][[0, 5]].any() and torch.equal(steps[1][others], steps[0][others])


@pytest.fixture
def forked():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


LAST = {"book-keeping": nn.Identity, "vmap": lambda: nn.PReLU()}


def with_dropout(last):
    return nn.Sequential(nn.Linear(6, 50), nn.Dropout(0.5), nn.Linear(50, 3), LAST[last]())


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("last", LAST)
def test_private_step_bounds_sums_if_the_second_pass_draws_other_masks(last):
    with select_strategy(with_dropout(last), torch.rand(2, 6), 3) as strategy:
        strategy.set_rng_state = lambda rng_state: None
        for n in (1, 2) * 10:
            found = clipped_mean(strategy, 9 * torch.rand(n, 6), chunk_size=1)
            assert found.norm() <= n * 0.01 * (1 + 1e-6)


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("chunk_size", [None, 1])
@pytest.mark.parametrize("last", LAST)
def test_private_step_draws_the_same_masks_in_both_passes(last, chunk_size):
    busy, x = threading.Event(), 9 * torch.rand(2, 6)

    def draw():
        while not busy.is_set():
            torch.rand(64)

    other = threading.Thread(target=draw)
    with select_strategy(with_dropout(last), x, 3) as strategy:
        other.start()
        try:
            for _ in range(5):
                state, expected = strategy.generator.get_state(), strategy.flat()
                found = clipped_mean(strategy, x, 1e9, chunk_size=chunk_size)
                strategy.generator.set_state(state)
                for part in of_one_class(x).split(chunk_size or 2):
                    gradients = strategy.per_sample_gradients(part)
                    gradients.weighted_sum(torch.ones(len(part)), expected)
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
        finally:
            busy.set()
            other.join()
