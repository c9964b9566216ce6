"""The effect of choices that the papers do not state: coding, splits, scales, steps.

python -m benchmarks.bench_unstated
"""

import argparse
from dataclasses import replace
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import torch

from benchmarks import pages
from benchmarks.papers import STUDIES, Options, Run, data, esipova, kulynych


def esipova_row(name, row, split, seed):
    """Return accuracy and running loss of men, for a row of Table 4 or 5 on another split."""
    run = Run(row, seed, STUDIES[name].settings(row, Options()))
    found = esipova.trained(run, "cpu", split)
    return found["accuracy[male]"], found["loss[male]"]


def coding(seed, *, reversed_):
    """Return the men's running loss of DPSGD on Adult."""
    split = data.adult(seed)
    if reversed_:  # the last two columns are race and sex
        x, x_test = split.x.copy(), split.x_test.copy()
        x[:, -2:], x_test[:, -2:] = 1 - x[:, -2:], 1 - x_test[:, -2:]
        split = replace(split, x=x, x_test=x_test)
    return esipova_row("esipova-table4", "dpsgd", split, seed)[1]


def splitting(seed, *, permuted):
    """Return the men's accuracy of plain SGD on the Dutch census."""
    if not permuted:
        return esipova_row("esipova-table5", "sgd", data.dutch(seed), seed)[0]
    x, y, man = data.dutch_table()
    rows = np.random.default_rng(seed).permutation(len(y))
    group = np.where(man, "male", "female")
    return esipova_row("esipova-table5", "sgd", data.four_fifths(x, y, group, rows), seed)[0]


def scaling(seed, *, row, unit):
    """Return the accuracy disparity of a row of Kulynych et al.'s Table 9."""
    split = kulynych.split_of(seed)
    if unit:
        low, high = split.x[:, :4].min(0), split.x[:, :4].max(0)
        split = replace(split, x=scaled(split.x, low, high), x_test=scaled(split.x_test, low, high))
    return kulynych.trained(row, split, seed)["accuracy_disparity"]


def stepping(seed, *, row, **steps):
    """Return the accuracy disparity of a row of Table 9 with steps of another length."""
    return kulynych.trained(row, kulynych.split_of(seed), seed, **steps)["accuracy_disparity"]


def scaled(x, low, high):
    """Return the four numbers in [0, 1], the rest as it is."""
    return np.column_stack([(x[:, :4] - low) / (high - low), x[:, 4:]]).astype(np.float32)


CASES = (
    ("Adult, DPSGD: loss of men", "women and people not white are 1", coding, {"reversed_": False}),
    ("Adult, DPSGD: loss of men", "men and whites are 1", coding, {"reversed_": True}),
    (
        "Dutch, SGD: accuracy of men (%)",
        "`train_test_split(random_state=seed)`",
        splitting,
        {"permuted": False},
    ),
    (
        "Dutch, SGD: accuracy of men (%)",
        "numpy's permutations of the same seeds",
        splitting,
        {"permuted": True},
    ),
    *(
        (
            f"Kulynych et al., {row}: disparity",
            f"numbers {how}",
            scaling,
            {"row": row, "unit": unit},
        )
        for row in ("dpsgd", "dp_is_sgd")
        for how, unit in (("z-scored", False), ("in [0, 1]", True))
    ),
    *(
        (f"Kulynych et al., {row}: disparity", how, stepping, {"row": row, **steps})
        for row in ("sgd", "dpsgd", "dpsgd_f")
        for how, steps in (
            ("learning rate .1, no momentum", {"momentum": 0.0}),
            ("learning rate .01, no momentum", {"momentum": 0.0, "lr": 0.01}),
        )
    ),
)


def one(case, seed):
    torch.set_num_threads(1)
    what, how, measure, params = CASES[case]
    return what, how, seed, measure(seed, **params)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=-1)
    options = parser.parse_args()
    tasks = (joblib.delayed(one)(c, s) for c in range(len(CASES)) for s in range(options.seeds))
    found = joblib.Parallel(n_jobs=options.jobs)(tasks)
    frame = pd.DataFrame(found, columns=["what", "how", "seed", "value"])
    frame.to_csv(Path(__file__).parent / "results" / "unstated.csv", index=False)
    rows = []
    for (what, how), values in frame.groupby(["what", "how"], sort=False)["value"]:
        digits = 2 if "%" in what else 3
        mean, error = values.mean(), values.std(ddof=1) / len(values) ** 0.5
        rows.append((what, how, f"{mean:.{digits}f} ± {error:.{digits}f}"))
    lines = pages.table(["measured", "choice", "mean ± standard error"], rows, left=(0, 1))
    print("\n".join(lines))
    pages.put("evidence/reproducibility.md", "unstated", ["", *lines, ""])


if __name__ == "__main__":
    main()
