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
    excessive_risk_ratio,
    excessive_risk_worst_group,
    privacy_cost,
    privacy_cost_gap,
    privacy_cost_ratio,
    privacy_cost_worst_group,
)

MEASURES = ["privacy_cost", "excessive_risk"]
FORMS = ["gap", "worst_group", "ratio"]
NAMES = [f"{measure}_{form}" for measure in MEASURES for form in FORMS]
chance = st.floats(0.01, 1)
tables = st.lists(st.tuples(chance, chance, st.sampled_from("abc")), min_size=1, max_size=20)


def test_values_by_hand(case):
    extra = {"y_ref": case.y_ref, "sensitive_features": case.groups}
    assert privacy_cost_worst_group(case.y_true, case.y_pred, **extra) == pytest.approx(1 / 3)
    y, groups = [1] * 6, ["F", "M", "F", "M", "M", "M"]
    pays = {"y_ref": [1] * 6, "sensitive_features": groups}
    assert privacy_cost_ratio(y, [0, 0, 1, 1, 1, 1], **pays) == pytest.approx((1 / 4) / (1 / 2))
    assert privacy_cost_ratio(y, [0, 1, 1, 1, 1, 1], **pays) == 0
    twin, private = [1.0] * 4, [1.0, 0.5, 0.25, 0.25]
    risks = {"y_prob_ref": twin, "sensitive_features": ["a", "a", "b", "b"]}
    worst = excessive_risk_worst_group([1] * 4, private, **risks)
    assert worst == pytest.approx(2 * math.log(2))
    assert excessive_risk_ratio([1] * 4, private, **risks) == pytest.approx(1 / 4)


@settings(deadline=None, max_examples=20)
@given(tables)
def test_forms_agree_with_metric_frame(rows):
    private, twin, groups = zip(*rows, strict=True)
    y = [0] * len(rows)
    frame = MetricFrame(
        metrics=excessive_risk,
        y_true=y,
        y_pred=private,
        sensitive_features=pd.Series(groups),
        sample_params={"y_prob_ref": twin},
    ).by_group
    extra = {"y_prob_ref": twin, "sensitive_features": groups}
    assert excessive_risk_worst_group(y, private, **extra) == frame.max()
    overall = excessive_risk(y, private, y_prob_ref=twin)
    assert excessive_risk_worst_group(y, private, **extra) >= overall - 1e-12
    if frame.min() >= 0 and frame.max() > 0:
        assert excessive_risk_ratio(y, private, **extra) == frame.min() / frame.max()


@pytest.mark.parametrize("twin", [[1, 1], [0, 1]])
def test_a_ratio_that_means_nothing_is_nan_and_says_so(twin):
    with pytest.warns(UndefinedMetricWarning, match="privacy_cost_ratio is NaN.*Use the gap"):
        ratio = privacy_cost_ratio([1, 1], [1, 1], y_ref=twin, sensitive_features=["a", "b"])
    assert np.isnan(ratio)


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
    for section in ["Parameters", "Returns", "Raises", "Examples", *parameters]:
        assert section in function.__doc__
    assert "{" not in function.__doc__.split("Examples")[0]


@pytest.mark.parametrize("name", NAMES)
def test_bad_input_is_named(name):
    function, y = getattr(skdpfair.metrics, name), [1, 0]
    own, other = ([0.5, 0.5], "y_prob_ref") if "risk" in name else ([1, 0], "y_ref")
    groups = {"sensitive_features": ["a", "b"]}
    with pytest.raises(
        TypeError, match=rf"{name}\(y_true.*missing a required .*'{other}'.*noise predicts"
    ):
        function(y, own, **groups)
    with pytest.raises(TypeError, match=f"{name}.*unexpected keyword argument 'y_reference'"):
        function(y, own, y_reference=own, **{other: own}, **groups)
    with pytest.raises(TypeError, match=f"{other} is missing.*sample_params"):
        function(y, own, **{other: None}, **groups)
    with pytest.raises(ValueError, match=f"{other} must have one entry for each of the 2"):
        function(y, own, **{other: own[:1]}, **groups)
    for wrong in (["a"], ["a", "b", "c"], "a", None):
        with pytest.raises(ValueError, match="sensitive_features must"):
            function(y, own, **{other: own}, sensitive_features=wrong)
    with pytest.raises(ValueError, match="missing values"):
        function(y, own, **{other: own}, sensitive_features=["a", None])
    if "risk" in name:
        with pytest.raises(ValueError, match=r"y_prob must hold probabilities in \[0, 1\]"):
            function(y, [0.5, 1.5], y_prob_ref=own, **groups)


def test_an_undefined_group_is_not_hidden():
    def undefined_for_b(y_true, y_pred):
        return np.nan if len(y_true) == 1 else 0.5

    extra = {"sensitive_features": ["a", "a", "b"], "metric": undefined_for_b}
    ones = [1, 1, 1]
    for function in (privacy_cost_gap, privacy_cost_worst_group):
        assert np.isnan(function(ones, ones, y_ref=ones, **extra))
    with pytest.warns(UndefinedMetricWarning, match="a ratio needs every group's value >= 0"):
        assert np.isnan(privacy_cost_ratio(ones, ones, y_ref=ones, **extra))
