"""Encoding by public bounds and categories, whatever the rows hold."""

import numpy as np
import pandas as pd
import pytest

from skdpfair.datasets import load_adult, public_facts
from skdpfair.preprocessing import public_preprocessor


@pytest.fixture(scope="module")
def adult():
    return load_adult(subset="test").data


def linear():
    return public_preprocessor(**public_facts("adult"), encoding="linear", passthrough=["sex"])


@pytest.fixture(scope="module")
def encoded(adult):
    return linear().fit_transform(adult)


def test_public_preprocessor_of_adult_has_public_columns(adult, encoded):
    names = [
        f"{c}_{v}" for c, listed in public_facts("adult")["categories"].items() for v in listed
    ]
    assert list(encoded) == [*public_facts("adult")["bounds"], *names, "sex"]
    pd.testing.assert_series_equal(encoded["sex"], adult["sex"])
    assert encoded.drop(columns="sex").abs().max(axis=None) == 1
    assert {str(dtype) for dtype in encoded[names].dtypes} == {"float32"}
    missing, ones = adult["workclass"].isna(), encoded.filter(like="workclass_").sum(axis=1)
    assert missing.sum() > 0 and (ones == ~missing).all()


def test_public_preprocessor_learns_only_the_number_of_rows(adult, encoded):
    other = adult[(adult["sex"] == "Female") & (adult["age"] > 60)].dropna().head(5)
    pd.testing.assert_frame_equal(linear().fit(other).transform(adult), encoded)
    make = public_preprocessor(**public_facts("adult"))  # of curves
    repeated = adult.iloc[np.zeros(len(adult), dtype=int)]
    here, there = (make.fit(rows).transform(adult) for rows in (adult, repeated))
    pd.testing.assert_frame_equal(here, there)


def test_public_preprocessor_of_unlisted_and_dropped_columns():
    rows = pd.DataFrame({"x": [1.0], "c": ["new"], "g": ["F"], "other": [0]})
    make = public_preprocessor({"x": (0, 2)}, {"c": ["old", np.nan]}, passthrough="g")
    assert make.fit_transform(rows).iloc[0].to_dict() == {"x": 0.0, "c_old": 0.0, "g": "F"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"categories": {"a": ["x"]}}, r"^categories and bounds .*'a'"),
        ({"passthrough": ["a"]}, r"^passthrough and bounds .*'a'"),
        ({"categories": {"c": []}}, r"^categories\['c'\] "),
        ({"categories": {"c": "abc"}}, r"^categories\['c'\] "),
        ({"categories": {"c": ["1", 1]}}, r"^categories\['c'\] .*once"),
        ({"missing": "zero"}, "^missing must be one of"),
        ({"missing": "drop"}, "^missing must be one of"),
        ({"missing": ["wage"]}, r"^missing .*\['wage'\].*bounds"),
        ({"bounds": {"a": (1, 0)}}, "^bounds must be"),
        ({"bounds": None}, "^bounds must be a dict"),
        ({"log_columns": ["wage"]}, r"^log_columns .*\['wage'\].*bounds"),
    ],
)
def test_public_preprocessor_refuses_arguments_when_it_is_made(wrong, message):
    with pytest.raises((ValueError, TypeError), match=message):
        public_preprocessor(**{"bounds": {"a": (0, 1)}} | wrong)
