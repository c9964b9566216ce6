"""What no paper prints: how much of DPSGD's disparity on Adult is the length of its steps."""

import numpy as np

from skdpfair.reproduce import esipova
from skdpfair.reproduce._study import (
    POINTS,
    Run,
    Study,
    cell,
    cells_of,
    claim,
    rows_of,
    same_in_print,
)

# what of DPSGD's disparity on Adult is noise, clipping, or the length of the steps
_STEPS = {
    "sgd, lr .01": ("sgd", 0.01, None),
    "sgd, lr .1": ("sgd", 0.1, None),
    "dpsgd, lr .01": ("dpsgd", 0.01, 1.0),
    "dpsgd, lr .01, no noise": ("dpsgd", 0.01, 0.0),
    "dpsgd, lr .1": ("dpsgd", 0.1, 1.0),
    "dpsgd, lr 1": ("dpsgd", 1.0, 1.0),
    "global_adapt, lr .2": ("global_adapt", 0.2, 1.0),
    "global_adapt, lr 1": ("global_adapt", 1.0, 1.0),
}


def runs(options):
    """Return a run for each method, learning rate and seed."""
    known, epochs = esipova.SETTINGS["adult"], options.epochs or esipova.SETTINGS["adult"]["epochs"]
    found = []
    for row in options.rows or _STEPS:
        method, lr, sigma = _STEPS[row]
        params = known["rows"][method][1] | ({} if sigma is None else {"max_grad_norm": known["C"]})
        settings = {"data": "adult", "epochs": epochs, "method": method, "lr": lr}
        settings |= {"params": params, "sigma": sigma, "printed": False}
        found += [Run(row, seed, settings) for seed in options.seeds]
    return found


def cells(frame, options):
    """Return accuracies and their gap; nothing of it is in print."""
    found = []
    for row in _STEPS:
        own = frame[frame["row"] == row]
        if len(own):
            for group in ("male", "female"):
                values = own[f"accuracy[{group}]"]
                found.append(cell(row, f"accuracy {group}", values, np.nan, np.nan, POINTS))
    return cells_of(found)


def claims(frame, options):
    """Judge what makes DPSGD disparate on Adult: costs against plain SGD at the better rate."""
    rows = rows_of(frame)
    if set(rows) != set(_STEPS):
        return []
    gap = {row: part["accuracy[female]"] - part["accuracy[male]"] for row, part in rows.items()}
    twin = gap["sgd, lr .1"]
    short, long = (gap[f"dpsgd, lr {lr}"] - twin for lr in (".01", "1"))
    noise = gap["dpsgd, lr .01"] - gap["dpsgd, lr .01, no noise"]
    long, noise = (np.sign(values.mean()) * values for values in (long, noise))
    men = rows["sgd, lr .1"]["accuracy[male]"] - rows["dpsgd, lr 1"]["accuracy[male]"]
    return [
        claim("at lr .01 DPSGD costs men more than women", short),
        claim("noise makes less than half a point of that", noise, below=0.5),
        claim("at lr 1, same epsilon, less than a point of it is left", long, below=1),
        claim("and men lose less than half a point to SGD", men, below=0.5),
    ]


STUDIES = (
    Study(
        name="step-size",
        title="Adult: is it noise, clipping, or the length of the steps?",
        source="In no paper; the settings of Esipova et al., Table 4",
        runs=runs,
        measure=esipova.measure,
        cells=cells,
        rows=tuple(_STEPS),
        epochs=20,
        claims=claims,
        notes=same_in_print,
    ),
)
