"""The main job on real data, end to end."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from fairlearn.metrics import MetricFrame
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, balanced_accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from skdpfair import DPFairClassifier
from skdpfair.cli import main
from skdpfair.datasets import fetch_dutch, load_adult, public_facts
from skdpfair.metrics import privacy_cost
from skdpfair.preprocessing import public_preprocessor


def test_demo_on_adult(tmp_path):
    output = tmp_path / "demo"
    result = CliRunner().invoke(main, ["demo", "--output", str(output)])
    assert result.exit_code == 0, result.output
    for words in ("neighbours", "NOT private", "Not covered by epsilon", "balanced"):
        assert words in result.output
    names = {path.name for path in output.iterdir()}
    assert names == {"group_table.csv", "privacy_cost_by_group.png", "privacy.json"}
    table = pd.read_csv(output / "group_table.csv", index_col="method")
    assert f"{100 * table.loc['dpsgd', 'accuracy[Female]']:.1f}" in result.output
    assert np.isinf(table.loc["reference", "epsilon"]) and (table["epsilon"][1:] <= 1.0).all()
    assert table["accuracy"].between(0.855, 0.88).all()
    statements = json.loads((output / "privacy.json").read_text())
    private = {name: statement["is_private"] for name, statement in statements.items()}
    assert private == {"reference": False, "dpsgd": True, "global_adapt": True}
    assert (output / "privacy_cost_by_group.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("arguments", [["demo", "--epsilon", "-1"], ["demo", "--epsilon", "1e-9"]])
def test_user_errors_have_no_traceback(arguments, tmp_path):
    result = CliRunner().invoke(main, [*arguments, "--output", str(tmp_path / "x")])
    assert result.exit_code == 2 and "epsilon" in result.output
    assert "Traceback" not in result.output and not (tmp_path / "x").exists()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a folder that takes no files")
def test_demo_trains_nothing_where_it_cannot_write(monkeypatch):
    monkeypatch.setattr(DPFairClassifier, "fit", None)
    result = CliRunner().invoke(main, ["demo", "--output", "/proc"])
    assert result.exit_code == 2 and "cannot be written" in result.output


def test_defaults_on_adult(adult):
    """Two seeds at the published floor less what two seeds may scatter (3 x 0.06 points)."""
    (x, y, _), (x_test, y_test, _) = adult
    accuracy, balanced = [], []
    for _ in range(2):
        predicted = DPFairClassifier(epsilon=1.0).fit(x, y).predict(x_test)
        accuracy.append(accuracy_score(y_test, predicted))
        balanced.append(balanced_accuracy_score(y_test, predicted))
    assert np.mean(accuracy) >= 0.843 - 0.0018 and np.mean(balanced) >= 0.743 - 0.004


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")
def test_a_pipeline_from_a_csv_to_a_group_table(tmp_path):
    load_adult(subset="train").frame.head(3000).to_csv(tmp_path / "people.csv", index=False)
    table = pd.read_csv(tmp_path / "people.csv")
    train, test = train_test_split(table, test_size=0.25, random_state=0)
    facts = public_facts("adult")
    categories = {name: values for name, values in facts["categories"].items() if name != "sex"}
    clf = DPFairClassifier("dpsgd_f", epsilon=3.0, group_col="sex", keep_reference=True)
    preprocessor = public_preprocessor(facts["bounds"], categories, passthrough=["sex"])
    model = make_pipeline(preprocessor, clf).fit(train.drop(columns="income"), train["income"])
    features = model[:-1].transform(test.drop(columns="income"))
    frame = MetricFrame(
        metrics={"accuracy": accuracy_score, "cost": privacy_cost},
        y_true=test["income"],
        y_pred=clf.predict(features),
        sensitive_features=test["sex"],
        sample_params={"cost": {"y_ref": clf.reference_.predict(features)}},
    )
    assert list(frame.by_group.index) == list(clf.levels_) == ["Female", "Male"]
    assert clf.privacy_.epsilon <= 3.0
    np.testing.assert_array_equal(model.predict(test), clf.predict(features))


def test_defaults_on_dutch(outside_data):
    data = fetch_dutch(data_home=outside_data)
    x = public_preprocessor(**public_facts("dutch")).fit_transform(data.data).to_numpy(np.float32)
    costs = []
    for seed in range(2):
        train, test, y, y_test = train_test_split(x, data.target, test_size=0.2, random_state=seed)
        reference = LogisticRegression(C=10, max_iter=500).fit(train, y).score(test, y_test)
        costs.append(reference - DPFairClassifier(epsilon=1.0).fit(train, y).score(test, y_test))
    assert np.mean(costs) <= 0.008
