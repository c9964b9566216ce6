"""What the Fairlearn dashboard takes: classes as numbers, and names that end no script."""

import itertools

import pandas as pd
import pytest
from sklearn.metrics import accuracy_score

from skdpfair.model_selection import TradeoffResults
from skdpfair.model_selection._sweep_spec import SweepSpec
from skdpfair.report._fairness_dashboard import _metrics, _safe_names, launch, numbered
from tests.model_selection.runs import CELLS, results_of


def test_numbered_counts_classes_that_nobody_has(by_hand):
    parts = {"a": pd.DataFrame({"y_true": ["no", "yes"], "y_pred": ["yes", "yes"], "group": "F"})}
    results = TradeoffResults(
        by_hand.results().frame, spec=SweepSpec(classes=["maybe", "no", "yes"])
    )
    assert numbered(results, parts)["a"]["y_true"].tolist() == [1, 2]
    results.spec = SweepSpec()
    assert numbered(results, parts)["a"]["y_pred"].tolist() == [1, 1]


def test_safe_names_are_distinct_and_end_no_script():
    names = _safe_names(["</script>", "‹/script›", '"', "`${\\&", "a\nb"])
    assert len(set(names.values())) == 5 and not set("".join(names.values())) & set('<>"`$\\&\n')


def test_launch_refuses_ports_and_classes_that_it_cannot_show(by_hand):
    part = pd.DataFrame({"y_true": [0, 1], "y_pred": [1, 1], "group": "F"})
    found = TradeoffResults(by_hand.results().frame, {("poor", 1.0, 0, 0): part})
    with pytest.raises(ValueError, match=r"^port .*70000"):
        launch(found, 70_000)
    found.predictions["poor", 1.0, 0, 0] = part.assign(y_pred=[2, 1])
    with pytest.raises(ValueError, match="more than two classes"):
        launch(found)


@pytest.fixture
def results():
    return results_of(CELLS)


def test_to_fairness_dashboard_has_the_predictions_of_one_run(results):
    arguments = results.to_fairness_dashboard(seed=1)
    true, predictions = arguments["y_true"], arguments["y_pred"]
    names = ["reference", "poor, epsilon 1", "even, epsilon 1", "even, epsilon 4"]
    assert list(predictions) == names
    columns = [*predictions.values(), true, arguments["sensitive_features"]["group"]]
    assert {(type(column), len(column)) for column in columns} == {(list, 300)}
    assert accuracy_score(true, predictions["reference"]) == pytest.approx(274 / 300)
    with pytest.raises(ValueError, match=r"seed=7, fold=0 .*\(0, 0\), \(1, 0\)"):
        results.to_fairness_dashboard(seed=7)
    spec = SweepSpec(variables=["", "sex"], classes=["no", "yes"])
    by_sex = TradeoffResults(results.frame, results.predictions, spec)
    assert list(by_sex.to_fairness_dashboard()["sensitive_features"]) == ["sex"]
    similar = results_of(CELLS, ["<", "‹"])
    column = similar.to_fairness_dashboard()["sensitive_features"]["group"]
    assert sorted(column.count(name) for name in set(column)) == [100, 200]


def test_metrics_of_the_dashboard_are_finite_and_without_accuracy_of_a_rare_class(results):
    offered = [name for name, metric in _metrics(results).items() if metric["model_type"]]
    assert offered[:2] == ["accuracy_score", "balanced_accuracy_score"]
    for part in ("rarest_class_share", "balanced_accuracy", "rarest_class_recall"):
        results.frame[part] = 0.11
    metrics = _metrics(results)
    assert [n for n, metric in metrics.items() if metric["model_type"]] == offered[1:]
    assert "accuracy_score" in metrics
    for metric in metrics.values():
        for y_true, y_pred in itertools.product([[0, 0], [1, 1], [0, 1]], repeat=2):
            assert 0 <= metric["function"](y_true, y_pred) <= 1
