"""skdpfair predict: classes and probabilities of the rows of a file, in their order."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from skdpfair import DPFairClassifier, load_release
from skdpfair.datasets import make_two_groups


def test_predictions_are_those_of_the_model(model, table, run):
    """On features made by the schema, of a table without labels and groups."""
    rows = table.drop(columns=["kredit ok?", "Geschlecht"])[::-1]
    rows.to_csv("new.csv", index=False)
    done = run("predict", "model.safetensors", "new.csv", "-o", "out.csv", "--json")
    assert json.loads(done.stdout) == {"written": "out.csv", "rows": len(rows)}
    clf, out = load_release("model.safetensors"), pd.read_csv("out.csv")
    X = clf.schema_.preprocessor().transform(rows.replace("", None))
    chances = out[[f"probability[{c}]" for c in clf.classes_]]
    assert np.allclose(chances, clf.predict_proba(X), atol=1e-5)
    expected = np.where(out["probability[ja]"] >= 0.5, "ja", "nein")
    assert (out["kredit ok?"] == expected).all() and len(out) == len(rows)


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")
def test_predict_needs_a_release_with_a_schema(folder, refused):
    data = make_two_groups(300, random_state=0)
    clf = DPFairClassifier("dpsgd", epsilon=3.0, max_steps=1).fit(data.data, data.target)
    clf.save_release("bare.safetensors")
    for command in (
        ["predict", "bare.safetensors", "loans.csv"],
        ["report", "bare.safetensors", "--data", "loans.csv"],
    ):
        assert "schema=" in refused(*command)
    assert "not a safetensors file" in refused("predict", "loans.csv", "loans.csv")
    assert not Path("predictions.csv").exists()
