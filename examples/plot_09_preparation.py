"""
Prepare a table within the privacy budget
=========================================

A ``StandardScaler`` computes the mean of private rows, and the epsilon of the classifier does not
cover this. A linter finds such steps. Use public bounds or noisy quantiles instead.
"""

# %%
# The pipeline scales two columns of 8,000 rows of Adult in the usual way. ``lint_pipeline``
# inspects the steps and does not fit them.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdpfair import DPFairClassifier
from skdpfair.budget import PrivacyLedger
from skdpfair.datasets import load_adult
from skdpfair.preprocessing import BoundedScaler, DPQuantileScaler, lint_pipeline

adult = load_adult(subset="train").frame.head(8000)
X, y = adult[["age", "hours_per_week"]], adult["income"]
clf = DPFairClassifier("dpsgd", epsilon=1.0)
print(lint_pipeline(make_pipeline(StandardScaler(), clf)))

# %%
# Public bounds cost no privacy: almost nobody is older than 120, and no week has more than 168
# hours. Values beyond a bound are moved to it. Bounds that were computed from the rows are not
# public, and no tool can detect them.

bounds = {"age": (0, 120), "hours_per_week": (0, 168)}
by_bounds = BoundedScaler(bounds).fit(X)
print(lint_pipeline(make_pipeline(by_bounds, clf)))

# %%
# Such bounds may lie far from most values, which then occupy a small part of the scale.
# ``DPQuantileScaler`` estimates two quantiles of each column from noisy counts of the rows
# between the bounds, and scales by these quantiles. Its epsilon adds to that of the classifier. A
# ledger that is open during both fits computes the total.

pipeline = make_pipeline(DPQuantileScaler(bounds, epsilon=0.5, quantiles=(0.05, 0.95)), clf)
print(lint_pipeline(pipeline))
path = Path(tempfile.mkdtemp()) / "budget.jsonl"
with PrivacyLedger(path, epsilon=2.0, delta=1e-5) as ledger:
    pipeline.fit(X, y)
by_quantiles, fitted = pipeline
print(f"scaler {by_quantiles.privacy_.epsilon:.3f}, classifier {fitted.privacy_.epsilon:.3f}")
print(f"both together: {ledger.epsilon():.3f}")

# %%
# The table compares the noisy quantiles with the exact ones, which are not private, in years and
# in hours. The noise affects the ranks: where rows are sparse, a small error in rank is a large
# error in years or hours.

exact = X.quantile([0.05, 0.95]).T.to_numpy()
columns = pd.MultiIndex.from_product([["exact", "noisy"], ["5 %", "95 %"]])
found = pd.DataFrame(np.hstack([exact, by_quantiles.quantiles_]), X.columns, columns)
print(found.round(1))

# %%
# The figure shows each column between its public bounds, and the part that the noisy quantiles
# map to the whole scale. Records beyond this part are moved to its ends. The histograms are not
# private.

figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
units = {"age": "age (years)", "hours_per_week": "work (hours a week)"}
for ax, (column, name) in zip(axes, units.items(), strict=True):
    ax.hist(X[column], bins=40, range=bounds[column], color="0.75", label="records")
    ax.axvspan(*found.loc[column, "noisy"], color="#0072B2", alpha=0.15, zorder=0)
    for kind, colour, style, width in (("exact", "black", "-", 3.5), ("noisy", "#56B4E9", "--", 2)):
        for place, label in zip(found.loc[column, kind], (f"{kind} quantiles", None), strict=True):
            ax.axvline(place, color=colour, linestyle=style, linewidth=width, label=label)
    ax.set(xlabel=f"{name}, between its bounds", ylabel="number of records", xlim=bounds[column])
axes[1].legend(frameon=False)
figure.suptitle("5 % and 95 % quantiles, exact and at epsilon 0.5", x=0.02, ha="left")
