"""What a threshold and parity within the budget bring on Adult, and what they cost.

python -m benchmarks.bench_thresholds [--seeds 4] [--epsilon 1]
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from fairlearn.metrics import equalized_odds_difference
from fairlearn.postprocessing import ThresholdOptimizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score

from benchmarks import pages
from benchmarks.bench_defaults import calibration_error
from skdpfair import DPFairClassifier
from skdpfair.datasets import load_adult, public_facts
from skdpfair.model_selection import DPThresholdClassifier
from skdpfair.preprocessing import public_preprocessor

FEMALE = "Female"


def rows_of(percent, seed):
    """Return the positions of the training rows: all, or with women cut to some per cent."""
    sex = load_adult(subset="train").sensitive_features["sex"].to_numpy()
    if percent is None:
        return np.arange(len(sex))
    women, men = np.flatnonzero(sex == FEMALE), np.flatnonzero(sex != FEMALE)
    n_women = round(len(men) * percent / (100 - percent))
    kept = np.random.default_rng(seed).choice(women, n_women, replace=False)
    return np.sort(np.append(men, kept))


def arrays(epsilon, rows):
    """Return features, labels (True above 50K) and groups of training and test rows."""
    train, test = load_adult(subset="train"), load_adult(subset="test")
    features = public_preprocessor(**public_facts("adult"), encoding="auto", epsilon=epsilon).fit(
        train.data.iloc[rows]
    )
    for data, chosen in ((train, rows), (test, np.arange(len(test.target)))):
        x = features.transform(data.data.iloc[chosen])
        y = data.target.iloc[chosen].to_numpy() == ">50K"
        yield x, y, data.sensitive_features["sex"].iloc[chosen].to_numpy()


def measured(y, group, predicted, probability):
    """Return the measures of a row, in percent."""
    women = group == FEMALE
    found = {
        "accuracy": (predicted == y).mean(),
        "balanced": balanced_accuracy_score(y, predicted),
        "balanced, women": balanced_accuracy_score(y[women], predicted[women]),
        "recall, women": predicted[women & y].mean(),
        "odds difference": equalized_odds_difference(y, predicted, sensitive_features=group),
        "calibration error": np.nan if probability is None else calibration_error(probability, y),
    }
    return {name: 100 * value for name, value in found.items()}


def private(epsilon, percent, seed, **params):
    """Return the measures of one private fit, with a threshold if ``params`` ask for one."""
    (x, y, group), (x_test, y_test, group_test) = arrays(epsilon, rows_of(percent, seed))
    model = DPFairClassifier(epsilon=epsilon, random_state=seed)
    given = {}
    if params:
        model = DPThresholdClassifier(model, random_state=seed, **params)
        if "constraint" in params or "by_group" in params:
            given = {"sensitive_features": group_test, "random_state": seed}
    model.fit(x, y, sensitive_features=group)
    assert model.privacy_.epsilon <= epsilon
    predicted = model.predict(x_test, **given)
    return measured(y_test, group_test, predicted, model.predict_proba(x_test)[:, 1])


def weighted(epsilon, percent, seed, of_women=1.0, of_rare=1.0):
    """Return the measures of one private fit with weights of women, or of the rare class."""
    (x, y, group), (x_test, y_test, group_test) = arrays(epsilon, rows_of(percent, seed))
    weights = {True: of_rare, False: 1.0}
    model = DPFairClassifier(
        epsilon=epsilon, class_weight=weights, max_sample_weight=of_women, random_state=seed
    )
    model.fit(x, y, sample_weight=np.where(group == FEMALE, of_women, 1.0))
    predicted = model.predict(x_test)
    return measured(y_test, group_test, predicted, model.predict_proba(x_test)[:, 1])


def optimizer(epsilon, percent, seed):
    """Return the measures of fairlearn's optimizer of thresholds, without privacy."""
    (x, y, group), (x_test, y_test, group_test) = arrays(epsilon, rows_of(percent, seed))
    model = ThresholdOptimizer(
        estimator=LogisticRegression(max_iter=2000),
        constraints="equalized_odds",
        predict_method="predict_proba",
    )
    # it keeps probabilities in the type of x
    model.fit(x.astype(np.float64), y, sensitive_features=group)
    given = {"sensitive_features": group_test, "random_state": seed}
    predicted = model.predict(x_test.astype(np.float64), **given)
    return measured(y_test, group_test, np.asarray(predicted).astype(bool), None)


CASES = {
    "threshold .5": (private, None, {}),
    "balanced accuracy": (private, None, {"objective": "balanced_accuracy"}),
    "balanced accuracy, by group": (private, None, {"by_group": True}),
    "demographic parity": (
        private,
        None,
        {"objective": "accuracy", "constraint": "demographic_parity"},
    ),
    "equalized odds": (private, None, {"objective": "accuracy", "constraint": "equalized_odds"}),
    "equalized odds, fairlearn, not private": (optimizer, None, {}),
    "weight 3 of the rare class": (weighted, None, {"of_rare": 3.0}),
    "1 % women, threshold .5": (private, 1, {}),
    "1 % women, balanced accuracy": (private, 1, {"objective": "balanced_accuracy"}),
    "1 % women, balanced accuracy, by group": (private, 1, {"by_group": True}),
    "5 % women, balanced accuracy": (private, 5, {"objective": "balanced_accuracy"}),
    "5 % women, balanced accuracy, by group": (private, 5, {"by_group": True}),
    "1 % women, selection rate": (private, 1, {"objective": "selection_rate"}),
    "2 % women, threshold .5": (private, 2, {}),
    "2 % women, equal opportunity": (
        private,
        2,
        {"objective": "accuracy", "constraint": "equal_opportunity"},
    ),
    "3 % women, threshold .5": (private, 3, {}),
    "3 % women, weight 4 of women": (weighted, 3, {"of_women": 4.0}),
    "3 % women, weight 32 of women": (weighted, 3, {"of_women": 32.0}),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    lines = []
    for name, (run, percent, params) in CASES.items():
        rows = [run(options.epsilon, percent, seed, **params) for seed in range(options.seeds)]
        means = pd.DataFrame(rows).mean()
        lines.append([name, *("" if np.isnan(v) else f"{v:.1f}" for v in means)])
        print(*lines[-1], sep=" | ", flush=True)
    options.output.mkdir(parents=True, exist_ok=True)
    page = pages.table(["threshold", *means.index], lines, left=(0,))
    (options.output / "thresholds.md").write_text("\n".join([*page, ""]))
    pages.put("evidence/measurements.md", "thresholds", page)


if __name__ == "__main__":
    main()
