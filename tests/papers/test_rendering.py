"""Figures of comparisons."""

import numpy as np
import pandas as pd

from benchmarks.papers import STUDIES, Options, compare, rendering


def test_figure_leaves_out_a_cell_that_was_not_measured():
    runs = {"row": "sgd", "seed": [0, 1], "accuracy_disparity": [np.nan, 0.6]}
    frame = pd.DataFrame(runs | {"overall_accuracy": 0.8})
    found = compare(STUDIES["kulynych-table9"], Options(seeds=(0, 1), rows=("sgd",)), frame)
    assert found.cells["verdict"].tolist() == ["not measured", "differs"]
    rendering.figure(found).clear()
