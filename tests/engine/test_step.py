"""Where gradients are taken: elsewhere for all, on other inputs, in parts of a batch."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from skdpfair import get_method
from skdpfair._utils.keystream import Keystream
from skdpfair.engine import Batch, Noise, Streams, private_step, select_strategy
from skdpfair.engine.batch import Examples
from skdpfair.engine.losses import CrossEntropy
from skdpfair.engine.mechanism import Clip, GradientTerm, Mechanism, Method, Query, Task
from skdpfair.engine.step import mask_non_finite
from skdpfair.exceptions import PrivacyAccountingError
from skdpfair.training.batches import records_at

N = 24


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
        return Clip(torch.zeros_like(sample.norm), sample.norm.new_ones(()))


class Undecided(Shifted):
    """May add something to the gradients, and adds nothing."""

    def gradient_term(self, sample, state, release):
        return None


class Counting(Method):
    """Count twice."""

    def queries(self, task, noise_multiplier):
        names = {"first": 4.0 * noise_multiplier, "second": 2.0 * noise_multiplier}
        return tuple(Query(k, lambda sample, _: sample.norm, 1.0, s) for k, s in names.items())

    def clip(self, sample, state, release):
        return Clip(torch.zeros_like(sample.norm), sample.norm.new_ones(()))


def test_no_private_method_adds_the_mean_of_the_batch():
    with pytest.raises(PrivacyAccountingError, match="adds a mean over the batch"):
        total(*problem("closed_form"), Averaged())


def test_all_that_a_step_releases_is_accounted_for():
    mechanism = Mechanism(Counting(), Task(N, 1, 1.0), 2.0)
    assert mechanism.release.noise_multipliers == (2.0, 8.0, 4.0)
    assert mechanism.release.joint_noise_multiplier == pytest.approx(
        (1 / 4 + 1 / 64 + 1 / 16) ** -0.5
    )


MODULES = {
    "closed_form": nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)),
    "bookkeeping": nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 3)),
    "vmap": nn.Sequential(nn.Linear(4, 5), nn.PReLU(), nn.Linear(5, 3)),
}


def problem(name):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = MODULES[name].double()
        for p in module.parameters():
            nn.init.normal_(p)
        x, y = torch.randn(N, 4).double(), torch.randint(0, 3, (N,))
    return module, Batch(x, y, torch.zeros(N, dtype=torch.int64))


def total(module, batch, method, **options):
    mechanism = Mechanism(method, Task(N, 1, 1.0), 0.0)
    with select_strategy(module, batch.x, 3) as strategy:
        step = private_step(strategy, batch, mechanism, None, Streams.fresh().noise(), **options)
        return step.gradient


def autograd(module, batch):
    loss = nn.functional.cross_entropy(module(batch.x), batch.y)
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))])


@pytest.mark.parametrize("chunk_size", [None, 7])
def test_a_method_that_adds_nothing_keeps_its_gradients(chunk_size):
    module, batch = problem("closed_form")
    found = total(module, batch, Undecided(), chunk_size=chunk_size)
    torch.testing.assert_close(found, autograd(module, batch), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("chunk_size", [None, 7])
@pytest.mark.parametrize("name", list(MODULES))
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
    method = get_method("dpsgd", max_grad_norm=bound)
    batch = replace(batch, weight=weight, examples=Examples(size, N))
    found = total(module, batch, method, chunk_size=chunk_size)
    torch.testing.assert_close(found, clipped.sum(0) / N, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("chunk_size", [None, 7])
@pytest.mark.parametrize("name", ["closed_form", "bookkeeping"])
def test_a_perturbation_of_the_parameters_moves_all_gradients(name, chunk_size):
    module, batch = problem(name)
    before = [p.detach().clone() for p in module.parameters()]
    got = total(module, batch, Shifted(by=0.3), chunk_size=chunk_size)
    assert all(torch.equal(p, b) for p, b in zip(module.parameters(), before, strict=True))
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.3)
    torch.testing.assert_close(got, autograd(module, batch), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("chunk_size", [None, 7])
def test_an_attack_changes_the_inputs_of_the_gradients(chunk_size):
    module, batch = problem("closed_form")

    def attack(module, x, y):
        return 2.0 * x + y[:, None]

    got = total(module, batch, get_method("sgd"), attack=attack, chunk_size=chunk_size)
    changed = replace(batch, x=attack(module, batch.x, batch.y))
    torch.testing.assert_close(got, autograd(module, changed), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", list(MODULES))
def test_records_that_are_not_finite_count_for_nothing_in_any_sum(name):
    module, batch = problem(name)
    spoilt = batch.x.clone()
    spoilt[3, 0], spoilt[9, 1], spoilt[11] = float("nan"), float("inf"), 1e300
    kept = torch.tensor([i for i in range(N) if i not in (3, 9, 11)])
    for method in (get_method("dpsgd", max_grad_norm=0.5), Shifted(radius=0.2)):
        got = total(module, replace(batch, x=spoilt), method)
        rest = records_at(batch, kept)
        expected = total(module, rest, method)
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("loss", [np.nan, np.inf])
def test_a_record_whose_loss_overflows_counts_for_nothing(loss):
    batch = Batch(torch.zeros(2, 1), torch.zeros(2, dtype=torch.int64), torch.tensor([0, 1]))
    columns = torch.ones(2), torch.tensor([loss, 1.0]), torch.ones(2, 1)
    sample, finite = mask_non_finite(*columns, batch)
    assert finite.tolist() == [False, True] and sample.loss.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("method", ["dpsgd_f", "bam"])
@pytest.mark.parametrize("name", list(MODULES))
def test_chunks_change_nothing(name, method):
    module, batch = problem(name)
    batch = replace(batch, group=torch.arange(N) % 2)
    facts, method = Task(N, 2, 1.0), get_method(method)
    mechanism = replace(Mechanism(method, facts, 1.0), noise_multiplier=1.0)
    with select_strategy(module, batch.x, 3) as strategy:
        steps = [
            private_step(
                strategy,
                batch,
                mechanism,
                method.start(facts),
                Streams.seeded(0, digest=b"").noise(),
                chunk_size=size,
            )
            for size in (None, 1, 5, 23, 100)
        ]
    for step in steps[1:]:
        torch.testing.assert_close(step.gradient, steps[0].gradient, rtol=1e-10, atol=1e-12)


def test_what_no_record_can_move_gets_no_noise_and_all_else_its_own():
    batch, module = Batch(torch.rand(9, 3), *torch.zeros(2, 9, dtype=torch.int64)), nn.Linear(3, 2)
    mechanism = Mechanism(get_method("dpsgd"), Task(9, 1, 1.0), noise_multiplier=1.0)
    found = []
    for fixed in (None, torch.tensor([0, 5])):
        with select_strategy(module, batch.x, 2) as model:
            model.fixed, noise = fixed, Noise(Keystream(b"seed"))
            found.append(private_step(model, batch, mechanism, None, noise).gradient)
    others = [1, 2, 3, 4, 6, 7]
    assert not found[1][[0, 5]].any() and torch.equal(found[1][others], found[0][others])


@pytest.mark.parametrize("n_classes", [3, 100, 101, 2000])
def test_slopes_of_the_logits_are_autograds_whatever_the_number_of_classes(n_classes):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn((5, n_classes), generator=generator).requires_grad_()
    y = torch.randint(0, n_classes, (5,), generator=generator)
    expected = torch.autograd.grad(cross_entropy(logits, y, reduction="sum"), logits)[0]
    loss, probability, slope = CrossEntropy(n_classes).terms(logits, y)
    torch.testing.assert_close(slope, expected)
    torch.testing.assert_close(probability, logits.softmax(1))
    assert (slope != 0).all() and loss.shape == (5,)
