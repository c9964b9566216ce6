"""Labels, classes and the range of a regression's target; tests/robustness has bad labels."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skdpfair.inputs.target import (
    classes_of,
    codes_in,
    limits_of,
    positions,
    positive_class,
    public_classes,
    range_of,
    read_numbers,
    scaled,
    sorted_classes,
    unscaled,
)

WIDE = st.floats(-1e300, 1e300)


def test_read_numbers_refuses_what_is_not_finite():
    for y, match in (
        ([1, np.nan], "NaN"),
        ([1, np.inf], "infinity"),
        (["1", "2"], "y must hold one number"),
        (np.zeros((2, 2)), "MultiOutputRegressor"),
    ):
        with pytest.raises(ValueError, match=match):
            read_numbers(y)


def test_classes_are_sorted_and_the_positive_one_is_last():
    y = np.array(["b", "a", "b"])
    for classes, codes in (classes_of(y, None), classes_of(y, ["b", "a"])):
        assert (classes.tolist(), codes.tolist()) == (["a", "b"], [1, 0, 1])
    for declared, pos_label in ((["b", "a"], None), (None, "a")):
        classes, codes = public_classes(y, declared, pos_label)
        assert (classes.tolist(), codes.tolist()) == (["b", "a"], [0, 1, 0])
    assert positions(np.array(["a", "b"]), np.array(["b", "c"])).tolist() == [1, -1]
    assert codes_in(np.array([0, 1]), np.array([True, False])).tolist() == [1, 0]
    for declared, match in ((["a"], "two classes or more"), ([["a"]], "classes must list")):
        with pytest.raises(ValueError, match=match):
            sorted_classes(declared)


@pytest.mark.parametrize(
    ("classes", "pos_label", "match"),
    [("ab", "A", "one of the classes, got 'A'"), ("abc", "a", "pos_label='a' is for two classes")],
)
def test_positive_class_refuses_what_cannot_be_positive(classes, pos_label, match):
    with pytest.raises(ValueError, match=match):
        positive_class(np.array([*classes]), None, pos_label)


@pytest.mark.parametrize(
    "y_range", [None, "01", {0, 1}, (0,), (0, 1, 2), (1, 0), (0, 0), [0, 1e301]]
)
def test_range_of_refuses_what_is_no_range(y_range):
    with pytest.raises(ValueError, match=r"^y_range must be"):
        range_of(y_range)


@given(st.tuples(WIDE, WIDE).filter(lambda pair: pair[0] / 2 < pair[1] / 2), st.floats(0, 1))
def test_unscaled_inverts_scaled_inside_the_range(y_range, share):
    low, high = y_range
    y = np.array([low, low * (1 - share) + high * share, high])
    outputs = scaled(y, range_of(y_range))
    assert outputs[0] == -1 and outputs[2] == 1
    found = unscaled(outputs.astype(float), y_range)
    assert (np.abs(found / 2 - y / 2) <= (high / 2 - low / 2) * 1e-6).all()
    assert limits_of(np.full(2, low))[0] == low < limits_of(np.full(2, low))[1]


DISPATCHED = """
import torch
from sklearn import set_config
from skdpfair import DPFairClassifier, DPFairRegressor
set_config(array_api_dispatch=True)
x = torch.rand(400, 3)
y = (x[:, 0] > 0.5).long()
model = DPFairClassifier("dpsgd", epsilon=8.0, max_steps=20).fit(x, y)
assert model.score(x, y) > 0.5
DPFairRegressor("dpsgd", epsilon=8.0, max_steps=3, y_range=(0, 1)).fit(x, y.float())
"""


def test_tensors_are_targets_under_dispatch():
    settings = os.environ | {"SCIPY_ARRAY_API": "1"}  # before scipy is imported
    subprocess.run([sys.executable, "-c", DISPATCHED], env=settings, check=True)
