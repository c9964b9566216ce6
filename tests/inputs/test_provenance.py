"""Origins of arrays, and hashes of rows."""

import numpy as np

from skdpfair.inputs.provenance import UNKNOWN, Origin, origin_of, row_hashes, rows_of, set_origin


def test_an_origin_is_that_of_the_unchanged_array_alone():
    by_net = Origin("Net", ("a", "b"))
    array = set_origin(np.arange(6.0).reshape(3, 2), by_net)
    assert origin_of(array) == origin_of(rows_of(array, np.array([0, 2]))) == by_net
    assert {origin_of(other) for other in (array.copy(), array[:2], array.tolist())} == {UNKNOWN}
    array[0, 0] = 9.0
    assert origin_of(array) == UNKNOWN


def test_row_hashes_are_equal_for_equal_rows_and_labels_only():
    rng = np.random.default_rng(0)
    x, codes = rng.integers(0, 2, (50_000, 20)).astype(np.float32), rng.integers(0, 2, 50_000)
    found = row_hashes(x, codes)
    assert len(np.unique(found)) == len(np.unique(np.c_[x, codes], axis=0))
    np.testing.assert_array_equal(found[7:9], row_hashes(x[7:9], codes[7:9]))
    assert not np.any(found == row_hashes(x, codes, b"another key"))
