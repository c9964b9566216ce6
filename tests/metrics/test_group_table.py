import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, balanced_accuracy_score

from skdpfair.metrics import group_table, privacy_cost, privacy_cost_difference


def test_the_cells_are_the_measures(case):
    models = {"sgd": case.y_ref, "dpsgd": case.y_pred}
    table = group_table(case.y_true, models, reference="sgd", sensitive_features=case.groups)
    assert list(table.index) == ["sgd", "dpsgd"]
    assert table.index.name == "model"
    assert table.attrs["reference"] == "sgd"
    assert list(table) == [
        "accuracy",
        "balanced_accuracy",
        "accuracy[F]",
        "accuracy[M]",
        "privacy_cost[F]",
        "privacy_cost[M]",
        "privacy_cost_difference",
    ]
    for name, y_pred in models.items():
        row = table.loc[name]
        assert row["accuracy"] == accuracy_score(case.y_true, y_pred)
        assert row["balanced_accuracy"] == balanced_accuracy_score(case.y_true, y_pred)
        assert row["accuracy[F]"] == accuracy_score(case.y_true[:3], y_pred[:3])
        cost = privacy_cost(case.y_true[3:], y_pred[3:], y_ref=case.y_ref[3:])
        assert row["privacy_cost[M]"] == cost
        gap = privacy_cost_difference(
            case.y_true, y_pred, y_ref=case.y_ref, sensitive_features=case.groups
        )
        assert row["privacy_cost_difference"] == gap
    assert (table.loc["sgd", "privacy_cost[F]":] == 0).all()


def test_intersections_that_occur(case):
    groups = pd.DataFrame({"sex": case.groups, "race": ["w", "w", "b", "w", "w", "w"]})
    table = group_table(
        case.y_true, {"sgd": case.y_ref}, reference="sgd", sensitive_features=groups
    )
    assert [c for c in table if c.startswith("accuracy[")] == [
        "accuracy[F, b]",
        "accuracy[F, w]",
        "accuracy[M, w]",
    ]
    assert not table.isna().any(axis=None)


def test_an_unknown_reference_and_a_short_prediction_are_named():
    with pytest.raises(ValueError, match=r"reference must name one of .*'dpsgd'.*got 'sgd'"):
        group_table([1], {"dpsgd": [1]}, reference="sgd", sensitive_features=["a"])
    with pytest.raises(ValueError, match=r"reference must name one of .* got ndarray"):
        group_table([1], {"dpsgd": [1]}, reference=np.array([1]), sensitive_features=["a"])
    with pytest.raises(TypeError, match=r"predictions must be a dict .* got list.*'reference'"):
        group_table([1], [1], reference="sgd", sensitive_features=["a"])
    with pytest.raises(ValueError, match=r"sensitive_features has missing values.*fillna"):
        group_table([1], {"a": [1]}, reference="a", sensitive_features=[None])
    with pytest.raises(ValueError, match=r"predictions\['dpsgd'\] must have one entry"):
        group_table(
            [1, 0], {"sgd": [1, 0], "dpsgd": [1]}, reference="sgd", sensitive_features=["a", "b"]
        )
