"""
People who react to the deployed model
======================================

People react to a deployed model, so the model changes the data on which the next one is trained. In
this example, people whom the model denies change their features to reach a favourable decision.
Then a private model is trained on the changed data.

This example is for research: do not copy it for private data.
"""

# %%
# The larger group "a" and the smaller group "b" have different boundaries. Everybody can change the
# features x0 and x1, by a distance of at most 0.3.

import warnings

import matplotlib.pyplot as plt
import numpy as np

from skdpfair import DPFairClassifier
from skdpfair.datasets import make_two_groups
from skdpfair.performative import StrategicResponse, repeated_deployment

warnings.filterwarnings("ignore", message="random_state=0 makes the noise reproducible")
data = make_two_groups(4000, random_state=0)
records = data.data, data.target, data.sensitive_features
people = StrategicResponse(*records, budget=0.3, changeable=["x0", "x1"])

# %%
# Each of five rounds trains a model, deploys it, and lets the people react. ``pcsgd`` is DP-SGD
# that keeps the parameters in a ball. Every round reads the same people, so their epsilon grows.
# The seed makes the numbers equal in every run; never release a model that was trained with a seed.

clf = DPFairClassifier("pcsgd", epsilon=1.0, module="logistic", random_state=0)
rounds = repeated_deployment(clf, people, n_rounds=5)
print(rounds.query("group == 'overall'").drop(columns="group").round(3))

# %%
# The figure compares the accuracy of each model on its training data with its accuracy after people
# have reacted to it. Markers are hollow, because one fit gives no interval.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained", sharey=True)
for ax, group in zip(axes, ["a", "b"], strict=True):
    own = rounds[rounds["group"] == group]
    ax.plot(own["round"], own["accuracy"], "o-", mfc="white", label="before the reaction")
    ax.plot(own["round"], own["accuracy_after"], "o--", mfc="white", label="after the reaction")
    ax.set(title=f"group {group}", xlabel="round", xticks=own["round"])
axes[0].set_ylabel("accuracy")
axes[0].legend(frameon=False)

# %%
# The environment can be any object with a method ``sample``. In the environment of Li, Yemini and
# Wai (2024), all people move against the slope of the model. If they move little, every round
# brings the model closer to one that no longer changes.


class LocationShift:
    """People who all move by -beta times the slope of the model's score."""

    def __init__(self, X, y, groups, beta):
        self.X, self.y, self.groups, self.beta = X, y, groups, beta

    def sample(self, model, rng):
        if model is None:
            return self.X, self.y, self.groups
        ends = (model.decision_function(self.X.iloc[:1] + step) for step in np.eye(self.X.shape[1]))
        slope = np.concatenate(list(ends)) - model.decision_function(self.X.iloc[:1])
        return self.X - self.beta * slope, self.y, self.groups


rounds = repeated_deployment(clf, LocationShift(*records, beta=0.05), n_rounds=3)
print(rounds.query("group == 'overall'")[["round", "accuracy", "accuracy_after"]].round(3))
plt.show()
