"""
Accuracy against epsilon: a sweep of methods, budgets and seeds
===============================================================

A sweep trains several methods at several budgets and a non-private reference model, and measures
the cost for each group. It reads the records without noise: use it on public data or for research.

This example is for research: do not copy it for private data.
"""

# %%
# The data are 6,000 rows of Adult, encoded by public bounds and categories. The groups are women
# and men.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

from skdpfair.datasets import load_adult, public_facts
from skdpfair.model_selection import sweep
from skdpfair.preprocessing import public_preprocessor

adult = load_adult(subset="train").frame.head(6000)
preprocessor = public_preprocessor(**public_facts("adult"))
X = preprocessor.fit_transform(adult)

# %%
# The sweep trains three methods at three budgets. A seed determines the split, the weights, the
# batches and the noise, so that all methods are tested on the same records. Use such seeds for
# research only, because anyone who knows a seed can remove the noise. Three seeds keep this example
# short. Five seeds, the default, find more differences.

results = sweep(
    X,
    adult["income"],
    sensitive_features=adult["sex"],
    methods=["dpsgd", "global_adapt", "dpsgd_f"],
    epsilons=[0.5, 2.0, 8.0],
    seeds=3,
    accountant="rdp",
    max_steps=100,
    progress=False,
)
print(results)

# %%
# The figures show the accuracy, and the difference between women and men in the cost of privacy,
# with 95 % intervals. Where intervals overlap, the difference between two methods may be chance.

figure, axes = plt.subplots(2, 1, figsize=(8, 8.5), layout="constrained")
figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)
for ax, measure in zip(axes, ("accuracy", "privacy_cost_difference"), strict=True):
    results.plot(measure, ax=ax)

# %%
# The Pareto front lists the private models that no other private model beats in both measures. It
# compares means only. Other models may be equally good if their intervals overlap.

front = results.pareto_front("accuracy", "privacy_cost_difference")
print((100 * front).round(1).set_axis(["accuracy (%)", "privacy cost gap (points)"], axis=1))

# %%
# ``to_html`` writes the comparison as one page of HTML. Show the page only to people who may see
# the data, because its figures are not private. With ``pipeline=``, the page also contains the
# findings of the linter.

page = Path(tempfile.mkdtemp()) / "report.html"
results.to_html(page, title="Adult, by sex", pipeline=preprocessor)
print(f"{page.name}: {page.stat().st_size / 1024:.0f} KiB, without scripts or requests")
