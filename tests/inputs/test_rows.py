"""Rows of numbers: sparse and computed ones, and scales; tests/robustness has bad features."""

import re

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone

from skdpfair import DPFairClassifier
from skdpfair.inputs.rows import MappedRows, SparseRows, numbers_of, scale_of, select

pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")
RNG = np.random.default_rng(0)
PICTURES = RNG.integers(0, 256, (60, 8, 8)).astype(np.uint8)
BRIGHT = (PICTURES.mean((1, 2)) > 127).astype(int)


def quick(**params):
    settings = {"epsilon": 3.0, "module": "logistic", "max_steps": 3, "lr": 0.5}
    return DPFairClassifier("dpsgd", **settings | params)


def test_sparse_and_mapped_rows_are_computed_when_they_are_selected():
    places = np.array([0, 0, 2, 2]), np.array([1, 1, 0, 2])
    stored = SparseRows(sparse.coo_array(([1.0, 2.0, 3.0, 1e300], places), (3, 3)))
    assert (len(stored), stored.n_stored, stored[:2].tolist()) == (3, 1, [[0, 3, 0], [0, 0, 0]])
    mapped = MappedRows(np.arange(6.0)[:, None], lambda part: (2 * part).astype("f"), (1,))
    assert (mapped.shape, select(mapped, slice(2, 4)).tolist()) == ((6, 1), [[4], [6]])
    late = numbers_of(np.array([[1.0], [np.nan]]), at_once=False)
    assert (late.shape, select(late, slice(0, 1)).tolist()) == ((2, 1), [[1.0]])
    for call in (lambda: numbers_of(stored), lambda: select(late, slice(None))):
        with pytest.raises(ValueError, match=r"NaN or infinite values in column [02]"):
            call()


def test_scale_of_follows_the_type_of_numbers():
    flat, table = np.full((2, 784), 51, np.uint8), np.zeros((2, 3), np.uint8)
    kinds = {
        "bytes": [flat, PICTURES, torch.from_numpy(PICTURES), pd.DataFrame(flat)],
        "integers": [table, flat.astype(int), torch.zeros(2, 3).int()],
        "flags": [flat > 0, torch.zeros(2, 3) > 0],
        "floats": [flat / 2, pd.DataFrame({"a": [0.5], "b": [1]}), torch.zeros(2, 3).half()],
    }
    for kind, values in kinds.items():
        assert {scale_of(X) for X in values} == {kind}
    late = numbers_of(pd.DataFrame(flat).astype({0: "UInt8"}), at_once=False)
    assert select(late, slice(None)).max() == 51  # columns of several types are no pictures
    mixed = pd.DataFrame({"a": [0.5, 1.5], "b": [True, False], "c": [2**40, 1]})
    np.testing.assert_array_equal(numbers_of(mixed, at_once=False)[:2], numbers_of(mixed))
    late = numbers_of(pd.DataFrame(flat), at_once=False)
    for rows in (select(flat, slice(None)), numbers_of(pd.DataFrame(flat)), late[:2]):
        np.testing.assert_allclose(rows, 0.2, rtol=1e-6)


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.lil_matrix, sparse.dok_matrix])
def test_the_remedy_for_missing_numbers_works(kind):
    table = RNG.normal(size=(400, 3))
    labels = (table[:, 0] > 0).astype(int)
    table[3, 1] = np.nan
    matrix = kind(table)
    with pytest.raises(ValueError, match="NaN or infinite values in column 1") as caught:
        quick().fit(matrix, labels)
    remedy = re.search(r"constants: (.*), or use", str(caught.value))[1]
    names = {"X": matrix, "numpy": np, "value": 0.0}
    exec(remedy, names)
    quick().fit(names["X"], labels)


@pytest.mark.parametrize("form", [np.int64, np.float32])
def test_pictures_of_another_scale_are_refused(form):
    model, of_floats = (quick().fit(X, BRIGHT) for X in (PICTURES, PICTURES / np.float32(255)))
    np.testing.assert_allclose(
        model.predict_proba(PICTURES), model.predict_proba(PICTURES / np.float32(255)), atol=1e-5
    )
    for fitted, X, match in (
        (model, PICTURES.astype(form), r"X.astype\(numpy.uint8\)"),
        (model, (PICTURES > 127).astype(np.int64), "integers"),
        (of_floats, PICTURES.astype(np.int64), "integers"),
    ):
        with pytest.raises(ValueError, match=match):
            fitted.predict(X)


def test_flags_are_no_bytes():
    flags = PICTURES > 127
    model = quick().fit(flags, BRIGHT)
    expected = model.predict_proba(flags)
    for form in (flags.astype(np.float32), flags.astype(np.int64)):
        np.testing.assert_allclose(model.predict_proba(form), expected, atol=1e-6)
    with pytest.raises(ValueError, match="X holds bytes"):
        model.predict(flags.astype(np.uint8))


def test_flat_bytes_are_pictures_where_their_number_is():
    exact = quick(epsilon=None, noise_multiplier=0.0, batch_size=80)  # no noise, and one batch
    flat = RNG.integers(0, 256, (80, 784)).astype(np.uint8)
    y = (flat.mean(1) > 127).astype(int)
    flags = (flat > 127).repeat(2, axis=1)[:, :1024].astype(np.uint8)
    for rows, scale in ((flat, 255), (flags, 1)):
        numbers = rows / np.float32(scale)
        expected = clone(exact).fit(numbers, y).predict_proba(numbers)
        np.testing.assert_allclose(
            clone(exact).fit(rows, y).predict_proba(rows), expected, atol=1e-5
        )
