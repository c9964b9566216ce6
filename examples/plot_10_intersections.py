"""
Intersections of groups, and a table that may be published
==========================================================

A model may serve women well, and black people, and black women badly: look at intersections. They
are small, so that exact accuracies tell of few people. A noisy table may be published instead.
"""

# %%
# Sex and race make ten groups. All are public, with or without records: declared groups are not
# read off the rows. The features hold neither column.

from itertools import product

import matplotlib.pyplot as plt
import numpy as np

from skdpfair import DPFairClassifier
from skdpfair.datasets import ADULT_BOUNDS, ADULT_CATEGORIES, load_adult
from skdpfair.metrics import group_table, release_group_table
from skdpfair.preprocessing import public_preprocessor

columns = ["sex", "race"]
groups = list(product(*(ADULT_CATEGORIES[column] for column in columns)))
features = {name: values for name, values in ADULT_CATEGORIES.items() if name not in columns}
preprocessor = public_preprocessor(ADULT_BOUNDS, features, passthrough=columns)
train, test = load_adult(subset="train").frame.head(8000), load_adult(subset="test").frame
X, X_test = preprocessor.fit_transform(train), preprocessor.transform(test)

clf = DPFairClassifier(
    "global_adapt",
    epsilon=1.0,
    group_col=columns,
    groups=groups,
    classes=["<=50K", ">50K"],
    module="logistic",
    keep_reference=True,
)
clf.fit(X, train["income"])

# %%
# What each intersection pays, on the test records. This table is computed on real people, some
# groups are of a few dozen: it is not private.

predictions = {"twin": clf.reference_.predict(X_test), "global_adapt": clf.predict(X_test)}
exact = group_table(test["income"], predictions, reference="twin", sensitive_features=test[columns])
print(exact.T.round(3))

# %%
# The same accuracies for publication: every group's right and wrong predictions are counted, with
# noise. A test record is in one count only, so that epsilon 0.2 covers the whole table. The test
# records did not train the model; the table's epsilon is theirs, the model's that of the others.

released = release_group_table(
    test["income"],
    predictions["global_adapt"],
    sensitive_features=test[columns],
    epsilon=0.2,
    groups=groups,
)
print(released.round(2))
print(released.attrs["privacy"]["statement"])

# %%
# The intervals, at 95 %, count the choice of the records and the noise, and are computed from the
# noisy counts alone. Large groups hardly feel the noise; of the smallest, little can be said. One
# of ten such intervals may well miss.

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
