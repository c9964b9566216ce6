"""Rows of a batch, and the examples that they make up."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from skdpfair.engine.batch import Batch, Examples


@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=6), n_rows=st.integers(1, 9))
def test_examples_equal_a_loop(sizes, n_rows):
    """Sums, means, spreads and chunks, of equal sizes as of others."""
    n, each = sum(sizes), torch.tensor(sizes)
    rows, b = torch.rand(n, 3, dtype=torch.float64), torch.rand(n, 2, dtype=torch.float64)
    for examples in [Examples(each), *([Examples(sizes[0], n)] if len(set(sizes)) == 1 else [])]:
        assert (len(examples), examples.n_rows, examples.largest) == (len(sizes), n, max(sizes))
        parts, sums = rows.split(sizes), torch.stack([part.sum(0) for part in rows.split(sizes)])
        torch.testing.assert_close(examples.sum(rows), sums)
        torch.testing.assert_close(examples.mean(rows), torch.stack([p.mean(0) for p in parts]))
        assert torch.equal(examples.spread(sums), sums.repeat_interleave(each, 0))
        outer = [u.T @ v for u, v in zip(b.split(sizes), parts, strict=True)]
        torch.testing.assert_close(examples.outer_sum(b, rows), torch.stack(outer))
        chunks = examples.split(n_rows)
        assert torch.cat([torch.ones(len(c)) * c.n_rows for c in chunks]).numel() == len(sizes)
        assert all(c.n_rows <= n_rows or len(c) == 1 for c in chunks)


def test_examples_of_equal_sizes_are_split_without_reading_sizes():
    examples = Examples(3, n_rows=15)
    assert [len(part) for part in examples.split(7)] == [2, 2, 1]
    assert [len(part) for part in examples.split(2)] == [1] * 5
    batch = Batch(torch.zeros(15, 1), torch.zeros(15), examples=examples)
    assert [part.repeated(2).examples.rows_per_example for part in batch.split(7)] == [6, 6, 6]


def test_batch_has_a_group_and_a_weight_of_each_example():
    examples = Examples(torch.tensor([2, 1]))
    columns = torch.tensor([1, 1, 0]), torch.tensor([0.5, 1.5, 0.25])
    batch = Batch(torch.zeros(3, 1), torch.zeros(3), *columns, examples=examples)
    assert batch.example_group.tolist() == [1, 0]
    assert batch.example_weight.tolist() == [0.75, 0.25]  # 1.5 counts as 1
    assert batch.weight_in_example.tolist() == pytest.approx([0.5, 1.5, 1.0])
    assert len(batch.repeated(3)) == 9 and batch.repeated(1) is batch
