"""Sparse inputs of a first Linear layer: products that cost as much as there are stored numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

# times the mean number that rows store: up to here, zeros are cheaper than counts; encoded rows of
# Adult store 26 on average and 33 at most
_MOST = 1.5


@dataclass(frozen=True)
class SparseBatch:
    """Rows of a sparse matrix on a device, as CSR has them, each number of a row stored once.

    The numbers of row i are ``values[offsets[i] : offsets[i + 1]]``, float32, in ``columns``;
    ``norm2`` (n_rows,), float64, holds their sums of squares.  Rows that store nearly equally many
    are filled up with zeros: each row has ``n_each`` then, else it is 0.
    """

    offsets: Tensor
    columns: Tensor
    values: Tensor
    norm2: Tensor
    width: int
    n_each: int = 0

    @classmethod
    def of(cls, matrix: Any, device: str | torch.device = "cpu") -> SparseBatch:
        """Return the rows of a canonical `scipy.sparse.csr_array` of float32."""
        parts, n_each = [matrix.indptr, matrix.indices, matrix.data], 0
        stored = np.diff(matrix.indptr)
        largest = int(stored.max(initial=0))
        is_even = largest * len(stored) <= _MOST * len(matrix.data)
        if is_even and largest * len(stored) <= np.iinfo(parts[1].dtype).max:
            n_each = largest
            is_stored = np.arange(n_each) < stored[:, None]
            parts[0] = np.arange(len(stored) + 1, dtype=parts[1].dtype) * n_each
            for i in (1, 2):
                filled = np.zeros(is_stored.shape, parts[i].dtype)
                filled[is_stored] = parts[i]
                parts[i] = filled.ravel()
        # copies: whoever changes the matrix later must not make norms too small
        offsets, columns, values = (torch.tensor(part, device=device) for part in parts)
        rows = cls(offsets, columns, values, values.new_empty(0), matrix.shape[1], n_each)
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
        if self.n_each:
            return at[:, None].expand(-1, self.n_each).reshape(-1)
        return at.repeat_interleave(self.offsets.diff(), output_size=len(self.values))

    def sum(self, numbers: Tensor) -> Tensor:
        """Return the sum (n_rows,) of the numbers of each row, one for each that is stored."""
        return numbers.new_zeros(len(self)).index_add_(0, self.row, numbers)

    def index_select(self, dim: int, index: Tensor) -> SparseBatch:
        """Return some rows, as torch does."""
        norm2 = self.norm2.index_select(0, index)
        if n := self.n_each:
            columns, values = (
                numbers.view(-1, n).index_select(0, index).view(-1)
                for numbers in (self.columns, self.values)
            )
            offsets = torch.arange(0, n * len(index) + 1, n, device=self.device)
            return SparseBatch(offsets.to(columns.dtype), columns, values, norm2, self.width, n)
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
            norm2,
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
                    self.n_each,
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
        return dense.index_put_((self.row, self.columns.long()), self.values, accumulate=True)

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
        total, columns = out.new_empty(self.width, dtype=torch.float64), self.columns.long()
        for row, of_output in zip(out, b.double().t(), strict=True):
            row.add_(total.zero_().index_add_(0, columns, self._times(of_output)))

    def squares_of_sums(self, b: Tensor, of: Tensor, n: int) -> Tensor:
        """Return the squared norms (n,) of the sums of outer products, over the rows of an example.

        ``of`` (n_rows,) is the example of each row, from 0 to n - 1.
        """
        of = of.index_select(0, self.row)
        places, at = torch.unique(of * self.width + self.columns, return_inverse=True)
        of = places.div(self.width, rounding_mode="floor")
        total = b.new_zeros(n, dtype=torch.float64)
        for of_output in b.double().t():
            sums = total.new_zeros(len(places)).index_add_(0, at, self._times(of_output))
            total.index_add_(0, of, sums.square_())
        return total

    def _times(self, numbers: Tensor) -> Tensor:
        """Return the stored numbers times one float64 number for each row."""
        if self.n_each:
            return (self.values.view(-1, self.n_each) * numbers[:, None]).view(-1)
        return numbers.index_select(0, self.row).mul_(self.values)
