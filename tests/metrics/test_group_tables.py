"""The table of the measures of models by group: cells, names and refusals."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import balanced_accuracy_score

from skdpfair.metrics import excessive_risk, group_table, privacy_cost


def test_group_table_has_the_columns_of_the_measures_and_costs(case):
    models = {"sgd": case.y_ref, "dpsgd": case.y_pred}
    table = group_table(case.y_true, models, reference="sgd", sensitive_features=case.groups)
    worst = {"accuracy": "min", "balanced_accuracy": "min", "privacy_cost": "max"}
    assert list(table) == [
        f"{name}{part}"
        for name, end in worst.items()
        for part in ("", "[F]", "[M]", "_difference", f"_group_{end}")
    ]
    assert (list(table.index), table.index.name) == (["sgd", "dpsgd"], "model")
    assert table.attrs["reference"] == "sgd"
    rows = slice(3), slice(3, 6)
    by_group = [
        privacy_cost(case.y_true[part], case.y_pred[part], y_ref=case.y_ref[part]) for part in rows
    ]
    costs = table.loc["dpsgd", "privacy_cost[F]":"privacy_cost_difference"].tolist()
    assert costs == pytest.approx([*by_group, abs(by_group[0] - by_group[1])])
    assert (table.loc["sgd", "privacy_cost[F]":] == 0).all()


@pytest.fixture
def rare():
    """120 records of two groups, of which 11 % are positive, with probabilities of two models."""
    rng = np.random.default_rng(0)
    y_true = (np.arange(120) < 13).astype(int)
    groups = np.where(np.arange(120) % 3 == 0, "F", "M")
    likely = {
        name: np.clip(0.2 + 0.5 * y_true + rng.normal(0, noise, 120), 0.01, 0.99)
        for name, noise in (("sgd", 0.1), ("dpsgd", 0.3))
    }
    likely = {name: np.stack([1 - p, p], axis=1) for name, p in likely.items()}
    return y_true, groups, likely


def test_group_table_measures_are_those_of_a_loop_over_groups(rare):
    y_true, groups, likely = rare
    predictions = {name: p.argmax(axis=1) for name, p in likely.items()}
    expected = {
        "accuracy": lambda t, p: np.mean(t == p.argmax(axis=1)),
        "balanced_accuracy": lambda t, p: balanced_accuracy_score(t, p.argmax(axis=1)),
        "rarest_class_recall": lambda t, p: np.mean(p[t == 1, 1] > 0.5),
        "true_positive_rate": lambda t, p: np.mean(p[t == 1, 1] > 0.5),
        "false_positive_rate": lambda t, p: np.mean(p[t == 0, 1] > 0.5),
        "false_negative_rate": lambda t, p: np.mean(p[t == 1, 1] <= 0.5),
        "selection_rate": lambda t, p: np.mean(p[:, 1] > 0.5),
        "roc_auc": lambda t, p: np.mean(p[t == 1, 1][:, None] > p[t == 0, 1]),
        "log_loss": lambda t, p: -np.mean(np.log(p[np.arange(len(t)), t])),
        "rarest_class_share": lambda t, p: np.mean(t),
    }
    given = {"reference": "sgd", "sensitive_features": groups, "probabilities": likely}
    table = group_table(y_true, predictions, measures=[*expected, "excessive_risk"], **given)
    for name, measure in expected.items():
        each = {g: measure(y_true[groups == g], likely["dpsgd"][groups == g]) for g in ("F", "M")}
        row = table.loc["dpsgd"]
        assert row[name] == pytest.approx(measure(y_true, likely["dpsgd"]))
        assert {g: row[f"{name}[{g}]"] for g in each} == pytest.approx(each)
        assert row[f"{name}_difference"] == pytest.approx(max(each.values()) - min(each.values()))
        if f"{name}_group_min" in table:
            assert row[f"{name}_group_min"] == pytest.approx(min(each.values()))
    less_is_better = {"false_positive_rate", "false_negative_rate", "log_loss", "excessive_risk"}
    assert {c.removesuffix("_group_max") for c in table if c.endswith("max")} == less_is_better
    rows = groups == "F"
    risk = excessive_risk(y_true[rows], likely["dpsgd"][rows], y_ref=likely["sgd"][rows])
    assert table.loc["dpsgd", "excessive_risk[F]"] == pytest.approx(risk)
    assert (table.loc["sgd", "excessive_risk":] == 0).all()


def test_group_table_of_a_rare_class_has_its_recall_and_cost(rare):
    y_true, groups, likely = rare
    nobody = {"sgd": likely["sgd"].argmax(axis=1), "constant": np.zeros(120, int)}
    table = group_table(y_true, nobody, reference="sgd", sensitive_features=groups)
    row = table.loc["constant"]
    assert row["privacy_cost"] < 0.11 and row["rarest_class_recall"] == 0
    recall = table.loc["sgd", "rarest_class_recall"]
    assert row["rarest_class_recall_cost"] == recall > 0.9
    assert row["balanced_accuracy_cost"] == table.loc["sgd", "balanced_accuracy"] - 0.5
    # the same table of the other class: its recall, not that of the positive class
    turned = {name: 1 - y_pred for name, y_pred in nobody.items()}
    other = group_table(1 - y_true, turned, reference="sgd", sensitive_features=groups)
    pd.testing.assert_frame_equal(table, other)


def test_group_table_is_nan_for_a_group_without_the_records_of_a_measure():
    y_true, groups = [1, 0, 0, 0, 0, 1], ["a", "a", "b", "b", "b", "a"]
    names = ["true_positive_rate", "false_positive_rate", "balanced_accuracy", "roc_auc"]
    likely = {"m": np.stack([np.full(6, 0.7), np.full(6, 0.3)], axis=1)}
    given = {"reference": "m", "sensitive_features": groups, "probabilities": likely}
    with pytest.warns(UndefinedMetricWarning):
        row = group_table(y_true, {"m": [1, 0, 1, 0, 0, 0]}, measures=names, **given).loc["m"]
    assert row[[f"{n}[b]" for n in names]].isna().tolist() == [True, False, True, True]
    assert row["false_positive_rate[b]"] == pytest.approx(1 / 3)
    assert row["true_positive_rate_group_min"] == row["true_positive_rate[a]"] == 0.5
    assert np.isnan(row["true_positive_rate_difference"])  # b has none to compare with


def test_group_table_of_three_classes_has_no_true_positive_rate():
    y_true, likely = [0, 1, 2, 0], np.full((4, 3), 1 / 3)
    given = {"reference": "m", "sensitive_features": ["a"] * 4, "probabilities": {"m": likely}}
    with pytest.raises(ValueError, match=r"measures must be one of 'accuracy'.*'excessive_risk'"):
        group_table(y_true, {"m": y_true}, measures=["true_positive_rate"], **given)
    table = group_table(y_true, {"m": y_true}, measures=["log_loss", "roc_auc"], **given)
    assert table.loc["m", "log_loss"] == pytest.approx(np.log(3))
    assert table.loc["m", "roc_auc"] == 0.5


@pytest.mark.parametrize(
    "message, change",
    [
        ("^reference must name .*'dpsgd'.*got 'sgd'", {"predictions": {"dpsgd": 0}}),
        ("^predictions must be a dict.*got list.*'reference'", {"predictions": [1]}),
        (r"^predictions\['p'\] .*120", {"predictions": {"p": [1], "sgd": 0}}),
        ("^measures .*Did you mean 'accuracy'", {"measures": ["accurac"]}),
        ("^measures .*one of 'accuracy'.*got 'roc_auc'", {"measures": ["roc_auc"]}),
        ("^measures must be a list of names", {"measures": "accuracy"}),
        ("^measures .*at least one", {"measures": []}),
        ("^probabilities .*dict", {"probabilities": {"sgd": 0}}),
        *(
            ("^sensitive_features ", {"sensitive_features": g})
            for g in (None, ["a"], ["a", None] * 60)
        ),
    ],
)
def test_group_table_refuses_arguments_by_name(rare, message, change):
    y_true, groups, likely = rare
    predictions = {name: p.argmax(axis=1) for name, p in likely.items()}
    given = {"predictions": predictions, "reference": "sgd", "sensitive_features": groups}
    with pytest.raises((ValueError, TypeError), match=message):
        group_table(y_true, **given | change)


@pytest.mark.parametrize(
    ("groups", "names"),
    [
        ({"sex": list("FFMM"), "race": list("wbww")}, ["F, b", "F, w", "M, w"]),
        (pd.Series(list("FFMM"), dtype=pd.CategoricalDtype(["F", "M", "nobody"])), ["F", "M"]),
    ],
)
def test_group_table_names_the_groups_that_occur(groups, names):
    y = [0, 1, 0, 1]
    given = {"reference": "m", "sensitive_features": groups, "measures": ["selection_rate"]}
    table = group_table(y, {"m": y}, **given)
    assert list(table)[1:-2] == [f"selection_rate[{name}]" for name in names]
