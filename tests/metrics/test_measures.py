"""Privacy cost, excessive risk and generalisation gap: values by hand, and bad input."""

import math

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import MetricFrame, make_derived_metric
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import accuracy_score, balanced_accuracy_score, log_loss, zero_one_loss

from skdpfair.metrics import dg_gap, excessive_risk, privacy_cost
from skdpfair.metrics._measures import difference, group_max, group_min

bit, label, chance = st.integers(0, 1), st.sampled_from(["no", "yes"]), st.floats(0, 1)
PROB, REF = [0.5, 0.25, 0.5, 0.5], [0.5, 0.5, 0.25, 0.5]


def test_privacy_costs_by_hand(case):
    assert privacy_cost(case.y_true, case.y_pred, y_ref=case.y_ref) == 0
    weighted = {"y_ref": case.y_ref, "sample_weight": case.weight}
    assert privacy_cost(case.y_true, case.y_pred, **weighted) == pytest.approx(5 / 8 - 4 / 8)
    balanced = {"y_ref": [1, 0, 1, 1, 1, 1], "metric": balanced_accuracy_score}
    assert privacy_cost([1, 0, 1, 0, 1, 1], [1, 1, 1, 1, 0, 1], **balanced) == pytest.approx(
        (1 + 1 / 2) / 2 - (3 / 4 + 0) / 2
    )


def test_risks_by_hand():
    y = [0, 1, 0, 1]
    assert excessive_risk(y, PROB, y_ref=REF) == pytest.approx(0)
    risk = excessive_risk(y, PROB, y_ref=REF, sample_weight=[1, 3, 1, 0])
    assert risk == pytest.approx((3 * math.log(2) - math.log(2)) / 5)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(label, label), min_size=1), st.lists(chance, min_size=1))
def test_a_model_costs_nothing_against_itself(rows, likely):
    y_true, y_pred = zip(*rows, strict=True)
    assert privacy_cost(y_true, y_pred, y_ref=y_pred) == 0
    assert excessive_risk([0] * len(likely), likely, y_ref=likely) == 0


def test_risks_are_differences_of_sklearns_log_loss():
    rng = np.random.default_rng(0)
    y, classes = np.array(["no", "yes", "so"] * 10), ["yes", "so", "no"]
    private, reference = rng.dirichlet(np.ones(3), (2, 30))
    risk = excessive_risk(y, private, y_ref=reference, classes=classes)
    at = np.arange(30), [classes.index(label) for label in y]
    own = [likely[at] for likely in (private, reference)]
    assert risk == excessive_risk(y, own[0], y_ref=own[1])
    losses = [log_loss(y, likely[:, [2, 1, 0]]) for likely in (private, reference)]  # sorted
    assert risk == pytest.approx(losses[0] - losses[1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, int])
def test_zero_is_clipped_as_in_log_loss(dtype):
    y_prob = np.array([[1, 0], [1, 0]], dtype=dtype)
    own = y_prob[[0, 1], [0, 1]]
    expected = log_loss([0, 1], y_prob.astype(dtype))
    assert excessive_risk([0, 1], own, y_ref=[1.0, 1.0]) == pytest.approx(expected)


every_part = [(1, 1, True), (0, 1, False)]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(bit, bit, st.booleans()), max_size=20))
def test_gaps_are_differences_of_accuracies(rows):
    y_true, y_pred, is_train = map(np.array, zip(*rows, *every_part, strict=True))
    seen, unseen = (accuracy_score(y_true[r], y_pred[r]) for r in (is_train, ~is_train))
    assert dg_gap(y_true, y_pred, is_train=is_train) == seen - unseen


def test_gaps_of_another_metric_with_weights_and_without_records():
    y, pred, train = [1, 0, 0, 1, 0, 0], [1, 1, 0, 1, 0, 0], [1, 1, 1, 0, 0, 0]
    gap = dg_gap(y, pred, is_train=train, metric=balanced_accuracy_score)
    assert gap == pytest.approx(3 / 4 - 1)
    assert dg_gap(y, pred, is_train=train, sample_weight=[1, 2, 1, 1, 1, 1]) == pytest.approx(-0.5)
    assert dg_gap(y, pred, is_train=train, metric=zero_one_loss) == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match=r"metric must lie in \[0, 1\], got 2.5.*divide"):
        dg_gap(y, pred, is_train=train, metric=lambda y_true, y_pred: 2.5)
    for part, flag in (("test", True), ("training", False)):
        with pytest.warns(UndefinedMetricWarning, match=f"there is no {part} record"):
            assert math.isnan(dg_gap(y, y, is_train=[flag] * 6))


OF_FAIRLEARN = {  # measure, its second array, and its arguments, which have one entry per record
    "cost": (privacy_cost, "y_pred", {"y_ref": [1, 0, 1, 0, 0, 1]}),
    "weighted cost": (
        privacy_cost,
        "y_pred",
        {"y_ref": [1, 0, 1, 0, 0, 1], "sample_weight": [1, 1, 2, 1, 1, 2]},
    ),
    "risk": (excessive_risk, "y_pred", {"y_ref": [0.5, 0.1, 0.9, 0.3, 0.2, 0.7]}),
    "gap": (dg_gap, "y_pred", {"is_train": [True, False, True, True, False, False]}),
}


@pytest.mark.parametrize("name", OF_FAIRLEARN)
def test_fairlearn_compares_groups_by_each_measure(case, name):
    measure, array, params = OF_FAIRLEARN[name]
    answers = {"y_pred": case.y_pred, "y_prob": [0.5, 0.5, 0.6, 0.3, 0.8, 0.7]}[array]
    columns = pd.DataFrame({"y_true": case.y_true, array: answers, **params})
    by_hand = [measure(**columns[np.equal(case.groups, g)]) for g in "FM"]
    frame = MetricFrame(
        metrics=measure,
        y_true=case.y_true,
        y_pred=answers,
        sensitive_features=case.groups,
        sample_params=params,
    )
    assert frame.by_group.tolist() == by_hand
    for transform, expected in (
        ("difference", max(by_hand) - min(by_hand)),
        ("group_max", max(by_hand)),
    ):
        derived = make_derived_metric(
            metric=measure, transform=transform, sample_param_names=[*params]
        )
        value = derived(case.y_true, answers, sensitive_features=case.groups, **params)
        assert value == pytest.approx(expected)


def test_the_rule_is_that_of_fairlearn():
    frame = MetricFrame(
        metrics=lambda y_true, y_pred: np.nan if min(y_true) == 0 else np.mean(y_pred),
        y_true=[0, 1, 2, 2],
        y_pred=[5.0, 1.0, 3.0, 4.0],
        sensitive_features=pd.Series(["a", "b", "c", "c"]),
    )
    assert difference(frame.by_group) == frame.difference() == 2.5
    assert group_min(frame.by_group) == frame.group_min() == 1.0
    assert group_max(frame.by_group) == frame.group_max() == 3.5


LABELS = {"y_true": [0, 1, 0, 1], "y_pred": [0, 1, 1, 1], "y_ref": [0, 1, 0, 1]}
CHANCES = {"y_true": [0, 1, 0, 1], "y_pred": [0.5] * 4, "y_ref": [0.5] * 4}
GOOD = {
    privacy_cost: LABELS | {"sample_weight": [1] * 4},
    excessive_risk: CHANCES | {"sample_weight": [1] * 4},
    dg_gap: {"y_true": [0, 1, 0, 1], "y_pred": [0, 1, 1, 1], "is_train": [True, False] * 2},
}
WRONG = {  # of each argument: values that are none
    "y_true": (["a"] * 4, np.ones((4, 2))),
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
BAD = [
    (measure, name, value)
    for measure, good in GOOD.items()
    for name, values in (WRONG | (WRONG_CHANCES if measure is excessive_risk else {})).items()
    for value in values
    if (name in good or (name == "metric" and measure is not excessive_risk))
    and (name != "y_true" or measure is privacy_cost)
]


@pytest.mark.parametrize(("measure", "name", "value"), BAD)
def test_bad_input_is_named(measure, name, value):
    named = {"y_true": r"y_(true|pred)"}.get(name, name)
    with pytest.raises((ValueError, TypeError), match=rf"^{named}\b") as caught:
        measure(**GOOD[measure] | {name: value})
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("measure", "change", "message"),
    [
        (privacy_cost, {"y_ref": ["no"] * 4}, r"same labels as y_true, but one"),
        (privacy_cost, {"y_true": [], "y_pred": [], "y_ref": []}, "at least one"),
        (excessive_risk, {"y_pred": [np.nan] * 4}, r"diverged.*predict_proba"),
        (excessive_risk, {"y_pred": [[0.5] * 2] * 4, "classes": [0, 2]}, "classes=model.classes_"),
    ],
)
def test_messages_have_a_remedy(measure, change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        measure(**{k: v for k, v in GOOD[measure].items() if k != "sample_weight"} | change)


def test_labels_of_one_kind_may_have_several_types():
    texts = ["no", "yes", "no"]
    kinds = [pd.Series(texts).astype(kind) for kind in ("category", "string", object)]
    assert privacy_cost(kinds[0], kinds[1], y_ref=kinds[2]) == 0
    assert privacy_cost(texts, texts, y_ref=np.array(texts, dtype=object)) == 0
    assert privacy_cost([0, 1], [0.0, 1.0], y_ref=[False, True]) == 0
