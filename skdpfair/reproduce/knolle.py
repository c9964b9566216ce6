"""Figure 2 of Knolle et al.: the bias of the clipped gradient along training, on CIFAR-10."""

import numpy as np
import torch

from skdpfair.analysis import gradient_bias
from skdpfair.datasets import fetch_cifar10
from skdpfair.engine import Batch, PoissonSampler, Streams, private_step, select_strategy
from skdpfair.mechanism import Mechanism, Task
from skdpfair.methods import get_method
from skdpfair.networks import small_cnn
from skdpfair.plotting._axes import PALETTE, dress, label_ends, new_axes
from skdpfair.privacy import SampledGaussian, epsilon
from skdpfair.reproduce._study import (
    OTHER,
    Run,
    Study,
    cell,
    cells_of,
    claim,
    rows_of,
    same_in_print,
)

BATCH, NOISE, DELTA, LR, STEPS, EVERY = 512, 1.0, 1e-5, 0.5, 150, 30
_PARAMS = {
    "dpsgd": {},
    "dp_sat": {"perturbation_radius": 0.086},
    "bam": {"perturbation_radius": 0.02},
}


def runs(options):
    """Return a run for each method and seed."""
    rows, settings = options.rows or tuple(_PARAMS), {"steps": STEPS}
    return [Run(row, seed, settings) for row in rows for seed in options.seeds]


def measure(run, device):
    """Train by a method; return the bias on its own path, at each look and in the mean."""
    train, test = (fetch_cifar10(subset=part, as_frame=False) for part in ("train", "test"))
    x, y = (torch.tensor(v).to(device) for v in (train.data, train.target))
    method = get_method(run.row, max_grad_norm=1.0, **_PARAMS[run.row])
    mechanism = Mechanism(method, Task(len(y), 1, BATCH / len(y)), NOISE)
    streams = Streams.seeded(run.seed, digest=run.row.encode())
    batches = PoissonSampler(BATCH / len(y), len(y), streams.sampling()).draw(run.settings["steps"])
    probe = np.random.default_rng(run.seed).permutation(len(y))[:BATCH]
    probe = train.data[probe], train.target[probe]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.seed)
        module = _network(device)
    data, noise = Batch(x, y, torch.zeros_like(y)), streams.noise(x.device)
    state, found = method.start(mechanism.task), {}
    with select_strategy(module, x[:1], 10) as strategy, torch.no_grad():
        for t, index in enumerate([*batches, None]):
            if t and t % EVERY == 0:
                found |= _look(module, probe, method, state, t)
            if index is not None:
                step = private_step(
                    strategy, data.select(index.to(device)), mechanism, state, noise
                )
                state = step.state
                for p, part in strategy.views(step.gradient).items():
                    p.sub_(LR * part)
        right = module(torch.tensor(test.data).to(device)).argmax(1).cpu().numpy() == test.target
    return found | {"bias": float(np.mean(list(found.values()))), "accuracy": 100 * right.mean()}


def _network(device):
    return small_cnn((3, 32, 32), 10, channels=(8, 8)).to(device)


def _look(module, probe, method, state, t):
    live = _network(next(module.parameters()).device)  # a copy would hold the hooks of training
    live.load_state_dict(module.state_dict())
    kept = state if method.parameter_perturbation(state) is not None else None
    with torch.enable_grad():
        return {f"bias[{t}]": gradient_bias(live, *probe, method, state=kept).norm}


def cells(frame, options):
    """Return the biases; the figure has no numbers to compare with."""
    found = []
    for row in _PARAMS:
        own = frame[frame["row"] == row]
        if len(own):
            found.append(cell(row, "bias", own["bias"], np.nan, np.nan, OTHER | {"unit": "norm"}))
    return cells_of(found)


def claims(frame, options):
    """Judge what the figure shows."""
    rows = {row: part["bias"] for row, part in rows_of(frame).items()}
    found = []
    if {"dpsgd", "bam"} <= rows.keys():
        less = rows["dpsgd"] - rows["bam"]
        found.append(claim("bam has less bias along its training than dpsgd", less, unit="norm"))
    if {"dpsgd", "dp_sat"} <= rows.keys():
        less = rows["dpsgd"] - rows["dp_sat"]
        said = "dp_sat has less bias than dpsgd (the paper: the same)"
        found.append(claim(said, less, unit="norm"))
    return found


def notes(options):
    """Return what a reader must know."""
    spent = epsilon([SampledGaussian(BATCH / 10_000, NOISE, STEPS)], DELTA)
    return [
        "A part of CIFAR-10 (10,000 to train on), a CNN of two 3x3 convolutions of 8 channels, "
        f"{STEPS} steps of batches of {BATCH}, noise {NOISE:g}, epsilon {spent:.2f}; the paper: a "
        "ResNet-9 on all of it, with augmentations. Only the ordering can be compared.",
        "Bias is |gbar_B - g_B| on 512 records that stay the same, at the parameters that each "
        "method reaches.",
        *same_in_print(options),
    ]


def draw(frame, cells):
    """Draw the bias along training."""
    looks = [c for c in frame if c.startswith("bias[")]
    steps = [int(c[5:-1]) for c in looks]
    ax, ends = new_axes(7.0, 4.2), []
    for colour, (row, part) in zip(PALETTE, frame.groupby("row", sort=False), strict=False):
        mean, error = part[looks].mean(), part[looks].sem()
        ax.plot(steps, mean, "o-", color=colour, markersize=4)
        ax.fill_between(steps, mean - 2 * error, mean + 2 * error, color=colour, alpha=0.15, lw=0)
        ends.append((mean.iloc[-1], row, colour, steps[-1]))
    label_ends(ax, ends)
    ax.set(xlabel="step", ylabel="length of the bias")
    dress(ax, "Bias of the clipped gradient on each method's own path")
    return ax.figure


STUDIES = (
    Study(
        name="knolle-figure2",
        title="CIFAR-10: bias of the clipped gradient along training",
        source="Knolle et al., 2023, Figure 2",
        runs=runs,
        measure=measure,
        cells=cells,
        rows=tuple(_PARAMS),
        notes=notes,
        claims=claims,
        draw=draw,
    ),
)
