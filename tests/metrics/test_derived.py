import inspect
import math
import pickle

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import MetricFrame
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import UndefinedMetricWarning

import skdpfair.metrics
from skdpfair.metrics import (
    excessive_risk,
    excessive_risk_group_max,
    privacy_cost,
    privacy_cost_difference,
    privacy_cost_group_max,
)
from skdpfair.metrics._compare_groups import difference, group_max, group_min

MEASURES = ["privacy_cost", "excessive_risk"]
FORMS = ["difference", "group_max"]
NAMES = [f"{measure}_{form}" for measure in MEASURES for form in FORMS]
chance = st.floats(0.01, 1)
tables = st.lists(st.tuples(chance, chance, st.sampled_from("abc")), min_size=1, max_size=20)


def test_values_by_hand(case):
    extra = {"y_ref": case.y_ref, "sensitive_features": case.groups}
    assert privacy_cost_group_max(case.y_true, case.y_pred, **extra) == pytest.approx(1 / 3)
    reference, private = [1.0] * 4, [1.0, 0.5, 0.25, 0.25]
    risks = {"y_prob_ref": reference, "sensitive_features": ["a", "a", "b", "b"]}
    worst = excessive_risk_group_max([1] * 4, private, **risks)
    assert worst == pytest.approx(2 * math.log(2))


@settings(deadline=None, max_examples=20)
@given(tables)
def test_forms_agree_with_metric_frame(rows):
    private, reference, groups = zip(*rows, strict=True)
    y = [0] * len(rows)
    frame = MetricFrame(
        metrics=excessive_risk,
        y_true=y,
        y_pred=private,
        sensitive_features=pd.Series(groups),
        sample_params={"y_prob_ref": reference},
    ).by_group
    extra = {"y_prob_ref": reference, "sensitive_features": groups}
    assert excessive_risk_group_max(y, private, **extra) == frame.max()
    overall = excessive_risk(y, private, y_prob_ref=reference)
    assert excessive_risk_group_max(y, private, **extra) >= overall - 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_each_has_a_name_a_signature_and_a_docstring(name):
    function = getattr(skdpfair.metrics, name)
    assert name in skdpfair.metrics.__all__
    assert function.__name__ == name
    assert pickle.loads(pickle.dumps(function)) is function
    parameters = inspect.signature(function).parameters
    assert list(parameters)[:4] == [
        *list(inspect.signature(privacy_cost if "cost" in name else excessive_risk).parameters)[:3],
        "sensitive_features",
    ]
    for section in ["Parameters", "Returns", "Examples", *parameters]:
        assert section in function.__doc__
    assert "{" not in function.__doc__.split("Examples")[0]


@pytest.mark.parametrize("name", NAMES)
def test_bad_input_is_named(name):
    function, y = getattr(skdpfair.metrics, name), [1, 0]
    own, other = ([0.5, 0.5], "y_prob_ref") if "risk" in name else ([1, 0], "y_ref")
    groups = {"sensitive_features": ["a", "b"]}
    with pytest.raises(
        TypeError, match=rf"{name}\(y_true.*missing a required .*'{other}'.*clipping and noise"
    ):
        function(y, own, **groups)
    with pytest.raises(TypeError, match=f"{name}.*unexpected keyword argument 'y_reference'"):
        function(y, own, y_reference=own, **{other: own}, **groups)
    with pytest.raises(TypeError, match=f"{other} is missing.*sample_params"):
        function(y, own, **{other: None}, **groups)
    if "risk" in name:
        with pytest.raises(ValueError, match=r"y_prob must hold probabilities in \[0, 1\]"):
            function(y, [0.5, 1.5], y_prob_ref=own, **groups)


LABELS = {"y_true": [1, 0], "y_pred": [1, 0]}
CHANCES = {"y_true": [1, 0], "y_prob": [0.5, 0.5], "y_prob_ref": [0.5, 0.5]}
GROUPS, WEIGHTS = {"sensitive_features": ["a", "b"]}, {"sample_weight": [1, 1]}
GIVEN = {
    "accuracy_difference": LABELS | WEIGHTS | GROUPS,
    "privacy_cost": LABELS | WEIGHTS | {"y_ref": [1, 0]},
    "privacy_cost_difference": LABELS | WEIGHTS | GROUPS | {"y_ref": [1, 0]},
    "excessive_risk": CHANCES | WEIGHTS,
    "excessive_risk_difference": CHANCES | WEIGHTS | GROUPS,
    "dg_gap": LABELS | {"is_train": [True, False]},
    "dg_gap_by_group": LABELS | GROUPS | {"is_train": [True, False]},
} | {
    name: (CHANCES if "risk" in name else LABELS | {"y_ref": [1, 0]}) | GROUPS for name in NAMES[1:]
}


@pytest.mark.parametrize("name", GIVEN)
def test_wrong_lengths_and_missing_groups_are_named(name):
    function, given = getattr(skdpfair.metrics, name), GIVEN[name]
    for array in given.keys() - {"y_true", "sensitive_features"}:
        with pytest.raises(ValueError, match=f"{array} must have one entry for each of the 2"):
            function(**given | {array: given[array][:1]})
    if "sensitive_features" in given:
        for wrong in (["a"], ["a", "b", "c"], "a", None):
            with pytest.raises(ValueError, match="sensitive_features must"):
                function(**given | {"sensitive_features": wrong})
        for missing in (["a", None], [float("nan"), 1.0]):
            with pytest.raises(ValueError, match=r"sensitive_features has missing values"):
                function(**given | {"sensitive_features": missing})


def test_a_group_without_a_value_is_left_out_and_warned_of():
    def undefined_for_b(y_true, y_pred):
        return np.nan if len(y_true) == 1 else np.mean(np.equal(y_true, y_pred))

    extra = {"sensitive_features": ["a", "a", "b", "c", "c"], "metric": undefined_for_b}
    y, pred = [1] * 5, [1, 0, 1, 0, 0]
    expected = {
        privacy_cost_difference: 0.5,
        privacy_cost_group_max: 1.0,
    }
    for function, value in expected.items():
        with pytest.warns(UndefinedMetricWarning, match="leaves out 1 of 3 groups"):
            assert function(y, pred, y_ref=y, **extra) == value
    nobody = {"sensitive_features": list("abcde"), "metric": undefined_for_b}
    with pytest.warns(UndefinedMetricWarning, match="leaves out 5 of 5 groups"):
        assert np.isnan(privacy_cost_difference(y, pred, y_ref=y, **nobody))


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
    table = pd.DataFrame({"a": [1.0, np.nan], "b": [3.0, np.nan]})
    np.testing.assert_array_equal(difference(table), [2.0, np.nan])
