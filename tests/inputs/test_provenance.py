"""Origins of arrays, and hashes of rows."""

import numpy as np

from skdpfair.inputs.provenance import UNKNOWN, Origin, origin_of, row_hashes, rows_of, set_origin

BY_NET = Origin("Net", ("a", "b"))


def test_an_origin_is_that_of_the_unchanged_array_alone():
    array = set_origin(np.arange(6.0).reshape(3, 2), BY_NET)
    part = rows_of(array, np.array([0, 2]))
    assert origin_of(array) == origin_of(part) == BY_NET
    for other in (array.copy(), array[:2], array.tolist(), rows_of(array.copy(), np.array([0]))):
        assert origin_of(other) == UNKNOWN
    array[0, 0] = 9.0
    assert origin_of(array) == UNKNOWN


def test_an_origin_ends_with_its_array():
    for _ in range(5):  # whose place in memory the next may take
        array = np.zeros(3)
        assert origin_of(array) == UNKNOWN
        set_origin(array, BY_NET)
        del array


def test_row_hashes_are_equal_for_equal_rows_and_labels_only():
    rng = np.random.default_rng(0)
    x, codes = rng.integers(0, 2, (50_000, 20)).astype(np.float32), rng.integers(0, 2, 50_000)
    rows = np.c_[x, codes]
    assert len(np.unique(row_hashes(x, codes))) == len(np.unique(rows, axis=0))
    np.testing.assert_array_equal(row_hashes(x, codes)[7:9], row_hashes(x[7:9], codes[7:9]))
    assert not np.any(row_hashes(x, codes, b"one key") == row_hashes(x, codes, b"another"))
