"""Sparse inputs: the same steps, norms and predictions as of dense ones, from stored numbers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.preprocessing import OneHotEncoder
from torch import nn

from skdpfair import DPFairClassifier, DPFairRegressor, get_method
from skdpfair.engine import Batch, select_strategy
from skdpfair.engine.batch import Examples
from skdpfair.engine.losses import REGRESSION, CrossEntropy
from skdpfair.engine.mechanism import Mechanism, Task
from skdpfair.engine.per_sample import ClosedForm, linear_layers
from skdpfair.engine.per_sample.samplers import SparseGradSampler
from skdpfair.engine.sparse_rows import SparseBatch
from skdpfair.inputs.rows import SparseRows
from skdpfair.methods import METHODS
from tests.engine.per_sample.modules import chain, seeded, sums

D = 12
pytestmark = pytest.mark.filterwarnings(
    "ignore::skdpfair.exceptions.LowSignalWarning",
    "ignore::skdpfair.exceptions.InsecureSeedWarning",
)


def mlp(*frozen):
    module = chain((D, 5), nn.ReLU() if frozen else nn.Tanh(), (5, 3))
    for name in frozen:
        module.get_parameter(name).requires_grad_(False)
    return module


MODULES = {
    "logistic": lambda: nn.Linear(D, 3),
    "no bias": lambda: nn.Linear(D, 3, bias=False),
    "mlp": mlp,
    "frozen weight": lambda: mlp("0.weight"),
    "frozen bias": lambda: mlp("0.bias"),
    "frozen first layer": lambda: mlp("0.weight", "0.bias"),
}


def table(n, seed=0, density=0.3):
    rng = np.random.default_rng(seed)
    return sparse.random_array((n, D), density=density, rng=rng, dtype=np.float32, format="csr")


def rows_of(matrix):
    return SparseBatch.of(SparseRows(sparse.csr_array(matrix)).matrix)


def batches(n=20, *, weighted=False, sizes=None):
    """Return a batch with sparse inputs, and the same with dense ones."""
    matrix, generator = table(n), torch.Generator().manual_seed(0)
    columns = {
        "y": torch.randint(0, 3, (n,), generator=generator),
        "group": torch.randint(0, 2, (n,), generator=generator),
        "weight": 3 * torch.rand(n, generator=generator) if weighted else None,
        "examples": None if sizes is None else Examples(sizes, n),
    }
    if sizes is not None:
        examples = columns["examples"]
        columns["group"] = examples.spread(columns["group"][: len(examples)])
    return Batch(rows_of(matrix), **columns), Batch(torch.from_numpy(matrix.toarray()), **columns)


def same_steps(module, pair, method, chunk_size=None):
    mechanism = Mechanism(method, Task(20, 2, 0.5), 1.0)
    found = sums(seeded(module), pair, mechanism, name="closed_form", chunk_size=chunk_size)
    torch.testing.assert_close(*found, rtol=1e-6, atol=1e-5)  # of sums over 10


by_module = pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)


@pytest.mark.parametrize("chunk_size", [None, 7])
@pytest.mark.parametrize("weighted", [False, True])
@by_module
def test_step_on_sparse_rows_is_that_on_dense_ones(module, weighted, chunk_size):
    pair = batches(weighted=weighted)
    same_steps(module, pair, get_method("dpsgd", max_grad_norm=0.3), chunk_size)


@pytest.mark.parametrize("name", sorted(n for n, m in METHODS.items() if m.private))
def test_every_private_method_takes_sparse_rows(name):
    same_steps(mlp, batches(), get_method(name))


@pytest.mark.parametrize("sizes", [4, torch.tensor([1, 7, 3, 2, 7])])
@by_module
def test_persons_on_sparse_rows_are_those_on_dense_ones(module, sizes):
    pair, norms = batches(sizes=sizes), []
    same_steps(module, pair, get_method("dpsgd", max_grad_norm=0.3))
    for batch in pair:
        with select_strategy(seeded(module), pair[1].x[:1], 3) as strategy:
            norms.append(strategy.per_sample_gradients(batch).norm)
    torch.testing.assert_close(*norms, rtol=1e-6, atol=1e-6)


def test_norm_of_a_person_whose_sparse_rows_cancel_bounds_the_sum():
    row = np.zeros((1, D), np.float32)
    row[0, 3] = 1e3
    module = seeded(nn.Linear, D, 3)
    nn.init.zeros_(module.weight)
    rows = rows_of(np.repeat(row, 2, axis=0))
    batch = Batch(rows, torch.tensor([0, 1]), examples=Examples(2, 2))
    with select_strategy(module, torch.zeros(1, D), 3) as strategy:
        gradients = strategy.per_sample_gradients(batch)
        gradients.weighted_sum(torch.ones(1), total := strategy.flat())
    assert float(gradients.norm) >= float(total.double().norm())


@pytest.mark.parametrize("n", [1024, 4096])
def test_many_equal_rows_do_not_add_up_their_rounding(n):
    """Neither by themselves nor with noise, which is drawn before the sum is added."""
    row = (np.random.default_rng(0).normal(size=(1, 60)) * 10).astype(np.float32)
    rows, codes = rows_of(np.repeat(row, n, axis=0)), torch.zeros(n, dtype=torch.int64)
    mechanism = Mechanism(get_method("dpsgd", max_grad_norm=1.0), Task(n, 1, 1.0), 30.0)
    others = Batch(rows.index_select(0, torch.arange(1, n)), codes[1:])
    one, other = sums(seeded(nn.Linear, 60, 2), [Batch(rows, codes), others], mechanism, 2)
    assert float((one.double() - other.double()).norm()) <= 1 + 1e-6


@pytest.mark.parametrize(("a", "b"), [(1e-23, 1e18), (1e-30, 1e15), (1.0, 1e-18)])
def test_sparse_squares_that_underflow_leave_the_norm_above_the_sum(a, b):
    layer, row = nn.Linear(D, 3, bias=False), rows_of(np.full((1, D), a))
    sampler = SparseGradSampler(row, torch.full((1, 3), b), layer.weight)
    sampler.add(torch.ones(1), {layer.weight: (total := torch.zeros(3, D))})
    least = float(total.double().norm()) * (1 - 1e-5)
    assert float(sampler.norm2(Examples(1, 1))[0]) ** 0.5 >= least
    chain = linear_layers(layer, torch.zeros(1, D))
    assert float(ClosedForm(layer, CrossEntropy(3), chain)._norm([sampler])[0]) >= least


@pytest.mark.parametrize("vouched", [False, True])
def test_sparse_numbers_that_are_stored_in_parts_are_one(vouched):
    """Two halves of a number have a square of their sum; the caller's matrix stays as it is."""
    parts = (np.array([3.0, 4.0, 1.0]), np.array([2, 2, 0]), np.array([0, 3]))
    matrix = sparse.csr_array(parts, (1, D), dtype=np.float32)
    if vouched:
        matrix.has_canonical_format = True
    rows = SparseBatch.of(SparseRows(matrix).matrix)
    assert rows.norm2.tolist() == [50.0] and rows.dense()[0, 2] == 7.0
    assert matrix.nnz == 3


def test_sparse_batch_does_not_follow_later_changes_of_the_matrix():
    matrix = table(5).astype(np.float32)
    rows = SparseBatch.of(SparseRows(matrix).matrix)
    before = rows.dense().clone()
    matrix.data *= 100
    matrix.indices[:] = 0
    assert torch.equal(rows.dense(), before)
    torch.testing.assert_close(rows.norm2, before.double().square().sum(1))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.sampled_from([0.0, 0.1, 1.0]))
def test_sparse_batch_is_selected_split_and_multiplied_as_a_dense_one(seed, n, density):
    matrix, rng = table(n, seed, density), np.random.default_rng(seed)
    dense, rows = torch.from_numpy(matrix.toarray()), rows_of(matrix)
    index = torch.from_numpy(rng.integers(0, n, rng.integers(0, 9)))
    assert torch.equal(rows.index_select(0, index).dense(), dense.index_select(0, index))
    sizes = np.diff([0, *sorted(rng.integers(0, n + 1, 3)), n]).tolist()
    for part, expected in zip(rows.split(sizes), dense.split(sizes), strict=True):
        assert torch.equal(part.dense(), expected) and len(part) == len(expected)
    kept = torch.from_numpy(rng.integers(0, 2, n)).bool()
    assert torch.equal(rows.masked(kept).dense(), torch.where(kept[:, None], dense, 0.0))
    weight = torch.from_numpy(rng.normal(size=(4, D)).astype(np.float32))
    torch.testing.assert_close(rows.linear(weight, None), dense @ weight.T)
    b = torch.from_numpy(rng.normal(size=(n, 4)).astype(np.float32))
    rows.add_outer_(b, out := weight.clone())
    torch.testing.assert_close(out, weight + b.T @ dense, rtol=1e-6, atol=1e-6)


def test_sparse_rows_without_a_finite_gradient_count_for_nothing():
    matrix = table(8).toarray()
    matrix[2, 5] = 3e38
    rows, codes = rows_of(matrix), torch.zeros(8).long()
    module = seeded(chain, (D, 4), nn.ReLU(), (4, 3))
    module[0].weight.data.mul_(1e3)
    mechanism = Mechanism(get_method("dpsgd"), Task(20, 1, 0.5), 0.0)
    others = torch.tensor([0, 1, 3, 4, 5, 6, 7])
    pair = Batch(rows, codes), Batch(rows.index_select(0, others), codes[others])
    torch.testing.assert_close(*sums(module, pair, mechanism))


def test_regression_on_sparse_rows_is_that_on_dense_ones():
    pair, gradients = batches(), []
    for batch in pair:
        module, loss = seeded(nn.Linear, D, 1), REGRESSION["huber"]()
        with select_strategy(module, pair[1].x[:1], 1, loss=loss) as strategy:
            found = strategy.per_sample_gradients(Batch(batch.x, torch.linspace(-1, 1, 20)))
            found.weighted_sum(torch.ones(20), total := strategy.flat())
            gradients.append((total, found.norm))
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-6)


def test_fits_take_sparse_columns_of_scikit_learns_encoder():
    codes = np.random.default_rng(0).integers(0, 3000, (2000, 2))
    encoder = OneHotEncoder(categories=[range(3000)] * 2, dtype=np.float32)
    X, y = encoder.fit_transform(codes), (codes.sum(1) > 3000).astype(int)
    model = DPFairClassifier("dpsgd", epsilon=8.0, module="logistic", max_steps=5).fit(X, y)
    assert model.net_.engine_.name == "closed_form" and model.privacy_.is_private
    assert model.predict(X).shape == (2000,)
    model = DPFairRegressor("dpsgd", epsilon=8.0, max_steps=5, y_range=(0, 6000))
    assert np.isfinite(model.fit(X, codes.sum(1)).predict(X)).all()


@pytest.mark.parametrize("is_even", [True, False])
def test_rows_that_are_filled_up_with_zeros_are_the_same(is_even):
    """Rows of two or three numbers are, those of none to ten are not."""
    rng, n = np.random.default_rng(0), 40
    dense = np.zeros((n, D), np.float32)
    for row in dense:
        places = rng.permutation(D)[: rng.integers(2, 4) if is_even else rng.integers(0, 11)]
        row[places] = rng.normal(size=len(places))
    rows = SparseBatch.of(SparseRows(sparse.csr_array(dense)).matrix)
    assert rows.n_each == (3 if is_even else 0)
    x, index = torch.from_numpy(dense), torch.tensor([5, 0, 5, 39])
    first, second = rows.split([30, 10])
    kept = torch.arange(n) % 3 > 0
    pairs = [(rows, x), (rows.index_select(0, index), x[index]), (first, x[:30]), (second, x[30:])]
    pairs.append((rows.masked(kept), torch.where(kept[:, None], x, 0)))
    weight, b = torch.randn(3, D), torch.randn(n, 3)
    for found, expected in pairs:
        torch.testing.assert_close(found.dense(), expected, rtol=0, atol=0)
        torch.testing.assert_close(found.lengths(x), expected.norm(dim=1))
        torch.testing.assert_close(found.linear(weight, None), expected @ weight.t())
        found.add_outer_(b[: len(expected)], out := torch.zeros(3, D))
        torch.testing.assert_close(out, b[: len(expected)].t() @ expected)
