"""Results of eight runs by hand, and of runs in folds."""

import itertools

import numpy as np
import pandas as pd

from skdpfair.model_selection import TradeoffResults

UNSURE = "no interval, or too few test records"


def cell(method, epsilon, seed, right, reference="reference"):
    """A cell of 100 records of F and 200 of M, of which ``right`` were predicted right."""
    true = [0] * 300
    wrong = [0] * right[0] + [1] * (100 - right[0]) + [0] * right[1] + [1] * (200 - right[1])
    return {
        "method": method,
        "epsilon": epsilon,
        "seed": seed,
        "fold": 0,
        "reference": reference,
        "n": [300, 100, 200],
        "test": {"accuracy": [sum(right) / 300, right[0] / 100, right[1] / 200]},
        "train": {"accuracy": [1.0, 1.0, 1.0]},
        "epsilon_spent": np.inf if epsilon is None else epsilon,
        "fit_seconds": 1.0,
        "low_signal": [],
        "predictions": {"true": true, "predicted": wrong, "group": [0] * 100 + [1] * 200},
    }


CELLS = [
    cell("reference", None, 0, (90, 180), None),
    cell("poor", 1.0, 0, (50, 120)),
    cell("even", 1.0, 0, (70, 140)),
    cell("even", 4.0, 0, (80, 170)),
    cell("reference", None, 1, (94, 180), None),
    cell("poor", 1.0, 1, (60, 120)),
    cell("even", 1.0, 1, (74, 144)),
    cell("even", 4.0, 1, (84, 166)),
]


def results_of(cells, levels=("F", "M")):
    return TradeoffResults.from_cells(cells, list(levels), np.array(["no", "yes"]))


def with_splits(folds, n_seeds, n_train):
    """The accuracies of a model in folds of several seeds, 300 test records each, of two groups."""
    rng, rows = np.random.default_rng(0), []
    for seed, fold in itertools.product(range(n_seeds), range(folds)):
        for group, n in (("overall", 300), ("F", 100), ("M", 200)):
            facts = {"method": "a", "epsilon": 1.0, "seed": seed, "fold": fold, "group": group}
            scores = {"accuracy": rng.uniform(0.7, 0.9), "privacy_cost": rng.uniform(0.0, 0.1)}
            rows.append(facts | {"n": n, "n_train": n_train} | scores)
    return TradeoffResults(pd.DataFrame(rows))
