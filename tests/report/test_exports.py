"""What exports quote is what the report says, rounded up, and what nobody knows stays open."""

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

from skdpfair import DPFairClassifier, DPFairRegressor, Groups
from skdpfair.datasets import make_two_groups
from skdpfair.privacy.statement import rounded_up
from skdpfair.release import _file
from skdpfair.report import export_statement, model_card, model_page

pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")

HOSTILE = "<b>|a|</b>"


@pytest.fixture(scope="module")
def data():
    made = make_two_groups(3000, random_state=0)
    return made.data, made.target, np.where(made.sensitive_features == "a", HOSTILE, "b")


@pytest.fixture(scope="module")
def fitted(data):
    X, y, groups = data
    clf = DPFairClassifier(
        "dpsgd", epsilon=1.7, group_col=Groups(levels=[HOSTILE, "b"]), max_steps=10
    )
    return clf.fit(X, y, sensitive_features=groups)


@pytest.fixture(scope="module", params=["estimator", "report", "file"])
def model(request, fitted, tmp_path_factory):
    """The same fit in the three forms that are exported."""
    if request.param == "report":
        return fitted.privacy_
    if request.param == "estimator":
        return fitted
    path = tmp_path_factory.mktemp("release") / "model.safetensors"
    fitted.save_release(path)
    return str(path)


def numbers(pattern, text):
    (found,) = {tuple(map(float, m.groups())) for m in re.finditer(pattern, text)}
    return found


def test_the_numbers_are_those_of_the_report_rounded_up(model, fitted):
    text, privacy = nist(model), fitted.privacy_
    epsilon, delta = numbers(r"ε = (\S+) at δ = ([\de.-]+\d)", text)
    assert privacy.epsilon <= epsilon == float(rounded_up(privacy.epsilon))
    assert privacy.delta <= delta <= 1.01 * privacy.delta
    (found,) = numbers(r"finds at most (\S+) % of the records that were used", text)
    assert 100 * privacy.detection_rate(0.01) <= found <= 101 * privacy.detection_rate(0.01)
    (mu,) = numbers(r"μ = ([\d.]+\d)", text)
    assert privacy.mu <= mu <= 1.001 * privacy.mu
    (noise,) = numbers(r"noise with multiplier ([\d.]+\d)", text)
    assert noise == pytest.approx(privacy.noise_multiplier, rel=1e-3)
    assert f"{privacy.steps} steps" in text and "NOT private" not in text
    assert text.count("- [ ]") > 10 and text.count("- [x]") > 5


def test_the_fields_of_a_report_are_written_as_json(fitted, tmp_path):
    fitted.save_release(tmp_path / "model.safetensors")
    of_file = json.loads(export_statement(tmp_path / "model.safetensors", "json"))
    assert of_file.pop("release")["estimator"] == "DPFairClassifier"
    for model in (fitted, fitted.privacy_):
        assert json.loads(export_statement(model, "json")) == of_file
    assert of_file["epsilon"] == fitted.privacy_.epsilon


def test_bounds_are_never_rounded_down(fitted):
    report = replace(fitted.privacy_, epsilon=1.23401, delta=1.0001e-5)
    assert "ε = 1.235 at δ = 1.01e-05" in export_statement(report, "nist")


def test_an_intended_use_is_escaped(fitted):
    text = export_statement(fitted, "nist", intended_use="To rank <letters>.")
    assert "To rank &lt;letters&gt;." in text and "<letters>" not in text


def test_a_group_table_counts_and_says_that_it_is_not_private(fitted, data):
    X, y, groups = data
    text = export_statement(fitted, "nist", X, y, sensitive_features=groups)
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    shown = {
        row[0].removeprefix("| "): (int(row[1].replace(",", "")), float(row[2].split()[0]))
        for row in rows[2:]
    }
    for group, name in [("b", "b"), (HOSTILE, "&lt;b&gt;&#124;a&#124;&lt;/b&gt;")]:
        right = fitted.predict(X)[groups == group] == y[groups == group]
        assert shown[name] == (len(right), pytest.approx(100 * right.mean(), abs=0.051))
    assert text.count("which is NOT private") == 2 and "**NOT private" in text
    assert HOSTILE not in text


def test_nist_follows_the_pyramid_from_top_to_bottom(fitted):
    heads = re.findall(r"^## (\w+) of the pyramid \(Section (\d)\): .", nist(fitted), re.M)
    assert [level for level, _ in heads] == 2 * ["Top"] + 3 * ["Middle"] + 4 * ["Bottom"]
    assert {(level, int(n)) for level, n in heads} == {("Top", 2), ("Middle", 3), ("Bottom", 4)}


def nist(model):
    return export_statement(model, "nist")


def test_persons_and_private_searches_are_told(fitted):
    privacy = fitted.privacy_
    persons = replace(privacy, adjacency="zero_out_person", max_records=3)
    assert "all records of one person, of which at most 3 take part" in nist(persons).lower()
    several = replace(privacy, records_per_person=4)
    assert f"at most 4 records is protected with ε = {rounded_up(privacy.epsilon_for(4))}" in (
        nist(several)
    )
    search = replace(privacy, method="private selection", releases=())
    assert "best of a random number of trials" in nist(search)
    chosen = copy(fitted)
    chosen.privacy_ = search
    assert f"ethod {fitted.method}, by private selection" in nist(chosen)  # as on the page
    seeded = replace(privacy, seeded=True)
    assert "the noise was seeded" in nist(seeded)
    by_group = replace(privacy, group_epsilons={"a": 0.12341, "b": 1.7})
    assert "a: 0.1235; b: 1.7." in nist(by_group)
    alike = replace(privacy, group_epsilons={1: 0.25, "1": 1.5})
    assert "1: 0.25; &#x27;1&#x27;: 1.5." in nist(alike)
    assert alike.facts()["group_epsilons"] == {"1": 0.25, "'1'": 1.5}
    assert "epsilon['1']: 1.5" in alike.details()


def test_without_privacy_there_is_no_number(fitted):
    report = replace(fitted.privacy_, epsilon=np.inf, is_private=False, releases=())
    text = nist(report)
    assert "NOT differentially private" in text and "finds at most" not in text


def test_a_regressor_takes_no_test_records(tmp_path):
    X = np.linspace(0, 1, 2000)[:, None]
    model = DPFairRegressor("dpsgd", y_range=(0, 5), epsilon=2.0, max_steps=5).fit(X, 5 * X[:, 0])
    model.save_release(tmp_path / "model.safetensors")
    for described in (model, tmp_path / "model.safetensors"):
        assert "Method dpsgd." in nist(described)
        with pytest.raises(ValueError, match="must be None"):
            export_statement(described, "nist", X, X[:, 0])


def test_what_cannot_be_exported_is_refused_by_name(fitted, data, tmp_path):
    X, y, _ = data
    with pytest.raises(ValueError, match="kind must be one of"):
        export_statement(fitted, "iso")
    with pytest.raises(TypeError, match="classifier must be a fitted"):
        export_statement(LogisticRegression().fit(X, y), "nist")
    with pytest.raises(ValueError, match="holds no figures of records"):
        export_statement(fitted, "json", X, y)
    with pytest.raises(ValueError, match="intended_use must be None"):
        export_statement(fitted, "json", intended_use="Ours.")
    with pytest.raises(ValueError, match="do not predict"):
        export_statement(fitted.privacy_, "nist", measures=["accuracy"])
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"{}")
    with pytest.raises(ValueError, match="not a safetensors file"):
        export_statement(path, "nist")
    fitted.save_release(path)
    facts, weights = _file.read(path)
    _file.write(path, facts | {"fitted": facts["fitted"] | {"method_": 3}}, weights)
    with pytest.raises(ValueError, match="holds no description of a model"):
        export_statement(path, "nist")


SHORT = {"epsilon": 5.0, "max_steps": 2, "module": "logistic"}
AROUND = [  # learns from records beside the classifier in it
    CalibratedClassifierCV(DPFairClassifier("dpsgd", **SHORT), cv=2),
    TunedThresholdClassifierCV(DPFairClassifier("dpsgd", **SHORT), cv=2),
    GridSearchCV(DPFairClassifier("dpsgd", **SHORT), {"lr": [0.1]}, cv=2),
    TransformedTargetRegressor(DPFairRegressor("dpsgd", y_range=(0, 1), **SHORT)),
]


@pytest.mark.parametrize("around", AROUND, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("is_last", [False, True])
def test_no_statement_covers_what_learns_beside_the_classifier(around, is_last, data):
    model = make_pipeline(around) if is_last else around
    model.fit(*data[:2])
    for write in (model_page, model_card, nist, lambda model: export_statement(model, "json")):
        with pytest.raises(TypeError, match=r"No statement covers .* DPThresholdClassifier"):
            write(model)


def test_a_pipeline_is_stated_by_its_last_step(fitted):
    for kind in ("nist", "json"):
        assert export_statement(make_pipeline(fitted), kind) == export_statement(fitted, kind)
