"""Local data files: checked digests, and refusals of missing and damaged files."""

import gzip
import hashlib

import numpy as np
import pandas as pd
import pytest

from skdpfair.datasets._local import fetch, table_bunch
from skdpfair.exceptions import DataIntegrityError

CONTENT, PLAIN, PACKED = b"a\n1\n", "table.csv", "table.csv.gz"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def fetched(folder):
    return fetch({PLAIN: SHA256}, "sub", folder, " From its authors.")


@pytest.mark.parametrize(("folder", "name"), [("", PLAIN), ("sub", PACKED)])
def test_fetch_returns_checked_contents(folder, name, tmp_path, monkeypatch):
    path = tmp_path / folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(CONTENT) if name == PACKED else CONTENT)
    assert fetched(tmp_path) == {PLAIN: CONTENT}
    monkeypatch.setenv("SKDPFAIR_DATA", str(tmp_path))
    assert fetched(None) == {PLAIN: CONTENT}
    path.write_bytes(gzip.compress(b"other") if name == PACKED else b"other")
    with pytest.raises(DataIntegrityError) as caught:
        fetched(tmp_path)
    digests = hashlib.sha256(b"other").hexdigest(), SHA256
    assert all(part in str(caught.value) for part in (*digests, str(path)))


def test_fetch_refuses_a_gzip_file_that_is_cut_off(tmp_path):
    (tmp_path / PACKED).write_bytes(gzip.compress(b"x" * 99)[:-9])
    with pytest.raises(DataIntegrityError, match=f"{PACKED}.* gzip"):
        fetched(tmp_path)


def test_fetch_refuses_a_missing_file_and_leaves_no_trace(tmp_path):
    with pytest.raises(DataIntegrityError) as caught:
        fetched(tmp_path / "none")
    for part in (PLAIN, SHA256, "SKDPFAIR_DATA", "data_home", "From its authors."):
        assert part in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_table_bunch_returns_frames_arrays_or_a_pair():
    frame = pd.DataFrame({"sex": ["f", "m"], "age": [1, 2], "y": [0, 1]})
    options = frame, "y", ["sex"], [0, 1], "text"
    bunch, arrays = (table_bunch(*options, as_frame, False) for as_frame in (True, False))
    assert bunch.frame is frame and bunch.feature_names == ["sex", "age"] and bunch.target_names
    assert list(bunch.sensitive_features) == ["sex"] and bunch.DESCR == "text"
    assert arrays.frame is None and isinstance(arrays.sensitive_features, np.ndarray)
    X, y = table_bunch(*options, True, True)
    assert X.equals(bunch.data) and y.equals(bunch.target)
