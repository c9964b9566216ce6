"""
Tutorial: from a question to a report
=====================================

A bank wants to predict which customers have a high income. Customers declare
their income several times, few have a high one, and most of those are men. This tutorial follows
the analyst: she fixes what is protected and how much may be spent, trains, chooses a threshold,
measures who pays for privacy, and writes three reports for three readers. It takes less than a
minute; the notebook can be downloaded at the end of the page.

Tag: reference.
"""

# %%
# The table
# ---------
#
# The records are real: the 45,222 complete rows of the Adult census data, which come with the
# package. *The customers are simulated*, because public data rarely name persons: one to five rows
# of one sex, with the same education and age or nearly so, are taken for one customer. Everything
# else is as in a table of a bank. The groups are women and men.

import tempfile
from pathlib import Path

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
# A model that says "<=50K" to everybody is right for most records. Accuracy is therefore not enough
# here; the analyst also looks at recall, the share of the high incomes that are found, and at
# balanced accuracy, the mean of the recalls of both classes.
#
# The test set must not share customers with the training set, so whole customers are drawn.

splitter = GroupShuffleSplit(1, test_size=0.3, random_state=0)
train, test = next(splitter.split(table, groups=person))
customers = person.iloc[train].nunique()
print(f"{customers} customers to train on, {person.iloc[test].nunique()} to test on")

# %%
# What is protected, and how well
# -------------------------------
#
# A customer is protected, with up to five records. If single records were protected, a customer
# with five would be promised less. The next table compares the promises, from the number of
# customers and a planned number of steps alone. "Guess" is the best chance of an attacker who knows
# everything else to tell whether a record took part; without the model, it is 50 %.

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
    rows, columns=["epsilon of a customer", "guess", "of a customer, if records are protected"]
)

# %%
# The data owner allows epsilon 1 for each customer. Those of the training set spend it on the
# model with its threshold. Those of the test set, who are others, spend half of it on a table that
# will be published. A *ledger* is a file that records what was spent, and refuses what exceeds the
# budget.

folder = Path(tempfile.mkdtemp())
ledger = PrivacyLedger(folder / "ledger.jsonl", epsilon=1.0, delta=delta)

# %%
# Prepare, fit, and pay for the threshold
# ---------------------------------------
#
# A ``StandardScaler`` would learn from the records without noise, and epsilon would not cover it:

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
# The bounds and categories of the census form are public. With them, the features of a record
# depend on this record alone.

columns = public_preprocessor(**public_facts("adult"))
X = columns.fit_transform(table)
X_train, y_train, sex_train = X.iloc[train], income.iloc[train], table["sex"].iloc[train]
X_test, y_test = X.iloc[test], income.iloc[test]

# %%
# At the usual threshold of one half, a classifier finds few of the rare class. A threshold that is
# chosen on the training records reads them again. ``DPThresholdClassifier`` counts them with noise,
# and fit and counts together cost epsilon 1.

model = DPThresholdClassifier(classifier)
ledger.fit(model, X_train, y_train, sensitive_features=sex_train, persons=person.iloc[train])
model.privacy_

# %%
# To see what privacy costs, the analyst also trains the same model without privacy. The ledger
# would refuse it, because no budget covers such a fit: this model, and every number below that is
# computed from records, must not leave the bank.

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
# Who pays
# --------
#
# The cost of privacy is the accuracy of the reference model, the same model without privacy, minus
# that of the private model, both at one half. A difference between groups counts only if it is
# larger than chance would make it. The intervals are computed from one test record of each
# customer, because records of a customer resemble each other.

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
# The threshold is a second choice with consequences for groups. These are the shares of each group
# that are selected, and the high incomes that are found:

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
# What to report to whom
# ----------------------
#
# **The risk officer** wants to know what was promised, and what was not. The page of the model says
# both; without test records it holds no private figure. Its central sentence, and how far an
# attacker gets with this model:

(folder / "model.html").write_text(model_page(model, title="High income"))
print(model.privacy_.statement)
guess = 50 + 50 * trade_off(model.privacy_.releases).total_variation
print(f"An attacker's guess improves from 50 % to at most {guess:.1f} %.")

# %%
# **The user of the model** wants to know for which groups it works. The tables above are computed
# from real customers without noise and stay inside the bank. The table of the card is paid for with
# epsilon 0.5, and counts one test record of each customer.

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
# **The data owner** wants to know what was spent. The ledger lists the fit; the statement of the
# table says what the test customers spent on it.

print(ledger.report())
print(released.attrs["privacy"]["statement"])
print(sorted(path.name for path in folder.iterdir()))

# %%
# The model can be saved by ``model.save_release`` or a pickle. The next
# pages to read are :doc:`/postprocessing`, :doc:`/metrics`, :doc:`/release` and
# :doc:`/sharp_edges`.
