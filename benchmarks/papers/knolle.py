"""Figure 2 of Knolle et al.: the bias of the clipped gradient along training, on CIFAR-10."""

import numpy as np
import torch

from benchmarks.papers.study import OTHER, Study, cell, claim
from skdpfair.analysis import gradient_bias
from skdpfair.datasets import fetch_cifar10
from skdpfair.engine import Batch, PoissonSampler, Streams, private_step, select_strategy
from skdpfair.mechanism import Mechanism, Task
from skdpfair.methods import get_method
from skdpfair.networks import small_cnn
from skdpfair.plotting._axes import PALETTE, dress, label_ends, new_axes
from skdpfair.privacy import SampledGaussian, epsilon

BATCH, NOISE, DELTA, LR, STEPS, EVERY = 512, 1.0, 1e-5, 0.5, 150, 30
METHODS = {
    "dpsgd": get_method("dpsgd", max_grad_norm=1.0),
    "dp_sat": get_method("dp_sat", max_grad_norm=1.0, perturbation_radius=0.086),
    "bam": get_method("bam", max_grad_norm=1.0, perturbation_radius=0.02),
}


def network(device="cpu"):
    """Return a CNN of two convolutions of 8 channels."""
    return small_cnn((3, 32, 32), 10, channels=(8, 8)).to(device)


def copied(module):
    """Return the network as it is now, without what holds on to it in training."""
    copy = network(next(module.parameters()).device)
    copy.load_state_dict(module.state_dict())
    return copy


def training(name, seed, n_steps, x, y):
    """Yield the module, the method's state and the last gradient, before each step and after all.

    Between two steps the module is trained in place: look at it by `copied`.
    """
    method, rate = METHODS[name], BATCH / len(y)
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
                batch = data.select(index.to(x.device))
                step = private_step(strategy, batch, mechanism, state, noise)
                state, gradient = step.state, step.gradient
                for p, part in strategy.views(gradient).items():
                    p.sub_(LR * part)
    yield module, state, gradient


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
        train, test = (fetch_cifar10(subset=part, as_frame=False) for part in ("train", "test"))
        x, y = (torch.tensor(v).to(device) for v in (train.data, train.target))
        probe = np.random.default_rng(run.seed).permutation(len(y))[:BATCH]
        probe = train.data[probe], train.target[probe]
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
        return [
            claim(said[row], rows["dpsgd"]["bias"] - rows[row]["bias"], unit="norm")
            for row in said
            if {"dpsgd", row} <= rows.keys()
        ]

    def notes(self, options):
        """Return how the runs are smaller than the paper's."""
        spent = epsilon([SampledGaussian(BATCH / 10_000, NOISE, STEPS)], DELTA)
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
        ax, ends = new_axes(7.0, 4.2), []
        parts = found.runs.groupby("row", sort=False)
        for colour, (row, part) in zip(PALETTE, parts, strict=False):
            mean, error = part[looks].mean(), 2 * part[looks].sem()
            ax.plot(steps, mean, "o-", color=colour, markersize=4)
            ax.fill_between(steps, mean - error, mean + error, color=colour, alpha=0.15, lw=0)
            ends.append((mean.iloc[-1], row, colour, steps[-1]))
        label_ends(ax, ends)
        ax.set(xlabel="step", ylabel="length of the bias")
        dress(ax, "Bias of the clipped gradient on each method's own path")
        return ax.figure


def _bias(module, probe, method, state):
    kept = state if method.parameter_perturbation(state) is not None else None
    return gradient_bias(copied(module), *probe, method, state=kept).norm


STUDIES = (Figure2(),)
