import math

import numpy as np
import pytest
from fairlearn.metrics import MetricFrame
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss

from skdpfair.metrics import excessive_risk, excessive_risk_difference, own_class_probability

chance = st.floats(0, 1)
tables = st.lists(st.tuples(chance, chance, st.sampled_from("abc")), min_size=1, max_size=20)

PROB, REF = [0.5, 0.25, 0.5, 0.5], [0.5, 0.5, 0.25, 0.5]


def test_values_by_hand():
    y = [0, 1, 0, 1]
    assert excessive_risk(y, PROB, y_prob_ref=REF) == pytest.approx(0)
    weights = [1, 3, 1, 0]
    risk = excessive_risk(y, PROB, y_prob_ref=REF, sample_weight=weights)
    assert risk == pytest.approx((3 * math.log(2) - math.log(2)) / 5)
    extra = {"y_prob_ref": REF, "sensitive_features": ["a", "a", "b", "b"]}
    assert excessive_risk_difference(y, PROB, **extra) == pytest.approx(math.log(2))
    gap = excessive_risk_difference(y, PROB, sample_weight=weights, **extra)
    assert gap == pytest.approx(3 / 4 * math.log(2) + math.log(2))


def test_it_is_the_difference_of_sklearns_log_loss():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 50)
    private, reference = rng.dirichlet(np.ones(3), (2, 50))
    risk = excessive_risk(
        y, own_class_probability(y, private), y_prob_ref=own_class_probability(y, reference)
    )
    assert risk == pytest.approx(log_loss(y, private) - log_loss(y, reference))


def test_what_predict_proba_returns_is_taken_as_it_is():
    rng = np.random.default_rng(0)
    y, groups = np.array(["no", "yes", "so"] * 10), np.repeat(["a", "b"], 15)
    private, reference = rng.dirichlet(np.ones(3), (2, 30))
    classes = ["yes", "so", "no"]
    own = {
        name: own_class_probability(y, values, classes=classes)
        for name, values in {"private": private, "reference": reference}.items()
    }
    risk = excessive_risk(y, private, y_prob_ref=reference, classes=classes)
    assert risk == excessive_risk(y, own["private"], y_prob_ref=own["reference"])
    y[:15] = "no"  # a group that lacks two of the classes
    gap = excessive_risk_difference(
        y, private, y_prob_ref=reference, sensitive_features=groups, classes=classes
    )
    each = [
        excessive_risk(y[part], private[part], y_prob_ref=reference[part], classes=classes)
        for part in (slice(15), slice(15, 30))
    ]
    assert gap == pytest.approx(abs(each[0] - each[1]))
    with pytest.raises(ValueError, match="some rows do not"):
        excessive_risk([0, 1], [[0.5, 0.5], [0.5, 1.0]], y_prob_ref=[0.5, 0.5])
    with pytest.raises(TypeError, match="y_prob_ref is missing"):
        excessive_risk([0, 1], [0.5, 0.5])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, int])
def test_zero_is_clipped_as_in_log_loss(dtype):
    y_prob = np.array([[1, 0], [1, 0]], dtype=dtype)
    own = own_class_probability([0, 1], y_prob)
    expected = log_loss([0, 1], y_prob.astype(dtype))
    assert excessive_risk([0, 1], own, y_prob_ref=[1.0, 1.0]) == pytest.approx(expected)


def test_metric_frame_agrees_with_a_loop():
    y, groups = [0, 1, 0, 1], ["a", "b", "a", "b"]
    frame = MetricFrame(
        metrics={"excessive_risk": excessive_risk},
        y_true=y,
        y_pred=PROB,
        sensitive_features=groups,
        sample_params={"excessive_risk": {"y_prob_ref": REF}},
    )
    for start, group in enumerate("ab"):
        cut = slice(start, None, 2)
        by_hand = excessive_risk(y[cut], PROB[cut], y_prob_ref=REF[cut])
        assert frame.by_group.loc[group, "excessive_risk"] == by_hand
    gap = excessive_risk_difference(y, PROB, y_prob_ref=REF, sensitive_features=groups)
    assert gap == frame.difference()["excessive_risk"]


@settings(deadline=None, max_examples=30)
@given(tables)
def test_identical_probabilities_add_no_risk(rows):
    y_prob, _, groups = zip(*rows, strict=True)
    y = [0] * len(rows)
    assert excessive_risk(y, y_prob, y_prob_ref=y_prob) == 0
    assert excessive_risk_difference(y, y_prob, y_prob_ref=y_prob, sensitive_features=groups) == 0


@settings(deadline=None, max_examples=30)
@given(tables, st.permutations("abc"))
def test_gaps_are_not_negative_and_names_of_groups_do_not_matter(rows, names):
    y_prob, y_prob_ref, groups = zip(*rows, strict=True)
    renamed = [dict(zip("abc", names, strict=True))[group] for group in groups]
    gap, again = (
        excessive_risk_difference(
            [0] * len(rows), y_prob, y_prob_ref=y_prob_ref, sensitive_features=g
        )
        for g in (groups, renamed)
    )
    assert gap >= 0
    assert gap == again


@pytest.mark.parametrize("wrong", [[0.5, 1.1], [0.5, -0.1], [0.5, np.nan], [[[0.5, 0.5]]] * 2])
@pytest.mark.parametrize("name", ["y_prob", "y_prob_ref"])
@pytest.mark.parametrize("measure", [excessive_risk, excessive_risk_difference])
def test_no_probabilities_are_refused_with_the_remedy(wrong, name, measure):
    arrays = {"y_prob": [0.5, 0.5], "y_prob_ref": [0.5, 0.5], name: wrong}
    if measure is excessive_risk_difference:
        arrays["sensitive_features"] = ["a", "b"]
    with pytest.raises(ValueError, match=rf"^{name} must .*own_class_probability"):
        measure([0, 1], **arrays)


def test_own_class_probability_by_hand():
    y_prob = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
    own = own_class_probability(["c", "a"], y_prob, classes=["b", "a", "c"])
    np.testing.assert_array_equal(own, [0.5, 0.3])


@pytest.mark.parametrize(
    ("y_true", "y_prob", "classes", "message"),
    [
        ([0, 0], [[0.5, 0.5]] * 2, None, "classes=model.classes_"),
        ([0, 1], [0.5, 0.5], None, "shape"),
        ([0, 1], [[0.5, 0.5]], None, "shape"),
        ([0, 2], [[0.5, 0.5]] * 2, [0, 1], "lacks some"),
        ([0, 1], [[0.5, 0.6]] * 2, None, "sum to 1"),
        ([0, 1], [[-0.5, 1.5]] * 2, None, "probabilities"),
        ([0, 1], [[np.nan, 0.5]] * 2, None, "probabilities"),
    ],
)
def test_own_class_probability_checks(y_true, y_prob, classes, message):
    with pytest.raises(ValueError, match=message):
        own_class_probability(y_true, y_prob, classes=classes)


@pytest.mark.parametrize("classes", [1, "ab", {0, 1}])
def test_classes_are_a_list(classes):
    with pytest.raises(TypeError, match=r"^classes must be a list"):
        own_class_probability([0, 1], [[0.5, 0.5]] * 2, classes=classes)
