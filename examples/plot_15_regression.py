"""
Predict a number privately
==========================

A private regressor predicts the age of the persons in Adult from the other columns. The limits of
the target are public. The example measures the error that privacy adds for women and men.
"""

# %%
# ``y_range`` declares limits of the target from public knowledge. An age beyond a limit counts as
# the limit, and predictions lie between the limits.

from textwrap import fill

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
# The code trains a model for each loss and budget, and a reference model without privacy for each
# loss.

rows, added, ends = [], {}, {}
for loss in ("squared", "absolute"):
    common = {"y_range": (17, 90), "loss": loss}
    reference = DPFairRegressor(epsilon=None, **common).fit(X, age).predict(X_test)
    for epsilon in (0.3, 1.0, 3.0):
        model = DPFairRegressor("dpsgd", epsilon=epsilon, **common).fit(X, age)
        predicted = model.predict(X_test)
        mae = mean_absolute_error(age_test, predicted)
        rows.append((loss, epsilon, mae, r2_score(age_test, predicted)))
        name = f"{loss},\nepsilon {epsilon:g}"
        added[name] = {
            group: excessive_risk(
                age_test[sex_test == group],
                predicted[sex_test == group],
                y_ref=reference[sex_test == group],
                loss=mean_absolute_error,
            )
            for group in ("Female", "Male")
        }
        more = (age_test - predicted).abs() - (age_test - reference).abs()
        ends[name] = 1.96 * more.groupby(sex_test).sem()
print(pd.DataFrame(rows, columns=["loss", "epsilon", "MAE", "R2"]).round(3).to_string(index=False))
print(fill(model.privacy_.statement, 90))

# %%
# The figure shows the mean absolute error that privacy adds for each group, in years. The 95 %
# intervals over the test records do not cover the noise of the fit. Clipping moves predictions of
# the squared loss towards the median, so the absolute error of this loss can even fall.

table = pd.DataFrame(added).T
ax = table.plot.bar(
    yerr=pd.DataFrame(ends).T,
    rot=0,
    figsize=(8, 4.5),
    ylabel="added mean absolute error [years]",
    title="Error that privacy adds for each group",
)
