"""
Tutorial: from a question to a report
=====================================

A bank wants to predict which customers have a high income. A customer may have several records. A
quarter of the records have a high income, and most of these belong to men. This tutorial follows an
analyst of the bank. She decides who is protected and how large the budget is, trains a model,
chooses a threshold, measures the cost of privacy for each group, and writes three reports for three
readers. The tutorial runs in less than a minute. You can download it as a notebook at the end of
the page.
"""

# %%
# The table
# ---------
#
# The records are real: the 45,222 complete rows of the Adult census data, which come with the
# package. *The customers are simulated*, because public data rarely name persons: one to five rows
# of the same sex, with similar education and age, stand for one customer. The groups are women and
# men.

import tempfile
from pathlib import Path
from textwrap import fill

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.stats import bootstrap
from sklearn.metrics import accuracy_score, balanced_accuracy_score, recall_score
from sklearn.model_selection import GroupShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdpfair import DPFairClassifier, Groups, Persons
from skdpfair.budget import PrivacyLedger
from skdpfair.datasets import load_adult, public_facts
from skdpfair.metrics import release_group_table
from skdpfair.model_selection import DPThresholdClassifier
from skdpfair.preprocessing import lint_pipeline, public_preprocessor
from skdpfair.privacy import NoisyRelease, calibrate_noise, compute_epsilon, trade_off
from skdpfair.report import model_card, model_page

adult = load_adult(dropna=True)
table, income = adult.data, adult.target
order = table.sort_values(["sex", "education_num", "age"]).index
sizes = np.random.default_rng(0).integers(1, 6, len(table))
numbers = np.repeat(np.arange(len(table)), sizes)[: len(table)]
person = table["sex"].astype(str) + pd.Series(numbers, order).astype(str)
high = income == ">50K"
print(f"{len(table)} records of {person.nunique()} customers")
by_sex = high.groupby(table["sex"])
pd.DataFrame({"records": by_sex.size(), "share with >50K": by_sex.mean().round(3)})

# %%
# A model that predicts "<=50K" for everybody is right for most records. So accuracy is not enough.
# The analyst also measures recall, the share of high incomes that the model finds, and balanced
# accuracy, the mean of the recalls of both classes.
#
# The training set and the test set must not share customers, so the split draws whole customers.

splitter = GroupShuffleSplit(1, test_size=0.3, random_state=0)
train, test = next(splitter.split(table, groups=person))
customers = person.iloc[train].nunique()
print(f"{customers} customers to train on, {person.iloc[test].nunique()} to test on")

# %%
# Decide who is protected, and how well
# -------------------------------------
#
# The guarantee protects each customer with up to five records. If it protected single records, a
# customer with five records would have a larger epsilon, the last column of the next table. The
# table is computed from a planned sampling rate and number of steps, without any records. An
# attacker who knows all other customers guesses whether a customer took part. The column "right
# guesses" is the largest probability that the guess is right. Without the model, it is 50 %.

delta = 1e-6
rows = []
for epsilon in (0.1, 0.5, 1.0, 3.0):
    (steps,) = calibrate_noise(
        [NoisyRelease("gradient sum", 0.05, (1.0,), steps=300)], epsilon, delta
    )
    guess = 50 + 50 * trade_off([steps]).total_variation
    of_five = compute_epsilon([steps], delta, records_per_person=5)
    rows.append([epsilon, f"{guess:.1f} %", round(of_five, 2)])
pd.DataFrame(
    rows, columns=["epsilon of a customer", "right guesses", "epsilon if records are protected"]
)

# %%
# The data owner allows epsilon 1 for each customer. The model and its threshold spend epsilon 1 of
# the customers in the training set. A table for publication spends epsilon 0.5 of the customers in
# the test set. A *ledger* is a file that records every fit and refuses fits beyond the budget.

folder = Path(tempfile.mkdtemp())
ledger = PrivacyLedger(folder / "ledger.jsonl", epsilon=1.0, delta=delta)

# %%
# Prepare, fit, and pay for the threshold
# ---------------------------------------
#
# A ``StandardScaler`` learns from the records without noise, and epsilon does not cover this. The
# linter reports it:

classifier = DPFairClassifier(
    epsilon=1.0,
    delta=delta,
    # the groups, classes, bounds and categories are public facts
    group_col=Groups(levels=["Female", "Male"]),
    classes=["<=50K", ">50K"],
    persons=Persons(max_records=5),
)
print(lint_pipeline(make_pipeline(StandardScaler(), classifier)))

# %%
# The analyst uses the bounds and categories of the census form instead, which are public. Then the
# features of a record depend on this record alone.

columns = public_preprocessor(**public_facts("adult"))
X = columns.fit_transform(table)
X_train, y_train, sex_train = X.iloc[train], income.iloc[train], table["sex"].iloc[train]
X_test, y_test = X.iloc[test], income.iloc[test]

# %%
# At the usual threshold of 0.5, a classifier misses many records of the rare class. To choose a
# better threshold, ``DPThresholdClassifier`` counts the training records with noise. The fit and
# the counts together spend epsilon 1.

model = DPThresholdClassifier(classifier)
ledger.fit(model, X_train, y_train, sensitive_features=sex_train, persons=person.iloc[train])
print(model.privacy_)

# %%
# To measure the cost of privacy, the analyst also trains the same model without privacy. The ledger
# would refuse this fit, because no budget covers it. This model must stay in the bank. The same
# holds for the tables and the figure of the next cells, which are computed from records without
# noise.

reference = DPFairClassifier(epsilon=None, classes=classifier.classes)
reference.fit(X_train, y_train)
predicted = {
    "reference": pd.Series(reference.predict(X_test), index=X_test.index),
    "half": pd.Series(model.estimator_.predict(X_test), index=X_test.index),
    "chosen": pd.Series(model.predict(X_test), index=X_test.index),
}
measures = {
    "accuracy": accuracy_score,
    "balanced accuracy": balanced_accuracy_score,
    "recall >50K": lambda y, p: recall_score(y, p, pos_label=">50K"),
}
names = {
    "reference": "not private, threshold 0.5",
    "half": "private, threshold 0.5",
    "chosen": f"private, threshold {model.thresholds_['all'][0][0]:.2f}",
}
pd.DataFrame(
    {
        name: {of: round(measure(y_test, predicted[key]), 3) for of, measure in measures.items()}
        for key, name in names.items()
    }
).T

# %%
# Measure the cost of privacy
# ---------------------------
#
# The cost of privacy is the accuracy of the reference model, the same model without privacy, minus
# the accuracy of the private model, both at threshold 0.5. If the 95 % intervals of two groups
# overlap widely, the difference between their costs may be chance. The intervals use one test
# record of each customer, because the records of one customer are similar.

once = X_test.index[~person.iloc[test].duplicated()]
hits = {key: (predicted[key][once] == y_test[once]).astype(float) for key in ("reference", "half")}
lost = 100 * (hits["reference"] - hits["half"])  # of each record: -100, 0 or 100
rows = {}
for name, part in {"overall": lost, **dict(iter(lost.groupby(table["sex"])))}.items():
    low, high = bootstrap((part,), np.mean, n_resamples=499).confidence_interval
    rows[name] = {"estimate": part.mean(), "low": low, "high": high}
points = pd.DataFrame(rows).T
points.round(2)

# %%
figure, ax = plt.subplots(figsize=(6, 2.6), layout="constrained")
ends = [points["estimate"] - points["low"], points["high"] - points["estimate"]]
ax.errorbar(points["estimate"], range(len(points)), xerr=ends, fmt="o", capsize=4)
ax.axvline(0, color="0.6", linewidth=1)
ax.set(
    yticks=range(len(points)),
    yticklabels=points.index,
    ylim=(-0.6, len(points) - 0.4),
    xlabel="accuracy that privacy costs, in points (95 % interval)",
)
figure.show()

# %%
# The threshold affects the groups, too. "Selected" is the share of a group for which the model
# predicts a high income:

rows = {}
for key in ("half", "chosen"):
    for group, part in table.loc[X_test.index].groupby("sex"):
        y, p = y_test[part.index], predicted[key][part.index]
        rows[names[key], group] = {
            "selected": round((p == ">50K").mean(), 3),
            "recall >50K": round(measures["recall >50K"](y, p), 3),
            "balanced accuracy": round(balanced_accuracy_score(y, p), 3),
        }
pd.DataFrame(rows).T

# %%
# Write three reports
# -------------------
#
# **The risk officer** wants to know what the guarantee covers. The page of the model states this.
# The page is written without test records, so all its figures are private. This is the guarantee,
# and what it means for an attacker:

(folder / "model.html").write_text(model_page(model, title="High income"))
print(fill(model.privacy_.statement, 90))
guess = 50 + 50 * trade_off(model.privacy_.releases).total_variation
print(f"An attacker guesses right with a probability of at most {guess:.1f} % instead of 50 %.")

# %%
# **The user of the model** wants to know for which groups it works. The model card has a table with
# noise, which may be published. The table spends epsilon 0.5 and counts one test record of each
# customer.

released = release_group_table(
    y_test,
    predicted["chosen"],
    sensitive_features=table["sex"].iloc[test],
    levels=["Female", "Male"],
    persons=person.iloc[test],
    epsilon=0.5,
)
card = model_card(
    model,
    intended_use="Offers to customers; not decisions about loans.",
    released_table=released,
)
(folder / "card.md").write_text(card)
released[["accuracy", "low", "high"]].round(3)

# %%
# **The data owner** wants to know how much of the budget was spent. The ledger lists the fit. The
# statement of the table gives the epsilon of the customers in the test set.

print(ledger.report())
print(fill(released.attrs["privacy"]["statement"], 90))
print(sorted(path.name for path in folder.iterdir()))

# %%
# ``model.save_release`` saves the model in a file without code. Read next: :doc:`/postprocessing`,
# :doc:`/metrics`, :doc:`/release` and :doc:`/sharp_edges`.
