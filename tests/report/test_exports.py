"""Exports state the report of a fit, rounded up, and leave open what it does not know."""

import json
import re
from copy import copy
from dataclasses import replace

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, TunedThresholdClassifierCV
from sklearn.pipeline import make_pipeline

from skdpfair import DPFairClassifier, DPFairRegressor
from skdpfair.privacy.privacy_report import rounded_up
from skdpfair.release import _file
from skdpfair.report import export_statement, model_card, model_page

pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")


def nist(model, *args, **kwargs):
    return export_statement(model, "nist", *args, **kwargs)


@pytest.fixture
def forms(fitted, tmp_path):
    """The same fit in the forms that are exported."""
    fitted[0].save_release(tmp_path / "model.safetensors")
    return fitted[0], fitted[0].privacy_, make_pipeline(fitted[0]), tmp_path / "model.safetensors"


def test_exports_of_all_forms_state_the_same_report(forms, fitted, page_facts):
    privacy = fitted[0].privacy_
    for model in forms:
        facts, text = page_facts(nist, model), nist(model)
        assert facts["report"] == privacy
        assert (facts["epsilon"], facts["mu"]) == tuple(
            map(rounded_up, (privacy.epsilon, privacy.mu))
        )
        numbers = (facts["epsilon"], f"{privacy.noise_multiplier:.4g}", f"{privacy.steps} steps")
        assert all(number in text for number in numbers)
        assert "NOT private" not in text
        assert text.count("- [ ]") > 10 and text.count("- [x]") > 5
    assert nist(forms[0]) == nist(forms[2])


def test_json_holds_the_fields_of_the_report(forms, fitted):
    *models, path = forms
    of_file = json.loads(export_statement(path, "json"))
    assert of_file.pop("release")["estimator"] == "DPFairClassifier"
    assert all(json.loads(export_statement(model, "json")) == of_file for model in models)
    assert of_file["epsilon"] == fitted[0].privacy_.epsilon


def test_intended_use_is_escaped(fitted):
    text = nist(fitted[0], intended_use="To rank <letters>.")
    assert "To rank &lt;letters&gt;." in text and "<letters>" not in text


def test_group_table_of_nist_counts_and_is_marked(fitted, hostile):
    clf, data, groups = fitted
    text = nist(clf, data.data, data.target, sensitive_features=groups, measures=["accuracy"])
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    shown = {row[0].removeprefix("| "): (row[1], row[2].split()[0]) for row in rows[2:]}
    escaped = "&lt;b onclick=x&gt;&#124;a&#124;&lt;/b&gt;"
    for group, name in [("b", "b"), (hostile, escaped)]:
        right = (clf.predict(data.data) == data.target)[groups == group]
        assert shown[name] == (f"{len(right):,}", f"{100 * right.mean():.1f}")
    assert text.count("NOT private") == 3 and hostile not in text


def test_nist_follows_the_pyramid_from_top_to_bottom(fitted):
    heads = re.findall(r"^## (\w+) of the pyramid \(Section (\d)\): .", nist(fitted[0]), re.M)
    assert [level for level, _ in heads] == 2 * ["Top"] + 3 * ["Middle"] + 4 * ["Bottom"]
    assert {(level, int(n)) for level, n in heads} == {("Top", 2), ("Middle", 3), ("Bottom", 4)}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"adjacency": "zero_out_person", "max_records": 3}, "of which at most 3"),
        ({"method": "private selection", "releases": ()}, "Method dpsgd, by private selection"),
        ({"seeded": True}, "noise was seeded"),
        ({"records_per_person": 4}, "at most 4 records is protected"),
        ({"group_epsilons": {1: 0.12341, "1": 1.5}}, "1: 0.1235; &#x27;1&#x27;: 1.5."),
        ({"epsilon": np.inf, "is_private": False, "releases": ()}, "ε is infinite"),
        ({"epsilon": 1.23401, "delta": 1.0001e-5}, "ε = 1.235 at δ = 1.01e-05"),
    ],
)
def test_nist_states_changes_of_the_report(changes, expected, fitted):
    model = copy(fitted[0])
    model.privacy_ = replace(model.privacy_, **changes)
    text = nist(model)
    assert expected in text and expected not in nist(fitted[0])
    assert ("μ = " in text) == model.privacy_.is_private
    stated = json.loads(export_statement(model, "json"))["group_epsilons"]
    assert stated is None or stated == {"1": 0.12341, "'1'": 1.5}


def test_nist_of_a_regressor_takes_no_test_records(tmp_path):
    X = np.linspace(0, 1, 2000)[:, None]
    model = DPFairRegressor("dpsgd", y_range=(0, 5), epsilon=2.0, max_steps=5).fit(X, 5 * X[:, 0])
    model.save_release(tmp_path / "model.safetensors")
    for described in (model, tmp_path / "model.safetensors"):
        assert "Method dpsgd." in nist(described)
        with pytest.raises(ValueError, match=r"^X, y, .* None"):
            nist(described, X, X[:, 0])


def test_export_statement_refuses_by_name(fitted, tmp_path):
    clf, data, _ = fitted
    X, y = data.data, data.target
    for arguments, options, named in (
        ((clf, "iso"), {}, "^kind .*'iso'"),
        ((clf, "json", X, y), {}, "^X, y, .*'json'"),
        ((clf, "json"), {"intended_use": "Ours."}, "^intended_use .*'json'"),
        ((clf.privacy_, "nist"), {"measures": ["accuracy"]}, "measures .* reports"),
    ):
        with pytest.raises(ValueError, match=named):
            export_statement(*arguments, **options)
    with pytest.raises(TypeError, match=r"^classifier .*LogisticRegression"):
        nist(LogisticRegression().fit(X, y))
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"{}")
    with pytest.raises(ValueError, match=r"model\.safetensors is not a safetensors"):
        nist(path)
    clf.save_release(path)
    facts, weights = _file.opened(path)[:2]
    _file.write(path, facts | {"fitted": facts["fitted"] | {"method_": 3}}, weights)
    with pytest.raises(ValueError, match=r"model\.safetensors holds no description"):
        nist(path)


SHORT = {"epsilon": 5.0, "max_steps": 2, "module": "logistic"}


AROUND = [  # learns from records beside the classifier in it
    CalibratedClassifierCV(DPFairClassifier("dpsgd", **SHORT), cv=2),
    TunedThresholdClassifierCV(DPFairClassifier("dpsgd", **SHORT), cv=2),
    GridSearchCV(DPFairClassifier("dpsgd", **SHORT), {"lr": [0.1]}, cv=2),
    TransformedTargetRegressor(DPFairRegressor("dpsgd", y_range=(0, 1), **SHORT)),
]


@pytest.mark.parametrize("around", AROUND, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("is_last", [False, True])
def test_models_that_learn_beside_the_classifier_have_no_statement(around, is_last, fitted):
    model = make_pipeline(around) if is_last else around
    model.fit(fitted[1].data, fitted[1].target)
    for write in (model_page, model_card, nist, lambda model: export_statement(model, "json")):
        with pytest.raises(TypeError, match=r"^classifier .* DPThresholdClassifier"):
            write(model)
