"""
Classify pictures, and measure the cost for each group
======================================================

With a small budget, a private model on pixels learns little. A linear model on features that follow
from a formula learns more. This example compares both on artificial pictures of two groups, one of
which is badly lit, and measures the cost of privacy for each group.

This example is for research: do not copy it for private data.
"""

# %%
# The pictures show discs or squares of different places and sizes. A fifth of them are dark. They
# are artificial. Never show private pictures on a page.

import warnings
from textwrap import fill

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from fairlearn.metrics import MetricFrame
from sklearn.metrics import accuracy_score

from skdpfair import DPFairClassifier
from skdpfair.features import Scattering2D
from skdpfair.metrics import privacy_cost
from skdpfair.model_selection import sweep

warnings.filterwarnings("ignore", message="random_state=0 makes the noise reproducible")


def draw(n, seed):
    """Return pictures (n, 16, 16), whether each shows a square, and its light."""
    rng = np.random.default_rng(seed)
    square, dark = rng.integers(0, 2, n), rng.random(n) < 0.2
    rows, columns = np.mgrid[:16, :16]
    x, y = rng.uniform(5, 11, (2, n, 1, 1))
    size = rng.uniform(3, 4.5, (n, 1, 1))
    across = np.maximum(abs(rows - y), abs(columns - x)) < size * 0.89  # of the same area
    around = np.hypot(rows - y, columns - x) < size
    shape = np.where(square[:, None, None], across, around)
    light = np.where(dark, 0.25, 0.7)[:, None, None]
    pictures = 0.15 + light * shape + 0.12 * rng.standard_normal((n, 16, 16))
    return pictures.clip(0, 1), square, np.where(dark, "dark", "light")


X, y, light = draw(3000, seed=0)
X_test, y_test, light_test = draw(2000, seed=1)

figure, axes = plt.subplots(2, 6, figsize=(7, 2.6))
for row, group in zip(axes, ("light", "dark"), strict=True):
    for axis, picture in zip(row, X[light == group], strict=False):
        axis.imshow(picture, cmap="gray", vmin=0, vmax=1)
        axis.set_axis_off()
    row[0].set_title(group, loc="left")

# %%
# With its defaults, the classifier trains a linear model on scattering features of the pictures.
# The choice follows from their shape, and the statement names the features.

clf = DPFairClassifier(epsilon=1.0, classes=[0, 1], random_state=0)
clf.fit(X, y, sensitive_features=light)
print(fill(clf.privacy_.statement, 90))
print(f"accuracy {clf.score(X_test, y_test):.3f}")

# %%
# At the same epsilon, a linear model on pixels is much less accurate.

pixels = DPFairClassifier(epsilon=1.0, classes=[0, 1], module="logistic", random_state=0)
pixels.fit(X, y)
print(f"accuracy on pixels {pixels.score(X_test, y_test):.3f}")

# %%
# Dark pictures are harder to classify, with and without privacy. The privacy cost is the accuracy
# that a group loses to privacy.

reference = DPFairClassifier(epsilon=None, classes=[0, 1], random_state=0).fit(X, y)
table = MetricFrame(
    metrics={"accuracy": accuracy_score, "privacy cost": privacy_cost},
    y_true=y_test,
    y_pred=clf.predict(X_test),
    sensitive_features={"light": light_test},
    sample_params={"privacy cost": {"y_ref": reference.predict(X_test)}},
)
print(table.by_group.round(3))

# %%
# A sweep computes the features once and compares methods and budgets. The bands of the figure are
# 95 % intervals over the test records. With a single run, they do not cover the noise of the fit.

results = sweep(
    X,
    y,
    sensitive_features=pd.Series(light, name="light"),
    methods=["dpsgd", "global_adapt"],
    epsilons=[1.0, 4.0],
    seeds=1,
    progress=False,
    classes=[0, 1],
)
print(results)
results.plot("accuracy")

# %%
# Compute the features once if you train several models. Keep them as safe as the pictures: they
# reveal as much.

print(Scattering2D().fit(X).get_feature_names_out()[:3])
