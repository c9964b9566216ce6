"""Every method against loops over the records, in float64 and by autograd.

Any method is compared with a loop over its own hooks, which see one record at a time; the methods
in ``REFERENCES`` also with a loop written from the formula of the paper.
"""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from benchmarks.papers.knolle import ExactBAM
from skdpfair import get_method
from skdpfair.engine import Batch, Streams, private_step, select_strategy
from skdpfair.engine.flat import split
from skdpfair.engine.mechanism import Mechanism, PerSampleGradients, Task
from skdpfair.methods import METHODS
from skdpfair.training.batches import records_at

N, FEATURES, RATE, LR, STEPS, SIGMA = 60, 4, 0.3, 0.5, 4, 0.7


class Problem:
    """Data, batches and a module whose parameters are one vector theta."""

    def __init__(self, n_groups, n_classes, hidden):
        rng = torch.Generator().manual_seed(1)
        self.n_groups, self.n_classes = n_groups, n_classes
        self.group = torch.randint(0, n_groups, (N,), generator=rng)
        self.x = 3 * torch.rand((N, FEATURES), generator=rng, dtype=torch.float64) - 1
        self.x *= (1 + self.group)[:, None]
        self.y = torch.randint(0, n_classes, (N,), generator=rng)
        layers = [nn.Linear(FEATURES, n_classes)]
        if hidden:
            layers = [nn.Linear(FEATURES, hidden), nn.Tanh(), nn.Linear(hidden, n_classes)]
        self.module = nn.Sequential(*layers).double()
        self.theta = torch.rand(self.size, generator=rng, dtype=torch.float64) - 0.5
        self.batches = [
            torch.nonzero(torch.rand(N, generator=rng) < RATE)[:, 0] for _ in range(STEPS)
        ]
        self.batches[1] = self.batches[1][:0]  # an empty batch
        absent = self.batches[2]
        self.batches[2] = absent[self.group[absent] != 0]  # a group that is absent

    @property
    def size(self):
        return sum(p.numel() for p in self.module.parameters())

    def logits(self, theta, i):
        parts = split(theta, list(self.module.parameters()))
        names = [name for name, _ in self.module.named_parameters()]
        return functional_call(
            self.module, dict(zip(names, parts, strict=True)), (self.x[i : i + 1],)
        )

    def loss(self, theta, i):
        return cross_entropy(self.logits(theta, i), self.y[i : i + 1])

    def gradient(self, theta, i, create_graph=False):
        theta = theta if theta.requires_grad else theta.detach().requires_grad_()
        (g,) = torch.autograd.grad(self.loss(theta, i), theta, create_graph=create_graph)
        return g

    def score(self, theta, i):
        return torch.softmax(self.logits(theta, i), dim=1)[0, 1]

    def set_theta(self, theta):
        with torch.no_grad():
            for p, part in zip(
                self.module.parameters(), split(theta, list(self.module.parameters())), strict=True
            ):
                p.copy_(part)


def clip(g, c):
    return g * min(1.0, c / float(g.norm())) if g.norm() > 0 else g


def draw(noise, size, sd):
    out = torch.empty(size, dtype=torch.float64)
    return noise.fill_(out, 1.0, sd) if sd > 0 else out.zero_()


class Reference:
    """The naive loop: ``step`` returns the sum that the optimizer gets, over the batch size B."""

    def __init__(self, problem, noise):
        self.p, self.noise, self.size, self.lr, self.kept = problem, noise, N * RATE, LR, {}

    def noisy_sum(self, rows, bound=0.8):
        noise = draw(self.noise, self.p.size, SIGMA * bound)
        return (add(rows, self.p.size) + noise) / self.size

    def groups(self, batch):
        return [self.p.group[i].item() for i in batch]

    def after(self, theta, t):
        return theta


def add(rows, size):
    return sum(rows, torch.zeros(size, dtype=torch.float64))


class dpsgd(Reference):
    params = {"max_grad_norm": 0.8}

    def step(self, theta, batch, t):
        return self.noisy_sum(clip(self.p.gradient(theta, i), 0.8) for i in batch)


class pcsgd(dpsgd):
    params = {"max_grad_norm": 0.8, "radius": 1.2, "schedule": (5.0, 7.0)}

    def factor(self, t):
        return 5.0 / (7.0 + t + 1)  # the paper counts from 1

    def after(self, theta, t):
        return theta * min(1.0, 1.2 / float(theta.norm()))


class global_(Reference):
    params = {"max_grad_norm": 0.8, "strict_max_grad_norm": 2.0}

    def step(self, theta, batch, t):
        rows = [self.p.gradient(theta, i) for i in batch]
        return self.noisy_sum(0.8 / 2.0 * g for g in rows if g.norm() <= 2.0)


class global_adapt(Reference):
    params = {
        "max_grad_norm": 0.8,
        "strict_max_grad_norm": 2.0,
        "threshold": 0.7,
        "lr_z": 0.1,
        "z_gain": 1.0,
        "count_noise_multiplier": 3.0,
    }

    def step(self, theta, batch, t):
        z = self.kept.setdefault("z", 2.0)
        rows = [self.p.gradient(theta, i) for i in batch]
        count = sum(float(g.norm()) > 0.7 * z for g in rows) + float(draw(self.noise, 1, 3.0))
        out = self.noisy_sum(0.8 / max(z, float(g.norm())) * g for g in rows)
        self.kept["z"] = z * math.exp(max(-1.0, min(1.0, count / self.size - 0.1)))
        return out


class dpsgd_f(Reference):
    params = {"max_grad_norm": 0.8, "count_noise_multiplier": 3.0}

    def step(self, theta, batch, t):
        rows, groups, k = (
            [self.p.gradient(theta, i) for i in batch],
            self.groups(batch),
            self.p.n_groups,
        )
        counts = [0.0] * (2 * k)
        for g, a in zip(rows, groups, strict=True):
            counts[a if float(g.norm()) > 0.8 else k + a] += 1
        noisy = [
            max(0.0, c + float(e))
            for c, e in zip(counts, draw(self.noise, 2 * k, 3.0), strict=True)
        ]
        m, o = noisy[:k], noisy[k:]
        b = [u + v for u, v in zip(m, o, strict=True)]
        bounds = []
        for a in range(k):
            if sum(m) == 0:
                ratio = 0.0
            elif b[a] == 0:
                ratio = 1.0
            else:
                ratio = min(float(k), (m[a] / b[a]) / (sum(m) / sum(b)))
            bounds.append(0.8 * (1 + ratio))
        clipped = [clip(g, bounds[a]) for g, a in zip(rows, groups, strict=True)]
        return self.noisy_sum(clipped, max(bounds))


class naive(Reference):
    params = {"max_grad_norm": 0.8, "count_noise_multiplier": 3.0}

    def step(self, theta, batch, t):
        groups, k = self.groups(batch), self.p.n_groups
        noise = draw(self.noise, k, 3.0)
        factor = [(self.size / k) / max(1.0, groups.count(a) + float(noise[a])) for a in range(k)]
        rows = [clip(self.p.gradient(theta, i), 0.8) for i in batch]
        rows = [factor[a] * g for g, a in zip(rows, groups, strict=True)]
        return self.noisy_sum(rows, 0.8 * max(factor))


class bam(Reference):
    params = {"max_grad_norm": 0.8, "perturbation_radius": 0.1}

    def step(self, theta, batch, t):
        rows = []
        for i in batch:
            g = self.p.gradient(theta, i)
            rows.append(clip(self.p.gradient(theta + 0.1 * g / g.norm(), i), 0.8))
        return self.noisy_sum(rows)


class exact_bam(bam):
    """Equation 13, with the whole Hessian of each record's loss."""

    def step(self, theta, batch, t):
        rows = []
        for i in batch.tolist():
            g = self.p.gradient(theta, i)
            hessian = torch.autograd.functional.hessian(partial(self.p.loss, i=i), theta)
            rows.append(clip(g + 0.1 * hessian @ g / g.norm(), 0.8))
        return self.noisy_sum(rows)


class dp_sat(Reference):
    params = {"max_grad_norm": 0.8, "perturbation_radius": 0.3}

    def step(self, theta, batch, t):
        last = self.kept.get("last")
        there = theta if last is None else theta + 0.3 * last / last.norm()
        out = self.noisy_sum(clip(self.p.gradient(there, i), 0.8) for i in batch)
        self.kept["last"] = out
        return out


class dp_is_sgd(Reference):
    params = {"max_grad_norm": 0.8, "group_probabilities": (0.5, 0.3, 0.2), "max_sample_rate": 0.4}

    def step(self, theta, batch, t):
        rates = [min(0.4, RATE / (3 * q)) for q in (0.5, 0.3, 0.2)]
        self.size = N * sum(q * r for q, r in zip((0.5, 0.3, 0.2), rates, strict=True))
        return self.noisy_sum(clip(self.p.gradient(theta, i), 0.8) for i in batch)


class asc(Reference):
    shares, strata = (0.5, 0.3, 0.2), ((RATE / 2, 1.0), (RATE, 0.5), (2 * RATE, 0.25))
    params = {
        "max_grad_norm": 0.8,
        "group_probabilities": shares,
        "group_lr": 0.5,
        "max_loss": 1.0,
        "count_noise_multiplier": 0.3,
    }

    def step(self, theta, batch, t):
        u, chosen = self.kept.get("u", self.shares), []
        for weight, share in zip(u, self.shares, strict=True):
            wanted = math.log(RATE * weight / share)
            chosen.append(min(self.strata, key=lambda s: abs(math.log(s[0]) - wanted)))
        losses, rows = draw(self.noise, 3, 0.3), []
        for i in batch:
            k = int(self.p.group[i])
            losses[k] += chosen[k][1] * min(1.0, float(self.p.loss(theta, i)))
            rows.append(clip(self.p.gradient(theta, i), 1.6 * chosen[k][1]))
        means = [
            float(total) / (rate * factor * N * share)
            for total, (rate, factor), share in zip(losses, chosen, self.shares, strict=True)
        ]
        mean = sum(m * share for m, share in zip(means, self.shares, strict=True))
        grown = [
            w * math.exp(0.5 * min(1, max(-1, m - mean))) for w, m in zip(u, means, strict=True)
        ]
        self.kept["u"] = [w / sum(grown) for w in grown]
        return self.noisy_sum(rows, bound=1.6)


class sgd(Reference):
    params = {"gradient_noise": 0.05}

    def step(self, theta, batch, t):
        rows = [self.p.gradient(theta, i) for i in batch]
        return add(rows, self.p.size) / self.size + draw(self.noise, self.p.size, 0.05)


class is_sgd(sgd):
    params = {"gradient_noise": 0.05, "group_probabilities": (0.5, 0.3, 0.2)}

    def step(self, theta, batch, t):
        self.size = N * sum(q * min(1.0, RATE / (3 * q)) for q in (0.5, 0.3, 0.2))
        return super().step(theta, batch, t)


class iw_sgd(Reference):
    params = {"gradient_noise": 0.05, "group_probabilities": (0.5, 0.3, 0.2)}

    def step(self, theta, batch, t):
        weight = [1 / (3 * q) for q in (0.5, 0.3, 0.2)]
        rows = [
            weight[a] * self.p.gradient(theta, i)
            for i, a in zip(batch, self.groups(batch), strict=True)
        ]
        return add(rows, self.p.size) / self.size + draw(self.noise, self.p.size, 0.05)


class gdro(Reference):
    params = {"gradient_noise": 0.05, "group_lr": 0.3}

    def step(self, theta, batch, t):
        k, groups = self.p.n_groups, self.groups(batch)
        u = self.kept.setdefault("u", [1 / k] * k)
        for a in range(k):
            losses = [
                float(self.p.loss(theta, i)) for i, g in zip(batch, groups, strict=True) if g == a
            ]
            loss = sum(losses) / len(losses) if losses else 0.0
            u[a] *= math.exp(0.3 * loss)
        u[:] = [v / sum(u) for v in u]
        rows = [
            u[a] / groups.count(a) * self.p.gradient(theta, i)
            for i, a in zip(batch, groups, strict=True)
        ]
        return add(rows, self.p.size) + draw(self.noise, self.p.size, 0.05)


def regulariser(p, theta, batch, c, gamma1, gamma2):
    """FairLens' published regulariser of a batch, to be differentiated through everything."""
    rows = torch.stack([p.gradient(theta, i, create_graph=True) for i in batch])
    scores = torch.stack([p.score(theta, i) for i in batch])
    norm = rows.norm(dim=1, keepdim=True)
    clipped = torch.where(norm > c, rows * c / norm, rows)
    a, b = (p.group[batch] == k for k in (0, 1))
    r1 = torch.dot(rows[a].mean(0) - rows[b].mean(0), clipped.mean(0) - rows.mean(0)).abs()
    r2 = sum(scores[k].mean() * (1 - scores[k].mean()) for k in (a, b)) / 2
    return gamma1 * r1 + gamma2 * r2


class fairlens(Reference):
    params = {"max_grad_norm": 0.8, "gamma1": 0.5, "gamma2": 2.0}

    def step(self, theta, batch, t):
        common = torch.zeros_like(theta)
        if len(set(self.groups(batch))) == 2:
            at = theta.detach().clone().requires_grad_()
            (common,) = torch.autograd.grad(regulariser(self.p, at, batch, 0.8, 0.5, 2.0), at)
        rows = [clip(self.p.gradient(theta, i) + common, 0.8) for i in batch]
        return self.noisy_sum(rows)


class fairlens_dp(Reference):
    params = {
        "max_grad_norm": 0.8,
        "group_max_grad_norm": 1.1,
        "gamma1": 0.5,
        "gamma2": 2.0,
        "count_noise_multiplier": 0.2,
    }

    def step(self, theta, batch, t):
        d, c, r, size = self.p.size, 0.8, 1.1, self.size
        plain = {int(i): self.p.gradient(theta, i) for i in batch}
        stats = torch.zeros(4 + 3 * d, dtype=torch.float64)
        for i, g in plain.items():
            a = int(self.p.group[i])
            stats[a] += 1
            stats[2 + a] += self.p.score(theta, i).detach()
            stats[4 + a * d : 4 + (a + 1) * d] += clip(g, r) / r
            stats[4 + 2 * d :] += clip(g, c) / c
        stats += draw(self.noise, 4 + 3 * d, 0.2 * 2.0)
        b = [max(1.0, float(stats[a])) for a in (0, 1)]
        f = [min(1.0, max(0.0, float(stats[2 + a]) / b[a])) for a in (0, 1)]
        grouped = [r * stats[4 + a * d : 4 + (a + 1) * d] for a in (0, 1)]
        u = c * stats[4 + 2 * d :] / size - (grouped[0] + grouped[1]) / size
        v = grouped[0] / b[0] - grouped[1] / b[1]
        s = math.copysign(1.0, float(torch.dot(u, v).detach()))
        rows = []
        for i in batch:
            at, a = theta.detach().clone().requires_grad_(), int(self.p.group[i])
            g = self.p.gradient(at, i, create_graph=True)
            w = (1 if a == 0 else -1) / b[a]
            shortened = g * c / g.norm() if float(g.norm().detach()) > c else g
            own = self.p.loss(at, i) + 2.0 * size * (1 - 2 * f[a]) / (2 * b[a]) * self.p.score(
                at, i
            )
            own = own + 0.5 * s * (size * w * torch.dot(g, u) + torch.dot(shortened - g, v))
            rows.append(clip(torch.autograd.grad(own, at)[0], c))
        return self.noisy_sum(rows)


REFERENCES = {c.__name__.rstrip("_"): c for c in [*Reference.__subclasses__(), pcsgd, is_sgd]}


def mechanism_of(name, params, problem):
    """Return a method's mechanism on the problem, with noise if it takes any."""
    method, fractions = get_method(name, **params), None
    if method.needs_group_fractions:
        fractions = torch.tensor((0.5, 0.3, 0.2), dtype=torch.float64)
    strata = getattr(REFERENCES.get(name), "strata", ())
    task = Task(N, problem.n_groups, RATE, fractions, strata)
    return Mechanism(method, task, SIGMA if method.takes_noise else 0.0)


def problem_for(name):
    two = METHODS[name].binary
    return Problem(2 if two else 3, 2 if two else 3, hidden=3)


def trajectory(problem, mechanism, step):
    """Return theta after each step, hooks in the order in which a fit calls them.

    ``step(theta, index, state, noise)`` returns the noisy mean gradient and the next state.
    """
    method, out = mechanism.method, []
    noise, state, theta = (
        Streams.seeded(0, digest=b"").noise(),
        method.start(mechanism.task),
        problem.theta,
    )
    for t, index in enumerate(problem.batches):
        gradient, state = step(theta, index, state, noise)
        theta = theta - LR * method.step_size(t) * gradient
        theta = method.project({"theta": theta}, state)["theta"]
        out.append(theta)
    return out


def trajectory_of_the_engine(problem, mechanism):
    every = Batch(problem.x, problem.y, problem.group)
    with select_strategy(problem.module, problem.x[:1], problem.n_classes) as engine:

        def step(theta, index, state, noise):
            problem.set_theta(theta)
            found = private_step(engine, records_at(every, index), mechanism, state, noise)
            return found.gradient, found.state

        return trajectory(problem, mechanism, step)


class HookLoop:
    """A step of any method: its hooks see one record at a time, its gradients are autograd's."""

    def __init__(self, problem, mechanism):
        self.p, self.mechanism, self.method = problem, mechanism, mechanism.method

    def sample(self, theta, i, gradient):
        logits = self.p.logits(theta, i).detach()
        loss = cross_entropy(logits, self.p.y[i : i + 1])
        group, probability = self.p.group[i : i + 1], torch.softmax(logits, dim=1)
        norm = gradient.norm()[None]
        return PerSampleGradients(norm, loss[None], group, probability, gradient[None])

    def sums(self, samples, state, noise, early):
        """Return the noisy sums of the early or of the other queries, added row by row."""
        release = {}
        for query in self.mechanism.queries:
            if query.early == early:
                width = query.matrix(self.nobody, state).shape[1]
                rows = [query.matrix(sample, state)[0] for sample in samples]
                sd = query.sensitivity * query.noise_multiplier if query.noise_multiplier else 0.0
                release[query.name] = add(rows, width) + draw(noise, width, sd)
        return release

    def added(self, theta, i, term):
        """Return the gradient that ``term`` adds to a record's."""
        at = theta.detach().clone().requires_grad_()
        pull = (self.p.logits(at, i) * term.logit_gradient).sum()
        if term.hvp_vectors is not None:
            pull = pull + torch.dot(self.p.gradient(at, i, create_graph=True), term.hvp_vectors[0])
        return torch.autograd.grad(pull, at)[0]

    def step(self, theta, index, state, noise):
        method, size = self.method, self.mechanism.expected_batch_size
        shift = method.parameter_perturbation(state)
        theta = theta if shift is None else theta + shift
        somebody = self.sample(theta, 0, torch.zeros_like(theta))
        columns = [getattr(somebody, field)[:0] for field in vars(somebody)]
        self.nobody = PerSampleGradients(*columns)
        rows = {int(i): self.p.gradient(theta, i) for i in index}
        samples = [self.sample(theta, i, g) for i, g in rows.items()]
        release = self.sums(samples, state, noise, early=True)
        terms = [method.gradient_term(sample, state, release) for sample in samples]
        if any(term is not None for term in terms):
            more = [self.added(theta, i, term) for i, term in zip(rows, terms, strict=True)]
            if terms[0].averaged:
                more = [sum(more) / len(more)] * len(more)
            rows = {i: g + m for (i, g), m in zip(rows.items(), more, strict=True)}
        radius = method.per_sample_perturbation_radius()
        if radius > 0:
            rows = {i: self.p.gradient(theta + radius * g / g.norm(), i) for i, g in rows.items()}
        samples = [self.sample(theta, i, g) for i, g in rows.items()]
        release |= self.sums(samples, state, noise, early=False)
        weights = [method.clip(sample, state, release).weight[0] for sample in samples]
        sd = self.mechanism.noise_multiplier
        sd *= float(method.clip(self.nobody, state, release).bound) if sd > 0 else 0.0
        total = add([w * g for w, g in zip(weights, rows.values(), strict=True)], self.p.size)
        gradient = total / size + draw(noise, self.p.size, sd / size or method.gradient_noise)
        return gradient, method.update(state, release | {"gradient": gradient})


@pytest.mark.parametrize("name", sorted(METHODS))
def test_steps_are_those_of_a_loop_over_the_hooks(name):
    problem, params = problem_for(name), {}
    if name in REFERENCES:
        params = REFERENCES[name].params
    mechanism = mechanism_of(name, params, problem)
    found = trajectory_of_the_engine(problem, mechanism)
    expected = trajectory(problem, mechanism, HookLoop(problem, mechanism).step)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)
    assert float((found[-1] - problem.theta).norm()) > 0.1


@pytest.mark.parametrize("name", [*sorted(REFERENCES), ExactBAM])
def test_steps_are_those_of_the_formula(name):
    reference = exact_bam if name is ExactBAM else REFERENCES[name]
    problem = problem_for(get_method(name).name)
    mechanism = mechanism_of(name, reference.params, problem)
    found = trajectory_of_the_engine(problem, mechanism)
    loop = reference(problem, Streams.seeded(0, digest=b"").noise())
    theta = problem.theta
    for t, index in enumerate(problem.batches):
        theta = theta - LR * getattr(loop, "factor", lambda t: 1.0)(t) * loop.step(theta, index, t)
        theta = loop.after(theta, t)
        torch.testing.assert_close(found[t], theta, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("gamma1, gamma2", [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0)])
def test_without_noise_fairlens_dp_follows_the_gradient_of_the_published_regulariser(
    gamma1, gamma2
):
    p = Problem(2, 2, 0)
    method = get_method(
        "fairlens_dp", max_grad_norm=0.8, group_max_grad_norm=1e6, gamma1=gamma1, gamma2=gamma2
    )
    batch = p.batches[0]
    task = Task(len(batch), 2, 1.0)  # B is the size of the batch
    p.set_theta(p.theta)
    every = records_at(Batch(p.x, p.y, p.group), batch)
    totals = []
    with select_strategy(p.module, p.x[:1], 2) as engine:
        for m in (method, get_method("sgd")):
            mechanism, unclipped = Mechanism(m, task, 0.0), m
            if m is method:
                object.__setattr__(unclipped, "clip", lambda s, *a: get_method("sgd").clip(s, *a))
            totals.append(
                private_step(
                    engine, every, mechanism, m.start(task), Streams.fresh().noise()
                ).gradient
            )
    at = p.theta.clone().requires_grad_()
    (expected,) = torch.autograd.grad(regulariser(p, at, batch, 0.8, gamma1, gamma2), at)
    torch.testing.assert_close(totals[0] - totals[1], expected, rtol=1e-10, atol=1e-10)
