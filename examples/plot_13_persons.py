"""
Protect persons with several records
====================================

In many tables a person has several rows: visits of a patient, loans of a customer. Then privacy of
one record is not privacy of the person. This example shows what a fit on records guarantees to a
person, trains on persons instead, and cross-validates without splitting a person.

Tag: reference.
"""

# %%
# The records are those of Adult, which has one row for each person. Here, up to five rows of one
# sex, with the same education and age or nearly so, are taken for one person.

from functools import partial

import numpy as np
import pandas as pd
from sklearn.model_selection import GroupKFold, cross_validate

from skdpfair import DPFairClassifier, Persons
from skdpfair.datasets import load_adult, public_facts
from skdpfair.model_selection import forecast
from skdpfair.preprocessing import public_preprocessor

adult = load_adult(dropna=True)
X = public_preprocessor(**public_facts("adult")).fit_transform(adult.data)
y, sex = adult.target, adult.data["sex"].astype(str)
order = adult.data.sort_values(["sex", "education_num", "age"]).index
numbers = np.repeat(np.arange(len(y)), np.random.default_rng(0).integers(1, 6, len(y)))[: len(y)]
person = sex + pd.Series(numbers, order).astype(str)
print(len(X), "records of", person.nunique(), "persons")
print(person.value_counts().value_counts().sort_index().to_dict(), "persons by number of records")

# %%
# A fit that takes each record for a person has epsilon 1 for a record. What it guarantees to a
# person with all her records is computed exactly, from the same steps.

model = partial(DPFairClassifier, "dpsgd", epsilon=1.0, delta=1e-5, random_state=0)
by_record = model().fit(X, y, sensitive_features=sex)
epsilons = {k: by_record.privacy_.epsilon_for(k) for k in (1, 2, 5)}
print({k: round(epsilon, 2) for k, epsilon in epsilons.items()})

# %%
# With ``persons``, a batch is a random sample of persons: the mean gradient of a person's records
# is clipped once. The same epsilon then holds for all records of a person.

of_persons = model(persons=Persons(max_records=5))
by_person = of_persons.fit(X, y, sensitive_features=sex, persons=person)
print(by_person.privacy_.statement)

# %%
# The user guide compares the accuracy of both ways where they guarantee the same to a person.

table = pd.DataFrame(
    {
        "fit on records": epsilons,
        "fit on persons": {k: by_person.privacy_.epsilon_for(k) for k in epsilons},
    }
).rename(index=lambda k: f"{k} records" if k > 1 else "1 record")
ax = table.plot.bar(
    rot=0,
    ylabel="epsilon at delta 1e-5",
    title="What a person is guaranteed, by the number of her records",
)

# %%
# Folds must not split a person: with some of her records in the training part and some in the test
# part, scores are too good. ``forecast`` refuses other splitters, and forecasts the cost for each
# person, who counts in every fit.

folds = GroupKFold(3)
scores = cross_validate(
    of_persons,
    X,
    y,
    groups=person,
    cv=folds,
    scoring=["accuracy", "balanced_accuracy"],
    params={"persons": person},
)
print({name: f"{v.mean():.3f}" for name, v in scores.items() if name.startswith("test")})
planned = forecast(of_persons, person.nunique(), persons=True, cv=folds, delta=1e-5)
print(planned)
