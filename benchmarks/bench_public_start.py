"""Small private tables beside public records: Adult at epsilon 1, all else at its default.

    python -m benchmarks.bench_public_start [--seeds 8]

The public records, of which few are at hand, train a model without privacy; it predicts alone, or
its weights are those that a private fit starts from.  The last column is a private fit alone to
columns that are scaled, not bent.
"""

import argparse
import copy
import warnings

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from benchmarks import pages
from benchmarks.bench_defaults import adult
from skdpfair import DPFairClassifier

PUBLIC, RECORDS = (300, 2000), (300, 700, 1500)


def measured(model, test):
    """Return accuracy and AUC in percent."""
    x, y, _ = test
    return 100 * np.array(
        [(model.predict(x) == y).mean(), roc_auc_score(y, model.predict_proba(x)[:, 1])]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8)
    seeds = parser.parse_args().seeds
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    (x, y, _), test = adult("auto", epsilon=1.0)
    (straight, _, _), straight_test = adult("linear")
    lines = []
    for n_public in PUBLIC:
        for n in RECORDS:
            found = []
            for seed in range(seeds):
                rows = np.random.default_rng(seed).permutation(len(x))
                public, own = rows[:n_public], rows[n_public : n_public + n]
                start = DPFairClassifier(epsilon=None, module="logistic", random_state=seed)
                start.fit(x.iloc[public], y[public])
                module = start.net_.module_
                found.append([measured(start, test)])
                for network in ("auto", lambda m=module: copy.deepcopy(m)):
                    model = DPFairClassifier(epsilon=1.0, module=network, random_state=seed)
                    found[-1].append(measured(model.fit(x.iloc[own], y[own]), test))
                model = DPFairClassifier(epsilon=1.0, random_state=seed)
                model.fit(straight.iloc[own], y[own])
                found[-1].append(measured(model, straight_test))
            cells = (f"{accuracy:.1f}, {auc:.1f}" for accuracy, auc in np.mean(found, axis=0))
            lines.append((f"{n_public:,}", f"{n:,}", *cells))
            print(*lines[-1], sep=" | ", flush=True)
    heads = (
        "public records",
        "private records",
        "public alone",
        "private alone",
        "both",
        "no curves",
    )
    pages.put("choosing.md", "public start", pages.table(heads, lines, left=()))


if __name__ == "__main__":
    main()
