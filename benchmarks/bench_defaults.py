"""Accuracy of the untuned defaults: Adult, Dutch (needs SKDPFAIR_DATA), small Adult.

python -m benchmarks.bench_defaults [--seeds 4] [--intervals | --amounts | --pairs | --records]
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import balanced_accuracy_score, log_loss, roc_auc_score
from sklearn.model_selection import train_test_split

from benchmarks import pages
from skdpfair import MLP, DPFairClassifier
from skdpfair._networks import Curves
from skdpfair.datasets import fetch_dutch, load_adult, public_facts
from skdpfair.preprocessing import public_preprocessor
from skdpfair.preprocessing._piecewise_linear import amounts_among

INTERVALS = 0, 2, 4, 8
AMOUNTS = {  # made-up tables with two columns of amounts
    "smooth": "two that act smoothly",
    "round": "the same, rounded to hundreds and tens",
    "sparse": "the same, mostly zero",
    "exact": "50 popular amounts each, which act by their exact value",
}
PAIRS = {
    "none": "none",
    "product": "a product of two numbers",
    "xor": "two categories, of which one decides",
    "slope": "a category that turns the slope of a number",
}
PLANTED = {"product": "x2 × x3", "xor": "c2 × c3", "slope": "x4 × c3"}
MEASURES = {"accuracy": 2, "balanced": 2, "AUC": 2, "calibration": 2, "log loss": 4}  # digits


def adult(encoding, n_samples=None, seed=0, **how):
    """Return training and test rows: all, or some of the training rows."""
    train, test = load_adult(subset="train"), load_adult(subset="test")
    rows = np.random.default_rng(seed).permutation(len(train.target))[:n_samples]
    rows = slice(None) if n_samples is None else rows
    features = public_preprocessor(**public_facts("adult"), encoding=encoding, **how)
    features.fit(train.data.iloc[rows])
    return _arrays(features, train, rows), _arrays(features, test, slice(None))


def _arrays(features, data, rows):
    columns = data.data, data.target, data.sensitive_features["sex"]
    x, y, group = (column.iloc[rows] for column in columns)
    return features.transform(x), y.to_numpy(), group.to_numpy()


def dutch(seed, n_samples=None):
    """Return training and test rows: all, or some of the training rows."""
    data = fetch_dutch()
    x = public_preprocessor(**public_facts("dutch")).fit_transform(data.data)
    arrays = x, data.target.to_numpy(), data.sensitive_features["sex"].to_numpy()
    sizes = {"test_size": 0.2, "train_size": n_samples, "random_state": seed}
    parts = train_test_split(*arrays, **sizes)
    return parts[::2], parts[1::2]


def cases(n_seeds):
    """Yield name, function that makes the splits for a budget, and budgets."""
    for encoding in ("auto", "linear"):
        what = ", scaled columns" if encoding == "linear" else ""

        def whole(epsilon, encoding=encoding):
            return [adult(encoding, epsilon=epsilon)] * n_seeds

        def small(epsilon, encoding=encoding):
            return [adult(encoding, 1000, seed, epsilon=epsilon) for seed in range(n_seeds)]

        yield f"Adult{what}", whole, (0.5, 1.0, 3.0, 8.0, None)
        yield f"Adult{what}, n = 1,000", small, (1.0, 3.0, None)
    try:
        census = [dutch(seed) for seed in range(n_seeds)]
        yield "Dutch", lambda epsilon: census, (0.5, 1.0, 3.0, None)
    except ValueError as error:
        print(f"Dutch left out: {error}")


def measure(splits, epsilon, method, module="auto", chosen=None):
    """Return the means over splits; ``chosen`` gets what each fit decided by released numbers."""
    rows = []
    for seed, ((x, y, group), (x_test, y_test, group_test)) in enumerate(splits):
        model = DPFairClassifier(method, epsilon=epsilon, module=module, random_state=seed)
        start = time.process_time()
        predicted = model.fit(x, y, sensitive_features=group).predict(x_test)
        seconds = time.process_time() - start
        if chosen is not None:
            choices = model.privacy_.choices
            chosen.append([what for what, number, least in choices if number > least])
        right, probability = predicted == y_test, model.predict_proba(x_test)[:, 1]
        row = {
            "accuracy": right.mean(),
            "balanced": balanced_accuracy_score(y_test, predicted),
            "AUC": roc_auc_score(y_test, model.decision_function(x_test)),
            "calibration": calibration_error(probability, y_test == model.classes_[1]),
            **{str(g): right[group_test == g].mean() for g in np.unique(group_test)},
        }
        loss = log_loss(y_test, probability)
        rows.append({k: 100 * v for k, v in row.items()} | {"log loss": loss, "s": seconds})
    return pd.DataFrame(rows).mean()


def calibration_error(probability, codes, n_bins=15):
    """Return the mean distance of the probability of class 1 and its share, in bins."""
    bins = np.minimum((probability * n_bins).astype(int), n_bins - 1)
    gaps = np.bincount(bins, probability - codes, minlength=n_bins)
    return np.abs(gaps).sum() / len(codes)


def intervals(n_seeds):
    """Return a table: AUC by the number of records, the budget and the number of intervals."""
    lines = []
    for n_samples in (300, 1000, 3000, 32_561):
        for epsilon in (0.3, 1.0, 3.0):
            row = [f"{n_samples:,}", epsilon]
            ways = [
                ({"encoding": "linear"}, "coarse"),
                *(({"n_intervals": k}, "coarse") for k in INTERVALS),
            ]
            for how, curves in [
                *ways,
                ({"n_intervals": 8}, "fine"),
                ({"epsilon": epsilon}, "auto"),
            ]:
                given = {"encoding": "auto"} | how
                splits = [adult(n_samples=n_samples, seed=s, **given) for s in range(n_seeds)]
                module = curved(curves, splits[0][0][0].columns)
                row.append(f"{measure(splits, epsilon, 'global_adapt', module)['AUC']:.1f}")
            print(*row, sep=" | ", flush=True)
            lines.append(row)
    heads = ["records", "epsilon", "scaled", *(f"K = {k}" for k in INTERVALS), "all fine", '"auto"']
    return pages.table(heads, lines, left=())


def curved(curves, columns):
    """Return the network with coarse curves only, with all curves of amounts fine, or "auto"."""
    fine = amounts_among(columns)
    return {"coarse": "logistic", "fine": Curves(fine, fine), "auto": "auto"}[curves]


def amounts(n_seeds):
    """Return a table: AUC with coarse, fine and chosen curves, on made-up amounts."""
    lines = []
    for kind, what in AMOUNTS.items():
        for n_samples in (10_000, 32_000):
            for epsilon in (0.5, 1.0, 3.0):
                splits = [made_up(kind, n_samples, seed, epsilon) for seed in range(n_seeds)]
                row, chosen = [], []
                for curves in ("coarse", "fine", "auto"):
                    module = curved(curves, splits[0][0][0].columns)
                    means = measure(splits, epsilon, "global_adapt", module, chosen)
                    row.append(f"{means['AUC']:.1f}")
                share = np.mean([any("pay" in c for c in fit) for fit in chosen[-n_seeds:]])
                lines.append([what, f"{n_samples:,}", epsilon, *row, f"{share:.2f}"])
                print(*lines[-1], sep=" | ", flush=True)
    heads = ["amounts", "records", "epsilon", "coarse", "all fine", '"auto"', "P(pay fine)"]
    return pages.table(heads, lines)


def pairs(n_seeds):
    """Return a table: AUC without pairs and with those that fits choose, on made-up tables."""
    lines = []
    for kind, what in PAIRS.items():
        for n_samples in (5000, 10_000, 32_000):
            for epsilon in (0.5, 1.0, 3.0):
                splits = [planted(kind, n_samples, seed, epsilon) for seed in range(n_seeds)]
                chosen, row = [], []
                for module in ("logistic", "auto"):
                    means = measure(splits, epsilon, "global_adapt", module, chosen)
                    row.append(f"{means['AUC']:.1f}")
                names = [{c for c in fit if c.startswith("pair")} for fit in chosen[-n_seeds:]]
                of_kind = {f"pair {PLANTED[kind]}"} if kind in PLANTED else set()
                found = [bool(of_kind & fit) for fit in names]
                others = [len(fit - of_kind) for fit in names]
                row += [f"{np.mean(found):.2f}" if of_kind else "", f"{np.mean(others):.2f}"]
                lines.append([what, f"{n_samples:,}", epsilon, *row])
                print(*lines[-1], sep=" | ", flush=True)
    heads = ["interaction", "records", "epsilon", "none", '"auto"', "P(it is chosen)", "others"]
    return pages.table(heads, lines)


def planted(kind, n_samples, seed, epsilon):
    """Return training and test rows of six numbers and four categories, with one of `PAIRS`."""
    rng, n = np.random.default_rng(seed), n_samples + 20_000
    X = pd.DataFrame({f"x{i}": rng.uniform(-1, 1, n) for i in range(6)})
    X = X.assign(**{f"c{i}": rng.choice([*"abcd"], n) for i in range(4)})
    score = X["x0"] + 0.7 * X["x1"] - 0.8 * (X["c0"] == "a") + 0.6 * (X["c1"] == "b")
    first, second = X["c2"].isin([*"ab"]), X["c3"].isin([*"ac"])
    score += {
        "none": 0.0,
        "product": 3.0 * X["x2"] * X["x3"],
        "xor": 1.5 * (2.0 * (first ^ second) - 1),
        "slope": 2.0 * np.where(second, 1, -1) * X["x4"],
    }[kind]
    y = (score + rng.logistic(size=n) > 0).to_numpy(int)
    bounds = {f"x{i}": (-1, 1) for i in range(6)}
    categories = {f"c{i}": [*"abcd"] for i in range(4)}
    features = public_preprocessor(bounds, categories, epsilon=epsilon).fit(X[:n_samples])
    parts = features.transform(X), y, X["c0"].to_numpy(str)
    return tuple(
        tuple(part[rows] for part in parts) for rows in (slice(n_samples), slice(n_samples, n))
    )


def made_up(kind, n_samples, seed, epsilon):
    """Return training and test rows with two amounts, of a kind of `AMOUNTS`, and three others."""
    rng, n = np.random.default_rng(seed), n_samples + 20_000
    pay, rent = np.exp(rng.normal((8, 5), (1.5, 2), (n, 2))).clip(0, 1e6).T
    if kind == "round":
        pay, rent = np.round(pay, -2), np.round(rent, -1)
    if kind == "sparse":
        pay, rent = pay * (rng.random(n) < 0.15), rent * (rng.random(n) < 0.3)
    score = 0.9 * (np.log1p(pay) - 8) / 1.5 + 0.5 * np.sin(np.log1p(rent) / 1.5)
    if kind == "exact":
        which, effects = rng.integers(50, size=(2, n)), rng.normal(size=(2, 50))
        pay, rent = np.round(np.exp(rng.normal((8, 5), (1.5, 2), (50, 2)))).T
        score = effects[0][which[0]] + effects[1][which[1]]
        pay, rent = pay[which[0]], rent[which[1]]
    age, job, town = rng.uniform(20, 90, n), rng.integers(12, size=n), rng.integers(5, size=n)
    score += 0.03 * (age - 55) + 0.3 * rng.normal(size=12)[job] + 0.3 * rng.normal(size=5)[town]
    y = (rng.logistic(size=n) < 1.5 * score - 1.5).astype(int)
    X = pd.DataFrame({"pay": pay, "rent": rent, "age": age, "job": job, "town": town})
    bounds = {"pay": (0, 1e6), "rent": (0, 1e6), "age": (20, 90)}
    categories = {"job": range(12), "town": range(5)}
    features = public_preprocessor(bounds, categories, epsilon=epsilon).fit(X[:n_samples])
    parts = features.transform(X), y, town
    return tuple(
        tuple(part[rows] for part in parts) for rows in (slice(n_samples), slice(n_samples, n))
    )


def by_records(n_seeds):
    """Return a table: accuracy by the number of records, on Adult and Dutch, at two budgets."""
    names, lines = ("accuracy", "balanced"), []
    for n_samples in (100, 300, 700, 1000, 1500, 3000, 10_000, 32_561):
        row = [f"{n_samples:,}"]
        for epsilon in (1.0, 3.0):
            splits = [adult("auto", n_samples, seed, epsilon=epsilon) for seed in range(n_seeds)]
            means = measure(splits, epsilon, "global_adapt")
            row += [f"{means[name]:.1f}" for name in names]
        for epsilon in (1.0, 3.0):
            splits = [dutch(seed, n_samples) for seed in range(n_seeds)]
            row.append(f"{measure(splits, epsilon, 'global_adapt')['balanced']:.1f}")
        print(*row, sep=" | ", flush=True)
        lines.append(row)
    heads = [f"{name}, epsilon {epsilon}" for epsilon in (1, 3) for name in names]
    heads += [f"Dutch, balanced, epsilon {epsilon}" for epsilon in (1, 3)]
    return pages.table(["records", *heads], lines, left=())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--intervals", action="store_true", help="compare encodings instead")
    parser.add_argument("--amounts", action="store_true", help="compare curves of amounts")
    parser.add_argument("--pairs", action="store_true", help="compare pairs of columns")
    parser.add_argument("--records", action="store_true", help="put a table into docs/choosing.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    options.output.mkdir(parents=True, exist_ok=True)
    if options.records:
        return pages.put("choosing.md", "records", by_records(options.seeds))
    for name in ("intervals", "amounts", "pairs"):
        if getattr(options, name):
            return pages.put("evidence/defaults.md", name, globals()[name](options.seeds))
    heads = ["data", "method", "epsilon", *MEASURES]
    heads, lines = [*heads, "accuracy by group", "cost by group", "s"], []
    for name, splits, epsilons in cases(options.seeds):
        public = splits(None)
        networks = "auto", "logistic", MLP((32,), zero_output=True)
        references = [measure(public, None, "sgd", module) for module in networks]
        reference = max(references, key=lambda t: t["accuracy"])
        groups = [c for c in reference.index if c not in (*MEASURES, "s")]
        for epsilon in epsilons:
            for method in ("global_adapt", "dpsgd") if epsilon else ("better reference",):
                row = measure(splits(epsilon), epsilon, method) if epsilon else reference
                by_group = ", ".join(f"{g} {row[g]:.1f}" for g in groups)
                cost = ", ".join(f"{g} {reference[g] - row[g]:+.2f}" for g in groups)
                figures = [f"{row[k]:.{digits}f}" for k, digits in MEASURES.items()]
                end = by_group, cost if epsilon else "", f"{row['s']:.1f}"
                lines.append([name, method, epsilon or "none", *figures, *end])
                print(*lines[-1], sep=" | ", flush=True)
    (options.output / "defaults.md").write_text(
        "\n".join([*(lines := pages.table(heads, lines, left=(0, 1, 8, 9))), ""])
    )
    pages.put("evidence/defaults.md", "defaults", lines)


if __name__ == "__main__":
    main()
