"""Accuracy of the untuned defaults: Adult, Dutch (needs SKDPFAIR_DATA), small Adult.

python -m benchmarks.bench_defaults [--seeds 4]
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from sklearn.model_selection import train_test_split

from benchmarks import pages
from skdpfair import DPFairClassifier
from skdpfair.datasets import (
    ADULT_BOUNDS,
    ADULT_CATEGORIES,
    DUTCH_CATEGORIES,
    fetch_dutch,
    load_adult,
)
from skdpfair.preprocessing import public_preprocessor


def adult(encoding, n_samples=None, seed=0):
    """Return training and test rows: all, or some of the training rows."""
    train, test = load_adult(subset="train"), load_adult(subset="test")
    rows = np.random.default_rng(seed).permutation(len(train.target))[:n_samples]
    rows = slice(None) if n_samples is None else rows
    features = public_preprocessor(ADULT_BOUNDS, ADULT_CATEGORIES, encoding=encoding)
    features.fit(train.data.iloc[rows])
    return _arrays(features, train, rows), _arrays(features, test, slice(None))


def _arrays(features, data, rows):
    columns = data.data, data.target, data.sensitive_features["sex"]
    x, y, group = (column.iloc[rows] for column in columns)
    return features.transform(x).to_numpy(np.float32), y.to_numpy(), group.to_numpy()


def dutch(seed):
    data = fetch_dutch()
    x = public_preprocessor({}, DUTCH_CATEGORIES).fit_transform(data.data).to_numpy(np.float32)
    arrays = x, data.target.to_numpy(), data.sensitive_features["sex"].to_numpy()
    parts = train_test_split(*arrays, test_size=0.2, random_state=seed)
    return parts[::2], parts[1::2]


def cases(n_seeds):
    """Yield name, module, splits and budgets."""
    seeds = range(n_seeds)
    for encoding, module in (("linear", "auto"), ("auto", "logistic")):
        what = "" if encoding == "linear" else ", piecewise linear"
        full = [adult(encoding)] * n_seeds
        yield f"Adult{what}", module, full, (0.5, 1.0, 3.0, 8.0, None)
        small = [adult(encoding, 1000, seed) for seed in seeds]
        yield f"Adult{what}, n = 1,000", module, small, (1.0, 3.0, None)
    try:
        yield "Dutch", "auto", [dutch(seed) for seed in seeds], (1.0, 3.0, None)
    except ValueError as error:
        print(f"Dutch left out: {error}")


def measure(splits, epsilon, method, module):
    rows = []
    for seed, ((x, y, group), (x_test, y_test, group_test)) in enumerate(splits):
        model = DPFairClassifier(method, epsilon=epsilon, module=module, random_state=seed)
        start = time.process_time()
        predicted = model.fit(x, y, sensitive_features=group).predict(x_test)
        seconds = time.process_time() - start
        right = predicted == y_test
        row = {
            "accuracy": right.mean(),
            "balanced": balanced_accuracy_score(y_test, predicted),
            "AUC": roc_auc_score(y_test, model.decision_function(x_test)),
            **{str(g): right[group_test == g].mean() for g in np.unique(group_test)},
        }
        rows.append({k: 100 * v for k, v in row.items()} | {"s": seconds})
    return pd.DataFrame(rows).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    heads = ["data", "method", "epsilon", "accuracy", "balanced", "AUC"]
    heads, lines = [*heads, "accuracy by group", "cost by group", "s"], []
    for name, chosen, splits, epsilons in cases(options.seeds):
        references = [measure(splits, None, "sgd", module) for module in ("logistic", "auto")]
        reference = max(references, key=lambda t: t["accuracy"])
        groups = [c for c in reference.index if c not in ("accuracy", "balanced", "AUC", "s")]
        for epsilon in epsilons:
            for method in ("global_adapt", "dpsgd") if epsilon else ("better reference",):
                row = measure(splits, epsilon, method, chosen) if epsilon else reference
                by_group = ", ".join(f"{g} {row[g]:.1f}" for g in groups)
                cost = ", ".join(f"{g} {reference[g] - row[g]:+.2f}" for g in groups)
                figures = [f"{row[k]:.2f}" for k in ("accuracy", "balanced", "AUC")]
                end = by_group, cost if epsilon else "", f"{row['s']:.1f}"
                lines.append([name, method, epsilon or "none", *figures, *end])
                print(*lines[-1], sep=" | ", flush=True)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "defaults.md").write_text(
        "\n".join([*pages.table(heads, lines, left=(0, 1, 6, 7)), ""])
    )


if __name__ == "__main__":
    main()
