"""Lower bounds of the audits beside the claims: single steps, and fits on Adult with canaries.

Run ``python -m benchmarks.bench_audit`` (about 20 minutes); it writes the table of docs/audits.md,
benchmarks/results/audit.csv and docs/images/audit.png.  ``--quick`` takes fewer draws and writes
nothing.
"""

import argparse
import warnings
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd

from benchmarks import pages
from skdpfair import METHODS, DPFairClassifier
from skdpfair.audit import audit_fit, audit_step
from skdpfair.datasets import ADULT_BOUNDS, ADULT_CATEGORIES, load_adult
from skdpfair.preprocessing import public_preprocessor

matplotlib.use("Agg")
ROOT = Path(__file__).resolve().parents[1]
PRIVATE = sorted(name for name, method in METHODS.items() if method.private)
# one layer, given step sizes: what the attack sees best
STRONG = {"module": "logistic", "lr": 2.0, "batch_size": 500, "max_steps": 400}


def steps(n_draws):
    """Yield one row a method: what a step at noise 1 claims, and the lower bound."""
    for name in PRIVATE:
        found = audit_step(name, n_draws=n_draws, random_state=0)
        yield "step", name, "noise 1", found.epsilon_claimed, found.epsilon_lower


def fits(n_records, n_canaries):
    """Yield one row a method and epsilon: what a fit on Adult claims, and the lower bound."""
    data = load_adult(subset="train")
    X = public_preprocessor(ADULT_BOUNDS, ADULT_CATEGORIES, encoding="linear").fit_transform(
        data.data
    )[:n_records]
    y = data.target.to_numpy()[:n_records]
    sex = data.sensitive_features["sex"].to_numpy()[:n_records]
    for name in PRIVATE:
        for epsilon in (1.0, 4.0, 16.0):
            clf = DPFairClassifier(name, epsilon=epsilon, random_state=0, **STRONG)
            found = audit_fit(clf, X, y, n_canaries, sensitive_features=sex, random_state=0)
            yield "fit", name, f"epsilon {epsilon:g}", found.epsilon_claimed, found.epsilon_lower


def markdown(table):
    """Return the lines of a table with one row a method: lower bound / claim."""
    settings = list(dict.fromkeys(zip(table["kind"], table["setting"], strict=True)))
    lines = []
    for name, rows in table.groupby("method"):
        cells = [
            f"{row.lower:.2f} / {row.claimed:.2f}"
            for kind, setting in settings
            for row in rows[(rows["kind"] == kind) & (rows["setting"] == setting)].itertuples()
        ]
        lines.append([f"`{name}`", *cells])
    return pages.table(["method", *map(", ".join, settings)], lines)


def draw(table, path):
    """Draw each method's lower bounds: of a step beside its claim, of fits by their claims."""
    from skdpfair.plotting._axes import PALETTE, new_axes

    left, right = new_axes(10, 4.2, 2)
    names = sorted(table["method"].unique(), reverse=True)
    at = {name: i for i, name in enumerate(names)}
    step, fit = (table[table["kind"] == kind] for kind in ("step", "fit"))
    rows = step["method"].map(at)
    left.plot(step["lower"], rows, "o", color=PALETTE[0], label="lower bound by the audit")
    left.plot(step["claimed"], rows, "|", color="0.2", markersize=16, label="claim")
    for i, (claim, part) in enumerate(fit.groupby(fit["claimed"].round())):
        look = {"marker": "os^"[i], "linestyle": "", "color": PALETTE[i]}
        right.plot(part["lower"], part["method"].map(at), label=f"claim {claim:g}", **look)
    left.set_title("A step at noise multiplier 1", loc="left")
    right.set_title("A fit on Adult, 1,000 canaries", loc="left")
    for ax, label in ((left, "epsilon of a step"), (right, "lower bound of epsilon by the audit")):
        ax.set(xlabel=label, yticks=range(len(names)), yticklabels=names)
        ax.set(
            xlim=(0, (1.3 if ax is left else 1.55) * ax.dataLim.x1), ylim=(-0.6, len(names) - 0.4)
        )
        ax.grid(axis="x", color="0.9")
        ax.set_axisbelow(True)
    left.legend(frameon=False, loc="lower left", fontsize="small")
    right.legend(frameon=False, loc="center right", fontsize="small")
    left.figure.savefig(path, dpi=150)


def main():
    """Audit, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    warnings.simplefilter("ignore")
    rows = []
    for row in (*steps(500 if quick else 20_000), *fits(*(2000, 200) if quick else (10_000, 1000))):
        rows.append(row)
    table = pd.DataFrame(rows, columns=["kind", "method", "setting", "claimed", "lower"])
    lines = markdown(table)
    print("\n".join(lines))
    assert (table["lower"] <= table["claimed"]).all()
    assert np.isfinite(table["claimed"]).all()
    if not quick:
        table.round(4).to_csv(ROOT / "benchmarks" / "results" / "audit.csv", index=False)
        pages.put("audits.md", "audit", lines)
        draw(table, ROOT / "docs" / "images" / "audit.png")


if __name__ == "__main__":
    main()
