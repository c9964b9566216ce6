"""Bias of the private gradient along training, BAM against DP-SGD and DP-SAT, on CIFAR-10's part.

python -m benchmarks.bench_bias [--seeds 3]     (needs SKDPFAIR_DATA)
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from benchmarks import pages
from benchmarks.papers.clipping import gradient_bias
from benchmarks.papers.images import fetch_cifar10
from benchmarks.papers.knolle import BATCH, DELTA, METHODS, NOISE, copied, training
from skdpfair.privacy import NoisyRelease, compute_epsilon


def biases(module, state, seed, step, path, probe):
    """Yield the bias of every method at the parameters of the method ``path``."""
    for name, method in METHODS.items():
        for reference in ("batch", "unclipped"):
            kept = state if name == "dp_sat" else None
            found = gradient_bias(module, *probe, method, state=kept, reference=reference)
            where = {"seed": seed, "step": step, "path": path, "method": name}
            yield where | {"reference": reference} | vars(found)


def train(name, seed, n_steps, every, x, y, probe):
    """Train by one method; return the module and what was measured on the way."""
    rows, last = [], None
    for t, (module, _, gradient) in enumerate(training(name, seed, n_steps, x, y)):
        if gradient is not None:  # the ascent direction that dp_sat would have at these parameters
            last = METHODS["dp_sat"].update(None, {"gradient": gradient})
        if t % every == 0:
            rows += biases(copied(module), last, seed, t, name, probe)
    return module, rows


def measure(n_seeds, n_steps, every):
    train_set, test_set = (fetch_cifar10(subset=s, as_frame=False) for s in ("train", "test"))
    x, y = torch.tensor(train_set.data), torch.tensor(train_set.target)
    x_test, y_test = torch.tensor(test_set.data), torch.tensor(test_set.target)
    rows, accuracies = [], []
    for seed in range(n_seeds):
        part = np.random.default_rng(seed).permutation(len(y))[:BATCH]
        probe = train_set.data[part], train_set.target[part]
        for name in METHODS:
            start = time.process_time()
            module, found = train(name, seed, n_steps, every, x, y, probe)
            rows += found
            with torch.no_grad():
                right = (module(x_test).argmax(1) == y_test).double().mean()
            seconds = time.process_time() - start
            row = {"seed": seed, "method": name, "accuracy": 100 * float(right), "s": seconds}
            accuracies.append(row)
            print(row, flush=True)
    return pd.DataFrame(rows), pd.DataFrame(accuracies)


def written(values, digits):
    """Return mean and standard error over the seeds."""
    error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{values.mean():.{digits}f} ± {error:.{digits}f}"


def over_training(rows, column="norm"):
    """Return the mean over the steps of each seed."""
    return rows.groupby("seed")[column].mean()


def table(rows, accuracies):
    heads = ["method", "own path, against the batch", "own path, clipping alone"]
    heads += ["DP-SGD's clipping on this path", "same parameters, against the batch"]
    heads += ["same parameters, clipping alone", "cosine on own path", "test accuracy"]
    lines = []
    after = rows[rows.step > 0]  # all start at the same parameters
    for name in METHODS:
        own = after[(after.path == name) & (after.method == name)]
        probe = after[(after.path == name) & (after.method == "dpsgd")]
        same = after[(after.path == "dpsgd") & (after.method == name)]
        batch, unclipped = (own[own.reference == r] for r in ("batch", "unclipped"))
        cells = [
            name,
            written(over_training(batch), 3),
            written(over_training(unclipped), 3),
            written(over_training(probe[probe.reference == "batch"]), 3),
            written(over_training(same[same.reference == "batch"]), 3),
            written(over_training(same[same.reference == "unclipped"]), 3),
            written(over_training(batch, "cosine"), 3),
            written(accuracies[accuracies.method == name].accuracy, 1),
        ]
        lines.append(cells)
    return pages.table(heads, lines)


def curve(rows):
    """Return the bias against the batch on each method's own path, step by step."""
    own = rows[(rows.path == rows.method) & (rows.reference == "batch")]
    norms = own.groupby(["step", "method"])["norm"]
    means, errors = norms.mean().unstack(), norms.sem().unstack()
    lines = [
        [step, *(f"{means.loc[step, m]:.3f} ± {errors.loc[step, m]:.3f}" for m in METHODS)]
        for step in means.index
    ]
    return pages.table(["step", *METHODS], lines, left=())


def main():
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--every", type=int, default=30, help="steps between measurements")
    parser.add_argument("--output", type=Path, default=here / "results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows, accuracies = measure(options.seeds, options.steps, options.every)
    spent = compute_epsilon([NoisyRelease("steps", BATCH / 10000, (NOISE,), options.steps)], DELTA)
    lines = table(rows, accuracies)
    print("\n".join(lines), f"\nepsilon {spent:.2f}")
    options.output.mkdir(parents=True, exist_ok=True)
    lines += ["", *curve(rows)]
    (options.output / "bias.md").write_text("\n".join(lines) + "\n")
    if options.output == here / "results":
        pages.put("evidence/measurements.md", "bias", lines)
    found = {
        "epsilon": spent,
        "accuracy": accuracies.to_dict("records"),
        "bias": rows.round(6).to_dict("records"),
    }
    (options.output / "bias.json").write_text(json.dumps(found, indent=0) + "\n")


if __name__ == "__main__":
    main()
