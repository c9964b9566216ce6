"""Arguments of all measures: rows of one table, labels of one kind, and refusals by name."""

import numpy as np
import pandas as pd
import pytest

from skdpfair.metrics import dg_gap, excessive_risk, group_table, privacy_cost, release_group_table

TRUE, PRIVATE = np.array([0, 1, 1, 0, 1, 0, 1, 0]), np.array([0, 1, 0, 0, 1, 1, 1, 0])
GROUPS, LIKELY = np.array(list("aabbaabb")), np.stack([1 - PRIVATE / 2, PRIVATE / 2], axis=1)
PARALLEL = {  # every measure, with arguments that belong to the same records
    dg_gap: {"y_pred": PRIVATE, "is_train": np.arange(8) < 4, "sample_weight": TRUE + 1},
    excessive_risk: {"y_pred": LIKELY, "y_ref": LIKELY},
    group_table: {
        "predictions": {"r": TRUE, "p": PRIVATE},
        "sensitive_features": GROUPS,
        "probabilities": {"r": LIKELY, "p": LIKELY},
    },
    privacy_cost: {"y_pred": PRIVATE, "y_ref": TRUE, "sample_weight": TRUE + 1},
    release_group_table: {"y_pred": PRIVATE, "sensitive_features": GROUPS, "persons": np.arange(8)},
}
PARALLEL = {measure: {"y_true": TRUE} | rows for measure, rows in PARALLEL.items()}
OPTIONS = {
    group_table: {"reference": "r"},
    release_group_table: {"epsilon": 1e3, "levels": ["a", "b"]},
}
every_measure = pytest.mark.parametrize("measure", PARALLEL, ids=lambda m: m.__name__)


def measured(measure, **changes):
    return measure(**PARALLEL[measure] | OPTIONS.get(measure, {}) | changes)


def in_pandas(values, index):
    if isinstance(values, dict):
        return {name: in_pandas(part, index) for name, part in values.items()}
    return (pd.Series if values.ndim == 1 else pd.DataFrame)(values, index=index)


@every_measure
def test_check_indexes_of_each_pair_of_arguments(measure):
    """Arrays are matched by position."""
    index = np.arange(8)[::-1]
    alike = {name: in_pandas(values, index) for name, values in PARALLEL[measure].items()}
    assert str(measured(measure, **alike)) == str(measured(measure))
    first, *others = alike
    for name in others:
        other = {name: in_pandas(PARALLEL[measure][name], np.arange(8))}
        with pytest.raises(ValueError, match=rf"^{name}.*index.* {first}.*to_numpy"):
            measured(measure, **alike | other)


LABELS = {
    "flags of pandas": lambda labels: pd.Series(labels.astype(bool), dtype="boolean"),
    "categories": lambda labels: pd.Series(labels, dtype="category"),
    "several": lambda labels: np.array([0, True, 1.0, 0, 1, False, np.True_, 0.0], dtype=object),
}


@pytest.mark.parametrize("kind", LABELS)
@every_measure
def test_as_vector_takes_true_for_one(measure, kind):
    assert str(measured(measure, y_true=LABELS[kind](TRUE))) == str(measured(measure))


def test_check_labels_takes_several_types_of_texts_and_of_numbers():
    texts = pd.Series(["no", "yes", "no"])
    one, other, third = (texts.astype(kind) for kind in ("category", "string", object))
    assert privacy_cost(one, other, y_ref=third) == 0
    assert privacy_cost(list(texts), list(texts), y_ref=texts.to_numpy(object)) == 0
    assert privacy_cost([0, 1], [0.0, 1.0], y_ref=[False, True]) == 0


@every_measure
def test_check_kind_refuses_texts_beside_numbers(measure):
    classes = {"classes": [0, 1]} if measure is excessive_risk else {}
    with pytest.raises(ValueError, match=r"^(y_|predictions|classes).* label"):
        measured(measure, y_true=TRUE.astype(str), **classes)


LABELLED = {"y_true": [0, 1, 0, 1], "y_pred": [0, 1, 1, 1]}
CHANCES = {"y_true": [0, 1, 0, 1], "y_pred": [0.5] * 4, "y_ref": [0.5] * 4}
GOOD = {
    privacy_cost: LABELLED | {"y_ref": [0, 1, 0, 1], "sample_weight": [1] * 4, "metric": None},
    excessive_risk: CHANCES | {"sample_weight": [1] * 4},
    dg_gap: LABELLED | {"is_train": [True, False] * 2, "metric": None},
}
WRONG = {  # of each argument: values that are none
    "y_pred": (["a"] * 4, [0], dict.fromkeys(range(4))),
    "y_ref": (None, [0], [0.5, 0.25, 1, 0]),
    "sample_weight": ([0] * 4, [-1, 1, 1, 1], ["a"] * 4, [np.nan] * 4, [1]),
    "is_train": (["train", "test"] * 2, [True]),
    "metric": ("accuracy",),
}
WRONG_CHANCES = {
    "y_pred": ([1.1] * 4, [np.nan] * 4, ["a"] * 4, [[0.7] * 2] * 4, [[-0.5, 1.5]] * 4, [0.5]),
    "y_ref": (None, [-0.1] * 4, [[[0.5] * 2]] * 4, [[np.nan, 0.5]] * 4),
}
BAD = [(privacy_cost, "y_true", value) for value in (["a"] * 4, np.ones((4, 2)))] + [
    (measure, name, value)
    for measure, good in GOOD.items()
    for name, values in (WRONG | (WRONG_CHANCES if measure is excessive_risk else {})).items()
    for value in values
    if name in good
]


@pytest.mark.parametrize(("measure", "name", "value"), BAD)
def test_measures_refuse_arguments_by_name(measure, name, value):
    named = {"y_true": r"y_(true|pred)"}.get(name, name)
    with pytest.raises((ValueError, TypeError), match=rf"^{named}\b") as caught:
        measure(**GOOD[measure] | {name: value})
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("measure", "change", "message"),
    [
        (privacy_cost, {"y_ref": ["no"] * 4}, r"^y_ref .*y_true"),
        (privacy_cost, {"y_true": [], "y_pred": [], "y_ref": []}, "^y_pred .*at least one"),
        (excessive_risk, {"y_pred": [np.nan] * 4}, r"^y_pred .*diverged.*predict_proba"),
        (
            excessive_risk,
            {"y_pred": [[0.5] * 2] * 4, "classes": [0, 2]},
            "^classes .*classes=model.classes_",
        ),
        (dg_gap, {"metric": lambda y_true, y_pred: 2.5}, r"^metric .*\[0, 1\], got 2.5.*divide"),
    ],
)
def test_refusals_of_measures_have_a_remedy(measure, change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        measure(**GOOD[measure] | {"sample_weight": None} | change)


def test_probabilities_are_no_predictions():
    likely = np.linspace(0.1, 0.9, 8)
    for measure, changes in (
        (privacy_cost, {"y_pred": likely, "y_ref": likely}),
        (group_table, {"predictions": {"r": likely, "p": likely}}),
    ):
        with pytest.raises(ValueError, match="fractions"):
            measured(measure, **changes)
