"""
What privacy costs women and men
================================

A private model is less accurate than the same model without privacy. This example measures how much
accuracy women and men lose, at three privacy budgets.

This example is for research: do not copy it for private data.
"""

# %%
# The data are 20,000 records of Adult, encoded by public bounds and categories. A sweep trains the
# default method at three budgets, and a reference model without privacy, in five runs each. Every
# run splits the records anew: 16,000 for training, 4,000 for tests.

import matplotlib.pyplot as plt

from skdpfair.datasets import load_adult, public_facts
from skdpfair.model_selection import sweep
from skdpfair.preprocessing import public_preprocessor
from skdpfair.report import PrivacyCostDisplay

adult = load_adult(dropna=True).frame.head(20_000)
X = public_preprocessor(**public_facts("adult")).fit_transform(adult)
results = sweep(
    X,
    adult["income"],
    sensitive_features=adult["sex"],
    methods=["global_adapt"],
    epsilons=[0.3, 1.0, 3.0],
    seeds=5,
    progress=False,
)

# %%
# The cost of privacy is the accuracy of the reference model minus the accuracy of the private
# model.

costs = results.estimates().xs("global_adapt", level="method")
costs.index = [f"ε = {epsilon:g}" for epsilon in costs.index]
columns = ["privacy_cost[Female]", "privacy_cost[Male]", "privacy_cost_difference"]
print((100 * costs[columns].T.drop(["kind", "n"], level=1).astype(float)).round(1))

# %%
# The lines are 95 % intervals over the runs. At epsilon 1, men lose more accuracy than women. At
# epsilon 3, all intervals contain zero, so the costs may be chance. The figure is not private.

figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
PrivacyCostDisplay(costs.xs("mean", axis=1, level=1).astype(float), costs).plot(ax)

# sphinx_gallery_start_ignore
import sys

if len(sys.argv) > 1:  # a folder for the picture of the docs
    figure.savefig(f"{sys.argv[1]}/costs.png", dpi=150)
# sphinx_gallery_end_ignore
