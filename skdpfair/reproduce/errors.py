"""Table 1 of Esipova et al.: direction error of clipping against magnitude error, on MNIST."""

import numpy as np
import torch

from skdpfair.analysis import train_with_error
from skdpfair.methods import get_method
from skdpfair.networks import small_cnn
from skdpfair.plotting._axes import PALETTE, dress
from skdpfair.reproduce import _data
from skdpfair.reproduce._study import (
    LOSS,
    POINTS,
    Run,
    Study,
    cell,
    cells_of,
    claim,
    rows_of,
    same_in_print,
)

EPOCHS, BOUND = 60, 1.0
_ROWS = {  # error, learning rate
    "magnitude lr .01": ("magnitude", 0.01),
    "direction lr .01": ("direction", 0.01),
    "magnitude lr 3": ("magnitude", 3.0),
    "direction lr .05": ("direction", 0.05),
    "direction lr .1": ("direction", 0.1),
}
_PRINTED = {  # accuracy on classes 2 and 8, loss on 2 and 8; without standard errors
    "magnitude lr 3": (99.0, 93.5, 0.002, 0.005),
    "direction lr .05": (96.8, 84.1, 0.076, 0.518),
}
_MEASURES = ("accuracy_2", "accuracy_8", "loss_2", "loss_8")


def runs(options):
    """Return a run for each error and seed."""
    settings = {"epochs": options.epochs or EPOCHS, "C": BOUND}
    return [
        Run(row, seed, settings | {"error": error, "lr": lr})
        for row, (error, lr) in _ROWS.items()
        if options.rows is None or row in options.rows
        for seed in options.seeds
    ]


def measure(run, device):
    """Train with one error; return accuracies and running losses of classes 2 and 8."""
    split = _data.mnist(run.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.seed)
        module = small_cnn((28, 28), 10).to(device)
    trained = train_with_error(
        module,
        split.x,
        split.y,
        get_method("dpsgd", max_grad_norm=run.settings["C"]),
        error=run.settings["error"],
        lr=run.settings["lr"],
        n_epochs=run.settings["epochs"],
        sensitive_features=split.group,
        random_state=run.seed,
    )
    with torch.no_grad():
        x = torch.from_numpy(split.x_test).to(device)
        predicted = torch.cat([trained.module(part).argmax(1) for part in x.split(1000)])
    right = predicted.cpu().numpy() == split.y_test
    found = {}
    for digit in (2, 8):
        found[f"accuracy_{digit}"] = 100 * float(right[split.y_test == digit].mean())
        found[f"loss_{digit}"] = float(trained.losses.loc[str(digit), "loss"])
    return found


def cells(frame, options):
    """Compare with the table."""
    found = []
    for row in _ROWS:
        paper = _PRINTED.get(row, (np.nan,) * len(_MEASURES))
        own = frame[frame["row"] == row]
        for measure, value in zip(_MEASURES, paper, strict=True):
            if len(own):
                rule = LOSS if measure.startswith("loss") else POINTS
                found.append(cell(row, measure, own[measure], value, np.nan, rule))
    return cells_of(found)


def claims(frame, options):
    """Judge what Table 1 is printed for, at one rate and at rates that suit each error."""
    rows, found = rows_of(frame), []
    pairs = {
        "at learning rate .01": ("magnitude lr .01", "direction lr .01"),
        "each at a rate that suits it": ("magnitude lr 3", "direction lr .05"),
    }
    for when, (magnitude, direction) in pairs.items():
        if magnitude not in rows or direction not in rows:
            continue
        lost = rows[magnitude] - rows[direction]
        words = f"{when}, direction error costs class 8 more {{}} than magnitude error does"
        found += [
            claim(words.format("accuracy"), lost["accuracy_8"]),
            claim(words.format("loss"), -lost["loss_8"], unit="nats"),
        ]
    return found


def notes(options):
    """Return what a reader must know."""
    return [
        "Plain steps on batch gradients, without noise: magnitude is |gbar|/|g| g, direction is "
        f"|g|/|gbar| gbar (Appendix B.4), C = {BOUND:g}.",
        "The paper names no learning rate for this table. Its magnitude row (loss .002 and .005) "
        "is better than its own plain SGD at .01 (.06 and .32, Table 2), although steps with a "
        "magnitude error are shorter: the rate of the other tables cannot have been used. Here "
        "the errors are compared at that rate, and at the largest rate tried at which no seed of "
        "ten epochs diverges: steps with an error of magnitude are short and bear 3; those with an "
        "error of direction bear .05, and diverge at .1 in one seed of five, though the other four "
        "do better there than at .05.",
        *same_in_print(options),
    ]


def draw(frame, cells):
    """Draw each run: accuracy, and loss on a log scale, which holds those that diverged."""
    import matplotlib.pyplot as plt

    names = [row for row in _ROWS if (frame["row"] == row).any()][::-1]
    drawn, axes = plt.subplots(1, 2, figsize=(9.5, 3.4), layout="constrained", sharey=True)
    titles = {
        "accuracy": "Accuracy (%), test records",
        "loss": "Loss (nats, log), last epoch",
    }
    for ax, (measure, title) in zip(axes, titles.items(), strict=True):
        for colour, digit, shift in zip(PALETTE, (2, 8), (0.15, -0.15), strict=False):
            for place, row in enumerate(names):
                values = frame.loc[frame["row"] == row, f"{measure}_{digit}"]
                label = f"class {digit}, a point per run" if place == 0 else None
                heights = [place + shift] * len(values)
                ax.plot(values, heights, "o", color=colour, alpha=0.7, markersize=5, label=label)
        ax.set_yticks(range(len(names)), names)
        ax.set_ylim(-0.6, len(names) - 0.4)
        dress(ax, title, grid="both", pad=6)
    axes[1].set_xscale("log")
    drawn.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=2, frameon=False
    )
    return drawn


STUDIES = (
    Study(
        name="esipova-table1",
        title="MNIST with 9 % of the eights: direction error against magnitude error",
        source="Esipova et al., ICLR 2023, Table 1",
        runs=runs,
        measure=measure,
        cells=cells,
        rows=tuple(_ROWS),
        epochs=EPOCHS,
        notes=notes,
        claims=claims,
        draw=draw,
    ),
)
