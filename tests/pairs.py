"""A table in which the product of two numbers and two categories decide, for tests of two files."""

import numpy as np
import pandas as pd

from skdpfair.preprocessing import TableSchema

SCHEMA = TableSchema(
    target="y",
    classes=["no", "yes"],
    groups={"kind": ["left", "right"]},
    bounds=dict.fromkeys("abc", (-1, 1)),
    categories={"kind": ["left", "right"], "ward": ["A", "B", "C"]},
)


def planted(n=8000, seed=0):
    """Return rows of which a and b, and kind and ward, act together."""
    rng = np.random.default_rng(seed)
    x = pd.DataFrame(rng.uniform(-1, 1, (n, 3)), columns=["a", "b", "c"])
    x["kind"], x["ward"] = rng.choice(["left", "right"], n), rng.choice(["A", "B", "C"], n)
    score = 4 * x["a"] * x["b"] + x["c"] + 2 * ((x["kind"] == "left") ^ (x["ward"] == "A")) - 1
    return x.assign(y=np.where(score + rng.logistic(size=n) > 0, "yes", "no"), score=score)


def pairs(model):
    """Return the pairs that a fit chose."""
    return model.net_.module.params.get("pairs", ())
