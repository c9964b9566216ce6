"""Robust overfitting of adversarial training, and the effect of gradient noise on it, on digits.

python -m benchmarks.bench_adversarial [--seeds 5]
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_digits

from benchmarks import pages
from skdpfair import MLP, DPFairClassifier, Factory, get_method
from skdpfair.augmentations import PGD

RADIUS, N_TRAIN, EPOCHS, FEW_EPOCHS = 0.15, 300, 300, 40
NOISES = (0.0, 0.003, 0.01, 0.03, 0.1, 0.2)
COLUMNS = {
    "robust_train": "robust, train",
    "robust_test": "robust, test",
    "robust_gap": "robust gap",
    "train": "clean, train",
    "test": "clean, test",
}


def model(noise, epochs, seed):
    return DPFairClassifier(
        get_method("sgd", gradient_noise=noise),
        epsilon=None,
        module=MLP((256,), activation="relu"),
        attack=PGD(RADIUS, n_steps=5),
        optimizer=Factory("SGD", momentum=0.9),
        lr=0.1,
        batch_size=100,
        max_epochs=epochs,
        random_state=seed,
    )


def measure(noise, epochs, seed):
    digits = load_digits()
    x, y = (digits.images / 16).astype(np.float32), digits.target
    rows = np.random.default_rng(seed).permutation(len(y))
    train, test = rows[:N_TRAIN], rows[N_TRAIN:]
    start = time.process_time()
    clf = model(noise, epochs, seed).fit(x[train], y[train])
    seconds = time.process_time() - start
    attack = PGD(RADIUS, n_steps=20)  # stronger than the one trained against
    found = {"noise": noise, "epochs": epochs, "seed": seed, "s": round(seconds, 1)}
    for name, part in (("train", train), ("test", test)):
        found[name] = 100 * clf.score(x[part], y[part])
        attacked = attack(clf.net_.module_, torch.from_numpy(x[part]), torch.from_numpy(y[part]))
        found[f"robust_{name}"] = 100 * clf.score(attacked.numpy(), y[part])
    return found | {"robust_gap": found["robust_train"] - found["robust_test"]}


def table(rows):
    lines = []
    for (epochs, noise), part in rows.groupby(["epochs", "noise"]):
        cells = [f"{part[c].mean():.1f} ± {part[c].sem(ddof=1):.1f}" for c in COLUMNS]
        early = " (stopped early)" if epochs == FEW_EPOCHS else ""
        lines.append([f"{noise:g}", f"{epochs}{early}", *cells])
    return pages.table(["gradient noise", "epochs", *COLUMNS.values()], lines, left=())


def draw(rows, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    levels = [str(f"{noise:g}") for noise in NOISES]
    long = rows[rows.epochs == EPOCHS].groupby("noise")
    early = rows[rows.epochs == FEW_EPOCHS]
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    named = {"robust_gap": "robust gap, train minus test", "robust_test": "robust accuracy, test"}
    for ax, (column, name) in zip(axes, named.items(), strict=True):
        mean, error = long[column].mean(), long[column].sem(ddof=1)
        ax.errorbar(levels, mean, error, marker="o", color="#0072B2", capsize=3, label="all epochs")
        ax.axhline(
            early[column].mean(),
            color="#E69F00",
            linestyle="--",
            label=f"no noise, stopped after {FEW_EPOCHS} epochs",
        )
        ax.set(ylim=(0, None), xlabel="gradient noise (standard deviation)")
        ax.set_title(name + " (percentage points)", loc="left", fontsize=10)
        ax.grid(axis="y", color="0.88")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, metadata={"Software": None})


def main():
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=here / "results")
    parser.add_argument("--images", type=Path, default=here.parent / "docs" / "images")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = []
    for noise, epochs in [(0.0, FEW_EPOCHS), *((noise, EPOCHS) for noise in NOISES)]:
        rows += [measure(noise, epochs, seed) for seed in range(options.seeds)]
        print(pd.DataFrame(rows[-options.seeds :]).mean().round(2).to_dict(), flush=True)
    rows = pd.DataFrame(rows)
    lines = table(rows)
    print("\n".join(lines))
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "adversarial.md").write_text("\n".join(lines) + "\n")
    if options.output == here / "results":
        pages.put("evidence/measurements.md", "adversarial", lines)
    found = rows.round(3).to_dict("records")
    (options.output / "adversarial.json").write_text(json.dumps(found, indent=0) + "\n")
    draw(rows, options.images / "robust_gap.png")


if __name__ == "__main__":
    main()
