"""
Excessive risk of each group during training
============================================

A recorder measures how much clipping adds to the loss of each group in a step, and splits this
amount into a magnitude error and a direction error. The results are not private: show them only to
people who may see the data.

This example is for research: do not copy it for private data.
"""

# %%
# The data are Adult, prepared as in Esipova et al. (2023), with equal numbers of men and women. The
# method is DPSGD with the settings of the paper: clipping bound .5, learning rate .01. The recorder
# measures every 400 of the 1,840 steps, and curvature on 100 records of each group.

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from skdpfair import DPFairClassifier, get_method
from skdpfair.analysis import GroupRecorder
from skdpfair.datasets import load_adult, public_facts
from skdpfair.report import GroupLossDisplay

warnings.filterwarnings("ignore", message="random_state=0 makes the noise reproducible")
table = load_adult(dropna=True).frame.drop(columns="fnlwgt")
y = (table.pop("income") == ">50K").to_numpy().astype(int)
women = (table.pop("sex") == "Female").to_numpy()
numbers = table[list(public_facts("adult")["bounds"])]
# z-scored by the statistics of all rows, as in the paper: no epsilon covers this leak
numbers = (numbers - numbers.mean()) / numbers.std(ddof=0)
not_white = (table.pop("race") != "White").to_numpy()
one_hot = pd.get_dummies(table.drop(columns=list(public_facts("adult")["bounds"])).astype(str))
x = np.column_stack([numbers, one_hot, not_white, women]).astype(np.float32)
sex = np.where(women, "female", "male")
chance = np.random.default_rng(0).random(len(y))
balanced = np.flatnonzero(women | (chance < women.sum() / (~women).sum()))
train, _ = train_test_split(balanced, test_size=0.2, random_state=0)
recorder = GroupRecorder(every=400, curvature_records=100, random_state=0)
clf = DPFairClassifier(
    get_method("dpsgd", max_grad_norm=0.5),
    epsilon=None,
    noise_multiplier=1.0,
    delta=1e-6,
    module="mlp",
    lr=0.01,
    batch_size=256,
    max_epochs=20,
    callbacks=[recorder],
    random_state=0,
)
clf.fit(x[train], y[train], sensitive_features=sex[train])
print(clf.privacy_.releasable)  # False: the estimator holds results that are not private

# %%
# The loss of the men first rises while the network saturates, and then falls. The loss of the women
# falls first. At the end, the loss of the men is higher than at the start, and the loss of the
# women is lower.

loss = GroupLossDisplay.from_estimator(clf).plot()

# %%
# At all measurements except the first, clipping adds more to the loss of the men than to the loss
# of the women. Noise adds almost nothing in one step. A longer step could compensate the magnitude
# error, but not the direction error. The split depends on the order: the terms without a star
# change the length of the step first, the terms with a star change its direction first.

terms = GroupLossDisplay(clf.diagnostics_, ["direction", "magnitude", "noise"]).plot()
columns = ["clip", "magnitude", "direction", "magnitude_star", "direction_star"]
men = clf.diagnostics_.query("group == 'male'").set_index("step")[columns]
print((1000 * men).round(2))  # in thousandths of a nat

# %%
# The figure shows the differences between men and women.

risks = clf.diagnostics_.pivot(index="step", columns="group")
figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
for ax, term in zip(axes, ("clip", "direction"), strict=True):
    (risks[term, "male"] - risks[term, "female"]).plot(ax=ax, ylabel="men minus women, nats")
    ax.set_title(f"Difference in {term} (not private)", loc="left")
    ax.axhline(0.0, color="0.6", linewidth=0.8)

# %%
# The figure shows the curvature of the loss of each group, "lambda max". The papers prove bounds on
# the difference for convex losses, if the learning rate is below a limit. Here the learning rate is
# far below this limit.

curvature = GroupLossDisplay(clf.diagnostics_, ["lambda_max"]).plot()
curvature.axes_[0].axhline(1 / clf.lr_, color="0.3", linestyle="--", label="1 / learning rate")
curvature.axes_[0].set_yscale("log")
curvature.axes_[0].legend()

# sphinx_gallery_start_ignore
import sys

if len(sys.argv) > 1:  # a folder for the pictures of the docs
    terms.figure_.savefig(f"{sys.argv[1]}/risk_terms.png", dpi=110)
# sphinx_gallery_end_ignore
