import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import accuracy_score, balanced_accuracy_score

from skdpfair.metrics import (
    dg_gap,
    excessive_risk,
    group_table,
    privacy_cost,
    release_group_table,
)
from skdpfair.metrics._measures import leading_measures, values_by_group


def test_the_cells_are_the_measures(case):
    models = {"sgd": case.y_ref, "dpsgd": case.y_pred}
    table = group_table(case.y_true, models, reference="sgd", sensitive_features=case.groups)
    assert list(table.index) == ["sgd", "dpsgd"]
    assert table.index.name == "model"
    assert table.attrs["reference"] == "sgd"
    assert list(table) == [
        f"{name}{part}"
        for name, worst in (
            ("accuracy", "min"),
            ("balanced_accuracy", "min"),
            ("privacy_cost", "max"),
        )
        for part in ("", "[F]", "[M]", "_difference", f"_group_{worst}")
    ]
    for name, y_pred in models.items():
        row = table.loc[name]
        assert row["accuracy"] == accuracy_score(case.y_true, y_pred)
        balanced = balanced_accuracy_score(case.y_true, y_pred)
        assert row["balanced_accuracy"] == pytest.approx(balanced)
        assert row["accuracy[F]"] == accuracy_score(case.y_true[:3], y_pred[:3])
        costs = [
            privacy_cost(case.y_true[part], y_pred[part], y_ref=case.y_ref[part])
            for part in (slice(3), slice(3, 6))
        ]
        assert [row["privacy_cost[F]"], row["privacy_cost[M]"]] == costs
        assert row["privacy_cost_difference"] == pytest.approx(abs(costs[0] - costs[1]))
    assert (table.loc["sgd", "privacy_cost[F]":] == 0).all()


def test_an_unknown_reference_and_a_short_prediction_are_named():
    with pytest.raises(ValueError, match=r"reference must name one of .*'dpsgd'.*got 'sgd'"):
        group_table([1], {"dpsgd": [1]}, reference="sgd", sensitive_features=["a"])
    with pytest.raises(TypeError, match=r"predictions must be a dict .* got list.*'reference'"):
        group_table([1], [1], reference="sgd", sensitive_features=["a"])
    with pytest.raises(ValueError, match=r"predictions\['dpsgd'\] must have one entry"):
        group_table(
            [1, 0], {"sgd": [1, 0], "dpsgd": [1]}, reference="sgd", sensitive_features=["a", "b"]
        )


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


def test_measures_are_those_of_a_loop_over_groups(rare):
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
    table = group_table(
        y_true,
        predictions,
        reference="sgd",
        sensitive_features=groups,
        probabilities=likely,
        measures=[*expected, "excessive_risk"],
    )
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


def test_a_rare_class_brings_its_recall_and_what_that_costs(rare):
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


def test_a_group_without_the_records_that_a_measure_needs_is_nan():
    y_true, groups = [1, 0, 0, 0, 0, 1], ["a", "a", "b", "b", "b", "a"]
    names = ["true_positive_rate", "false_positive_rate", "balanced_accuracy", "roc_auc"]
    likely = np.stack([np.full(6, 0.7), np.full(6, 0.3)], axis=1)
    with pytest.warns(UndefinedMetricWarning, match="lack the records"):
        row = group_table(
            y_true,
            {"m": [1, 0, 1, 0, 0, 0]},
            reference="m",
            sensitive_features=groups,
            probabilities={"m": likely},
            measures=names,
        ).loc["m"]
    assert row[[f"{n}[b]" for n in names]].isna().tolist() == [True, False, True, True]
    assert row["false_positive_rate[b]"] == pytest.approx(1 / 3)
    assert row["true_positive_rate_group_min"] == row["true_positive_rate[a]"] == 0.5
    assert np.isnan(row["true_positive_rate_difference"])  # b has none to compare with


def test_three_classes_have_no_true_positive_rate():
    y_true, likely = [0, 1, 2, 0], np.full((4, 3), 1 / 3)
    given = {"reference": "m", "sensitive_features": ["a"] * 4, "probabilities": {"m": likely}}
    with pytest.raises(ValueError, match=r"measures must be one of 'accuracy'.*'excessive_risk'"):
        group_table(y_true, {"m": y_true}, measures=["true_positive_rate"], **given)
    table = group_table(y_true, {"m": y_true}, measures=["log_loss", "roc_auc"], **given)
    assert table.loc["m", "log_loss"] == pytest.approx(np.log(3))
    assert table.loc["m", "roc_auc"] == 0.5


def test_unknown_measures_and_wrong_probabilities_are_named(rare):
    y_true, groups, likely = rare
    predictions = {name: p.argmax(axis=1) for name, p in likely.items()}
    given = {"reference": "sgd", "sensitive_features": groups}
    with pytest.raises(ValueError, match=r"measures must be one of .*Did you mean 'accuracy'"):
        group_table(y_true, predictions, measures=["accurac"], **given)
    with pytest.raises(ValueError, match=r"one of 'accuracy'.* got 'roc_auc'"):
        group_table(y_true, predictions, measures=["roc_auc"], **given)
    with pytest.raises(TypeError, match="measures must be a list of names"):
        group_table(y_true, predictions, measures="accuracy", **given)
    with pytest.raises(ValueError, match="measures must name at least one"):
        group_table(y_true, predictions, measures=[], **given)
    with pytest.raises(ValueError, match=r"probabilities must be a dict with the models"):
        group_table(y_true, predictions, probabilities={"sgd": likely["sgd"]}, **given)


@pytest.mark.parametrize(("share", "n_classes", "leads"), [
    (0.29, 2, "balanced_accuracy"), (0.3, 2, "accuracy"),
    (0.19, 3, "balanced_accuracy"), (0.21, 3, "accuracy"),
])  # fmt: skip
def test_a_class_is_rare_below_three_tenths_of_two_classes(share, n_classes, leads):
    assert leading_measures(share, n_classes)[0] == leads


def calibration_error(y_true, likely):
    row = values_by_group(
        y_true, likely.argmax(1), likely, classes=range(likely.shape[1]),
        measures=["calibration_error"])  # fmt: skip
    return row.loc["overall", "calibration_error"]


def test_calibration_is_measured_in_bins_of_equal_width():
    y_true, p = np.array([1, 0, 1, 1, 0, 0]), np.array([0.05, 0.06, 0.95, 0.99, 1.0, 0.5])
    bins = np.minimum((15 * p).astype(int), 14)
    expected = sum(
        (bins == b).mean() * abs(y_true[bins == b].mean() - p[bins == b].mean()) for b in set(bins)
    )
    assert calibration_error(y_true, np.stack([1 - p, p], axis=1)) == pytest.approx(expected)
    three = np.array([[0.8, 0.1, 0.1], [0.8, 0.2, 0.0], [0.1, 0.1, 0.8], [0.8, 0.2, 0.0]])
    assert calibration_error(np.array([0, 1, 2, 0]), three) == pytest.approx(abs(0.75 - 0.8))


def test_a_model_that_diverged_has_no_measure_of_its_probabilities():
    likely = np.array([[0.5, 0.5], [np.nan, np.nan]])
    row = values_by_group([0, 1], [0, 1], likely, classes=[0, 1]).loc["overall"]
    assert row[["roc_auc", "log_loss", "calibration_error"]].isna().all()
    assert row["accuracy"] == row["balanced_accuracy"] == 1


TRUE, PRIVATE = np.array([0, 1, 1, 0, 1, 0, 1, 0]), np.array([0, 1, 0, 0, 1, 1, 1, 0])
GROUPS, LIKELY = np.array(list("aabbaabb")), np.stack([1 - PRIVATE / 2, PRIVATE / 2], axis=1)
PARALLEL = {  # every measure, with arguments that belong to the same records
    dg_gap: {
        "y_true": TRUE, "y_pred": PRIVATE, "is_train": np.arange(8) < 4, "sample_weight": TRUE + 1,
    },
    excessive_risk: {"y_true": TRUE, "y_pred": LIKELY, "y_ref": LIKELY},
    group_table: {
        "y_true": TRUE, "predictions": {"r": TRUE, "p": PRIVATE}, "sensitive_features": GROUPS,
        "probabilities": {"r": LIKELY, "p": LIKELY},
    },
    privacy_cost: {"y_true": TRUE, "y_pred": PRIVATE, "y_ref": TRUE, "sample_weight": TRUE + 1},
    release_group_table: {
        "y_true": TRUE, "y_pred": PRIVATE, "sensitive_features": GROUPS, "persons": np.arange(8),
    },
}  # fmt: skip
OPTIONS = {
    group_table: {"reference": "r"},
    release_group_table: {"epsilon": 1e3, "levels": ["a", "b"]},
}


def in_pandas(values, index):
    if isinstance(values, dict):
        return {name: in_pandas(part, index) for name, part in values.items()}
    return (pd.Series if values.ndim == 1 else pd.DataFrame)(values, index=index)


@pytest.mark.parametrize("measure", PARALLEL, ids=lambda measure: measure.__name__)
def test_arguments_of_other_rows_are_refused(measure):
    """Each pair of arguments is compared, and arrays are matched by position."""
    given, options = PARALLEL[measure], OPTIONS.get(measure, {})
    index = np.arange(8)[::-1]
    of_arrays = measure(**given, **options)
    alike = {name: in_pandas(values, index) for name, values in given.items()}
    assert str(measure(**alike, **options)) == str(of_arrays)
    first, *others = alike
    for name in others:
        other = {name: in_pandas(given[name], np.arange(8))}
        with pytest.raises(ValueError, match=rf"^{name}.* another index than {first}.*to_numpy"):
            measure(**alike | other, **options)


LABELS = {
    "flags of pandas": lambda labels: pd.Series(labels.astype(bool), dtype="boolean"),
    "categories": lambda labels: pd.Series(labels, dtype="category"),
    "several": lambda labels: np.array([0, True, 1.0, 0, 1, False, np.True_, 0.0], dtype=object),
}


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("measure", PARALLEL, ids=lambda measure: measure.__name__)
def test_true_is_one_in_every_measure(measure, kind):
    options = OPTIONS.get(measure, {})
    expected = measure(**PARALLEL[measure], **options)
    found = measure(**PARALLEL[measure] | {"y_true": LABELS[kind](TRUE)}, **options)
    assert str(found) == str(expected)


@pytest.mark.parametrize("measure", PARALLEL, ids=lambda measure: measure.__name__)
def test_texts_are_never_compared_with_numbers(measure):
    texts = {"y_true": TRUE.astype(str)}
    classes = {"classes": [0, 1]} if measure is excessive_risk else {}
    with pytest.raises(ValueError, match=r"must hold (the same labels|every label)"):
        measure(**PARALLEL[measure] | texts, **OPTIONS.get(measure, {}), **classes)


@pytest.mark.parametrize("groups", [None, ["a"], ["a", None, "a", "b"]])
def test_groups_that_are_no_groups_are_refused_by_name(groups):
    with pytest.raises(ValueError, match=r"^sensitive_features "):
        group_table([0] * 4, {"m": [0] * 4}, reference="m", sensitive_features=groups)


@pytest.mark.parametrize(
    ("groups", "names"),
    [
        ({"sex": list("FFMM"), "race": list("wbww")}, ["F, b", "F, w", "M, w"]),
        (pd.Series(list("FFMM"), dtype=pd.CategoricalDtype(["F", "M", "nobody"])), ["F", "M"]),
    ],
)  # fmt: skip
def test_the_groups_that_occur_are_named(groups, names):
    y = [0, 1, 0, 1]
    given = {"reference": "m", "sensitive_features": groups, "measures": ["selection_rate"]}
    table = group_table(y, {"m": y}, **given)
    assert list(table)[1:-2] == [f"selection_rate[{name}]" for name in names]
