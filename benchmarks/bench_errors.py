"""Which learning rates the errors of magnitude and of direction bear on MNIST.

SKDPFAIR_DATA=... python benchmarks/bench_errors.py     (a minute or two of a core for each rate)

One seed and ten epochs a rate; `skdpfair reproduce esipova-table1` compares the two that suit.
"""

from pathlib import Path

import joblib
import pandas as pd
from pages import put

from skdpfair.reproduce import errors
from skdpfair.reproduce._study import Run

EPOCHS, SEED = 10, 0
RATES = {"magnitude": (0.01, 0.1, 0.3, 1.0, 2.0, 3.0), "direction": (0.01, 0.05, 0.1, 0.3, 1.0)}
RESULTS = Path(__file__).parent / "results" / "errors.csv"


def main():
    asked = [(error, lr) for error, rates in RATES.items() for lr in rates]
    runs = [
        Run(error, SEED, {"epochs": EPOCHS, "C": errors.BOUND, "error": error, "lr": lr})
        for error, lr in asked
    ]
    found = joblib.Parallel(n_jobs=-1)(joblib.delayed(errors.measure)(run, "cpu") for run in runs)
    table = pd.DataFrame(found, index=pd.MultiIndex.from_tuples(asked, names=["error", "lr"]))
    table.to_csv(RESULTS, float_format="%.6g")
    lines = [
        "| error | learning rate | class 8: accuracy, % | loss |",
        "| --- | ---: | ---: | ---: |",
    ]
    for (error, lr), row in table.iterrows():
        lines.append(f"| {error} | {lr:g} | {row['accuracy_8']:.1f} | {row['loss_8']:.3g} |")
    put("what_holds.md", "errors", ["", *lines, ""])


if __name__ == "__main__":
    main()
