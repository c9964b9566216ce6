"""Accuracy of private classifiers of other libraries, on the same splits of Adult and Dutch.

python -m benchmarks.bench_rivals FOLDER          # writes splits and the results of skdpfair
python benchmarks/bench_rivals.py FOLDER          # measures the others, in an environment with
                                                  # diffprivlib==0.6.6, interpret-core, pyarrow
                                                  # and "scikit-learn<1.7"

The second command writes rivals.md. Nothing is tuned, except that the logistic regression of
diffprivlib gets the penalty C of five that is best on the TEST rows.
"""

import argparse
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from sklearn.model_selection import train_test_split

EPSILONS = (0.5, 1.0, 3.0)
SEEDS = 4
NAMES = ("accuracy", "balanced", "AUC")


def measured(y, score, threshold):
    predicted = score >= threshold
    found = (predicted == y).mean(), balanced_accuracy_score(y, predicted), roc_auc_score(y, score)
    return [100 * value for value in found]


def write_splits(folder):
    """Write raw columns, features of skdpfair and labels of each split, and measure skdpfair."""
    import torch

    from skdpfair import DPFairClassifier
    from skdpfair.datasets import fetch_dutch, load_adult, public_facts
    from skdpfair.preprocessing import public_preprocessor

    torch.set_num_threads(1)
    rows = []
    for name in ("Adult", "Dutch"):
        bounds, categories = public_facts(name.lower()).values()
        for seed in range(SEEDS):
            if name == "Adult":
                parts = [load_adult(subset=subset) for subset in ("train", "test")]
                parts = [(part.data, part.target.to_numpy() == ">50K") for part in parts]
            else:
                data = fetch_dutch()
                y = (data.target == data.target.max()).to_numpy()
                split = train_test_split(data.data, y, test_size=0.2, random_state=seed)
                parts = split[::2], split[1::2]
            columns = [*bounds, *categories]
            path = folder / f"{name}-{seed}.pkl"
            scaled = public_preprocessor(bounds, categories, encoding="linear").fit(parts[0][0])
            linear = [scaled.transform(x).to_numpy(np.float64) for x, _ in parts]
            pd.to_pickle(
                (bounds, [x[columns] for x, _ in parts], linear, [y for _, y in parts]), path
            )
            for epsilon in EPSILONS:
                encode = public_preprocessor(bounds, categories, encoding="auto", epsilon=epsilon)
                x, x_test = (encode.fit(parts[0][0]).transform(x) for x, _ in parts)
                model = DPFairClassifier(epsilon=epsilon, random_state=seed).fit(x, parts[0][1])
                score = model.predict_proba(x_test)[:, 1]
                rows.append([name, epsilon, "skdpfair", *measured(parts[1][1], score, 0.5)])
                print(*rows[-1], flush=True)
    pd.DataFrame(rows, columns=["data", "epsilon", "model", *NAMES]).to_csv(folder / "own.csv")


def measure_others(folder):
    """Measure other libraries on the splits, and write the table of all."""
    from diffprivlib.models import LogisticRegression
    from interpret.privacy import DPExplainableBoostingClassifier

    rows = []
    for path in sorted(folder.glob("*.pkl")):
        name, seed = path.stem.split("-")
        bounds, (raw, raw_test), (x, x_test), (y, y_test) = pd.read_pickle(path)
        kinds = ["continuous" if column in bounds else "nominal" for column in raw]
        columns = list(raw)
        raw, raw_test = (t.astype(object).fillna("missing").to_numpy() for t in (raw, raw_test))
        for epsilon in EPSILONS:
            model = DPExplainableBoostingClassifier(
                feature_types=kinds,
                privacy_bounds={columns.index(c): tuple(pair) for c, pair in bounds.items()},
                epsilon=epsilon,
                delta=1e-6,
                random_state=int(seed),
                n_jobs=1,
            ).fit(raw, y)
            score = model.predict_proba(raw_test)[:, 1]
            rows.append([name, epsilon, "DP-EBM (interpret)", *measured(y_test, score, 0.5)])
            print(*rows[-1], flush=True)
            norm = np.sqrt(raw.shape[1])  # each column adds at most 1 to the square
            found = []
            for c in (0.01, 0.1, 1.0, 10.0, 100.0):
                model = LogisticRegression(
                    epsilon=epsilon, data_norm=norm, C=c, random_state=int(seed), max_iter=500
                ).fit(x, y)
                found.append(measured(y_test, model.predict_proba(x_test)[:, 1], 0.5))
            rows.append([name, epsilon, "logistic regression (diffprivlib), best C", *max(found)])
            print(*rows[-1], flush=True)
    others = pd.DataFrame(rows, columns=["data", "epsilon", "model", *NAMES])
    every = pd.concat([pd.read_csv(folder / "own.csv", index_col=0), others])
    means = every.groupby(["data", "epsilon", "model"])[list(NAMES)].mean().round(1).reset_index()
    lines = [f"| {' | '.join(means.columns)} |", "| --- | ---: | --- | ---: | ---: | ---: |"]
    lines += [f"| {' | '.join(map(str, row))} |" for row in means.itertuples(index=False)]
    results = Path(__file__).parent / "results" / "rivals.md"
    results.write_text("\n".join([*lines, ""]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    warnings.simplefilter("ignore")
    folder.mkdir(parents=True, exist_ok=True)
    (measure_others if find_spec("diffprivlib") else write_splits)(folder)


if __name__ == "__main__":
    main()
