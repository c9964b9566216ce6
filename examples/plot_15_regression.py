"""
Predict a number privately
==========================

The age of the persons in Adult is predicted from the other columns, with a private regressor. The
limits of the target are public, and what privacy costs is measured for women and men.

Tag: reference.
"""

# %%
# ``y_range`` is compulsory: the limits of the target, chosen from public knowledge. Ages outside
# them count as the nearer limit, and predictions lie between them.

import pandas as pd
from sklearn.metrics import mean_absolute_error, r2_score

from skdpfair import DPFairRegressor
from skdpfair.datasets import load_adult, public_facts
from skdpfair.metrics import excessive_risk
from skdpfair.preprocessing import public_preprocessor

facts = public_facts("adult")
del facts["bounds"]["age"]  # the target
prepare = public_preprocessor(**facts, encoding="linear")
parts = []
for subset in ("train", "test"):
    table = load_adult(subset=subset)
    X = prepare.fit_transform(table.data.drop(columns="age"))
    parts.append((X, table.data["age"], table.sensitive_features["sex"]))
(X, age, sex), (X_test, age_test, sex_test) = parts

# %%
# One model for each loss and budget, and the non-private reference model of each loss.

rows, added, ends = [], {}, {}
for loss in ("squared", "absolute"):
    common = {"y_range": (17, 90), "loss": loss, "random_state": 0}
    reference = DPFairRegressor(epsilon=None, **common).fit(X, age).predict(X_test)
    for epsilon in (0.3, 1.0, 3.0):
        model = DPFairRegressor("dpsgd", epsilon=epsilon, **common).fit(X, age)
        predicted = model.predict(X_test)
        mae = mean_absolute_error(age_test, predicted)
        rows.append((loss, epsilon, mae, r2_score(age_test, predicted)))
        added[f"{loss}, epsilon {epsilon:g}"] = {
            group: excessive_risk(
                age_test[sex_test == group],
                predicted[sex_test == group],
                y_ref=reference[sex_test == group],
                loss=mean_absolute_error,
            )
            for group in ("Female", "Male")
        }
        more = (age_test - predicted).abs() - (age_test - reference).abs()
        ends[f"{loss}, epsilon {epsilon:g}"] = 1.96 * more.groupby(sex_test).sem()
print(pd.DataFrame(rows, columns=["loss", "epsilon", "MAE", "R2"]).round(3).to_string(index=False))
print(model.privacy_.statement)

# %%
# The mean absolute error that privacy adds, in years, by group, with 95 % intervals over the test
# records, which do not cover the noise of another fit. Clipping moves predictions of the squared
# loss towards the median, so that its absolute error can even fall.

table = pd.DataFrame(added).T
ax = table.plot.bar(
    yerr=pd.DataFrame(ends).T,
    rot=0,
    figsize=(8, 4.5),
    ylabel="added mean absolute error [years]",
    title="What privacy adds to the error of each group",
)
