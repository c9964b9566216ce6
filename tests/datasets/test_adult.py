"""The Adult data against the counts of its publisher, and the bytes of the original files."""

import gzip
import hashlib

import pandas as pd
import pytest

from skdpfair.datasets import _adult, load_adult, public_facts


@pytest.fixture(scope="module")
def adult():
    return load_adult()


@pytest.mark.parametrize(
    ("subset", "n_all", "n_complete", "n_male"),
    [("all", 48842, 45222, 30527), ("train", 32561, 30162, 20380), ("test", 16281, 15060, 10147)],
)
def test_counts_of_subsets_are_those_of_the_publisher(subset, n_all, n_complete, n_male):
    assert load_adult(subset=subset).data.shape == (n_all, 14)
    complete = load_adult(subset=subset, dropna=True)
    assert complete.data.shape == (n_complete, 14)
    assert not complete.frame.isna().any(axis=None)
    assert (complete.sensitive_features["sex"] == "Male").sum() == n_male
    assert complete.frame.index.equals(pd.RangeIndex(n_complete))


def test_counts_of_all_rows_are_those_of_the_publisher(adult):
    assert adult.target.value_counts().to_dict() == {"<=50K": 37155, ">50K": 11687}
    assert adult.data["sex"].value_counts().to_dict() == {"Male": 32650, "Female": 16192}
    missing = adult.data.isna().sum()
    assert missing[missing > 0].to_dict() == {
        "workclass": 2799,
        "occupation": 2809,
        "native_country": 857,
    }
    assert adult.frame.duplicated().sum() == 52


def test_the_parts_of_the_bunch_agree(adult):
    assert list(adult.data.columns) == adult.feature_names
    assert list(adult.sensitive_features.columns) == ["sex", "race"]
    assert adult.target.name == "income" and adult.target_names == ["<=50K", ">50K"]
    assert adult.frame.equals(adult.data.join(adult.target))
    assert "CC BY 4.0" in adult.DESCR
    X, y = load_adult(return_X_y=True)
    assert X.equals(adult.data) and y.equals(adult.target)
    assert load_adult(subset="test", as_frame=False).data.shape == (16281, 14)


def test_dtypes_are_natural_and_categories_public(adult):
    kinds = adult.data.dtypes
    facts = public_facts("adult")
    assert {c for c in adult.data if kinds[c] == "category"} == set(facts["categories"])
    integers = {c for c in adult.data if pd.api.types.is_integer_dtype(kinds[c])}
    assert integers == {*facts["bounds"], "fnlwgt"}
    # Never-worked is in no complete row, and stays a category of them all the same
    complete = load_adult(dropna=True, subset="test").data
    assert "Never-worked" not in set(complete["workclass"])
    for column, categories in facts["categories"].items():
        assert list(complete[column].cat.categories) == categories == sorted(set(categories))


def test_public_bounds_hold_every_row(adult):
    for column, (low, high) in public_facts("adult")["bounds"].items():
        assert adult.data[column].between(low, high).all()


DIGESTS = {
    "adult.data.gz": "5d7c39d7b8804f071cdd1f2a7c460872",
    "adult.test.gz": "35238206dfdf7f1fe215bbb874adecdc",
}


def test_bundled_files_are_the_original_ones():
    assert {*DIGESTS} == {*_adult._FILES.values()}
    for name, md5 in DIGESTS.items():
        packed = (_adult._FOLDER / name).read_bytes()
        assert hashlib.md5(gzip.decompress(packed), usedforsecurity=False).hexdigest() == md5
        assert packed[4:8] == b"\0\0\0\0"  # no time stamp: the package builds reproducibly
    assert (_adult._FOLDER / "ADULT_LICENSE.md").is_file()
