"""Sparse inputs of a first Linear layer: products that cost as much as there are stored numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag


@dataclass(frozen=True)
class SparseBatch:
    """Rows of a sparse matrix on a device, as CSR has them, each place of a row stored once.

    The numbers of row i are ``values[offsets[i] : offsets[i + 1]]``, float32, in ``columns``;
    ``norm2`` (n_rows,), float64, holds their sums of squares.
    """

    offsets: Tensor
    columns: Tensor
    values: Tensor
    norm2: Tensor
    width: int

    @classmethod
    def of(cls, matrix: Any, device: str | torch.device = "cpu") -> SparseBatch:
        """Return the rows of a canonical `scipy.sparse.csr_array` of float32."""
        parts = matrix.indptr, matrix.indices, matrix.data
        # copies: whoever changes the matrix later must not make norms too small
        offsets, columns, values = (torch.tensor(part, device=device) for part in parts)
        rows = cls(offsets, columns, values, values.new_empty(0), matrix.shape[1])
        # squares of float32 neither underflow nor round there
        return replace(rows, norm2=rows.sum(values.double().square()))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return len(self), self.width

    @property
    def dtype(self) -> torch.dtype:
        """Type of the numbers."""
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        """Where the numbers lie."""
        return self.values.device

    @cached_property
    def row(self) -> Tensor:
        """The row of each stored number."""
        at = torch.arange(len(self), device=self.device)
        return at.repeat_interleave(self.offsets.diff(), output_size=len(self.values))

    def sum(self, numbers: Tensor) -> Tensor:
        """Return the sum (n_rows,) of the numbers of each row, one for each that is stored."""
        return numbers.new_zeros(len(self)).index_add_(0, self.row, numbers)

    def index_select(self, dim: int, index: Tensor) -> SparseBatch:
        """Return some rows, as torch does."""
        first = self.offsets.index_select(0, index)
        stored = self.offsets.index_select(0, index + 1) - first
        offsets = self.offsets.new_zeros(len(index) + 1)
        torch.cumsum(stored, 0, out=offsets[1:])
        n = int(offsets[-1])
        at = (first - offsets[:-1]).repeat_interleave(stored, output_size=n)
        at += torch.arange(n, dtype=at.dtype, device=at.device)
        return SparseBatch(
            offsets,
            self.columns.index_select(0, at),
            self.values.index_select(0, at),
            self.norm2.index_select(0, index),
            self.width,
        )

    def split(self, sizes: Sequence[int]) -> list[SparseBatch]:
        """Return chunks of so many rows, as torch does."""
        chunks = []
        for start, end in pairwise((0, *accumulate(sizes))):
            first, last = self.offsets[[start, end]].tolist()
            chunks.append(
                SparseBatch(
                    self.offsets[start : end + 1] - first,
                    self.columns[first:last],
                    self.values[first:last],
                    self.norm2[start:end],
                    self.width,
                )
            )
        return chunks

    def masked(self, mask: Tensor) -> SparseBatch:
        """Return the rows with those that are not kept set to zero."""
        values = torch.where(mask.index_select(0, self.row), self.values, 0.0)
        return replace(self, values=values, norm2=torch.where(mask, self.norm2, 0.0))

    def dense(self) -> Tensor:
        """Return the rows as a tensor."""
        dense: Tensor = self.values.new_zeros(self.shape)
        dense[self.row, self.columns.long()] = self.values
        return dense

    def lengths(self, like: Tensor) -> Tensor:
        """Return the L2 norm of each row, (n_rows,), of the type of ``like``."""
        lengths: Tensor = self.norm2.sqrt().to(like.dtype)
        return lengths

    def dot(self, other: Any) -> Tensor:
        """Return the product of each row with that of other rows, sparse or not, (n_rows,)."""
        other = other.dense() if isinstance(other, SparseBatch) and other is not self else other
        product: Tensor = self.norm2 if other is self else torch.linalg.vecdot(self.dense(), other)
        return product.to(self.dtype)

    def linear(self, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return ``x weight^T + bias``, (n_rows, n_outputs)."""
        if len(self.values) > 4 * self.width:
            out = self._sums_of(weight.t().contiguous())
        else:
            # to transpose a weight of many columns takes longer than all else
            out = torch.cat([self._sums_of(of_output[:, None]) for of_output in weight], dim=1)
        return out if bias is None else out.add_(bias)

    def _sums_of(self, rows: Tensor) -> Tensor:
        """Return the sums of some rows, one for each column, times the numbers."""
        return embedding_bag(
            self.columns,
            rows,
            self.offsets,
            mode="sum",
            per_sample_weights=self.values,
            include_last_offset=True,
        )

    def add_outer_(self, b: Tensor, out: Tensor) -> None:
        """Add the sum over rows of the products of ``b`` (n_rows, n_outputs) with them to ``out``.

        ``out`` (n_outputs, n_columns) may hold noise, so the sum is made apart from it, in float64:
        else it would be rounded once for each number, by as much as the noise is large.
        """
        total = out.new_empty(self.width, dtype=torch.float64)
        values, columns = self.values.double(), self.columns.long()
        for row, of_output in zip(out, b.double().t(), strict=True):
            total.zero_().index_add_(0, columns, of_output.index_select(0, self.row).mul_(values))
            row.add_(total)

    def squares_of_sums(self, b: Tensor, of: Tensor, n: int) -> Tensor:
        """Return the squared norms (n,) of the sums of outer products, over the rows of an example.

        ``of`` (n_rows,) is the example of each row, from 0 to n - 1.
        """
        of, values = of.index_select(0, self.row), self.values.double()
        places, at = torch.unique(of * self.width + self.columns, return_inverse=True)
        of = places.div(self.width, rounding_mode="floor")
        total = values.new_zeros(n)
        for of_output in b.double().t():
            products = of_output.index_select(0, self.row).mul_(values)
            sums = values.new_zeros(len(places)).index_add_(0, at, products)
            total.index_add_(0, of, sums.square_())
        return total
