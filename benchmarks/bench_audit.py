"""How close the audits come to the claims: single steps, and whole fits on Adult with canaries.

Run ``python benchmarks/bench_audit.py`` (about 20 minutes); it writes the table of docs/audits.md,
benchmarks/results/audit.csv and docs/images/audit.png.  ``--quick`` takes fewer draws and writes
nothing.
"""

import argparse
import warnings
from pathlib import Path

import matplotlib
import numpy as np
import pages
import pandas as pd

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
    X = public_preprocessor(ADULT_BOUNDS, ADULT_CATEGORIES).fit_transform(data.data)[:n_records]
    y = data.target.to_numpy()[:n_records]
    sex = data.sensitive_features["sex"].to_numpy()[:n_records]
    for name in PRIVATE:
        for epsilon in (1.0, 4.0, 16.0):
            clf = DPFairClassifier(name, epsilon=epsilon, random_state=0, **STRONG)
            found = audit_fit(clf, X, y, n_canaries, sensitive_features=sex, random_state=0)
            yield "fit", name, f"epsilon {epsilon:g}", found.epsilon_claimed, found.epsilon_lower


def markdown(table):
    """Yield the lines of a table with one row a method: lower bound / claim."""
    settings = list(dict.fromkeys(zip(table["kind"], table["setting"], strict=True)))
    yield "| method | " + " | ".join(f"{kind}, {setting}" for kind, setting in settings) + " |"
    yield "| --- |" + " ---: |" * len(settings)
    for name, rows in table.groupby("method"):
        cells = [
            f"{row.lower:.2f} / {row.claimed:.2f}"
            for kind, setting in settings
            for row in rows[(rows["kind"] == kind) & (rows["setting"] == setting)].itertuples()
        ]
        yield f"| `{name}` | " + " | ".join(cells) + " |"


def draw(table, path):
    """Draw the lower bounds against the claims."""
    from skdpfair.plotting._axes import PALETTE, new_axes

    axes = new_axes(10, 4.6, 2)
    titles = {"step": "A step at noise multiplier 1", "fit": "A fit on Adult, 1000 canaries"}
    for ax, (kind, title) in zip(axes, titles.items(), strict=True):
        part = table[table["kind"] == kind]
        top = 1.05 * part["claimed"].max()
        ax.plot([0, top], [0, top], color="0.4", linewidth=1)
        ax.text(0.72 * top, 0.77 * top, "claim", rotation=38, color="0.3", ha="center")
        for i, (name, rows) in enumerate(part.groupby("method")):
            look = {"marker": "os^Dv"[i // 2], "color": PALETTE[i % len(PALETTE)]}
            ax.plot(rows["claimed"], rows["lower"], linestyle="", label=name, alpha=0.8, **look)
        ax.set(xlabel="claimed epsilon", ylabel="lower bound by the audit", xlim=0, ylim=0)
        ax.set_title(title, loc="left")
    axes[1].legend(frameon=False, ncols=2, fontsize="small")
    axes[0].figure.savefig(path, dpi=150)


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
    lines = list(markdown(table))
    print("\n".join(lines))
    assert (table["lower"] <= table["claimed"]).all()
    assert np.isfinite(table["claimed"]).all()
    if not quick:
        table.round(4).to_csv(ROOT / "benchmarks" / "results" / "audit.csv", index=False)
        pages.put("audits.md", "audit", lines)
        draw(table, ROOT / "docs" / "images" / "audit.png")


if __name__ == "__main__":
    main()
