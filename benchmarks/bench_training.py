"""Cost of private training: steps, whole fits and memory, against torch, skorch and Opacus.

Ratios are medians over interleaved rounds on one thread, of CPU time; milliseconds depend on the
machine.

    python -m benchmarks.bench_training [--rounds 7] [--output benchmarks/results] [--write]
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from functools import partial
from pathlib import Path

import torch
from skorch import NeuralNetClassifier
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks import pages
from benchmarks.engines import BASELINES, METHODS
from benchmarks.workloads import WORKLOADS, Workload, mlp
from skdpfair import DPFairClassifier, get_method
from skdpfair.engine import Streams

ADULT, DUTCH = "Adult MLP", "Dutch logistic"
ROOT = Path(__file__).resolve().parents[1]
MEMORY_OF = {ADULT: 100, "MNIST CNN": 4}
# glibc keeps freed blocks of up to 32 MiB, more or fewer from run to run; now it returns them
RETURNS_MEMORY = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(2**20)}


def interleave(functions, rounds, seconds=0.25, clock=time.process_time, warm=1):
    """Return for each function the median ratio of its time to the first one's, and milliseconds.

    Time is CPU time unless another clock is given; each function runs ``warm`` times before.
    """
    names, repeats = list(functions), {}
    for name, f in functions.items():
        for _ in range(warm):
            f()
        start = clock()
        f()
        repeats[name] = max(1, round(seconds / (clock() - start + 1e-6)))
    times = {name: [] for name in names}
    for r in range(rounds):
        for name in names if r % 2 == 0 else reversed(names):
            start = clock()
            for _ in range(repeats[name]):
                functions[name]()
            times[name].append((clock() - start) / repeats[name])
    base = times[names[0]]
    return {
        name: {
            "ratio": statistics.median(t / b for t, b in zip(times[name], base, strict=True)),
            "ms": 1e3 * statistics.median(times[name]),
        }
        for name in names
    }


def steps(rounds):
    """Measure a step of every engine and of every private method on every workload."""
    out, engines = {}, BASELINES | METHODS
    for name in WORKLOADS:
        work = Workload.named(name)
        out[name] = interleave({e: make(work) for e, make in engines.items()}, rounds)
        print(name, {e: round(row["ratio"], 2) for e, row in out[name].items()}, flush=True)
    return out


class Calls(TorchDispatchMode):
    """The torch operations that run in a ``with`` block, with their arguments."""

    def __init__(self):
        super().__init__()
        self.made = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        if operation.namespace == "aten":
            self.made.append((operation, args, kwargs or {}))
        return operation(*args, **(kwargs or {}))


def operations():
    """Return microseconds by operation, each run alone, of a tight and of a private step."""
    out = {}
    for name in (ADULT, DUTCH):
        work, out[name] = Workload.named(name), {}
        noise, flat = Streams.fresh().noise(), torch.empty(work.n_parameters)
        for engine in ("tight torch, not private", "dpsgd"):
            step = BASELINES[engine](work)
            whole = microseconds(step)
            with Calls() as calls:
                step()
            times = defaultdict(float)
            for operation, args, kwargs in calls.made:
                kind = operation.overloadpacket.__name__.strip("_")
                with torch.no_grad():
                    times[kind] += microseconds(partial(operation, *args, **kwargs))
            if engine == "dpsgd":
                times["noise"] = microseconds(partial(noise.fill_, flat, 1.0))
            times["Python, autograd and dispatch"] = whole - sum(times.values())
            out[name][engine] = {"whole step": whole, **times}
    return out


def microseconds(function, rounds=15, seconds=0.01):
    """Return the median time of a call."""
    return 1e3 * interleave({"it": function}, rounds, seconds, warm=10)["it"]["ms"]


def fits(epochs, rounds):
    """Measure whole fits against plain skorch."""
    out = {}
    for name in (ADULT, DUTCH):
        work = Workload.named(name)
        common = {"lr": 0.05, "batch_size": work.batch, "max_epochs": epochs}

        def plain(work=work, common=common):
            NeuralNetClassifier(
                work.module, criterion=nn.CrossEntropyLoss, train_split=None, verbose=0, **common
            ).fit(work.x, work.y)

        def private(method, work=work, common=common):
            return lambda: DPFairClassifier(
                get_method(method), epsilon=None, noise_multiplier=1.0, module=work.module, **common
            ).fit(work.x, work.y, sensitive_features=work.group)

        functions = {"plain skorch, not private": plain}
        functions |= {m: private(m) for m in ("dpsgd", "global_adapt")}
        out[name] = interleave(functions, rounds, seconds=0.0)
        print(name, {e: round(row["ratio"], 2) for e, row in out[name].items()}, flush=True)
    return out


def scaling(rounds):
    """Measure dpsgd over tight as one size grows, the others those of the Adult MLP."""
    base = {"n": 22400, "batch": 256, "width": 256, "groups": 2}
    sizes = {
        "n": (2240, 22400, 224000),
        "batch": (64, 256, 1024),
        "width": (32, 256, 512),
        "groups": (2, 20, 200),
    }
    out = {}
    for what, values in sizes.items():
        for value in values:
            s = base | {what: value}
            work = Workload(
                s["n"], (98,), s["batch"], 2, lambda s=s: mlp(98, s["width"]), n_groups=s["groups"]
            )
            method = METHODS["dpsgd_f"] if what == "groups" else BASELINES["dpsgd"]
            engines = {"tight": BASELINES["tight torch, not private"], "private": method}
            measured = interleave({e: make(work) for e, make in engines.items()}, rounds)
            out[f"{what} = {value:,}"] = measured["private"]["ratio"]
    return out


def memory():
    """Return the peak memory that the steps of an engine add to a fresh process, in MiB."""
    out = {}
    for name in MEMORY_OF:
        out[name] = {}
        for engine in BASELINES:
            command = [sys.executable, "-m", "benchmarks.bench_training", "--peak", name, engine]
            added = subprocess.run(
                command, capture_output=True, text=True, check=True, cwd=ROOT, env=RETURNS_MEMORY
            ).stdout
            out[name][engine] = {"added_mib": float(added)}
        base = out[name]["tight torch, not private"]["added_mib"]
        for row in out[name].values():
            row["ratio"] = row["added_mib"] / base
    return out


def peak(name, engine):
    """Print what steps add to this process's peak memory, once data and module are there."""
    torch.set_num_threads(1)
    work = Workload.named(name)
    step = BASELINES[engine](work)
    next(work.turn())
    Path("/proc/self/clear_refs").write_text("5")  # start the peak afresh
    before = _status("VmRSS")
    for _ in range(MEMORY_OF[name]):
        step()
    print((_status("VmHWM") - before) / 1024)


def _status(key):
    """Return a line of this process's status, in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1])


def step_table(measured):
    """Return the lines of a table of ratios, engines by workloads."""
    rows = []
    for engine in measured[ADULT]:
        cells = [measured[w].get(engine) for w in WORKLOADS]
        rows.append([engine, *("" if c is None else f"{c['ratio']:.2f}" for c in cells)])
    return pages.table(["engine", *WORKLOADS], rows)


def operation_table(measured):
    """Return the lines of a table of operations, those of 2 % of a step at least by name."""
    heads, columns = ["operation"], []
    for name in measured:
        for engine, times in measured[name].items():
            heads.append(f"{name}, {engine.split()[0]}")
            columns.append(times)
    named = dict.fromkeys(
        k for times in columns for k, v in times.items() if v >= 0.02 * times["whole step"]
    )
    first, last = "whole step", "Python, autograd and dispatch"
    middle = [k for k in named if k not in (first, last)]
    middle.sort(key=lambda k: -max(t.get(k, 0) / t[first] for t in columns))
    rows = [
        [k, *(f"{t[k]:.0f}" if k in t else "" for t in columns)] for k in (*middle, last, first)
    ]
    rest = [sum(v for k, v in t.items() if k not in named) for t in columns]
    rows.insert(len(middle), ["others", *(f"{v:.0f}" for v in rest)])
    title = "One step by operation, each measured alone, in microseconds:"
    return [title, "", *pages.table(heads, rows)]


def markdown(results):
    """Return the tables that the docs include."""
    lines = ["One step, over a tight non-private step:", "", *step_table(results["steps"])]
    lines += ["", "A whole fit, over plain non-private skorch:", ""]
    fits = {w: results["fits"][w] for w in (ADULT, DUTCH)}
    rows = [[m, *(f"{fit[m]['ratio']:.2f}" for fit in fits.values())] for m in fits[ADULT]]
    lines += pages.table(["method", *fits], rows)
    lines += ["", "Memory that steps add to a process, MiB (over the tight loop's):", ""]
    memory = [results["memory"][w] for w in MEMORY_OF]
    rows = [
        [engine, *(f"{m[engine]['added_mib']:.1f} ({m[engine]['ratio']:.2f})" for m in memory)]
        for engine in BASELINES
    ]
    lines += pages.table(["engine", *MEMORY_OF], rows)
    lines += ["", *operation_table(results["operations"])]
    lines += ["", "A private step over a tight one, Adult MLP with one size changed:", ""]
    rows = [(size, f"{ratio:.2f}") for size, ratio in results["scaling"].items()]
    lines += pages.table(["size", "ratio"], rows)
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--write", action="store_true", help="also write the page of docs/")
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.peak:
        return peak(*options.peak)
    torch.set_num_threads(1)
    results = {
        "machine": {"processor": platform.machine(), "torch": torch.__version__},
        "steps": steps(options.rounds),
        "operations": operations(),
        "fits": fits(options.epochs, 3),
        "memory": memory(),
        "scaling": scaling(3),
    }
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "training.json").write_text(json.dumps(results, indent=2) + "\n")
    (options.output / "training.md").write_text(markdown(results))
    if options.write:
        pages.put("evidence/performance.md", "results", markdown(results).splitlines())
    print(markdown(results))


if __name__ == "__main__":
    main()
