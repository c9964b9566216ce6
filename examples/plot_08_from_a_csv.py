"""
From a CSV file to a model that can be released
===============================================

This example first declares the public facts of a table in a schema. It then trains a model on the
table, and saves weights and public facts in one file. At the end, the model of this file predicts
for the rows of another CSV file.
"""

# %%
# The example uses two CSV files: 8,000 rows of Adult for training, and other rows for prediction.

import tempfile
from pathlib import Path
from textwrap import fill

import pandas as pd

from skdpfair import DPFairClassifier, Groups, load_release
from skdpfair.datasets import load_adult, public_facts
from skdpfair.metrics import group_table
from skdpfair.preprocessing import TableSchema, outside_public
from skdpfair.report import PrivacyCostDisplay

folder = Path(tempfile.mkdtemp())
load_adult(subset="train").frame.head(8000).to_csv(folder / "train.csv", index=False)
load_adult(subset="test").frame.to_csv(folder / "test.csv", index=False)

# %%
# Limits and categories come from the census form and its code book. If they were computed from
# the rows, they would reveal information about the people in them. The schema drops columns that it
# does not name. The groups are used for comparison only; the model sees them only if ``categories``
# names them, too. The encoding of numbers depends on the number of records and on epsilon.
# ``with_fixed_encoding`` fixes it, so that other tables get the same features.

facts = public_facts("adult")
numbers = ["age", "education_num", "hours_per_week"]
columns = ["workclass", "marital_status", "occupation"]
schema = TableSchema(
    target="income",
    classes=["<=50K", ">50K"],
    groups={"sex": ["Female", "Male"]},
    bounds={name: facts["bounds"][name] for name in numbers},
    categories={name: facts["categories"][name] for name in columns},
).with_fixed_encoding(n_samples=8000, epsilon=1.0)
print(schema.to_toml())

# %%
# The schema reads the file, and computes the features from public facts alone. If you may look at
# the rows, count the values that it cannot represent: here, missing values of two columns. The
# counts are not private.

table = schema.read_csv(folder / "train.csv")
print(outside_public(table, schema.bounds, schema.categories).drop(columns="example").round(3))
X, y, sex = schema.split(table)

# %%
# Classes and groups are declared, so they are not taken from the rows. The reference model, which
# is the same model without privacy, is used in the comparison below.

groups = Groups(levels=schema.group_levels)
clf = DPFairClassifier(epsilon=1.0, group_col=groups, classes=schema.classes, keep_reference=True)
clf.fit(X, y, sensitive_features=sex)
clf.save_release(folder / "model.safetensors", schema=schema)

# %%
# The file contains the weights, the schema and the privacy statement, but neither rows nor the
# reference model. Loading it executes no code.

loaded = load_release(folder / "model.safetensors")
print(fill(loaded.privacy_.statement, 90))
print("reference model:", hasattr(loaded, "reference_"))
new = loaded.schema_.read_csv(folder / "test.csv", labelled=False)
predicted = loaded.predict(loaded.schema_.preprocessor().transform(new))
print(pd.Series(predicted, name="predicted").value_counts())

# %%
# These commands do the same in a shell. ``schema`` writes a file to fill in. ``report`` writes a
# page about the model, with figures of the test records.
#
# .. code-block:: bash
#
#    skdpfair schema train.csv --target income --group sex -o schema.toml
#    skdpfair fit train.csv --schema schema.toml --epsilon 1 -o model.safetensors
#    skdpfair predict model.safetensors test.csv -o predictions.csv
#    skdpfair report model.safetensors --data test.csv -o report.html

# %%
# The figure shows the accuracy that women and men lose to privacy. The bars are light, because
# one fit gives no interval. The test records are those of real people: the table and the figure are
# not private.

X_test, y_test, sex_test = schema.split(schema.read_csv(folder / "test.csv"))
reference = clf.reference_.predict(X_test)
predictions = {"without privacy": reference, "from the file, epsilon 1": predicted}
accuracy = group_table(
    y_test,
    predictions,
    reference="without privacy",
    sensitive_features=sex_test["sex"],
    measures=["accuracy", "privacy_cost"],
)
print(accuracy.T.round(3))
PrivacyCostDisplay(accuracy).plot()
