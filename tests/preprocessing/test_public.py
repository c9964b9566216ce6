"""Encoding by public bounds and categories, whatever the rows hold."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.pipeline import make_pipeline

from skdpfair import DPFairClassifier
from skdpfair.datasets import load_adult, public_facts
from skdpfair.preprocessing import lint_pipeline, outside_public, public_preprocessor


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


def coded(listed, values):
    return public_preprocessor({}, {"c": listed}).fit_transform(pd.DataFrame({"c": values}))


ONE_TWO = [["1", "2"], [1, 2], [1.0, 2.0], np.array([1, 2]), ["1.0", "2.00"]]
COLUMNS = [["1", "2"], [1, 2], [1.0, 2.0], ["1.0", "2.0"], pd.array([1, 2]), pd.Categorical([1, 2])]


@pytest.mark.parametrize("listed", ONE_TWO, ids=str)
@pytest.mark.parametrize("values", COLUMNS, ids=lambda values: str(list(values)))
def test_codes_in_takes_a_number_and_its_text_for_one_category(listed, values):
    out = coded(listed, pd.Series(values))
    assert out.to_numpy().tolist() == [[1, 0], [0, 1]]
    assert list(out) == [f"c_{value}" for value in listed]
    rows = pd.DataFrame({"c": pd.Series(values)})
    assert outside_public(rows, {}, {"c": listed}).loc["c", "outside"] == 0


@pytest.mark.parametrize("values", [[True, False], ["True", "False"], [1, 0], [1.0, 0.0]])
@pytest.mark.parametrize("listed", [[True, False], ["True", "False"], [False, True], [1, 0]])
def test_codes_in_takes_flags_numbers_and_texts_for_one(listed, values):
    out, first = coded(listed, values), str(listed[0]) in ("True", "1")
    assert out.to_numpy().tolist() == [[first, not first], [not first, first]]
    assert list(out) == [f"c_{value}" for value in listed]


def test_codes_in_takes_texts_that_are_codes_for_no_numbers():
    listed = ["1", "01", "1e1", " 2", "1_0", "-0.5"]
    out = coded(listed, ["01", "1.0", "10", "2", 10, "nan", "inf", 1, -0.5, "1_0", None])
    met = [listed[row.argmax()] if row.any() else None for row in out.to_numpy()]
    assert met == ["01", "1", None, None, None, None, None, "1", "-0.5", "1_0", None]
    out = coded(["1", "1.0"], ["1", "1.0", 1])
    assert out.to_numpy().tolist() == [[1, 0], [0, 1], [0, 0]]  # which of the two is unknown


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


def test_categories_of_types_are_taken_as_declared():
    wards = pd.CategoricalDtype(["north", "south", "west"])
    table = pd.DataFrame(
        {"a": np.linspace(-3, 3, 9), "ward": pd.Series(["south"] * 9, dtype=wards)}
    )
    encoder = public_preprocessor({"a": (-3, 3)}, categories="dtype")
    encoded = encoder.fit_transform(table)
    assert [c for c in encoded if "ward" in c] == [f"ward_{w}" for w in wards.categories]
    assert encoded["ward_south"].all() and not encoded["ward_west"].any()
    assert "must be public" in str(lint_pipeline(make_pipeline(encoder, DPFairClassifier())))


def test_categories_that_are_those_of_the_rows_are_refused():
    encoder = public_preprocessor({"a": (-3, 3)}, categories="dtype")
    # as polars has it, whether or not it is installed
    read = type("DataFrame", (), {"__module__": "polars", "schema": {"ward": "Categorical"}})
    dictionary = pa.array(["south"] * 9).dictionary_encode()
    for rows in (read(), pa.table({"a": np.linspace(-3, 3, 9), "ward": dictionary})):
        with pytest.raises(ValueError, match=r"\['ward'\] of polars' Categorical.*pl.Enum"):
            encoder.fit_transform(rows)
