"""Fits on several processes, and fits of more and more records: time and memory.

    python -m benchmarks.bench_scale [--parts steps growth limits] [--sizes 4 5 6 7] [--write]

"steps" compares the time of a step on two processes of one machine with that on one, for the same
batch; it is the median of several runs.  "growth" fits memory maps of 10^4 to 10^7 records of 50
numbers; ``--sizes 8`` adds 10^8, and takes 20 GB of disk.  "limits" plays each part of a step of
one of many workers on this machine, and adds the time that a network takes to sum what they send.
Other work on the machine spoils all three.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from benchmarks import pages

RESULTS = Path(__file__).parent / "results" / "scale.json"
STEPS = {"Adult MLP": (4096, 60), "MNIST CNN": (512, 12)}  # batch, steps
FEATURES = 50
PROCESSES = (1, 2, 4)
WORKERS = ((10**6, 1), (10**8, 64), (10**9, 64), (10**9, 256))  # records, workers
LARGE = 10**8  # parameters
BITS_A_SECOND, LATENCY = 1e10, 5e-5  # of the network between machines


def launched(n_processes, *command):
    """Run this module in several processes; return what the first of them printed last."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    shared["WORLD_SIZE"] = str(n_processes)
    line = [sys.executable, "-W", "ignore", "-m", "benchmarks.bench_scale", *map(str, command)]
    running = [
        subprocess.Popen(
            line, env=os.environ | shared | {"RANK": str(rank)}, stdout=subprocess.PIPE, text=True
        )
        for rank in range(n_processes)
    ]
    printed = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise RuntimeError(f"{line} failed")
    return json.loads(printed[0].splitlines()[-1])


def seconds_of_a_step(name):
    """Return the time of a step on this process's part of a workload, without what fits cost."""
    import torch

    from benchmarks.workloads import Workload
    from skdpfair import DPFairClassifier

    torch.set_num_threads(1)
    batch, steps = STEPS[name]
    work = Workload.named(name)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    part = slice(rank, None, size)
    x, y = work.x[part], work.y[part]
    clf = DPFairClassifier(
        "dpsgd", epsilon=None, noise_multiplier=1.0, lr=0.01, batch_size=batch, module=work.make,
        classes=list(range(work.n_classes)), distributed="auto" if size > 1 else None,
    )  # fmt: skip
    spent = {}
    for many in (steps // 4, steps, steps // 4, steps):
        start = time.perf_counter()
        clf.set_params(max_steps=many).fit(x, y)
        spent.setdefault(many, []).append(time.perf_counter() - start)
    short, long = (min(spent[many]) for many in (steps // 4, steps))
    return (long - short) / (steps - steps // 4)


def steps(rounds):
    """Return milliseconds of a step on one process and on two, and their ratio."""
    out = {}
    for name in STEPS:
        found = {
            n: statistics.median(launched(n, "--step", name) for _ in range(rounds)) for n in (1, 2)
        }
        out[name] = {"one": 1e3 * found[1], "two": 1e3 * found[2], "ratio": found[2] / found[1]}
        print(name, out[name], flush=True)
    return out


class Memory(threading.Thread):
    """Samples the memory of the process that no file holds."""

    def __init__(self):
        super().__init__(daemon=True)
        self.most, self.is_running = 0, True

    def run(self):
        """Look until told to stop."""
        while self.is_running:
            text = Path("/proc/self/status").read_text()
            self.most = max(self.most, int(text.split("RssAnon:")[1].split()[0]))
            time.sleep(0.02)


def fit(folder):
    """Return seconds and MiB that a default fit of this process's part of a memory map takes."""
    import torch

    from skdpfair import DPFairClassifier

    torch.set_num_threads(1)
    y = np.load(f"{folder}/y.npy", mmap_mode="r")
    x = np.memmap(f"{folder}/x", np.float32, "r", shape=(len(y), FEATURES))
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    start, end = (len(y) * k // size for k in (rank, rank + 1))
    clf = DPFairClassifier(classes=[0, 1], distributed="auto" if size > 1 else None)
    clf.set_params(max_steps=2).fit(x[:1000], y[:1000])  # what the first fit of a process costs
    memory = Memory()
    memory.start()
    before, begin = memory.most, time.perf_counter()
    clf.set_params(max_steps=None).fit(x[start:end], y[start:end])
    seconds = time.perf_counter() - begin
    memory.is_running = False
    memory.join()
    return {"seconds": seconds, "MiB": memory.most / 1024, "before": before / 1024}


def made(folder, n):
    """Write ``n`` records and their labels, some at a time."""
    rng = np.random.default_rng(0)
    x = np.memmap(f"{folder}/x", np.float32, "w+", shape=(n, FEATURES))
    y = np.empty(n, np.int64)
    for start in range(0, n, 100_000):
        part = rng.standard_normal((min(100_000, n - start), FEATURES), dtype=np.float32)
        x[start : start + len(part)] = part
        y[start : start + len(part)] = part[:, 0] + rng.standard_normal(len(part)) > 0
    np.save(f"{folder}/y.npy", y)


def growth(powers):
    """Return seconds and MiB of each process by number of records and of processes."""
    out = {}
    for power in powers:
        with tempfile.TemporaryDirectory() as folder:
            made(folder, 10**power)
            for n_processes in PROCESSES:
                key = f"10^{power}, {n_processes}"
                out[key] = launched(n_processes, "--fit", folder)
                print(key, out[key], flush=True)
    return out


def limits():
    """Return milliseconds of each part of a worker's step, by records, workers and parameters."""
    import torch

    from benchmarks.bench_training import interleave
    from benchmarks.engines import BASELINES
    from benchmarks.workloads import Workload
    from skdpfair.engine import PoissonSampler, Streams

    torch.set_num_threads(1)
    batch, out = STEPS["Adult MLP"][0], {}
    noise = Streams.fresh().noise()
    rows = torch.rand(400_000, 98)

    def ms(function):
        return interleave({"it": function}, 5, clock=time.perf_counter)["it"]["ms"]

    for n, workers in WORKERS:
        own = -(-batch // workers)
        work = Workload.named("Adult MLP", batch=own)
        sampler = PoissonSampler(batch / n, n // workers, np.random.default_rng(0))
        times = {
            "sampling": ms(lambda s=sampler: s.draw(50)) / 50,
            "reading": ms(lambda k=own: rows[torch.randint(len(rows), (k,))]),
            "gradients": ms(BASELINES["dpsgd"](work)),
        }
        for d, parts in ((work.n_parameters, times), (LARGE, times | {"gradients": None})):
            flat, other = torch.zeros(d), torch.ones(d)
            share = (workers - 1) / workers
            sent = 2 * share * 32 * d / BITS_A_SECOND + 2 * np.log2(workers) * LATENCY
            out[f"{n:.0e}, {workers}, {d}"] = parts | {
                "sum": 1e3 * sent + (ms(lambda a=flat, b=other: a.add_(b)) if share else 0.0),
                "noise": ms(lambda a=flat: noise.fill_(a, 1.0, 1.0)),
                "update": ms(lambda a=flat, b=other: a.add_(b, alpha=-0.1)),
            }
            print(n, workers, d, out[f"{n:.0e}, {workers}, {d}"], flush=True)
    return out


def tables(found):
    """Return the tables of the documentation by name."""
    out = {}
    if "steps" in found:
        rows = [
            (name, f"{r['one']:.1f}", f"{r['two']:.1f}", f"{r['ratio']:.2f}")
            for name, r in found["steps"].items()
        ]
        heads = ("a step, ms", "one process", "two processes", "ratio")
        out["two processes"] = pages.table(heads, rows)
    if "growth" in found:
        rows = []
        for power in sorted({key.split(",")[0] for key in found["growth"]}):
            own = [found["growth"][f"{power}, {n}"] for n in PROCESSES]
            rows.append((power, *(f"{r['seconds']:.1f} s, {r['MiB']:,.0f} MiB" for r in own)))
        heads = ("records", *(f"{n} process{'es' * (n > 1)}" for n in PROCESSES))
        out["growth"] = pages.table(heads, rows)
    if "limits" in found:
        rows = []
        for key, parts in found["limits"].items():
            power, workers, d = key.split(", ")
            most = max(ms or 0.0 for ms in parts.values())
            cells = ["-" if ms is None else f"{ms:.3g}" for ms in parts.values()]
            marked = [
                f"**{c}**" if ms == most else c for c, ms in zip(cells, parts.values(), strict=True)
            ]
            rows.append((f"10^{power[-1]}, {workers}", f"{int(d):,}", *marked))
        heads = ("records, workers", "parameters", *next(iter(found["limits"].values())))
        out["limits"] = pages.table(heads, rows)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="*", default=["steps", "growth", "limits"])
    parser.add_argument("--sizes", type=int, nargs="*", default=[4, 5, 6, 7])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="put the tables into the pages")
    parser.add_argument("--step", help="of one process: the workload")
    parser.add_argument("--fit", help="of one process: the folder of the records")
    args = parser.parse_args()
    if args.step or args.fit:
        print(json.dumps(seconds_of_a_step(args.step) if args.step else fit(args.fit)))
        return
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if "steps" in args.parts:
        found["steps"] = steps(args.rounds)
    if "growth" in args.parts:
        found["growth"] = found.get("growth", {}) | growth(args.sizes)
    if "limits" in args.parts:
        found["limits"] = limits()
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    for name, lines in tables(found).items():
        print(f"\n{name}\n", *lines, sep="\n")
        if args.write:
            pages.put("evidence/performance.md", name, lines)


if __name__ == "__main__":
    main()
