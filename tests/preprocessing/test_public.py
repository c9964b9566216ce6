"""Encoding of categories, in which a number and its text are one."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.pipeline import make_pipeline

from skdpfair import DPFairClassifier
from skdpfair.preprocessing import lint_pipeline, public_preprocessor


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
