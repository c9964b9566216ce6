"""Private steps on shapes that users have: wide sparse tables, many groups, small linear models.

Times are CPU times of one thread, from one interleaved run, over that of a tight loop or of
another library on equal data.

    python -m benchmarks.bench_shapes [--parts sparse groups ...] [--write]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from sklearn.compose import make_column_transformer
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder
from torch import nn

from benchmarks import pages
from benchmarks.bench_training import _status, interleave
from benchmarks.engines import BASELINES, METHODS
from benchmarks.workloads import Workload
from skdpfair import DPFairClassifier
from skdpfair.budget import PrivacyLedger
from skdpfair.budget.charging import charged
from skdpfair.datasets import load_adult, public_facts
from skdpfair.engine import Batch, PoissonSampler
from skdpfair.engine.sparse_rows import SparseBatch
from skdpfair.inputs.rows import SparseRows
from skdpfair.model_selection import sweep
from skdpfair.preprocessing import public_preprocessor
from skdpfair.privacy import NoisyRelease, compute_epsilon
from skdpfair.training.batches import PoissonBatches

RESULTS = Path(__file__).parent / "results" / "shapes.json"
STORED, RECORDS, BATCH = 50, 20_000, 1000
TIGHT, DPSGD = "tight torch, not private", BASELINES["dpsgd"]


class SparseWorkload(Workload):
    """Records of ``STORED`` numbers among ``columns``."""

    def __init__(self, columns, n=RECORDS, batch=BATCH, n_classes=2):
        super().__init__(n, (1,), batch, n_classes, lambda: nn.Linear(columns, n_classes))
        rng = np.random.default_rng(0)
        places = rng.integers(0, columns, (n, STORED))
        rows = np.arange(0, n * STORED + 1, STORED)
        values = rng.standard_normal(n * STORED, dtype=np.float32)
        self.matrix = sparse.csr_array((values, places.ravel(), rows), (n, columns))

    def tensors(self):
        """Return features, labels and groups."""
        return [SparseBatch.of(SparseRows(self.matrix).matrix), *super().tensors()[1:]]


def by_scipy(work):
    """Return a clipped and noised step of logistic regression in scipy."""
    x, y, turn = work.matrix.astype(np.float32), work.y, work.turn()
    x.sum_duplicates()
    weights = np.zeros((x.shape[1], work.n_classes), np.float32)
    bias, rng = np.zeros(work.n_classes, np.float32), np.random.default_rng(0)

    def step():
        i = next(turn).numpy()
        a = x[i]
        logits = a @ weights + bias
        slope = np.exp(logits - logits.max(1, keepdims=True))
        slope /= slope.sum(1, keepdims=True)
        slope[np.arange(len(i)), y[i]] -= 1
        squares = np.add.reduceat(np.append(a.data**2, 0), a.indptr[:-1]) + 1
        norm = np.sqrt(squares * (slope**2).sum(1))
        slope *= np.minimum(1, 1 / norm)[:, None] / work.batch
        noise = rng.standard_normal(weights.size + bias.size, dtype=np.float32) / work.batch
        weights[:] -= 0.05 * (a.T @ slope + noise[: weights.size].reshape(weights.shape))
        bias[:] -= 0.05 * (slope.sum(0) + noise[weights.size :])

    return step


def of_sparse(rounds):
    """Return milliseconds of a step by the number of columns, by scipy and by dpsgd."""
    out = {}
    for columns in (5_000, 50_000):
        work = SparseWorkload(columns)
        out[f"{columns:,} columns"] = interleave(
            {
                "scipy": by_scipy(work),
                "dpsgd": DPSGD(work),
                "global_adapt": METHODS["global_adapt"](work),
            },
            rounds,
        )
    return out


def of_groups(rounds):
    """Return ratios to a tight step by the number of groups, Adult's logistic regression."""
    out = {}
    for groups in (2, 50, 500, 5000):
        work = Workload(48_000, (98,), 256, 2, lambda: nn.Linear(98, 2), n_groups=groups)
        engines = {name: METHODS[name](work) for name in ("dpsgd_f", "naive")}
        out[f"{groups:,} groups"] = interleave({TIGHT: BASELINES[TIGHT](work)} | engines, rounds)
    return out


def of_linear(rounds):
    """Return ratios to a tight step of the small linear model, by method."""
    work = Workload.named("Dutch logistic")
    engines = {TIGHT: BASELINES[TIGHT], "dpsgd": DPSGD} | METHODS
    return {"Dutch logistic": interleave({e: make(work) for e, make in engines.items()}, rounds)}


def of_classes(rounds):
    """Return ratios to a tight step by the number of classes."""
    out = {}
    for classes in (10, 1000, 10_000):
        work = Workload(20_000, (50,), 256, classes, lambda c=classes: nn.Linear(50, c))
        engines = {TIGHT: BASELINES[TIGHT], "dpsgd": DPSGD}
        made = {e: make(work) for e, make in engines.items()}
        out[f"{classes:,} classes"] = interleave(made, rounds)
    return out


def of_preprocessing(rounds):
    """Return seconds and memory of encoding a million rows of Adult, each in a fresh process."""
    out = {}
    for who in ("public_preprocessor", "scikit-learn"):
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.bench_shapes", "--encode", who]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        out[who] = json.loads(done.stdout.splitlines()[-1])
    return {"a million rows of Adult": out}


def encode(who, n=10**6):
    """Print seconds and peak memory, over that of the result, of one encoding."""
    facts = public_facts("adult")
    if who == "scikit-learn":
        encoder = OneHotEncoder(sparse_output=False, dtype=np.float32)
        steps = (MinMaxScaler(), list(facts["bounds"])), (encoder, list(facts["categories"]))
        preprocessor = make_column_transformer(*steps)
    else:
        preprocessor = public_preprocessor(**facts)
    rows = load_adult(subset="train").data.sample(n, replace=True, random_state=0)
    preprocessor.fit_transform(rows[:1000])
    Path("/proc/self/clear_refs").write_text("5")  # start the peak afresh
    before, start = _status("VmRSS"), os.times()
    result = preprocessor.fit_transform(rows)
    end = os.times()
    seconds = {"user": end.user - start.user, "system": end.system - start.system}
    size = np.asarray(result).nbytes if who == "scikit-learn" else result.memory_usage().sum()
    added = 1024 * (_status("VmHWM") - before)
    print(json.dumps({**seconds, "columns": result.shape[1], "memory": added / size}))


def of_pairs(rounds):
    """Return ratios of fits that count pairs of columns to fits that do not."""
    out, rng = {}, np.random.default_rng(0)
    for n_columns, n in ((20, 20_000), (60, 60_000), (200, 60_000)):
        X = pd.DataFrame(rng.uniform(-1, 1, (n, n_columns)).astype(np.float32)).add_prefix("x")
        y = (X["x0"] + 3 * X["x1"] * X["x2"] + rng.logistic(size=n) > 0).astype(int)
        encoded = public_preprocessor(dict.fromkeys(X, (-1, 1)), epsilon=2.0).fit_transform(X)

        def fit(module, encoded=encoded, y=y):
            return lambda: DPFairClassifier(epsilon=2.0, module=module).fit(encoded, y)

        functions = {"without": fit("logistic"), "with": fit("auto")}
        out[f"{n_columns} columns, {n:,} records"] = interleave(functions, rounds, seconds=0.0)
    return out


def of_ledger(rounds):
    """Return milliseconds of what a fit does with a ledger, by the number of fits in it."""
    release = NoisyRelease("gradient sum", 0.01, (50.0,), steps=100)

    def fit():
        with charged([release], spent := []):
            spent.append(release)

    out = {}
    for n in (10, 1000, 10_000):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "ledger.jsonl")
            with PrivacyLedger(path, delta=1e-6):
                fit()
            first, *lines = path.read_text().splitlines()
            many = [{**json.loads(line), "fit": str(i)} for i in range(n) for line in lines]
            path.write_text("\n".join([first, *map(json.dumps, many)]) + "\n")
            with PrivacyLedger(path, delta=1e-6):
                out[f"{n:,} fits"] = interleave({"event": fit}, rounds)["event"]["ms"]
    return {"milliseconds of a fit": out}


def of_budget(rounds):
    """Return milliseconds of a fit near the budget, where all before were different."""
    out = {f"{n} fits": _near_budget(n) for n in (20, 40, 80)}
    return {"milliseconds of a fit": out}


def _near_budget(n):
    """Return milliseconds of charging the last of n fits, which Renyi bounds would refuse."""
    unlike = [NoisyRelease("sum", 0.01, (2 + i / n,), steps=100) for i in range(n)]
    with tempfile.TemporaryDirectory() as folder:
        budget = 0.96 * compute_epsilon(unlike, 1e-6, "rdp")
        with PrivacyLedger(Path(folder, "ledger.jsonl"), epsilon=budget, delta=1e-6):
            for release in unlike:
                before = time.process_time()
                with charged([release], spent := []):
                    spent.append(release)
    return 1e3 * (time.process_time() - before)


def of_sampling(rounds):
    """Return MiB that the positions of an epoch take, by the number of records."""
    out = {}
    for n in (10**6, 10**7, 4 * 10**7):
        sampler = PoissonSampler(4096 / n, n, np.random.default_rng(0))
        codes = torch.zeros(1, dtype=torch.int64).expand(n)
        data = Batch(torch.zeros(1).expand(n, 1), codes, codes)
        epoch = PoissonBatches(data, sampler, lambda n=n: n // 4096)
        tracemalloc.start()
        for _ in epoch:
            pass
        out[f"{n:,} records"] = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
    return {"MiB": out}


def of_reading(rounds):
    """Return ratios to a default fit of an array, of a DataFrame and of a cell of a sweep."""
    data = load_adult(subset="train")
    X = public_preprocessor(**public_facts("adult")).fit_transform(data.data)
    records, sex = {"array": X.to_numpy(np.float32, copy=True), "DataFrame": X}, data.data["sex"]
    records["array"] = np.ascontiguousarray(records["array"])

    def fit(who):
        DPFairClassifier(epsilon=1.0).fit(records[who], data.target, sensitive_features=sex)

    def cells(n):  # a private one and a reference for each seed; each predicts, too
        sweep(
            X,
            data.target,
            sensitive_features=sex,
            methods=["global_adapt"],
            epsilons=[1.0],
            seeds=n,
            progress=False,
        )

    out = interleave({who: partial(fit, who) for who in records}, rounds)
    one, many = interleave({n: partial(cells, n) for n in (1, 5)}, rounds).values()
    each = (many["ms"] - one["ms"]) / 8
    out["cell of a sweep"] = {"ms": each, "ratio": each / out["array"]["ms"]}
    return {"Adult, encoded": out}


PARTS = {
    "reading": of_reading,
    "sparse": of_sparse,
    "groups": of_groups,
    "linear": of_linear,
    "classes": of_classes,
    "preprocessing": of_preprocessing,
    "pairs": of_pairs,
    "ledger": of_ledger,
    "budget": of_budget,
    "sampling": of_sampling,
}


def tables(found):
    """Return the lines of the documentation: one table for each part."""
    lines = []
    for part, heading in HEADINGS.items():
        rows = [
            (name, *(_cell(value) for value in row.values()))
            for name, row in found.get(part, {}).items()
        ]
        if rows:
            heads = ("", *next(iter(found[part].values())))
            lines += [*([""] if lines else []), heading, "", *pages.table(heads, rows)]
    return lines


HEADINGS = {
    "reading": "A default fit, milliseconds (over that of a float32 array):",
    "sparse": "A step of 1,000 sparse records of 50 numbers, milliseconds (over scipy's):",
    "groups": "A step over a tight one by the number of groups, 98 features, logistic:",
    "linear": "A step over a tight one, 60 features, logistic, all methods:",
    "classes": "A step over a tight one by the number of classes, 50 features, logistic:",
    "preprocessing": "Encoding, seconds in the program and in the system, which hands out memory, "
    "columns, and peak memory over that of the result:",
    "pairs": "A default fit by the number of numeric columns, over one that counts no pairs:",
    "ledger": "What a fit does with a ledger, by the number of fits in it:",
    "budget": "What a fit does with a ledger near its budget, by the number of unlike fits in it:",
    "sampling": "Memory of the positions of an epoch, batches of 4,096:",
}


def _cell(value):
    if not isinstance(value, dict):
        return f"{value:,.1f}"
    if "user" in value:
        times = f"{value['user']:.1f} + {value['system']:.1f} s"
        return f"{times}, {value['columns']:,}, {value['memory']:.2f}"
    in_ms = f"{value['ms']:.2f} ({value['ratio']:.2f})"
    return in_ms if value.get("in_ms") else f"{value['ratio']:.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", action="store_true", help="put the tables into the pages")
    parser.add_argument("--encode", help="of one process: who encodes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.encode:
        encode(args.encode)
        return
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for part in args.parts:
        found[part] = PARTS[part](args.rounds)
    for part in ("reading", "sparse"):
        for row in found.get(part, {}).values():
            for value in row.values():
                value["in_ms"] = True
    lines = tables(found)
    print(*lines, sep="\n")
    if args.write:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
        pages.put("evidence/performance.md", "shapes", lines)


if __name__ == "__main__":
    main()
