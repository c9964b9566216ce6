"""
From a CSV file to a model that can be handed on
================================================

What is public about a table is written down first, in a schema. The model that is trained on the
table then goes into one file, weights and public facts only, that predicts from another CSV file.
"""

# %%
# Two CSV files, as somebody may have them: 8,000 rows of Adult to train on, and others to predict.

import tempfile
from pathlib import Path

import pandas as pd

from skdpfair import DPFairClassifier, load_release
from skdpfair.datasets import ADULT_BOUNDS, ADULT_CATEGORIES, load_adult
from skdpfair.metrics import group_table
from skdpfair.plotting import plot_group_accuracy
from skdpfair.preprocessing import TableSchema, outside_public
from skdpfair.release import schema_of

folder = Path(tempfile.mkdtemp())
load_adult(subset="train").frame.head(8000).to_csv(folder / "train.csv", index=False)
load_adult(subset="test").frame.to_csv(folder / "test.csv", index=False)

# %%
# Limits and categories come from the census form and its code book. Read off the rows, they would
# tell of the people in them. Columns that nobody names are left out. The groups are for comparison;
# the model sees them only if ``categories`` names them, too.

columns = ["workclass", "marital_status", "occupation"]
schema = TableSchema(
    target="income",
    classes=["<=50K", ">50K"],
    groups={"sex": ["Female", "Male"]},
    bounds={name: ADULT_BOUNDS[name] for name in ("age", "education_num", "hours_per_week")},
    categories={name: ADULT_CATEGORIES[name] for name in columns},
)
print(schema.to_toml())

# %%
# The schema reads the file, and makes the features by public facts alone. Where you may look at the
# rows, count once what it misses: here, missing values of two columns. The counts are not private.

table = schema.read_csv(folder / "train.csv")
print(outside_public(table, schema.bounds, schema.categories).drop(columns="example").round(3))
X, y, sex = schema.split(table)

# %%
# Classes and groups that are declared need not be read off the rows. The twin, the same model
# without privacy, is for the comparison below.

clf = DPFairClassifier(
    epsilon=1.0, classes=schema.classes, groups=schema.group_levels, keep_reference=True
)
clf.fit(X, y, sensitive_features=sex)
clf.save_release(folder / "model.safetensors", schema=schema)

# %%
# Whoever gets the file needs nothing else: it holds the schema and the privacy statement, and
# neither rows nor the twin. Nothing that it names is executed.

loaded, known = load_release(folder / "model.safetensors"), schema_of(folder / "model.safetensors")
print(loaded.privacy_.statement)
print("a twin:", hasattr(loaded, "reference_"))
new = known.read_csv(folder / "test.csv", labelled=False)
predicted = loaded.predict(known.preprocessor().fit_transform(new))
print(pd.Series(predicted, name="predicted").value_counts())

# %%
# The same at the command line. ``schema`` asks about each column, ``--template`` writes a file to
# fill in instead; ``report`` writes a page about the model, with figures of the test records.
#
# .. code-block:: bash
#
#    skdpfair schema train.csv --target income --group sex -o schema.toml
#    skdpfair fit train.csv --schema schema.toml --epsilon 1 -o model.safetensors
#    skdpfair predict model.safetensors test.csv -o predictions.csv
#    skdpfair report model.safetensors --data test.csv -o report.html

# %%
# How good is it, for women and for men? The test records are real people: this is not private.

X_test, y_test, sex_test = schema.split(schema.read_csv(folder / "test.csv"))
twin = clf.reference_.predict(X_test)
predictions = {"without privacy": twin, "from the file, epsilon 1": predicted}
accuracy = group_table(
    y_test, predictions, reference="without privacy", sensitive_features=sex_test["sex"]
)
print(accuracy.T.round(3))
ax = plot_group_accuracy(accuracy)
