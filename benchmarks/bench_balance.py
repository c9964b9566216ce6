"""Benefit and cost of balancing the groups: Adult, four groups (sex by label), one epsilon.

python -m benchmarks.bench_balance [--epsilon 1] [--seeds 5] [--output benchmarks/results]
"""

import argparse
import warnings
from pathlib import Path

import pandas as pd
from sklearn.metrics import balanced_accuracy_score

from benchmarks import pages
from skdpfair import DPFairClassifier, Groups, get_method
from skdpfair.datasets import load_adult, public_facts
from skdpfair.preprocessing import public_preprocessor

GROUPS = [(sex, label) for sex in ("Female", "Male") for label in ("<=50K", ">50K")]
# public, as a census office would print them: two digits
SHARES = (0.29, 0.04, 0.46, 0.21)
METHODS = {
    "dpsgd": ("dpsgd", {}),
    "dp_is_sgd, public shares": ("dp_is_sgd", {"group_probabilities": SHARES}),
    "dp_is_sgd, counted with noise": ("dp_is_sgd", {"max_sample_rate": 0.5}),
    "asc, counted with noise": ("asc", {}),
    "reference, not private": ("sgd", {}),
    "is_sgd, not private": ("is_sgd", {}),
    "iw_sgd, not private": ("iw_sgd", {}),
    "gdro, not private": ("gdro", {}),
}


def adult(subset):
    """Return features, labels and groups."""
    data = load_adult(subset=subset)
    features = public_preprocessor(**public_facts("adult"), encoding="linear").fit_transform(
        data.data
    )
    groups = pd.DataFrame({"sex": data.sensitive_features["sex"], "label": data.target})
    return features, data.target.to_numpy(), groups


def run(name, params, epsilon, seed, train, test):
    """Return accuracies of one fit, in percent."""
    method = get_method(name, **params)
    model = DPFairClassifier(
        method,
        epsilon=epsilon if method.private else None,
        module="logistic",
        group_col=Groups(levels=GROUPS),
        random_state=seed,
    )
    X, y, groups = train
    model.fit(X, y, sensitive_features=groups)
    X, y, groups = test
    hit = model.predict(X) == y
    by_group = [100 * hit[(groups == g).all(axis=1)].mean() for g in GROUPS]
    spent = model.privacy_.group_epsilons or {}
    return {
        "accuracy": 100 * hit.mean(),
        "balanced": 100 * balanced_accuracy_score(y, model.predict(X)),
        "disparity": max(by_group) - min(by_group),
        "worst group": min(by_group),
        "epsilon": model.privacy_.epsilon,
        "lowest group epsilon": min(spent.values(), default=model.privacy_.epsilon),
    }


def markdown(rows, epsilon, seeds):
    """Return the table that the docs include."""
    of_method = rows.drop(columns="seed").groupby("method")
    mean, error = of_method.mean(), of_method.sem()
    lines = []
    for name in METHODS:
        cells = [
            f"{value:.2f}" + ("" if "epsilon" in c else f" ± {error.loc[name, c]:.2f}")
            for c, value in mean.loc[name].items()
        ]
        lines.append([name, *cells])
    said = f"Adult, official split, logistic regression, epsilon {epsilon:g}, {seeds} seeds: "
    said += "mean and standard error, in percent."
    return "\n".join([said, "", *pages.table(["method", *mean], lines), ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    train, test = adult("train"), adult("test")
    rows = []
    for label, (name, params) in METHODS.items():
        for seed in range(options.seeds):
            row = run(name, params, options.epsilon, seed, train, test)
            rows.append({"method": label, "seed": seed, **row})
        print(label, {k: round(v, 2) for k, v in rows[-1].items() if k != "method"}, flush=True)
    rows = pd.DataFrame(rows)
    table = markdown(rows, options.epsilon, options.seeds)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "balance.md").write_text(table)
    pages.put("evidence/measurements.md", "balance", table.splitlines())
    by_seed = rows.pivot(index="seed", columns="method", values="disparity")
    less = by_seed["dpsgd"] - by_seed["dp_is_sgd, public shares"]
    print(table)
    print(f"dpsgd's disparity less dp_is_sgd's: {less.mean():.2f} ± {less.sem():.2f}")


if __name__ == "__main__":
    main()
