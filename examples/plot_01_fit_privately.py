"""
Fit a private classifier and measure its cost for each group
============================================================

This example trains a classifier of income on the Adult census data with epsilon 1, and compares it
with a non-private reference model.
"""

# %%
# Public bounds and categories encode the features. So no step before the fit learns from the rows.

from skdpfair import DPFairClassifier
from skdpfair.datasets import load_adult, public_facts
from skdpfair.metrics import group_table
from skdpfair.preprocessing import public_preprocessor
from skdpfair.report import PrivacyCostDisplay

preprocessor = public_preprocessor(**public_facts("adult"))
train, test = load_adult(subset="train"), load_adult(subset="test")
X, X_test = preprocessor.fit_transform(train.data), preprocessor.transform(test.data)
sex, sex_test = train.sensitive_features["sex"], test.sensitive_features["sex"]

# %%
# ``keep_reference=True`` also trains the reference model: the same model without clipping and
# noise.

clf = DPFairClassifier("global_adapt", epsilon=1.0, keep_reference=True)
clf.fit(X, train.target, sensitive_features=sex)
print(clf.privacy_)

# %%
# The table and the figure are computed from records of real people: they are not private.

predictions = {"reference": clf.reference_.predict(X_test), "global_adapt": clf.predict(X_test)}
table = group_table(
    test.target,
    predictions,
    reference="reference",
    sensitive_features=sex_test,
    measures=["accuracy", "balanced_accuracy", "privacy_cost"],
)
print(table.T.round(3))

# %%
# The figure shows the accuracy that women and men lose to privacy: less than one percentage point.
# The bars are light, because one fit of each model gives no interval. The next step is
# :doc:`/auto_examples/plot_05_cost_of_privacy`, which computes intervals from several fits.

PrivacyCostDisplay(table).plot().figure_.show()
