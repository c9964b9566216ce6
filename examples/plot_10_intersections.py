"""
Intersections of groups, and a table that can be published
==========================================================

A model may be accurate for women and for Black people, but not for Black women. Intersections of
groups show such differences. They contain few people, so exact accuracies reveal information about
individuals. A table with noise can be published instead.
"""

# %%
# Sex and race give ten groups. All groups are declared, with or without records, so they are not
# taken from the rows. The features contain neither column.

from itertools import product
from textwrap import fill

import matplotlib.pyplot as plt
import numpy as np

from skdpfair import DPFairClassifier, Groups
from skdpfair.datasets import load_adult, public_facts
from skdpfair.metrics import group_table, release_group_table
from skdpfair.preprocessing import public_preprocessor

columns = ["sex", "race"]
facts = public_facts("adult")
groups = list(product(*(facts["categories"].pop(column) for column in columns)))
preprocessor = public_preprocessor(**facts, passthrough=columns)
train, test = load_adult(subset="train").frame.head(8000), load_adult(subset="test").frame
X, X_test = preprocessor.fit_transform(train), preprocessor.transform(test)

clf = DPFairClassifier(
    "global_adapt",
    epsilon=1.0,
    group_col=Groups(columns, levels=groups),
    classes=["<=50K", ">50K"],
    keep_reference=True,
)
clf.fit(X, train["income"])

# %%
# The table shows the cost of privacy for each intersection. It is computed from test records of
# real people without noise, and some groups have only a few dozen records: it is not private.

predictions = {"reference": clf.reference_.predict(X_test), "global_adapt": clf.predict(X_test)}
exact = group_table(
    test["income"],
    predictions,
    reference="reference",
    sensitive_features=test[columns],
    measures=["accuracy", "privacy_cost"],
)
print(exact.T.round(3).to_string())

# %%
# To publish these accuracies, the correct and incorrect predictions of every group are counted
# with noise. Each test record is in one count only, so epsilon 0.2 covers the whole table. The
# model was not trained on the test records: the epsilon of the table applies to the test records,
# and the epsilon of the model to the training records.

released = release_group_table(
    test["income"],
    predictions["global_adapt"],
    sensitive_features=test[columns],
    epsilon=0.2,
    levels=groups,
)
print(released.round(2))
print(fill(released.attrs["privacy"]["statement"], 90))

# %%
# The 95 % intervals cover both the sampling of the records and the noise, and are computed from
# the noisy counts alone. The noise hardly affects large groups. For the smallest groups, the
# intervals are too wide for conclusions. Among ten intervals, one may miss the exact value by
# chance.

table = released.iloc[np.argsort(released["correct"] + released["incorrect"])]
places = np.arange(len(table))
figure, ax = plt.subplots(figsize=(8, 5), layout="constrained")
ends = 100 * np.abs(table[["low", "high"]].to_numpy().T - table["accuracy"].to_numpy())
ax.errorbar(
    100 * table["accuracy"],
    places,
    xerr=ends,
    fmt="o",
    color="#0072B2",
    capsize=3,
    label="noisy, 95 % interval",
)
known = [100 * exact.loc["global_adapt"].get(f"accuracy{group}", np.nan) for group in table.index]
ax.plot(known, places, "x", color="#D55E00", markersize=8, label="exact (not private)")
ax.set_yticks(places, [group.strip("[]") for group in table.index])
ax.set(xlabel="accuracy on test records (%)", ylabel="group, by noisy size")
ax.set_title("Accuracy of each intersection, released at epsilon 0.2", loc="left", pad=30)
ax.grid(axis="x", color="0.9")
ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
