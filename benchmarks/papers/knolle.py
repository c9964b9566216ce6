"""Figures 2 to 6 of Knolle et al.: bias, ascent directions and time of steps."""

import time
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch
from torch import nn

from benchmarks.papers.clipping import gradient_bias
from benchmarks.papers.images import fetch_cifar10
from benchmarks.papers.study import OTHER, Study, cell, claim
from skdpfair import get_method
from skdpfair._networks import small_cnn
from skdpfair.engine import Batch, PoissonSampler, Streams, private_step, select_strategy
from skdpfair.engine.mechanism import GradientTerm, Mechanism, Task
from skdpfair.methods.bam import BAM
from skdpfair.privacy import NoisyRelease, compute_epsilon
from skdpfair.report._displays import dress, look_of, name_ends, new_axes
from skdpfair.training.batches import records_at

BATCH, NOISE, DELTA, LR, STEPS, EVERY = 512, 1.0, 1e-5, 0.5, 150, 30
METHODS = {
    "dpsgd": get_method("dpsgd", max_grad_norm=1.0),
    "dp_sat": get_method("dp_sat", max_grad_norm=1.0, perturbation_radius=0.086),
    "bam": get_method("bam", max_grad_norm=1.0, perturbation_radius=0.02),
}


@dataclass(kw_only=True, repr=False, eq=False)
class ExactBAM(BAM):
    """BAM by equation 13, with a Hessian-vector product per record instead of a step ahead."""

    takes_persons = False
    sees_gradients = True

    def per_sample_perturbation_radius(self):
        """Return 0: all gradients are those at the parameters."""
        return 0.0

    def gradient_term(self, sample, state, release):
        """Add lambda times the Hessian's product with the gradient, over the gradient's norm."""
        scale = torch.where(sample.norm > 0, self.perturbation_radius / sample.norm, 0.0)
        nothing = torch.zeros_like(sample.probability)
        return GradientTerm(nothing, hvp_vectors=sample.gradient * scale[:, None])


def network(device="cpu"):
    """Return a CNN of two convolutions of 8 channels."""
    return small_cnn((3, 32, 32), 10, channels=(8, 8)).to(device)


def copied(module):
    """Return the network as it is now, without what holds on to it in training."""
    copy = network(next(module.parameters()).device)
    copy.load_state_dict(module.state_dict())
    return copy


def training(name, seed, n_steps, x, y, batch_size=BATCH):
    """Yield the module, the method's state and the last gradient, before each step and after all.

    Between two steps the module is trained in place: look at it by `copied`.
    """
    method, rate = METHODS[name], batch_size / len(y)
    mechanism = Mechanism(method, Task(len(y), 1, rate), NOISE)
    streams = Streams.seeded(seed, digest=name.encode())
    batches = PoissonSampler(rate, len(y), streams.sampling()).draw(n_steps)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = network(x.device)
    data, noise = Batch(x, y, torch.zeros_like(y)), streams.noise(x.device)
    state, gradient = method.start(mechanism.task), None
    with select_strategy(module, x[:1], 10) as strategy:
        for index in batches:
            yield module, state, gradient
            with torch.no_grad():
                batch = records_at(data, index.to(x.device))
                step = private_step(strategy, batch, mechanism, state, noise)
                state, gradient = step.state, step.gradient
                for p, part in strategy.views(gradient).items():
                    p.sub_(LR * part)
    yield module, state, gradient


def records(seed, device):
    """Return CIFAR-10's part to train on, and a batch of it that stays the same."""
    train = fetch_cifar10(subset="train", as_frame=False)
    probe = np.random.default_rng(seed).permutation(len(train.target))[:BATCH]
    x, y = (torch.tensor(v).to(device) for v in (train.data, train.target))
    return x, y, (train.data[probe], train.target[probe])


class Figure2(Study):
    """The length of the bias at each method's own parameters."""

    name = "knolle-figure2"
    title = "CIFAR-10: bias of the clipped gradient along training"
    source = "Knolle et al., 2023, Figure 2"
    rows = tuple(METHODS)

    def settings(self, row, options):
        """Return the number of steps."""
        return {"steps": STEPS}

    def measure(self, run, device):
        """Train by a method; return the bias on its own path, at each look and on average."""
        test = fetch_cifar10(subset="test", as_frame=False)
        x, y, probe = records(run.seed, device)
        looks, found = training(run.row, run.seed, run.settings["steps"], x, y), {}
        for t, (module, state, _) in enumerate(looks):
            if t and t % EVERY == 0:
                found[f"bias[{t}]"] = _bias(module, probe, METHODS[run.row], state)
        with torch.no_grad():
            predicted = module(torch.tensor(test.data).to(device)).argmax(1).cpu().numpy()
        mean = float(np.mean(list(found.values())))
        return found | {"bias": mean, "accuracy": 100 * (predicted == test.target).mean()}

    def cells(self, rows):
        """Yield the biases; the figure has no numbers to compare with."""
        for row, own in rows.items():
            yield cell(row, "bias", own["bias"], OTHER | {"unit": "norm"})

    def claims(self, rows):
        """Judge the order that the figure shows."""
        said = {
            "bam": "bam has less bias along its training than dpsgd",
            "dp_sat": "dp_sat has less bias than dpsgd (the paper: the same)",
        }
        found = [
            claim(said[row], rows["dpsgd"]["bias"] - rows[row]["bias"], unit="norm")
            for row in said
            if {"dpsgd", row} <= rows.keys()
        ]
        if {"dpsgd", "bam"} <= rows.keys():
            lead = rows["bam"]["accuracy"] - rows["dpsgd"]["accuracy"]
            found.append(claim("bam is more accurate than dpsgd (Table 1)", lead))
        return found

    def notes(self, options):
        """Return how the runs are smaller than the paper's."""
        spent = compute_epsilon([NoisyRelease("steps", BATCH / 10_000, (NOISE,), STEPS)], DELTA)
        return [
            "A part of CIFAR-10 (10,000 to train on), a CNN of two 3x3 convolutions of 8 channels, "
            f"{STEPS} steps of batches of {BATCH}, noise {NOISE:g}, epsilon {spent:.2f}; the "
            "paper: a ResNet-9 on all of it, with augmentations. Only the ordering can be "
            "compared.",
            "Bias is |gbar_B - g_B| on 512 records that stay the same, at the parameters that each "
            "method reaches.",
        ]

    def draw(self, found):
        """Draw the bias along training."""
        looks = [c for c in found.runs if c.startswith("bias[")]
        steps = [int(c[5:-1]) for c in looks]
        ax, lines = new_axes(7.0, 4.2), []
        for i, (row, part) in enumerate(found.runs.groupby("row", sort=False)):
            mean, error, look = part[looks].mean(), 2 * part[looks].sem(), look_of(i)
            lines += ax.plot(steps, mean, label=row, **look)
            edges = mean - error, mean + error
            ax.fill_between(steps, *edges, color=look["color"], alpha=0.15, lw=0)
        ax.set(xlabel="step", ylabel="length of the bias")
        dress(ax, "Bias of the clipped gradient on each method's own path")
        name_ends(ax, lines)
        return ax.figure


def _bias(module, probe, method, state):
    kept = state if method.parameter_perturbation(state) is not None else None
    return gradient_bias(copied(module), *probe, method, state=kept).norm


class Figure4(Study):
    """How well the direction of the ascent agrees with that of the batch's gradient."""

    name = "knolle-figure4"
    title = "CIFAR-10: cosine of the ascent direction with the gradient of the batch"
    source = "Knolle et al., 2023, Figure 4"
    rows = ("dp_sat", "bam")

    def settings(self, row, options):
        """Return the number of steps."""
        return {"steps": STEPS}

    def measure(self, run, device):
        """Train by a method; return the cosine on its own path, at each look and on average."""
        x, y, probe = records(run.seed, device)
        looks, found = training(run.row, run.seed, run.settings["steps"], x, y), {}
        for t, (module, _, last) in enumerate(looks):
            if t and t % EVERY == 0:
                found[f"cosine[{t}]"] = _ascent(
                    module, probe, last if run.row == "dp_sat" else None
                )
        return found | {"cosine": float(np.mean(list(found.values())))}

    def cells(self, rows):
        """Yield the cosines; the figure has no numbers to compare with."""
        for row, own in rows.items():
            yield cell(row, "cosine", own["cosine"], OTHER | {"unit": "cosine"})

    def claims(self, rows):
        """Judge what the paper says of its figure."""
        if set(rows) != set(self.rows):
            return []
        sat, bam = (rows[row]["cosine"] for row in self.rows)
        unit = {"unit": "cosine"}
        return [
            claim("the ascent of bam is better aligned than that of dp_sat", bam - sat, **unit),
            claim("the ascent of dp_sat points slightly away", sat, below=0.0, **unit),
        ]

    def notes(self, options):
        """Return what is compared."""
        return [
            "dp_sat: the cosine of the last released gradient with the mean gradient of 512 "
            "records that stay the same; bam: the mean of the cosines of the records' own "
            "gradients with it. Data, network and noise are those of knolle-figure2.",
        ]


def _ascent(module, probe, last):
    """Return the cosine of the batch's gradient with ``last``, or its mean with the records'."""
    x, y = (torch.tensor(v).to(next(module.parameters()).device) for v in probe)
    with select_strategy(copied(module), x[:1], 10) as strategy, torch.no_grad():
        mean, own = strategy.flat(), strategy.flat()
        for part, labels in zip(x.split(64), y.split(64), strict=True):
            found = strategy.per_sample_gradients(Batch(part, labels))
            found.weighted_sum(torch.full_like(found.norm, 1 / len(y)), mean)
            found.weighted_sum(1 / (len(y) * found.norm.clamp(min=1e-12)), own)
    towards = mean / torch.linalg.vector_norm(mean)
    along = own if last is None else last / torch.linalg.vector_norm(last)
    return float(along @ towards)


class Figure5(Study):
    """The bias of DP-SGD's gradient by the size of the batch."""

    name = "knolle-figure5"
    title = "CIFAR-10: bias of the clipped gradient by batch size"
    source = "Knolle et al., 2023, Figures 5 and 6"
    sizes = (128, 512, 2048)
    rows = tuple(map("batch size {}".format, sizes))
    steps = 60

    def settings(self, row, options):
        """Return the number of steps, and where the bias is measured."""
        return {"steps": self.steps, "every": 20}

    def measure(self, run, device):
        """Train with batches of one size; return length and cosine of the bias on average."""
        (x, y, _), found = records(run.seed, device), []
        rng, own = np.random.default_rng(run.seed), int(run.row.split()[-1])
        looks = training("dpsgd", run.seed, run.settings["steps"], x, y, own)
        for t, (module, _, _) in enumerate(looks):
            if t and t % run.settings["every"] == 0:
                rows, look = rng.permutation(len(y)), {}
                for size in self.sizes:
                    batch = torch.from_numpy(rows[:size]).to(device)
                    bias = gradient_bias(copied(module), x[batch], y[batch], METHODS["dpsgd"])
                    look |= {f"bias of {size}": bias.norm, f"cosine of {size}": bias.cosine}
                found.append(look)
        mean = {kind: float(np.mean([look[kind] for look in found])) for kind in found[0]}
        return {kind: mean[f"{kind} of {own}"] for kind in ("bias", "cosine")} | mean

    def cells(self, rows):
        """Yield lengths and cosines; the figures have no numbers to compare with."""
        for row, own in rows.items():
            yield cell(row, "bias", own["bias"], OTHER | {"unit": "norm"})
            yield cell(row, "cosine", own["cosine"], OTHER | {"unit": "cosine"})

    def claims(self, rows):
        """Judge the order that the figures show."""
        if set(rows) != set(self.rows):
            return []
        small, large = rows[self.rows[0]], rows[self.rows[-1]]
        same, (first, *_, last) = rows["batch size 512"], self.sizes
        norm, cosine = {"unit": "norm"}, {"unit": "cosine"}
        return [
            claim("larger batches have less bias", small["bias"] - large["bias"], **norm),
            claim("and a larger cosine", large["cosine"] - small["cosine"], **cosine),
            claim(
                "at the same parameters, larger batches have less bias",
                same[f"bias of {first}"] - same[f"bias of {last}"],
                **norm,
            ),
            claim(
                "and a larger cosine there",
                same[f"cosine of {last}"] - same[f"cosine of {first}"],
                **cosine,
            ),
        ]

    def notes(self, options):
        """Return the settings."""
        return [
            f"{self.steps} steps for each size; data, network and noise multiplier are those of "
            "knolle-figure2. The bias is that of a fresh batch of the same size; the same "
            "parameters are those on the path of 512."
        ]


class Figure3(Study):
    """The time of a step by depth, and how far equation 14 is from equation 13."""

    name = "knolle-figure3"
    title = "Time of a step by depth: equation 13 against equation 14"
    source = "Knolle et al., 2023, Figure 3"
    rows = ("dpsgd", "dp_sat", "bam", "bam, exact")
    depths, width, size, n_steps = (2, 4, 8, 16), 64, 256, 15

    def settings(self, row, options):
        """Return the networks and the number of steps."""
        return {"depths": self.depths, "width": self.width, "size": self.size, "n": self.n_steps}

    def measure(self, run, device):
        """Time steps on made-up records; return the median by depth in milliseconds."""
        name, _, exact = run.row.partition(", ")
        method, rng = METHODS[name], torch.Generator().manual_seed(run.seed)
        if exact:
            method = ExactBAM(**method.get_params())
        x = torch.randn(self.size, self.width, generator=rng).to(device)
        y = torch.randint(0, 10, (self.size,), generator=rng).to(device)
        batch, found = Batch(x, y, torch.zeros_like(y)), {}
        mechanism = Mechanism(method, Task(self.size, 1, 1.0), NOISE)
        for depth in self.depths:
            module = _deep(depth, self.width, run.seed).to(device)
            state, noise = method.start(mechanism.task), Streams.seeded(run.seed, digest=b"")
            noise, taken = noise.noise(x.device), []
            with select_strategy(module, x[:1], 10) as strategy, torch.no_grad():
                for _ in range(self.n_steps):
                    begun = time.perf_counter()
                    state = private_step(strategy, batch, mechanism, state, noise).state
                    taken.append(time.perf_counter() - begun)
            found[f"milliseconds, depth {depth}"] = 1000 * median(taken[3:])
            if name == "bam":
                found[f"distance, depth {depth}"] = 100 * _distance(module, batch)
        return found

    def cells(self, rows):
        """Yield times and distances; the figure has no numbers to compare with."""
        for row, own in rows.items():
            for depth in self.depths:
                measure = f"milliseconds, depth {depth}"
                yield cell(row, measure, own[measure], OTHER | {"unit": "milliseconds"})

    def claims(self, rows):
        """Judge the order of the times, and the distance of the two equations."""
        if set(rows) != set(self.rows):
            return []
        deepest = f"depth {self.depths[-1]}"
        times = {row: own[f"milliseconds, {deepest}"] for row, own in rows.items()}
        unit, share = {"unit": "milliseconds"}, {"unit": "per cent"}
        slow, fast = times["bam, exact"], times["bam"]
        far = [rows["bam"][f"distance, depth {depth}"] for depth in self.depths]
        return [
            claim(f"{deepest}: equation 14 is faster than equation 13", slow - fast, **unit),
            claim(f"{deepest}: dp_sat is faster than bam", fast - times["dp_sat"], **unit),
            claim("equation 14 is within 1 % of equation 13 at depth 2", far[0], below=1, **share),
            claim(f"and within 1 % at {deepest}", far[-1], below=1, **share),
        ]

    def notes(self, options):
        """Return the settings."""
        return [
            f"Made-up records: {self.size} of {self.width} numbers, tanh networks of width "
            f"{self.width}; the median of {self.n_steps - 3} steps on one thread. The distance is "
            "that of the mean gradients by equations 14 and 13, before clipping, over the length "
            "of the latter, at the initial weights and lambda = .02.",
        ]


def _deep(depth, width, seed):
    """Return a network of so many hidden layers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        hidden = [part for _ in range(depth) for part in (nn.Linear(width, width), nn.Tanh())]
        return nn.Sequential(*hidden, nn.Linear(width, 10))


def _distance(module, batch):
    """Return the distance of the gradients by equations 14 and 13, relative to the latter."""
    found = []
    for method in (BAM, ExactBAM):
        method = method(max_grad_norm=1e6, perturbation_radius=0.02)
        mechanism = Mechanism(method, Task(len(batch), 1, 1.0), 0.0)
        with select_strategy(module, batch.x[:1], 10) as strategy, torch.no_grad():
            noise = Streams.seeded(0, digest=b"").noise(batch.x.device)
            found.append(private_step(strategy, batch, mechanism, None, noise).gradient.clone())
    near, exact = found
    return float(torch.linalg.vector_norm(near - exact) / torch.linalg.vector_norm(exact))


STUDIES = (Figure2(), Figure3(), Figure4(), Figure5())
