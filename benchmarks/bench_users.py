"""CPU time of what users do, over what they would do without privacy, in one run on one thread.

    python -m benchmarks.bench_users [--rounds 5] [--output benchmarks/results]

Rows are medians of interleaved rounds.  ``results/users.json`` holds the last run; a slow test
fails where a ratio is 1.5 times what stands there.
"""

import argparse
import json
import pickle
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from benchmarks import pages
from skdpfair import DPFairClassifier, load_release
from skdpfair.cli import main as shell
from skdpfair.datasets import load_adult, public_facts
from skdpfair.model_selection import sweep
from skdpfair.preprocessing import public_preprocessor
from skdpfair.report import model_page

RESULTS = Path(__file__).parent / "results"
_COPIES = 10  # of Adult, for predictions
_LIBRARIES = "import numpy, pandas, torch, sklearn.linear_model, scipy.stats"


def tasks(folder):
    """Return pairs of functions by name: what users do, and what it is compared with."""
    train, test = load_adult(subset="train"), load_adult(subset="test")
    prepare = public_preprocessor(**public_facts("adult"))
    X, y = prepare.fit_transform(train.data), train.target
    X_test, sex = prepare.transform(test.data), train.sensitive_features["sex"]
    array = np.tile(X.to_numpy(np.float32), (_COPIES, 1))
    frame = pd.DataFrame(array, columns=X.columns)
    plain, private = LogisticRegression(max_iter=1000), DPFairClassifier(epsilon=1.0)
    plain.fit(X, y), private.fit(X, y)
    plain_array = LogisticRegression(max_iter=1000).fit(array[: len(y)], y)
    private_array = DPFairClassifier(epsilon=1.0).fit(array[: len(y)], y)
    path, stored = folder / "model.safetensors", pickle.dumps(plain)
    private.save_release(path)
    few = {"module": "logistic", "max_steps": 300}

    n_of_cell, half = len(y) * 4 // 5, len(y) // 2

    def fit(method, epsilon=1.0, n=n_of_cell):
        return DPFairClassifier(method, epsilon=epsilon, **few).fit(X[:n], y[:n])

    def swept():
        grid = {"methods": ["dpsgd"], "epsilons": [1.0], "seeds": 1, "progress": False}
        sweep(X, y, sensitive_features=sex, **grid, **few)

    def searched():
        grid = {"lr": [0.5, 1.0]}
        model = DPFairClassifier("dpsgd", epsilon=1.0, **few)
        GridSearchCV(model, grid, cv=2, refit=False, scoring="accuracy").fit(X, y)

    found = {
        "fit, default on Adult": (lambda: private.fit(X, y), lambda: plain.fit(X, y)),
        "predict, DataFrame": (lambda: private.predict(frame), lambda: plain.predict(frame)),
        "predict, array": (
            lambda: private_array.predict(array),
            lambda: plain_array.predict(array),
        ),
        "load and predict": (
            lambda: load_release(path).predict(frame),
            lambda: pickle.loads(stored).predict(frame),
        ),
        "sweep of one cell and its reference": (swept, lambda: (fit("dpsgd"), fit("sgd", None))),
        "grid search of four fits": (searched, lambda: [fit("dpsgd", n=half) for _ in range(4)]),
        "page of a model with test records": (
            lambda: model_page(private, X_test, test.target),
            lambda: plain.fit(X, y),
        ),
        "import skdpfair": (started("import skdpfair"), started(_LIBRARIES)),
    }
    for name in shell.list_commands(None):
        command = f"from skdpfair.cli import main; main(['{name}', '--help'])"
        found[f"start of skdpfair {name}"] = started(command), started("import click")
    return found


def started(code):
    """Return a function that runs code in a new process."""
    arguments = [sys.executable, "-c", code]
    return lambda: subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)


def cpu_seconds(function):
    """Return the CPU time of a call, that of its processes among it."""
    before = time.process_time() + _of_children()
    function()
    return time.process_time() + _of_children() - before


def _of_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(rounds=5, names=None):
    """Return the ratio and the seconds of each task."""
    torch.set_num_threads(1)
    out = {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        for name, pair in tasks(Path(folder)).items():
            if names is not None and name not in names:
                continue
            cpu_seconds(pair[0]), cpu_seconds(pair[1])  # warm
            times = [tuple(map(cpu_seconds, pair)) for _ in range(rounds)]
            own, other = (median(column) for column in zip(*times, strict=True))
            out[name] = {"ratio": median(a / b for a, b in times), "s": own, "compared": other}
            print(name, {k: round(v, 3) for k, v in out[name].items()}, flush=True)
    return out


def main():
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--write", action="store_true", help="also write the page of docs/")
    options = parser.parse_args()
    results = measure(options.rounds)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "users.json").write_text(json.dumps(results, indent=2) + "\n")
    rows = [
        (name, f"{row['ratio']:.2f}", f"{row['s']:.3f}", f"{row['compared']:.3f}")
        for name, row in results.items()
    ]
    heads = ["what users do", "ratio", "CPU s", "compared with, CPU s"]
    lines = pages.table(heads, rows)
    (options.output / "users.md").write_text("\n".join(lines) + "\n")
    if options.write:
        pages.put("evidence/performance.md", "users", lines)


if __name__ == "__main__":
    main()
