"""Finished cells, as a sweep stores them -> a tidy frame, and predictions."""

import numpy as np
import pandas as pd

OVERALL = "overall"


def frame_of(cells, levels):
    """Return one row per cell and group, with costs against the twin of the same split."""
    frame = pd.DataFrame([row for cell in cells for row in _rows(cell, levels)])
    if frame.empty:
        raise ValueError("The sweep has no finished cell yet. Let it run for longer.")
    at = ["seed", "fold", "twin", "group"]
    twins = frame[frame["twin"].isna()].assign(twin=lambda rows: rows["method"])
    reference = twins.set_index(at)["accuracy"]
    own = frame["twin"].fillna(frame["method"])
    index = pd.MultiIndex.from_frame(frame.assign(twin=own)[at])
    cost = reference.reindex(index).to_numpy() - frame["accuracy"]
    frame.insert(frame.columns.get_loc("accuracy") + 1, "privacy_cost", cost)
    return frame.drop(columns="twin")


def predictions_of(cells, levels, classes):
    """Return the predictions of each cell that kept them, by method, epsilon, seed and fold."""
    return {
        _key(cell): _predictions(cell["predictions"], levels, classes)
        for cell in cells
        if "predictions" in cell
    }


def releases_of(cells):
    """Return what each cell released, one row per kind of release."""
    rows = [
        (*_key(cell), *run)
        for cell in cells
        for run in cell.get("runs", ())
        if cell["epsilon"] is not None
    ]
    columns = ["method", "epsilon", "seed", "fold", "sample_rate", "noise_multiplier", "steps"]
    return pd.DataFrame(rows, columns=columns)


def _rows(cell, levels):
    """Return a cell's rows of the frame."""
    method, epsilon, seed, fold = _key(cell)
    columns = (cell[name] for name in ("n", "right", "n_train", "right_train"))
    for group, n, right, n_train, seen in zip([OVERALL, *levels], *columns, strict=True):
        accuracy = right / n if n else np.nan
        yield {
            "method": method,
            "epsilon": epsilon,
            "seed": seed,
            "fold": fold,
            "group": group,
            "n": n,
            "accuracy": accuracy,
            "dg_gap": seen / n_train - accuracy if n_train else np.nan,
            "epsilon_spent": cell["epsilon_spent"],
            "fit_seconds": cell["fit_seconds"],
            "twin": cell["twin"],
        }


def _key(cell):
    epsilon = np.inf if cell["epsilon"] is None else cell["epsilon"]
    return cell["method"], epsilon, cell["seed"], cell["fold"]


def _predictions(kept, levels, classes):
    true, predicted = (classes[np.asarray(kept[k])] for k in ("true", "predicted"))
    group = np.asarray(levels, dtype=object)[kept["group"]]
    return pd.DataFrame({"y_true": true, "y_pred": predicted, "group": group})
