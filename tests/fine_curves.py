"""A table in which exact amounts matter, and models of it, which tests of two files share."""

import numpy as np
import pandas as pd

from skdpfair import DPFairClassifier
from skdpfair.preprocessing import TableSchema

SCHEMA = TableSchema(
    target="y", classes=["no", "yes"], bounds={"age": (18, 98), "pay": (0, 1e6), "rent": (0, 1e4)}
)
N = 12_000
FIXED = SCHEMA.with_fixed_encoding(N, epsilon=3.0)


def made(n=N):
    """A table in which exact amounts of pay decide, and rent acts smoothly."""
    rng = np.random.default_rng(0)
    popular = np.round(np.exp(rng.uniform(3, 13, 40)))
    which, age, rent, noise = rng.uniform(size=(n, 4)).T
    which, rent = (40 * which).astype(int), np.exp(4 + 4 * rent)
    score = 3.0 * (which % 2) + np.log(rent) - 7.5 + np.log(noise / (1 - noise))
    label = np.where(score > 0, "yes", "no")
    return pd.DataFrame({"age": 18 + 80 * age, "pay": popular[which], "rent": rent, "y": label})


def private(**params):
    return DPFairClassifier("dpsgd", **{"epsilon": 3.0, "random_state": 0} | params)


def fine(model):
    return model.net_.module.params["fine"]


def releases(report):
    return [entry.what for entry in report.releases]
