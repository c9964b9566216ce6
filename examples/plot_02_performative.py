"""
People who react to the deployed model
======================================

A deployed model changes the data that the next one is trained on. Here people whom the model denies
move towards a favourable decision, and a private model is trained again on the changed data.

Tag: research.
"""

# %%
# The larger group "a" and the smaller group "b" have different boundaries. Everybody can change the
# features x0 and x1, by a distance of 0.3 at most.

import matplotlib.pyplot as plt
import numpy as np

from skdpfair import DPFairClassifier
from skdpfair.datasets import make_two_groups
from skdpfair.performative import StrategicResponse, repeated_deployment

data = make_two_groups(4000, random_state=0)
given = data.data, data.target, data.sensitive_features
people = StrategicResponse(*given, budget=0.3, changeable=["x0", "x1"])

# %%
# Five rounds: train, deploy, and let the people react. ``pcsgd`` is DP-SGD whose parameters stay in
# a ball. Every round reads the same people, so that their privacy losses add up; a seed, here for
# equal figures in every run, is not for releases.

clf = DPFairClassifier("pcsgd", epsilon=1.0, module="logistic", random_state=0)
table = repeated_deployment(clf, people, n_rounds=5)
print(table.query("group == 'overall'").drop(columns="group").round(3))

# %%
# In each round the model is accurate on the data that it was trained on, and less so on the data
# that its own deployment induces. Marks are hollow: each is one fit, without an interval.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained", sharey=True)
for ax, group in zip(axes, ["a", "b"], strict=True):
    own = table[table["group"] == group]
    ax.plot(own["round"], own["accuracy"], "o-", mfc="white", label="before the reaction")
    ax.plot(own["round"], own["accuracy_after"], "o--", mfc="white", label="after the reaction")
    ax.set(title=f"group {group}", xlabel="round", xticks=own["round"])
axes[0].set_ylabel("accuracy")
axes[0].legend(frameon=False)

# %%
# Any object with a method ``sample`` is an environment. This one is that of Li, Yemini and Wai
# (2024): all people move against the model's slope. Retraining brings the model nearer to the
# stable one, round by round, if the shift is weak.


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


table = repeated_deployment(clf, LocationShift(*given, beta=0.05), n_rounds=3)
print(table.query("group == 'overall'")[["round", "accuracy", "accuracy_after"]].round(3))
plt.show()
