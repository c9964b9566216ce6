"""Private regression on Adult and Dutch, against the reference model and models of scikit-learn.

python -m benchmarks.bench_regression [--seeds 3] [--epsilons 1 3]
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from fairlearn.metrics import make_derived_metric
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.metrics import mean_absolute_error, r2_score
from sklearn.model_selection import train_test_split

from benchmarks import pages
from skdpfair import DPFairRegressor
from skdpfair.datasets import fetch_dutch, load_adult, public_facts
from skdpfair.metrics import excessive_risk, privacy_cost
from skdpfair.preprocessing import public_preprocessor

difference_of_risks = make_derived_metric(
    metric=excessive_risk, transform="difference", sample_param_names=["y_ref"]
)
# target and its public limits
TASKS = {
    "Adult, hours per week": ("adult", "hours_per_week", (0, 100)),
    "Adult, age": ("adult", "age", (17, 90)),
    "Dutch, age band": ("dutch", "age", (1, 17)),
}
LOSSES = ("squared", "absolute", "huber")


def arrays(task):
    """Return features, target and group of all records, and the public limits of the target."""
    name, target, limits = TASKS[task]
    if name == "adult":
        data = load_adult(subset="train")
        bounds, categories = public_facts("adult")["bounds"], public_facts("adult")["categories"]
    else:
        data = fetch_dutch()
        bounds, categories = {}, public_facts("dutch")["categories"]
    y = data.data[target].astype(float).to_numpy()
    bounds.pop(target, None)
    categories.pop(target, None)
    features = public_preprocessor(bounds, categories, encoding="linear")
    x = features.fit_transform(data.data.drop(columns=target)).to_numpy(np.float32)
    return x, y, data.sensitive_features["sex"].to_numpy(), limits


def run(task, epsilons, seeds, losses=LOSSES, method="dpsgd", **params):
    """Return a row of measures on test records for each fit."""
    x, y, group, limits = arrays(task)
    rows = []
    for seed in range(seeds):
        parts = train_test_split(x, y, group, test_size=0.25, random_state=seed)
        x_train, x_test, y_train, y_test, _, g_test = parts

        def measured(model, predicted, y_test=y_test, seed=seed):
            return {
                "task": task,
                "model": model,
                "seed": seed,
                "MAE": mean_absolute_error(y_test, predicted),
                "R2": r2_score(y_test, predicted),
                # the factor of predictions, about their mean, that would be best
                "slope": np.polyfit(predicted, y_test, 1)[0],
            }

        for name, model in {
            "Ridge": Ridge(),
            "HistGradientBoostingRegressor": HistGradientBoostingRegressor(random_state=0),
        }.items():
            rows.append(measured(name, model.fit(x_train, y_train).predict(x_test)))
        for loss in losses:
            common = {"y_range": limits, "loss": loss, "random_state": seed} | params
            reference = DPFairRegressor(epsilon=None, **common).fit(x_train, y_train)
            y_ref = reference.predict(x_test)
            rows.append(measured(f"{loss}, no privacy", y_ref))
            for epsilon in epsilons:
                model = DPFairRegressor(method, epsilon=epsilon, **common).fit(x_train, y_train)
                predicted = model.predict(x_test)
                risk = {"y_ref": y_ref, "loss": mean_absolute_error}
                rows.append(
                    measured(f"{loss}, epsilon {epsilon:g}", predicted)
                    | {
                        "cost R2": privacy_cost(y_test, predicted, y_ref=y_ref, metric=r2_score),
                        "risk MAE": excessive_risk(y_test, predicted, **risk),
                        "difference of risks": difference_of_risks(
                            y_test, predicted, sensitive_features=g_test, **risk
                        ),
                    }
                )
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 3.0])
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = [row for task in TASKS for row in run(task, args.epsilons, args.seeds)]
    frame = pd.DataFrame(rows).drop(columns="seed")
    table = frame.groupby(["task", "model"], sort=False).mean().reset_index()
    rows = [
        ["" if v != v else f"{v:.3f}" if isinstance(v, float) else v for v in row]
        for row in table.to_numpy(dtype=object)
    ]
    lines = pages.table(list(table), rows, left=(0, 1))
    (Path(__file__).parent / "results" / "regression.md").write_text("\n".join([*lines, ""]))
    pages.put("evidence/measurements.md", "regression", lines)
    print(*lines, sep="\n")


if __name__ == "__main__":
    main()
