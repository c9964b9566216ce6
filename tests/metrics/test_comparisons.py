"""Privacy cost, excessive risk and generalisation gap: values by hand and by scikit-learn."""

import math

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import MetricFrame, make_derived_metric
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    log_loss,
    mean_absolute_error,
    r2_score,
    zero_one_loss,
)

from skdpfair.metrics import dg_gap, excessive_risk, privacy_cost

bit, label, chance = st.integers(0, 1), st.sampled_from(["no", "yes"]), st.floats(0, 1)
PROB, REF = [0.5, 0.25, 0.5, 0.5], [0.5, 0.5, 0.25, 0.5]


def test_privacy_cost_by_hand(case):
    assert privacy_cost(case.y_true, case.y_pred, y_ref=case.y_ref) == 0
    weighted = {"y_ref": case.y_ref, "sample_weight": case.weight}
    assert privacy_cost(case.y_true, case.y_pred, **weighted) == pytest.approx(5 / 8 - 4 / 8)
    balanced = {"y_ref": [1, 0, 1, 1, 1, 1], "metric": balanced_accuracy_score}
    assert privacy_cost([1, 0, 1, 0, 1, 1], [1, 1, 1, 1, 0, 1], **balanced) == pytest.approx(
        (1 + 1 / 2) / 2 - (3 / 4 + 0) / 2
    )


def test_excessive_risk_by_hand():
    y = [0, 1, 0, 1]
    assert excessive_risk(y, PROB, y_ref=REF) == pytest.approx(0)
    risk = excessive_risk(y, PROB, y_ref=REF, sample_weight=[1, 3, 1, 0])
    assert risk == pytest.approx((3 * math.log(2) - math.log(2)) / 5)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(label, label), min_size=1), st.lists(chance, min_size=1))
def test_privacy_cost_and_excessive_risk_of_the_reference_are_zero(rows, likely):
    y_true, y_pred = zip(*rows, strict=True)
    assert privacy_cost(y_true, y_pred, y_ref=y_pred) == 0
    assert excessive_risk([0] * len(likely), likely, y_ref=likely) == 0


def test_excessive_risk_is_a_difference_of_log_losses():
    rng = np.random.default_rng(0)
    y, classes = np.array(["no", "yes", "so"] * 10), ["yes", "so", "no"]
    private, reference = rng.dirichlet(np.ones(3), (2, 30))
    risk = excessive_risk(y, private, y_ref=reference, classes=classes)
    at = np.arange(30), [classes.index(label) for label in y]
    own = [likely[at] for likely in (private, reference)]
    assert risk == excessive_risk(y, own[0], y_ref=own[1])
    losses = [log_loss(y, likely[:, [2, 1, 0]]) for likely in (private, reference)]  # sorted
    assert risk == pytest.approx(losses[0] - losses[1])


def test_excessive_risk_and_privacy_cost_are_differences_of_mean_losses():
    rng = np.random.default_rng(0)
    y, in_a = rng.normal(50, 10, 600), rng.random(600) < 0.3
    private, reference = y + np.where(in_a, 3.0, 1.0), y + 0.5
    given = {"y_ref": reference, "loss": mean_absolute_error}
    assert excessive_risk(y, private, **given) == pytest.approx(np.where(in_a, 2.5, 0.5).mean())
    weight = np.where(in_a, 2.0, 0.0)
    assert excessive_risk(y, private, sample_weight=weight, **given) == pytest.approx(2.5)
    cost = r2_score(y, reference) - r2_score(y, private)
    assert privacy_cost(y, private, y_ref=reference, metric=r2_score) == pytest.approx(cost)
    with pytest.raises(TypeError, match=r"loss must .*'mae'"):
        excessive_risk(y, private, y_ref=reference, loss="mae")


@pytest.mark.parametrize("dtype", [np.float32, np.float64, int])
def test_excessive_risk_clips_zero_as_log_loss(dtype):
    y_prob = np.array([[1, 0], [1, 0]], dtype=dtype)
    own = y_prob[[0, 1], [0, 1]]
    expected = log_loss([0, 1], y_prob.astype(dtype))
    assert excessive_risk([0, 1], own, y_ref=[1.0, 1.0]) == pytest.approx(expected)


every_part = [(1, 1, True), (0, 1, False)]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(bit, bit, st.booleans()), max_size=20))
def test_dg_gap_is_a_difference_of_accuracies(rows):
    y_true, y_pred, is_train = map(np.array, zip(*rows, *every_part, strict=True))
    seen, unseen = (accuracy_score(y_true[r], y_pred[r]) for r in (is_train, ~is_train))
    assert dg_gap(y_true, y_pred, is_train=is_train) == seen - unseen


def test_dg_gap_of_another_metric_with_weights_and_without_records():
    y, pred, train = [1, 0, 0, 1, 0, 0], [1, 1, 0, 1, 0, 0], [1, 1, 1, 0, 0, 0]
    gap = dg_gap(y, pred, is_train=train, metric=balanced_accuracy_score)
    assert gap == pytest.approx(3 / 4 - 1)
    assert dg_gap(y, pred, is_train=train, sample_weight=[1, 2, 1, 1, 1, 1]) == pytest.approx(-0.5)
    assert dg_gap(y, pred, is_train=train, metric=zero_one_loss) == pytest.approx(1 / 3)
    for part, flag in (("test", True), ("training", False)):
        with pytest.warns(UndefinedMetricWarning, match=f"no {part} record"):
            assert math.isnan(dg_gap(y, y, is_train=[flag] * 6))


REFERENCE = {"y_ref": [1, 0, 1, 0, 0, 1]}
OF_FAIRLEARN = {  # measure, its second array, and its arguments, which have one entry per record
    "cost": (privacy_cost, "y_pred", REFERENCE),
    "weighted cost": (privacy_cost, "y_pred", REFERENCE | {"sample_weight": [1, 1, 2, 1, 1, 2]}),
    "risk": (excessive_risk, "y_prob", {"y_ref": [0.5, 0.1, 0.9, 0.3, 0.2, 0.7]}),
    "gap": (dg_gap, "y_pred", {"is_train": [True, False, True, True, False, False]}),
}


@pytest.mark.parametrize("name", OF_FAIRLEARN)
def test_fairlearn_compares_groups_by_each_comparison(case, name):
    measure, array, params = OF_FAIRLEARN[name]
    answers = {"y_pred": case.y_pred, "y_prob": [0.5, 0.5, 0.6, 0.3, 0.8, 0.7]}[array]
    columns = pd.DataFrame({"y_true": case.y_true, "y_pred": answers, **params})
    by_hand = [measure(**columns[np.equal(case.groups, g)]) for g in "FM"]
    given = {"sensitive_features": case.groups}
    frame = MetricFrame(
        metrics=measure, y_true=case.y_true, y_pred=answers, sample_params=params, **given
    )
    assert frame.by_group.tolist() == by_hand
    ends = {"difference": max(by_hand) - min(by_hand), "group_max": max(by_hand)}
    for transform, expected in ends.items():
        derived = make_derived_metric(
            metric=measure, transform=transform, sample_param_names=[*params]
        )
        assert derived(case.y_true, answers, **given, **params) == pytest.approx(expected)
