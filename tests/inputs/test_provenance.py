"""Origins of arrays, and hashes of rows."""

import gc
import pickle

import numpy as np

from skdpfair.inputs import provenance
from skdpfair.inputs.provenance import UNKNOWN, Origin, origin_of, row_hashes, rows_of, set_origin
from tests.quick_fits import QUIET, TABLE, Y, quick


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
    values = np.array([0.0, 1.0, 2.0, -1.0, 0.5, 1.5], dtype=np.float32)
    grid = np.stack(np.meshgrid(*[values] * 5), axis=-1).reshape(-1, 5)
    of_labels = [row_hashes(grid, np.full(len(grid), code)) for code in range(3)]
    assert len(np.unique(of_labels)) == 3 * 6**5


@QUIET
def test_row_hashes_are_in_no_pickle_and_are_deleted_with_the_model():
    gc.collect()
    before = len(provenance._ROW_HASHES)
    model = quick(group_col="group", max_steps=2).fit(TABLE, Y)
    marks = provenance.row_hashes_of(model.net_)
    assert len(marks) == len(Y) and len(provenance._ROW_HASHES) == before + 1
    held = pickle.dumps(model), pickle.dumps(model.release())
    for part in (marks.tobytes(), provenance._KEY, b"row_hashes"):
        assert not any(part in content for content in held)
    assert marks[0].tobytes() not in held[0]
    del model, marks
    gc.collect()
    assert len(provenance._ROW_HASHES) == before
