"""Pictures of the papers: the recorded data sets, and the forms in which they are returned."""

import gzip

import numpy as np
import pandas as pd
import pytest

from benchmarks.papers.images import fetch_cifar10, fetch_faces, fetch_mnist

fetchers = pytest.mark.parametrize("fetch", [fetch_mnist, fetch_faces, fetch_cifar10])


def by_channel(data):
    return data.mean((0, 2, 3), dtype=float).round(3).tolist()


def test_fetch_mnist_is_the_publishers(outside_data):
    train = fetch_mnist(subset="train", data_home=outside_data)
    assert train.data.shape == (60000, 28, 28)
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(train.target).tolist() == counts
    moments = train.data.mean(dtype=float), train.data.std(dtype=float)
    assert np.round(moments, 4).tolist() == [0.1307, 0.3081]


def test_fetch_mnist_reads_plain_idx_files(outside_data, tmp_path):
    for kind in ("images-idx3", "labels-idx1"):
        packed = (outside_data / "mnist" / f"t10k-{kind}-ubyte.gz").read_bytes()
        (tmp_path / f"t10k-{kind}-ubyte").write_bytes(gzip.decompress(packed))
    test = fetch_mnist(subset="test", data_home=tmp_path)
    assert test.data.shape == (10000, 28, 28) and np.bincount(test.target)[8] == 974


def test_fetch_faces_has_the_recorded_groups(outside_data):
    faces = fetch_faces(data_home=outside_data)
    train = fetch_faces(subset="train", data_home=outside_data)
    assert faces.data.shape == (13000, 3, 32, 32) and len(train.data) == 10400
    np.testing.assert_array_equal(train.data, faces.data[:10400])
    genders = faces.target.map(dict(enumerate(faces.target_names))).value_counts()
    assert genders.to_dict() == {"male": 6782, "female": 6218}
    races = {"White": 5621, "Black": 2501, "Indian": 2148, "Asian": 1844, "Others": 886}
    assert faces.sensitive_features["race"].value_counts().to_dict() == races
    ages = faces.attributes["age"]
    assert ages.agg(["min", "median", "max"]).tolist() == [1, 29, 116]
    assert (ages >= 60).sum() == 1464
    np.testing.assert_array_equal(faces.attributes["gender"].cat.codes, faces.target)
    assert by_channel(faces.data) == [0.597, 0.457, 0.391]


def test_fetch_cifar10_is_the_recorded_part(outside_data):
    test = fetch_cifar10(subset="test", data_home=outside_data)
    assert test.data.shape == (2000, 3, 32, 32)
    assert np.bincount(test.target).tolist() == [200] * 10
    names = test.sensitive_features["label"]
    assert [test.target_names[code] for code in test.target] == names.tolist()
    assert by_channel(fetch_cifar10(data_home=outside_data).data) == [0.493, 0.484, 0.449]


@pytest.mark.usefixtures("environment")
@fetchers
def test_fetchers_return_types_from_the_folder_of_the_environment(fetch):
    found = fetch(subset="test")
    assert found.data.dtype == np.float32 and found.data.flags.c_contiguous
    assert (found.data.min(), found.data.max()) == (0.0, 1.0)
    assert isinstance(found.target, pd.Series) and found.target.dtype == np.int64
    assert len(found.sensitive_features) == len(found.data)
    arrays = fetch(subset="test", as_frame=False)
    assert {type(arrays.target), type(arrays.sensitive_features)} == {np.ndarray}
    X, y = fetch(subset="test", return_X_y=True)
    assert X.shape == found.data.shape and y.equals(found.target)


@fetchers
def test_fetchers_refuse_another_subset(fetch, tmp_path):
    with pytest.raises(ValueError, match=r"^subset "):
        fetch(data_home=tmp_path, subset="valid")
