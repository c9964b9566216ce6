"""Private steps on shapes that users have: wide sparse tables, many groups, small linear models.

Times are CPU times of one thread, from one interleaved run, over that of a tight loop or of
another library on equal data.

    python -m benchmarks.bench_shapes [--parts sparse groups linear classes] [--write]
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from scipy import sparse
from torch import nn

from benchmarks.bench_training import interleave
from benchmarks.engines import BASELINES, METHODS
from benchmarks.workloads import Workload
from skdpfair.engine.sparse_rows import SparseBatch
from skdpfair.inputs.streaming import SparseRows

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


PARTS = {"sparse": of_sparse, "groups": of_groups, "linear": of_linear, "classes": of_classes}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for part in args.parts:
        for name, rows in PARTS[part](args.rounds).items():
            print(
                name,
                {k: (round(r["ratio"], 2), round(r["ms"], 3)) for k, r in rows.items()},
                flush=True,
            )


if __name__ == "__main__":
    main()
