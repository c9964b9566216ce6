"""
Why one group pays more: excessive risk along training
======================================================

A recorder writes down what clipping adds to each group's loss, step by step, and splits it into an
error of magnitude and one of direction. None of it is private: it is for whoever may see the data.
"""

# %%
# Adult, prepared as in Esipova et al. (2023), men and women in equal numbers, and DPSGD at the
# paper's settings: clipping bound .5, learning rate .01. A look every 200 of the 1,840 steps.

import sys
import warnings

import matplotlib.pyplot as plt

from skdpfair import DPFairClassifier, get_method
from skdpfair.analysis import GroupRecorder
from skdpfair.plotting import (
    CurvatureDisplay,
    GroupLossDisplay,
    RiskBoundDisplay,
    RiskTermsDisplay,
)
from skdpfair.reproduce import prepared

warnings.filterwarnings("ignore", message="random_state=0 makes the noise reproducible")
adult = prepared("adult", seed=0)
recorder = GroupRecorder(every=200, random_state=0)
clf = DPFairClassifier(
    get_method("dpsgd", max_grad_norm=0.5),
    epsilon=None,
    noise_multiplier=1.0,
    delta=1e-6,
    module="mlp",
    lr=0.01,
    batch_size=256,
    max_epochs=20,
    diagnostics=True,
    callbacks=[recorder],
    random_state=0,
)
clf.fit(adult.x, adult.y, sensitive_features=adult.group)
print(clf.privacy_.releasable)  # False: it holds what is not private

# %%
# The men's loss rises while the women's falls.

loss = GroupLossDisplay.from_estimator(clf).plot()

# %%
# Both errors of clipping hurt the men more. The error of magnitude is the larger one at every look
# (a longer step would make up for it); noise adds next to nothing in one step.

terms = RiskTermsDisplay(clf.diagnostics_).plot()

# %%
# How much more the men are hurt, with the lower bounds of Tran et al. and of Proposition 3.

bounds = RiskBoundDisplay(recorder.pairs_, "male", "female").plot()

# %%
# The learning rate is far below the limit up to which the bounds are theorems, for convex losses.

curvature = CurvatureDisplay(clf.diagnostics_).plot()

if len(sys.argv) > 1:  # a folder for the pictures of the docs
    terms.figure_.savefig(f"{sys.argv[1]}/risk_terms.png", dpi=110)
    bounds.figure_.savefig(f"{sys.argv[1]}/risk_bounds.png", dpi=110)
else:
    plt.show()
