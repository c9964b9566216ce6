"""Data and printed cells in the study of Xu et al."""

import pandas as pd
import pytest

from benchmarks.papers import STUDIES, Options, compare, xu


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("name, width", [("adult", 40), ("dutch", 35)])
def test_split_of_has_the_printed_columns(name, width):
    split = xu.split_of(name, 0)
    assert (split.x.shape[1], split.x.max()) == (width, 1) and split.x.min() >= 0


def test_tables_2_and_3_compare_with_the_printed_cells():
    groups = {"loss[M]": 0.68, "loss[F]": 0.31, "norm[M]": 0.41, "norm[F]": 0.12}
    runs = pd.DataFrame([{"row": "adult/dpsgd", "seed": seed} | groups for seed in (0, 1)])
    found = compare(STUDIES["xu-table2"], Options(seeds=(0, 1)), runs)
    assert found.cells["verdict"].tolist() == ["same"] * 4
    columns = ["row", "accuracy[all]", "accuracy[2]", "accuracy[8]"]
    rows = ["sgd", 98.55, 99.03, 92.92], ["dpsgd, C = 3", 94.65, 96.71, 72.79]
    frame = pd.DataFrame(rows, columns=columns).assign(seed=0)
    found = compare(STUDIES["xu-table3"], Options(seeds=(0,)), frame)
    assert found.cells["verdict"].tolist() == ["same"] * 6
