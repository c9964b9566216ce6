"""All private methods with default settings, minus dpsgd on the same rows and with the same seed.

    SKDPFAIR_DATA=folder python -m benchmarks.bench_methods [--seeds 8]

It writes two tables into docs/choosing.md: all methods over all cases, and global_adapt by case.
"""

import argparse
import warnings

import joblib
import numpy as np
import pandas as pd
import torch
from sklearn.metrics import balanced_accuracy_score, log_loss, roc_auc_score

from benchmarks import pages
from benchmarks.bench_calibration import made_up
from benchmarks.bench_defaults import adult, dutch
from skdpfair import DPFairClassifier
from skdpfair.methods import METHODS

BASE = "dpsgd"
MEASURES = ["accuracy", "balanced", "AUC", "worst group", "log loss"]


def few_women(seed, epsilon):
    """Return Adult with women cut to a twentieth of the training rows."""
    (x, y, group), test = adult("auto", epsilon=epsilon)
    is_woman, rng = group == "Female", np.random.default_rng(seed)
    women = rng.choice(np.flatnonzero(is_woman), (~is_woman).sum() // 19, replace=False)
    rows = np.concatenate([np.flatnonzero(~is_woman), women])
    return (x.iloc[rows], y[rows], group[rows]), test


def small_group(seed, epsilon):
    """Return made-up rows of which a tenth is a group of its own."""
    parts = made_up(seed, epsilon)
    rng = np.random.default_rng(seed)
    return [(x, y, (rng.random(len(y)) < 0.1).astype(int)) for x, y, _ in parts]


def rare_class(seed, n_samples):
    """Return made-up rows of which 4 % are positive, with the groups of `small_group`."""
    rng, n = np.random.default_rng(seed), n_samples + 10_000
    x = rng.normal(size=(n, 5)).astype(np.float32)
    y = (rng.random(n) < 1 / (1 + np.exp(4 - x[:, 0] - x[:, 1]))).astype(int)
    group = (rng.random(n) < 0.1).astype(int)
    return [(x[part], y[part], group[part]) for part in np.split(np.arange(n), [n_samples])]


CASES = {
    "Adult, epsilon 1": (lambda seed: adult("auto", epsilon=1.0), 1.0),
    "Adult, epsilon 3": (lambda seed: adult("auto", epsilon=3.0), 3.0),
    "Adult, n = 3,000, epsilon 1": (lambda seed: adult("auto", 3000, seed, epsilon=1.0), 1.0),
    "Adult, 5 % women, epsilon 1": (lambda seed: few_women(seed, 1.0), 1.0),
    "Dutch, epsilon 1": (dutch, 1.0),
    "made up, epsilon 1": (lambda seed: small_group(seed, 1.0), 1.0),
    "made up, 4 % positive, epsilon 1": (lambda seed: rare_class(seed, 10_000), 1.0),
    "made up, 4 % positive, epsilon 3, MLP": (lambda seed: rare_class(seed, 20_000), 3.0),
    "Dutch, epsilon 3, MLP": (dutch, 3.0),
    "Adult, scaled columns, epsilon 3, MLP": (lambda seed: adult("linear", epsilon=3.0), 3.0),
    "made up, epsilon 8, MLP": (lambda seed: small_group(seed, 8.0), 8.0),
}


def of_fit(case, method, seed):
    """Return the measures of one default fit, in %, and the log loss."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    make, epsilon = CASES[case]
    (x, y, group), (x_test, y_test, group_test) = make(seed)
    model = DPFairClassifier(method, epsilon=epsilon, random_state=seed)
    predicted = model.fit(x, y, sensitive_features=group).predict(x_test)
    groups = [
        balanced_accuracy_score(y_test[group_test == g], predicted[group_test == g])
        for g in np.unique(group_test)
    ]
    score = model.decision_function(x_test)
    balanced = balanced_accuracy_score(y_test, predicted)
    shares = (predicted == y_test).mean(), balanced, roc_auc_score(y_test, score), min(groups)
    values = [*(100 * share for share in shares), log_loss(y_test, model.predict_proba(x_test))]
    return {"method": method, "case": case, "seed": seed} | dict(zip(MEASURES, values, strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    private = sorted(name for name, method in METHODS.items() if method.private)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--n-jobs", type=int, default=2)
    args = parser.parse_args()
    jobs = [
        joblib.delayed(of_fit)(case, method, seed)
        for seed in range(args.seeds)
        for case in CASES
        for method in private
    ]
    runs = pd.DataFrame(joblib.Parallel(n_jobs=args.n_jobs)(jobs))
    runs = runs.set_index(["method", "case", "seed"])
    gaps = runs.sort_index().drop(BASE).sub(runs.loc[BASE])
    means = [(name, rows) for name, rows in gaps.groupby("method")]
    every = pages.table(["minus dpsgd", *MEASURES], [*map(_row, means)])
    adapted = gaps.loc["global_adapt"]
    cases = [(case, adapted.loc[case]) for case in CASES]
    by_case = pages.table(["global_adapt minus dpsgd", *MEASURES], [*map(_row, cases)])
    lines = [*every, "", *by_case]
    print(*lines, sep="\n")
    pages.put("choosing.md", "methods", lines)


def _row(part):
    """Return a mean with its standard error for each measure."""
    name, rows = part
    digits = [2, 2, 2, 2, 4]
    errors = rows.std() / np.sqrt(len(rows))
    cells = zip(rows.mean(), errors, digits, strict=True)
    return [name, *(f"{mean:+.{n}f} ± {error:.{n}f}" for mean, error, n in cells)]


if __name__ == "__main__":
    main()
