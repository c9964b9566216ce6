"""Batches of a fit: empty ones, those of persons, and rows on disk and sparse rows in parts."""

import tracemalloc

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import nn

from skdpfair.analysis import GroupRecorder
from skdpfair.augmentations import PGD
from skdpfair.engine import Batch
from skdpfair.training.batches import PersonRows
from tests.quick_fits import GROUP, QUIET, X, Y, quick, weights

pytestmark = QUIET


def test_poisson_batches_count_an_empty_batch():
    report = quick(batch_size=1, max_steps=60, epsilon=50.0).fit(X, Y).privacy_
    assert (report.steps, report.sample_rate) == (60, 1 / len(Y))


def test_streamed_rows_and_tensors_train_like_arrays_in_memory(tmp_path):
    x = X.to_numpy(np.float32, copy=True)
    x[:, 0] = np.sign(x[:, 0])
    x.tofile(tmp_path / "x.bin")
    on_disk = np.memmap(tmp_path / "x.bin", np.float32, "r", shape=x.shape)
    memory = quick().fit(x, Y)
    for other in (on_disk, torch.from_numpy(x)):
        model = quick().fit(other, Y)
        np.testing.assert_array_equal(weights(model), weights(memory))
        np.testing.assert_array_equal(model.predict_proba(other), memory.predict_proba(x))
    with pytest.raises(ValueError, match="sensitive_features"):
        quick(group_col=0).fit(on_disk, Y)


def peak_memory(work):
    """Return the most memory in use during a call, in bytes."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_streamed_rows_are_never_in_memory_at_once(tmp_path):
    n, d = 22_000, 250
    rng = np.random.default_rng(0)
    written = np.memmap(tmp_path / "x.bin", np.float64, "w+", shape=(n, d))
    for start in range(0, n, 1000):
        written[start : start + 1000] = rng.standard_normal((1000, d))
    y = (written[:, 0] > 0).astype(int)
    written.flush()
    on_disk = np.memmap(tmp_path / "x.bin", np.float64, "r", shape=(n, d))
    model = quick(max_steps=4, random_state=None, epsilon=None, noise_multiplier=0.0)
    model.fit(on_disk[:1000], y[:1000])  # warm caches
    assert peak_memory(lambda: model.fit(on_disk, y).predict(on_disk)) < on_disk.nbytes / 4


def test_sparse_rows_are_never_dense_at_once():
    n = d = 20_000
    rng = np.random.default_rng(0)
    places = rng.integers(0, d, size=(n, 5))
    x = sparse.csr_array((np.ones(5 * n), places.ravel(), np.arange(0, 5 * n + 1, 5)), (n, d))
    y = (places.min(axis=1) < d // 8).astype(int)
    model = quick(module="logistic", max_steps=3, random_state=None)
    model.set_params(epsilon=None, noise_multiplier=1.0, accountant="rdp")
    assert peak_memory(lambda: model.fit(x, y).predict(x[:300])) < 4 * n * d / 16


def network(*layers):
    """Return a factory of a network whose initial weights do not depend on the fit."""

    def make():
        with torch.random.fork_rng():
            torch.manual_seed(0)
            made = (layer() for layer in (lambda: nn.Linear(6, 4), *layers))
            return nn.Sequential(*made, nn.Linear(4, 2))

    return make


RECORDED = {"method": "fairlens_dp", "callbacks": [GroupRecorder(terms=False)]}


@pytest.mark.parametrize(
    ("params", "container"),
    [
        ({"module": "logistic", "max_physical_batch_size": 7}, sparse.csr_matrix),
        ({"module": network(nn.Tanh), "attack": PGD(0.1, input_range=None)}, sparse.csc_array),
        ({"module": network(lambda: nn.LayerNorm(4))}, sparse.coo_matrix),
        ({"module": network(nn.Tanh), **RECORDED}, sparse.csr_array),
    ],
    ids=["chunks", "attack", "own", "fairlens_dp"],
)
def test_sparse_rows_train_like_dense_ones(params, container):
    """All records take part in all steps, without noise."""
    dense = X.to_numpy(np.float32, copy=True)
    dense[np.abs(dense) < 0.5] = 0.0
    given, models = container(dense.astype(np.float64)), []
    noiseless = {"epsilon": None, "noise_multiplier": 0.0, "batch_size": len(Y)}
    for rows in (dense, given):
        model = quick(**params | noiseless, warm_start=True, max_steps=5)
        models.append(model.fit(rows, Y, sensitive_features=GROUP))
        model.fit(rows, Y, sensitive_features=GROUP)
    one, other = models
    np.testing.assert_allclose(weights(one), weights(other), rtol=1e-4, atol=1e-6)
    assert one.n_features_in_ == other.n_features_in_ == 6
    np.testing.assert_allclose(one.predict_proba(dense), one.predict_proba(given), atol=1e-6)
    np.testing.assert_array_equal(given.toarray(), dense)


def test_person_rows_select_all_records_of_each_person_in_order():
    person = np.array([2, 0, 1, 0, 2, 2, -1])
    rows = Batch(torch.arange(7.0)[:, None], torch.arange(7), torch.zeros(7, dtype=torch.int64))
    batch = PersonRows(rows, person).select(torch.tensor([0, 2]))
    assert batch.y.tolist() == [1, 3, 0, 4, 5] and batch.examples.sizes.tolist() == [2, 3]
    assert len(PersonRows(rows, person).select(torch.tensor([], dtype=torch.int64))) == 0
    rng = np.random.default_rng(0)
    person = rng.permutation(np.repeat(np.arange(50), rng.integers(1, 6, 50)))
    codes = torch.from_numpy(person)
    data = PersonRows(Batch(torch.zeros(len(person), 1), codes, codes), person)
    index = torch.from_numpy(rng.permutation(50)[:20])
    assert data.select(index).example_group.tolist() == data.in_order(index).tolist()
