"""Cost of the analysis, and validity of its bounds where their conditions do not hold.

python -m benchmarks.bench_analysis
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch.nn.functional import cross_entropy

from benchmarks import pages
from benchmarks.papers import data
from benchmarks.papers.bounds import pairs_of
from benchmarks.papers.clipping import problem_of
from benchmarks.workloads import WORKLOADS, Workload
from skdpfair import DPFairClassifier, get_method
from skdpfair.analysis import GroupRecorder
from skdpfair.analysis._curvature import products as hessian_products

warnings.simplefilter("ignore")

HEADS = ["learning rate", "measurements", "lr at most 1/lambda_max", "Prop. 3 above the gap"]
HEADS += ["Prop. 3 > 0 if gap > 0", "Tran above the gap", "Tran > 0"]


def seconds(work, repeats):
    """Return the median CPU time of one call."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return float(np.median(times))


def products(repeats):
    """Return the cost of a Hessian product of two groups, over a tight step, per workload."""
    rows = []
    for name in WORKLOADS:
        work = Workload.named(name)
        module, index = work.module(), work.batches[0]
        x, y, groups = (values[index] for values in work.tensors())
        optimizer = torch.optim.SGD(module.parameters(), lr=0.01)

        def tight(module=module, x=x, y=y, optimizer=optimizer):
            optimizer.zero_grad()
            cross_entropy(module(x), y).backward()
            optimizer.step()

        problem = problem_of(module, x.numpy(), y.numpy(), groups.numpy())
        vectors = torch.ones(1, problem.n_parameters)
        ratios = [
            seconds(lambda p=problem, v=vectors: hessian_products(p, v), repeats)
            / seconds(tight, repeats)
            for _ in range(5)
        ]
        rows.append((name, float(np.median(ratios))))
    return rows


def along_training(lr, seed, every=100):
    """Return the pairs' gaps and bounds along DPSGD's training of the Adult MLP."""
    split = data.adult(seed)
    recorder = GroupRecorder(every=every, n_batches=4, n_vectors=0, random_state=seed)
    DPFairClassifier(
        get_method("dpsgd", max_grad_norm=0.5),
        epsilon=None,
        noise_multiplier=1.0,
        delta=1e-6,
        module="mlp",
        lr=lr,
        batch_size=256,
        max_epochs=20,
        callbacks=[recorder],
        random_state=seed,
    ).fit(split.x, split.y, sensitive_features=split.group)
    return pairs_of(recorder).assign(lr=lr, seed=seed)


def bounds(lrs, seeds):
    """Return how often the bounds fail, by learning rate, where lr <= 1 / lambda_max."""
    found = pd.concat([along_training(lr, seed) for lr in lrs for seed in seeds])
    rows = []
    for lr, part in found.groupby("lr"):
        held = part[part["condition"]]
        failed = (
            (held["prop3_bound"] > held["direction_difference"]).mean() if len(held) else np.nan
        )
        below = (held["tran_bound"] > held["clip_difference"]).mean() if len(held) else np.nan
        positive = held[held["direction_difference"] > 0]
        seen = (positive["prop3_bound"] > 0).mean() if len(positive) else np.nan
        told = (held["tran_bound"] > 0).mean() if len(held) else np.nan
        rows.append((lr, len(part), part["condition"].mean(), failed, seen, below, told))
    return rows


def written(value):
    return "" if np.isnan(value) else f"{100 * value:.0f} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--lrs", type=float, nargs="+", default=[0.01, 0.1, 0.3])
    options = parser.parse_args()
    torch.set_num_threads(1)
    costs = [(name, f"{ratio:.2f}") for name, ratio in products(options.repeats)]
    found = bounds(options.lrs, range(options.seeds))
    lines = [
        *pages.table(["model", "Hessian product of two groups, over a tight SGD step"], costs),
        "",
        *pages.table(
            HEADS, [(f"{lr:g}", n, *map(written, shares)) for lr, n, *shares in found], left=()
        ),
    ]
    print("\n".join(lines))
    results = Path(__file__).parent / "results"
    (results / "analysis.md").write_text("\n".join(lines) + "\n")
    pages.put("evidence/measurements.md", "bounds", lines)


if __name__ == "__main__":
    main()
