import gzip
import hashlib

import numpy as np
import pytest

from skdpfair.datasets import _dutch, fetch_dutch, public_facts
from skdpfair.exceptions import DataIntegrityError

PLAIN, PACKED = "dutch_census_2001.arff", "dutch_census_2001.arff.gz"


def test_the_counts_are_the_publishers(outside_data):
    dutch = fetch_dutch(data_home=outside_data)
    assert dutch.data.shape == (60420, 11)
    assert not dutch.frame.isna().any(axis=None)
    assert dutch.target.value_counts().to_dict() == {"5_4_9": 31657, "2_1": 28763}
    assert dutch.sensitive_features["sex"].value_counts().to_dict() == {"2": 30273, "1": 30147}
    share = (dutch.target == "2_1").groupby(dutch.data["sex"], observed=True).mean() * 100
    assert share.round(2).to_dict() == {"1": 62.56, "2": 32.71}
    assert dutch.frame.duplicated().sum() == 41982


def test_distinct_values_and_public_categories(outside_data):
    dutch = fetch_dutch(data_home=outside_data)
    used = [dutch.data[c].nunique() for c in dutch.feature_names]
    assert used == [2, 12, 8, 6, 2, 3, 3, 6, 3, 12, 4]
    for column, categories in public_facts("dutch")["categories"].items():
        assert list(dutch.data[column].cat.categories) == categories


def test_the_categories_are_those_of_the_header(outside_data):
    text = gzip.decompress((outside_data / "dutch" / PACKED).read_bytes()).decode()
    declared = {
        line.split()[1]: set(line[line.index("{") + 1 : line.index("}")].split(","))
        for line in text.splitlines()
        if line.startswith("@attribute")
    }
    del declared["occupation"]
    assert {
        column: set(codes) for column, codes in public_facts("dutch")["categories"].items()
    } == declared


def test_the_environment_names_the_folder(outside_data, monkeypatch):
    monkeypatch.setenv("SKDPFAIR_DATA", str(outside_data))
    X, y = fetch_dutch(return_X_y=True)
    assert X.shape == (60420, 11)
    assert y.name == "occupation"
    assert isinstance(fetch_dutch(as_frame=False).data, np.ndarray)


def test_the_publications_own_file_is_accepted(outside_data, tmp_path):
    packed = (outside_data / "dutch" / PACKED).read_bytes()
    (tmp_path / PLAIN).write_bytes(gzip.decompress(packed))
    assert fetch_dutch(data_home=tmp_path).data.shape == (60420, 11)


@pytest.mark.parametrize(("folder", "name"), [("", PLAIN), ("dutch", PACKED)])
def test_a_wrong_file_is_refused_with_both_digests(folder, name, tmp_path):
    path = tmp_path / folder / name
    path.parent.mkdir(exist_ok=True)
    content = b"something else"
    path.write_bytes(gzip.compress(content) if name == PACKED else content)
    with pytest.raises(DataIntegrityError) as caught:
        fetch_dutch(data_home=tmp_path)
    found = hashlib.sha256(content).hexdigest()
    assert all(part in str(caught.value) for part in (found, _dutch._SHA256[PLAIN], str(path)))


def test_a_cut_off_gzip_file_is_refused(tmp_path):
    (tmp_path / PACKED).write_bytes(gzip.compress(b"x" * 99)[:-9])
    with pytest.raises(DataIntegrityError, match=f"{PACKED} is not a whole gzip file"):
        fetch_dutch(data_home=tmp_path)


def test_a_missing_file_is_refused_and_leaves_no_trace(tmp_path):
    with pytest.raises(DataIntegrityError) as caught:
        fetch_dutch(data_home=tmp_path / "none")
    message = str(caught.value)
    for part in (PLAIN, *_dutch._SHA256.values(), "SKDPFAIR_DATA", "data_home", "Le Quy"):
        assert part in message
    assert not list(tmp_path.iterdir())
