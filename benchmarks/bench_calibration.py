"""Log loss and calibration error of default fits, by a public factor of their logits.

    SKDPFAIR_DATA=folder python -m benchmarks.bench_calibration [--classes] [--methods dpsgd ...]

It writes a table into docs/evidence/defaults.md: for each method its factor, that of the least log
loss, and means over all cases; log loss is above the least of each case.  With ``--classes``, cases
have 3 to 10 classes instead of two.
"""

import argparse
import warnings

import joblib
import numpy as np
import pandas as pd
import torch
from scipy import special
from sklearn.datasets import make_classification

from benchmarks import pages
from benchmarks.bench_defaults import adult, calibration_error, dutch
from skdpfair import MLP, DPFairClassifier, Persons
from skdpfair.methods import METHODS

FACTORS = np.round(np.arange(0.05, 1.11, 0.05), 2)
LOSS, ERROR = "log loss", "calibration error, %"
HEADS = ["best", "log loss at 1", "at the scale", "calibration error at 1, %", "at the scale"]
CLASSES = {f"{k} classes": k for k in (3, 5, 10)}
PERSONS, MLPS = "Adult, persons of 3 records", "Adult, MLP"


def made_up(seed, epsilon):
    """Return rows of two classes, the smaller a fifth, and two groups."""
    x, y = make_classification(
        12_000, 30, n_informative=10, weights=[0.8], flip_y=0.1, random_state=seed
    )
    x = np.clip(x / 4, -1, 1).astype(np.float32)
    group = np.random.default_rng(seed).integers(0, 2, len(y))
    return (x[:8000], y[:8000], group[:8000]), (x[8000:], y[8000:], group[8000:])


def several(n_classes, seed):
    """Return rows of several classes that a softmax regression draws."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (30_000, 12)).astype(np.float32)
    logits = x @ rng.normal(scale=1.5, size=(12, n_classes)) + rng.gumbel(size=(len(x), n_classes))
    parts = x, logits.argmax(axis=1), rng.integers(0, 2, len(x))
    return tuple(part[:20_000] for part in parts), tuple(part[20_000:] for part in parts)


CASES = {
    "Adult": lambda seed, epsilon: adult("auto", epsilon=epsilon),
    "Adult, scaled columns": lambda seed, epsilon: adult("linear", epsilon=epsilon),
    "Adult, n = 3,000": lambda seed, epsilon: adult("auto", 3000, seed, epsilon=epsilon),
    "Dutch": lambda seed, epsilon: dutch(seed),
    "made up": made_up,
    PERSONS: lambda seed, epsilon: adult("auto", epsilon=epsilon),
    MLPS: lambda seed, epsilon: adult("auto", epsilon=epsilon),
}
PARAMS = {PERSONS: {"persons": Persons(max_records=3)}, MLPS: {"module": MLP((32,))}}
EPSILONS = (0.5, 1.0, 3.0, 8.0)


def of_fit(case, method, epsilon, seed):
    """Return log loss and calibration error by the factor of one default fit."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    parts = several(CLASSES[case], seed) if case in CLASSES else CASES[case](seed, epsilon)
    (x, y, group), (x_test, y_test, _) = parts
    params = {"epsilon": epsilon, "logit_scale": 1.0, "random_state": seed}
    model = DPFairClassifier(method, **params, **PARAMS.get(case, {}))
    units = np.arange(len(y)) // 3 if case == PERSONS else None
    try:
        model.fit(x, y, sensitive_features=group, persons=units)
    except ValueError as error:
        return [{"method": method, "case": case, "error": str(error)}]
    logits, codes = model.decision_function(x_test), np.searchsorted(model.classes_, y_test)
    logits = np.stack([0 * logits, logits], 1) if logits.ndim == 1 else logits
    about = {"method": method, "case": case, "epsilon": epsilon, "seed": seed}
    return [
        about
        | {
            "factor": factor,
            LOSS: -special.log_softmax(factor * logits, axis=1)[range(len(codes)), codes].mean(),
            ERROR: 100 * _error(special.softmax(factor * logits, axis=1), codes),
        }
        for factor in FACTORS
    ]


def _error(probability, codes):
    """Return the calibration error of class 1, or of the predicted one of several."""
    if probability.shape[1] == 2:
        return calibration_error(probability[:, 1], codes)
    return calibration_error(probability.max(axis=1), probability.argmax(axis=1) == codes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    private = sorted(name for name, method in METHODS.items() if method.private)
    parser.add_argument("--methods", nargs="*", choices=private, default=private)
    parser.add_argument("--classes", action="store_true")
    parser.add_argument("--cases", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--n-jobs", type=int, default=2)
    args = parser.parse_args()
    jobs = [
        joblib.delayed(of_fit)(case, method, epsilon, seed)
        for method in args.methods
        for case in (CLASSES if args.classes else args.cases)
        for epsilon in args.epsilons
        for seed in range(args.seeds)
    ]
    rows = joblib.Parallel(n_jobs=args.n_jobs)(jobs)
    frame = pd.DataFrame([row for part in rows for row in part])
    if "error" in frame:
        print(frame.dropna(subset=["error"])[["method", "error"]].drop_duplicates().to_string())
        frame = frame[frame["error"].isna()]
    cells = frame.groupby(["method", "case", "epsilon", "factor"]).mean(numeric_only=True)
    losses, errors = (cells[name].unstack("factor") for name in (LOSS, ERROR))
    lines = pages.table(["method", "scale", *HEADS], [*_rows(losses, errors, args.classes)])
    print(losses.round(4).to_string(), errors.round(2).to_string(), *lines, sep="\n\n")
    name = "calibration of classes" if args.classes else "calibration"
    pages.put("evidence/defaults.md", name, lines)


def _rows(losses, errors, are_several):
    """Yield, for each method, its factor, the best one, and means over all cases."""
    for method, loss in losses.groupby("method"):
        excess, error = loss.sub(loss.min(axis=1), axis=0).mean(), errors.loc[method].mean()
        scale = METHODS[method].logit_scales[are_several]
        values = [f"{excess[1.0]:.4f}", f"{excess[scale]:.4f}", f"{error[1.0]:.2f}"]
        yield [method, f"{scale:g}", f"{excess.idxmin():g}", *values, f"{error[scale]:.2f}"]


if __name__ == "__main__":
    main()
