"""Counts of values outside public facts, for those who may look at the rows."""

import pandas as pd
import pytest

from skdpfair.preprocessing import outside_public

ROWS = pd.DataFrame({"age": [30, 150, None, 40], "ward": [1, "2.0", "3", None]})


def test_outside_public_counts_what_is_missing_and_what_is_outside():
    found = outside_public(ROWS, {"age": (0, 120)}, {"ward": ["1", 2]})
    assert found.to_dict("index") == {
        "age": {"missing": 0.25, "outside": 0.25, "example": 150},
        "ward": {"missing": 0.25, "outside": 0.25, "example": "3"},
    }
    assert outside_public(ROWS, {"age": (30, 150)})["example"].tolist() == [None]


@pytest.mark.parametrize(
    ("table", "error"),
    [
        (ROWS.to_numpy(), TypeError),
        (ROWS[["age"]], ValueError),
        (ROWS[["age", "ward", "ward"]], ValueError),
    ],
    ids=["array", "lacking", "twice"],
)
def test_outside_public_needs_each_column_once(table, error):
    with pytest.raises(error, match="table"):
        outside_public(table, {"age": (0, 120)}, {"ward": ["1", "2"]})
