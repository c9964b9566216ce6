"""The Dutch census of 2001 against the numbers of its publication and its own header."""

import gzip

import pytest

from skdpfair.datasets import fetch_dutch, public_facts

PLAIN, PACKED = "dutch_census_2001.arff", "dutch_census_2001.arff.gz"


@pytest.fixture(scope="module")
def dutch(outside_data):
    return fetch_dutch(data_home=outside_data)


def test_counts_are_those_of_the_publication(dutch):
    assert dutch.data.shape == (60420, 11)
    assert not dutch.frame.isna().any(axis=None)
    assert dutch.target.value_counts().to_dict() == {"5_4_9": 31657, "2_1": 28763}
    assert dutch.sensitive_features["sex"].value_counts().to_dict() == {"2": 30273, "1": 30147}
    share = (dutch.target == "2_1").groupby(dutch.data["sex"], observed=True).mean() * 100
    assert share.round(2).to_dict() == {"1": 62.56, "2": 32.71}
    assert dutch.frame.duplicated().sum() == 41982
    assert [*dutch.data.nunique()] == [2, 12, 8, 6, 2, 3, 3, 6, 3, 12, 4]


def test_categories_are_public_and_those_of_the_header(dutch, outside_data):
    public = public_facts("dutch")["categories"]
    assert {column: [*dutch.data[column].cat.categories] for column in public} == public
    text = gzip.decompress((outside_data / "dutch" / PACKED).read_bytes()).decode()
    declared = {
        line.split()[1]: set(line[line.index("{") + 1 : line.index("}")].split(","))
        for line in text.splitlines()
        if line.startswith("@attribute")
    }
    del declared["occupation"]
    assert {column: set(codes) for column, codes in public.items()} == declared


def test_fetch_dutch_accepts_the_file_of_the_publication(dutch, outside_data, tmp_path):
    packed = (outside_data / "dutch" / PACKED).read_bytes()
    (tmp_path / PLAIN).write_bytes(gzip.decompress(packed))
    X, y = fetch_dutch(data_home=tmp_path, return_X_y=True)
    assert X.equals(dutch.data) and y.equals(dutch.target) and y.name == "occupation"


def test_fetch_dutch_names_the_source_of_the_file(tmp_path):
    with pytest.raises(ValueError, match=f"(?s){PLAIN}.*Le Quy"):
        fetch_dutch(data_home=tmp_path)
