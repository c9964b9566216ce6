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

from skdpfair import DPFairClassifier
from skdpfair.datasets import make_two_groups
from skdpfair.performative import LocationShift, StrategicResponse, repeated_deployment

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
# that its own deployment induces.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained", sharey=True)
for ax, group in zip(axes, ["a", "b"], strict=True):
    own = table[table["group"] == group]
    ax.plot(own["round"], own["accuracy"], "o-", label="before the reaction")
    ax.plot(own["round"], own["accuracy_after"], "o--", label="after the reaction")
    ax.set(title=f"group {group}", xlabel="round", xticks=own["round"])
axes[0].set_ylabel("accuracy")
axes[0].legend(frameon=False)

# %%
# A population that shifts as a whole, against the model's coefficients, is the other environment:
# retraining brings the model nearer to the stable one, round by round, if the shift is weak.

table = repeated_deployment(clf, LocationShift(*given, beta=0.05), n_rounds=3)
print(table.query("group == 'overall'")[["round", "accuracy", "accuracy_after"]].round(3))
plt.show()
