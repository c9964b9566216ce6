"""What private training costs against a tight torch loop and plain skorch, in one run.

Ratios are medians over interleaved rounds on one thread; absolute times depend on the machine.

    python benchmarks/bench_training.py [--rounds 7] [--output benchmarks/results]
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from skorch import NeuralNetClassifier
from torch import nn
from torch.nn.functional import cross_entropy

from skdpfair import DPFairClassifier, get_method
from skdpfair.engine import Batch, PoissonSampler, Streams, choose, private_step
from skdpfair.engine.flat import FlatSGD, flatten_
from skdpfair.mechanism import Mechanism, Task

N, D, BATCH = 22400, 98, 256
METHODS = ("dpsgd", "global", "global_adapt", "dpsgd_f", "naive")


def adult_mlp():
    """Return the Adult MLP of the papers: 91,650 parameters."""
    return nn.Sequential(
        nn.Linear(D, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 2)
    )


def data():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((N, D), dtype=np.float32)
    return x, (x[:, 0] + rng.standard_normal(N) > 0).astype(np.int64), rng.integers(0, 2, N)


def steppers():
    """Return functions of one step each, on equal Poisson batches."""
    x, y, g = (torch.from_numpy(a) for a in data())
    batches = PoissonSampler(BATCH / N, N, np.random.default_rng(1)).draw(88)
    out = {"tight torch, not private": _tight(x, y, batches)}
    for name in METHODS:
        out[f"private step, {name}"] = _private(name, x, y, g, batches)
    return out


def _turn(batches):
    position = 0
    while True:
        yield batches[position % len(batches)]
        position += 1


def _tight(x, y, batches):
    module, turn = adult_mlp(), _turn(batches)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)

    def step():
        i = next(turn)
        optimizer.zero_grad()
        cross_entropy(module(x.index_select(0, i)), y.index_select(0, i)).backward()
        optimizer.step()

    return step


def _private(name, x, y, g, batches):
    module, turn, every = adult_mlp(), _turn(batches), Batch(x, y, g)
    flat = flatten_(list(module.parameters()))
    optimizer = FlatSGD([flat], lr=0.05)
    mechanism = Mechanism(get_method(name), Task(N, 2, BATCH / N), 1.0)
    strategy, noise = choose(module, x[:1], 2), Streams.fresh().noise()
    strategy.__enter__()
    state, gradient = [mechanism.method.start(mechanism.task)], strategy.flat()
    flat.grad = gradient

    @torch.no_grad()
    def step():
        batch = every.take(next(turn))
        result = private_step(strategy, batch, mechanism, state[0], noise, out=gradient)
        state[0] = result.state
        optimizer.step()

    return step


def fitters(epochs):
    """Return functions of one whole fit each."""
    x, y, g = data()
    common = {"lr": 0.05, "batch_size": BATCH, "max_epochs": epochs}

    def plain_skorch():
        NeuralNetClassifier(
            adult_mlp, criterion=nn.CrossEntropyLoss, train_split=None, verbose=0, **common
        ).fit(x, y)

    def private(name):
        def fit():
            DPFairClassifier(
                get_method(name), epsilon=None, noise_multiplier=1.0, module=adult_mlp, **common
            ).fit(x, y, sensitive_features=g)

        return fit

    return {
        "plain skorch, not private": plain_skorch,
        "DPFairClassifier, dpsgd": private("dpsgd"),
        "DPFairClassifier, global_adapt": private("global_adapt"),
    }


def interleave(functions, rounds, repeats):
    """Return per function the median ratio of CPU time to the first one, and its own median."""
    names = list(functions)
    for f in functions.values():
        f()
    times = {name: [] for name in names}
    for r in range(rounds):
        for name in names if r % 2 == 0 else reversed(names):
            start = time.process_time()
            for _ in range(repeats):
                functions[name]()
            times[name].append((time.process_time() - start) / repeats)
    base = times[names[0]]
    return {
        name: {
            "ratio": statistics.median(t / b for t, b in zip(times[name], base, strict=True)),
            "ms": 1e3 * statistics.median(times[name]),
        }
        for name in names
    }


def peak_memory():
    """Return what 100 steps add to a process's peak memory, in MiB."""
    out = {}
    for name in ("tight torch, not private", "private step, dpsgd", "private step, dpsgd_f"):
        code = (
            "import sys, resource; sys.path.insert(0, sys.argv[1]); import bench_training as b;"
            "b.torch.set_num_threads(1); step = b.steppers()[sys.argv[2]];"
            "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024;"
            "before = peak(); [step() for _ in range(100)]; print(peak() - before, peak())"
        )
        command = [sys.executable, "-c", code, str(Path(__file__).parent), name]
        added, total = subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout.split()
        out[name] = {"added_mib": float(added), "peak_mib": float(total)}
    base = out["tight torch, not private"]["peak_mib"]
    return {k: v | {"ratio": v["peak_mib"] / base} for k, v in out.items()}


def markdown(results):
    lines = ["| what | ratio | ms |", "| --- | ---: | ---: |"]
    for part in ("step", "fit"):
        for name, row in results[part].items():
            lines.append(f"| {name} ({part}) | {row['ratio']:.2f} | {row['ms']:.2f} |")
    lines += ["", "| peak memory of the process | ratio | MiB |", "| --- | ---: | ---: |"]
    for name, row in results["memory"].items():
        lines.append(f"| {name} | {row['ratio']:.2f} | {row['peak_mib']:.0f} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    results = {
        "machine": {"processor": platform.machine(), "torch": torch.__version__},
        "step": interleave(steppers(), options.rounds, 100),
        "fit": interleave(fitters(options.epochs), 3, 1),
        "memory": peak_memory(),
    }
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "training.json").write_text(json.dumps(results, indent=2) + "\n")
    (options.output / "training.md").write_text(markdown(results))
    print(markdown(results))


if __name__ == "__main__":
    main()
