"""
Adversarial training by group
=============================

Adversarial training makes a model more robust to attacks. This also holds for private models, at
the same epsilon, but not for all groups: in this example, the majority gains and the minority
loses.

This example is for research: do not copy it for private data.
"""

# %%
# The labels of the two groups follow different boundaries. Three records in ten belong to the
# minority b. The features lie between -1 and 1, which is public, and the attack stays in this
# range.

import matplotlib.pyplot as plt
import pandas as pd
import torch
from scipy.stats import t

from skdpfair import MLP, DPFairClassifier
from skdpfair.augmentations import PGD
from skdpfair.datasets import make_two_groups

data = make_two_groups(6000, random_state=0)
parts = (data.data, data.target, data.sensitive_features)
X, y, _ = (part[:4000] for part in parts)
X_test, y_test, group = (part[4000:] for part in parts)

# %%
# ``PGD`` changes each record by at most 0.1 in each feature to increase its loss, before the
# gradient is computed. It uses that record alone, so a private step bounds the gradient as usual,
# and epsilon is the same. Each setting is fitted three times, because the noise of a single fit
# can be misleading. The attack on the test records uses the fitted network.

attack = PGD(0.1, n_steps=3, input_range=(-1, 1))
radii = (0.1, 0.2)
rows = []
for privacy, epsilon in (("no privacy", None), ("epsilon 1", 1.0)):
    for training, attacked in (("plain", None), ("adversarial", attack)):
        for _ in range(3):
            clf = DPFairClassifier(
                "dpsgd",
                epsilon=epsilon,
                module=MLP((16,)),
                batch_size=400,
                max_steps=200,
                accountant="rdp",
                attack=attacked,
            )
            clf.fit(X, y)
            for name in ("a", "b"):
                records, labels = X_test[group == name], y_test[group == name]
                x, y_own = torch.tensor(records.to_numpy("float32")), torch.tensor(labels.array)
                shares = {0.0: clf.score(records, labels)}
                for radius in radii:
                    stronger = PGD(radius, n_steps=10, input_range=(-1, 1))
                    moved = stronger(clf.net_.module_, x, y_own).numpy()
                    shares[radius] = clf.score(pd.DataFrame(moved, columns=X.columns), labels)
                rows += [(privacy, training, name, r, 100 * share) for r, share in shares.items()]
        print(f"{privacy}, {training} training: epsilon {clf.privacy_.epsilon:.3f}")

# %%
# The table shows the mean accuracy in per cent on test records that are attacked with the same
# radius 0.1. With privacy, adversarial training helps group a and harms group b: it makes every
# feature less useful, and the model first stops using the feature that only the labels of the
# minority depend on. Without privacy, the network also learns the boundary of the minority, with
# and without the attack. The table is not private.

columns = ["privacy", "training", "group", "radius", "accuracy"]
table = pd.DataFrame(rows, columns=columns)
runs = table.groupby(columns[:-1], sort=False)["accuracy"]
means, reach = runs.mean(), t.ppf(0.975, df=2) * runs.sem()  # Student's 95 % intervals
print(means.xs(0.1, level="radius").unstack("group").round(1))

# %%
# The figure shows the accuracy against the radius of the attack, with 95 % intervals over the three
# fits. Radius 0 means no attack.

figure, axes = plt.subplots(1, 2, figsize=(9, 4.4), sharey=True, layout="constrained")
colours = {"no privacy": "#0072B2", "epsilon 1": "#E69F00"}
for ax, name in zip(axes, ("a", "b"), strict=True):
    of_group = means.xs(name, level="group")
    for (privacy, training), curve in of_group.groupby(level=[0, 1], sort=False):
        ax.errorbar(
            curve.index.get_level_values("radius"),
            curve,
            yerr=reach.xs(name, level="group").loc[curve.index],
            capsize=3,
            marker="o",
            color=colours[privacy],
            linestyle="-" if training == "plain" else "--",
            label=f"{privacy}, {training} training",
        )
    ax.set_title(f"group {name}", loc="left")
    ax.set(xlabel="radius of the attack (unit of the features)", xticks=(0, *radii))
    ax.grid(color="0.9")
axes[0].set_ylabel("accuracy under attack (%), mean of 3 fits")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
