"""Persons with several records: which records of a batch belong together."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import groupby

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag


class Units:
    """The persons of a batch, whose records stand together.

    A sum over persons of what each contributes is private for persons, as a sum over records is
    for records.

    Parameters
    ----------
    size : Tensor of shape (n_units,), int64
        Number of records of each person, at least 1, in the order of the batch.
    each : int or None, default=None
        That number if it is known to be the same for all persons.

    Examples
    --------
    >>> units = Units(torch.tensor([1, 2]))
    >>> rows = torch.tensor([[1.0], [2.0], [3.0]])
    >>> units.of.tolist(), units.mean(rows).tolist(), units.pad(rows)[..., 0].tolist()
    ([0, 1, 1], [[1.0], [2.5]], [[1.0, 0.0], [2.0, 3.0]])
    """

    def __init__(self, size: Tensor, each: int | None = None) -> None:
        self.size, self.each = size, each

    def __len__(self) -> int:
        return len(self.size)

    @cached_property
    def of(self) -> Tensor:
        """Position of each record's person, shape (n_records,), int64."""
        return torch.arange(len(self), device=self.size.device).repeat_interleave(self.size)

    @cached_property
    def first(self) -> Tensor:
        """Position of each person's first record, shape (n_units,), int64."""
        return self.size.cumsum(0) - self.size

    @cached_property
    def most(self) -> int:
        """Largest number of records of a person."""
        return int(self.size.max()) if self.each is None else self.each

    @cached_property
    def _at(self) -> Tensor:
        return torch.arange(self.n_records, device=self.size.device)

    @cached_property
    def share(self) -> Tensor:
        """One over the number of records of each record's person, (n_records,), float64."""
        return self.spread(1.0 / self.size.double())

    @cached_property
    def _places(self) -> Tensor:
        """Position of each record among ``len(self) * most`` places."""
        within = torch.arange(len(self.of), device=self.of.device) - self.spread(self.first)
        return self.of * self.most + within

    def sum(self, rows: Tensor) -> Tensor:
        """Return the sum (n_units, ...) of the rows of each person.

        How many records the others in the batch have does not change how it is rounded.
        """
        if self.each is not None:
            return rows.view(len(self), self.each, *rows.shape[1:]).sum(1)
        if rows.dim() > 1 and rows[0].numel() > 8 and rows.is_floating_point():
            return self._bags(rows.flatten(1)).view(len(self), *rows.shape[1:])
        return rows.new_zeros((len(self), *rows.shape[1:])).index_add_(0, self.of, rows)

    def outer_sum(self, b: Tensor, a: Tensor) -> Tensor:
        """Return the sum (n_units, n_b, n_a) of the outer products of the rows, as `sum` does."""
        if self.each is not None:
            return torch.bmm(self.pad(b).transpose(1, 2), self.pad(a))
        return torch.stack([self._bags(a, column.contiguous()) for column in b.t()], 1)

    def _bags(self, rows: Tensor, weight: Tensor | None = None) -> Tensor:
        # several times faster than `index_add_`, and weighted rows are never made
        return embedding_bag(self._at, rows, self.first, mode="sum", per_sample_weights=weight)

    def mean(self, rows: Tensor) -> Tensor:
        """Return the mean (n_units, ...) of the rows of each person."""
        if self.each is not None:
            return rows.view(len(self), self.each, *rows.shape[1:]).mean(1)
        return self.sum(rows) / self.size.view(-1, *[1] * (rows.dim() - 1))

    def divided(self, values: Tensor) -> Tensor:
        """Return one value (n_units,) for each person over the number of her records."""
        return values / (self.size if self.each is None else self.each)

    def spread(self, values: Tensor) -> Tensor:
        """Return the value of each record's person, (n_records, ...)."""
        if self.each is not None:
            return values.repeat_interleave(self.each, 0)
        return values.index_select(0, self.of)

    def whole(self, counts: Tensor) -> Tensor:
        """Return which persons (n_units,) have no record that does not count."""
        return self.sum((~counts).to(torch.int64)) == 0

    def runs(self, width: int) -> Iterator[tuple[slice, int]]:
        """Yield slices of the records of persons with equally many, and how many each has.

        A slice has about 2**16 numbers at most where a record has ``width``, which stay in a cache.
        """
        sizes = [(self.each, len(self))] if self.each is not None else self._equal_sizes
        stop = 0
        for each, n in sizes:
            step = each * max(1, 2**16 // (each * width))
            start, stop = stop, stop + each * n
            for first in range(start, stop, step):
                yield slice(first, min(first + step, stop)), each

    @cached_property
    def _equal_sizes(self) -> list[tuple[int, int]]:
        return [(size, len(list(same))) for size, same in groupby(self.size.tolist())]

    def pad(self, rows: Tensor) -> Tensor:
        """Return the rows of each person, (n_units, most, ...), zeros after the last."""
        shape = (len(self), self.most, *rows.shape[1:])
        if self.each is not None:
            return rows.reshape(shape)
        padded = rows.new_zeros((len(self) * self.most, *rows.shape[1:]))
        return padded.index_copy_(0, self._places, rows).view(shape)

    def unpad(self, padded: Tensor) -> Tensor:
        """Return the rows (n_records, ...) of persons, from what `pad` returns."""
        rows = padded.flatten(0, 1)
        return rows if self.each is not None else rows.index_select(0, self._places)

    def split(self, most: int) -> list[Units]:
        """Return the persons in chunks of at most ``most`` records, and at least one person."""
        if self.each is not None:  # without a wait for sizes
            return [Units(part, self.each) for part in self.size.split(max(1, most // self.each))]
        chunks = [[0, 0]]
        for n in self.size.tolist():
            if chunks[-1][0] and chunks[-1][1] + n > most:
                chunks.append([0, 0])
            chunks[-1] = [chunks[-1][0] + 1, chunks[-1][1] + n]
        return [Units(part) for part in self.size.split([n for n, _ in chunks])]

    def times(self, n: int) -> Units:
        """Return the persons with ``n`` times as many records each."""
        return Units(self.size * n, None if self.each is None else self.each * n)

    @property
    def n_records(self) -> int:
        """Number of records of all persons."""
        return len(self.of) if self.each is None else len(self) * self.each
