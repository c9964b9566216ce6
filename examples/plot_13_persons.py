"""
Protect persons with several records
====================================

In many tables a person has several rows: visits of a patient, loans of a customer. A guarantee for
one record then protects a person less. This example computes what a fit on records guarantees to
a person, trains on persons instead, and cross-validates without splitting a person.
"""

# %%
# The records are those of Adult, which has one row for each person. In this example, one to five
# rows of the same sex, with similar education and age, stand for one person.

from functools import partial
from textwrap import fill

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
# A fit that protects records has epsilon 1 for one record. ``epsilon_for`` computes the larger
# epsilon of a person with several records.

model = partial(DPFairClassifier, "dpsgd", epsilon=1.0, delta=1e-5)
by_record = model().fit(X, y, sensitive_features=sex)
epsilons = {k: by_record.privacy_.epsilon_for(k) for k in (1, 2, 5)}
print({k: round(epsilon, 2) for k, epsilon in epsilons.items()})

# %%
# With ``persons``, a batch is a random sample of persons. The gradients of a person's records are
# averaged, and the mean is clipped once. Then epsilon 1 holds for all records of a person.

of_persons = model(persons=Persons(max_records=5))
by_person = of_persons.fit(X, y, sensitive_features=sex, persons=person)
print(fill(by_person.privacy_.statement, 90))

# %%
# The figure shows the epsilon of a person for both fits. :doc:`/evidence/measurements` compares the
# accuracy of both ways at the same epsilon of a person.

table = pd.DataFrame(
    {
        "fit on records": epsilons,
        "fit on persons": {k: by_person.privacy_.epsilon_for(k) for k in epsilons},
    }
).rename(index=lambda k: f"{k} records" if k > 1 else "1 record")
ax = table.plot.bar(
    rot=0,
    ylabel="epsilon at delta 1e-5",
    title="Epsilon of a person, by the number of her records",
)

# %%
# Folds must not split a person: if the training part and the test part both have records of a
# person, the scores are too high. ``forecast`` refuses splitters that split persons. It counts each
# person in every fit.

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
