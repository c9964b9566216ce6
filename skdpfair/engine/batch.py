"""The records of one step, and which of them make up one example: a record, or a person."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from skdpfair.engine.sparse_rows import SparseBatch


class Examples:
    """Which rows make up one example: a record has one, a person has her records, with all views.

    The rows of an example stand together.  Its gradient is the mean of theirs, which is measured
    and clipped as one: a sum over examples has the sensitivity of one contribution, for any number
    of rows.  ``sizes``, at least 1, are numbers of rows: (n_examples,), int64, or an int if it is
    known to be the same for all.
    """

    def __init__(self, sizes: int | Tensor, n_rows: int | None = None) -> None:
        self.sizes = sizes
        self.n_rows = int(torch.as_tensor(sizes).sum()) if n_rows is None else n_rows
        self.rows_per_example = sizes if isinstance(sizes, int) else None

    def __len__(self) -> int:
        return self.n_rows // self.sizes if isinstance(self.sizes, int) else len(self.sizes)

    @cached_property
    def example_of_row(self) -> Tensor:
        """Position of each row's example, shape (n_rows,), int64; where sizes differ."""
        assert isinstance(self.sizes, Tensor)
        index = torch.arange(len(self), device=self.sizes.device)
        return index.repeat_interleave(self.sizes, output_size=self.n_rows)

    @cached_property
    def largest(self) -> int:
        """Largest number of rows of an example."""
        return self.sizes if isinstance(self.sizes, int) else int(self.sizes.max())

    def sum(self, rows: Tensor) -> Tensor:
        """Return the sum (n_examples, ...) of the rows of each example.

        How many rows the others in the batch have does not change how it is rounded.
        """
        if self.rows_per_example == 1:
            return rows
        if self.rows_per_example is not None:
            return rows.view(len(self), self.rows_per_example, *rows.shape[1:]).sum(1)
        if rows.shape[1:].numel() > 8 and rows.is_floating_point():  # wide enough to pay
            return self._bags(rows.flatten(1)).view(len(self), *rows.shape[1:])
        return rows.new_zeros((len(self), *rows.shape[1:])).index_add_(0, self.example_of_row, rows)

    def outer_sum(self, b: Tensor, a: Tensor) -> Tensor:
        """Return the sum (n_examples, n_b, n_a) of outer products of the rows, as `sum` does."""
        if self.rows_per_example is not None:
            b, a = (rows.view(len(self), self.rows_per_example, -1) for rows in (b, a))
            return torch.bmm(b.transpose(1, 2), a)
        return torch.stack([self._bags(a, column.contiguous()) for column in b.t()], 1)

    def _bags(self, rows: Tensor, weight: Tensor | None = None) -> Tensor:
        # several times faster than `index_add_`, and weighted rows are never made
        return embedding_bag(
            self.row_index, rows, self.first_row, mode="sum", per_sample_weights=weight
        )

    @cached_property
    def row_index(self) -> Tensor:
        """Position of each row, shape (n_rows,), int64; where sizes differ."""
        return torch.arange(self.n_rows, device=self.first_row.device)

    @cached_property
    def first_row(self) -> Tensor:
        """Position of each example's first row, shape (n_examples,), int64; where sizes differ."""
        assert isinstance(self.sizes, Tensor)
        return self.sizes.cumsum(0) - self.sizes

    def mean(self, rows: Tensor) -> Tensor:
        """Return the mean (n_examples, ...) of the rows of each example."""
        return self.over_size(self.sum(rows))

    def over_size(self, values: Tensor) -> Tensor:
        """Return the values (n_examples, ...) over the numbers of rows."""
        if self.rows_per_example == 1:
            return values
        if isinstance(self.sizes, int):
            return values / self.sizes
        return values / self.sizes.view(-1, *[1] * (values.dim() - 1))

    def spread(self, values: Tensor) -> Tensor:
        """Return the value of each row's example, (n_rows, ...)."""
        if self.rows_per_example == 1:
            return values
        if self.rows_per_example is not None:
            return values.repeat_interleave(self.rows_per_example, 0)
        return values.index_select(0, self.example_of_row)

    def blocks(self, *columns: Tensor) -> Iterator[list[Tensor]]:
        """Yield columns (n_rows, ..., d) of some examples after the other, (n, positions, d) each.

        The axis of an example's rows joins that of their positions, if they are sequences.  A block
        is of examples with equally many rows, and nothing is padded.  Where that is not one, it has
        about 2**16 numbers at most, which stay in a cache, as float64: so how many rows the others
        have does not change how products are rounded.
        """
        if self.rows_per_example == 1:
            yield [c.unsqueeze(1) if c.dim() == 2 else c for c in columns]
            return
        width = max(c.shape[1:].numel() for c in columns)
        stop = 0
        for each, n in self._runs:
            step = each * max(1, 2**16 // max(1, each * width))
            start, stop = stop, stop + each * n
            for first in range(start, stop, step):
                rows = slice(first, min(first + step, stop))
                n_here = (rows.stop - first) // each
                parts = (c[rows].reshape(n_here, -1, c.shape[-1]) for c in columns)
                yield [part.double() if part.is_floating_point() else part for part in parts]

    @cached_property
    def _runs(self) -> list[tuple[int, int]]:
        """Numbers of rows, and of examples after each other that have so many."""
        if isinstance(self.sizes, int):
            return [(self.sizes, len(self))]
        return [(size, len(list(same))) for size, same in groupby(self.sizes.tolist())]

    def split(self, n_rows: int) -> list[Examples]:
        """Return chunks of at most ``n_rows`` rows, and at least one example."""
        if isinstance(self.sizes, int):  # without a wait for sizes
            step = self.sizes * max(1, n_rows // self.sizes)
            starts = range(0, self.n_rows, step)
            return [Examples(self.sizes, min(step, self.n_rows - start)) for start in starts]
        chunks = [[0, 0]]
        for size in self.sizes.tolist():
            if chunks[-1][0] and chunks[-1][1] + size > n_rows:
                chunks.append([0, 0])
            chunks[-1] = [chunks[-1][0] + 1, chunks[-1][1] + size]
        parts = self.sizes.split([n for n, _ in chunks])
        return [Examples(part, rows) for part, (_, rows) in zip(parts, chunks, strict=True)]


@dataclass(frozen=True)
class Batch:
    """The records of one step, which have a row in each column.

    ``x`` is a tensor or a `SparseBatch`, which only the first Linear layer of a chain takes as it
    is.  ``y`` is of class codes, int64, or of the
    targets of a regression, float32 in [-1, 1].  ``group`` is of codes, equal within an example; by
    default 0.  ``weight`` in [0, 1] multiplies each record's gradient once it is clipped, and
    ``logit_gradient`` (n_rows, n_outputs) is added to its gradient in the outputs.
    ``examples`` stand one after the other: persons, or records with several views; the loss of one
    is the mean over its rows.  By default each row is one.
    """

    x: Any
    y: Tensor
    group: Tensor = None  # type: ignore[assignment]  # set below
    weight: Tensor | None = None
    logit_gradient: Tensor | None = None
    examples: Examples = None  # type: ignore[assignment]  # set below

    def __post_init__(self) -> None:
        if self.group is None:
            group = torch.zeros_like(self.y, dtype=torch.int64)
            object.__setattr__(self, "group", group)
        if self.examples is None:
            object.__setattr__(self, "examples", Examples(1, len(self.y)))

    def __len__(self) -> int:
        return len(self.y)

    @property
    def dense_x(self) -> Tensor:
        """The inputs as a tensor, of sparse rows too."""
        x: Tensor = self.x.dense() if isinstance(self.x, SparseBatch) else self.x
        return x

    @property
    def example_group(self) -> Tensor:
        """Group code of each example."""
        each = self.examples.rows_per_example
        if each is not None:
            return self.group if each == 1 else self.group[::each]
        return self.group.index_select(0, self.examples.first_row)

    @property
    def example_weight(self) -> Tensor | None:
        """Factor of each example's clipped gradient, the mean over its rows; None for 1."""
        # none above 1 could move the sum by more than the bound
        return None if self.weight is None else self.examples.mean(self.weight.clamp(0.0, 1.0))

    @property
    def weight_in_example(self) -> Tensor | None:
        """Factor of each row's loss, of mean 1 within an example; None for 1."""
        if self.weight is None or self.examples.rows_per_example == 1:
            return None
        mean = self.examples.spread(self.examples.mean(self.weight))
        return torch.where(mean > 0, self.weight / mean, 1.0)

    def repeated(self, n: int) -> Batch:
        """Return the batch with ``n`` copies of each record, which are rows of its example."""
        if n == 1:
            return self
        index = torch.arange(len(self), device=self.y.device).repeat_interleave(n)
        columns = {name: column.index_select(0, index) for name, column in self._columns().items()}
        return Batch(**columns, examples=Examples(self.examples.sizes * n, len(index)))

    def split(self, n_rows: int) -> list[Batch]:
        """Return the batch in chunks of at most ``n_rows`` rows, or one example, in order."""
        parts = self.examples.split(n_rows)
        counts = [part.n_rows for part in parts]
        chunks = {name: column.split(counts) for name, column in self._columns().items()}
        return [
            Batch(**{name: c[i] for name, c in chunks.items()}, examples=part)
            for i, part in enumerate(parts)
        ]

    def _columns(self) -> dict[str, Any]:
        columns = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "examples"}
        return {name: column for name, column in columns.items() if column is not None}
