"""Persons with several records: which records of a batch belong together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Units:
    """The persons of a batch, whose records stand together.

    A sum over persons of what each contributes is private for persons, as a sum over records is
    for records.

    Parameters
    ----------
    size : Tensor of shape (n_units,), int64
        Number of records of each person, at least 1, in the order of the batch.

    Examples
    --------
    >>> units = Units(torch.tensor([1, 2]))
    >>> rows = torch.tensor([[1.0], [2.0], [3.0]])
    >>> units.of.tolist(), units.sum(rows).tolist(), units.pad(rows)[..., 0].tolist()
    ([0, 1, 1], [[1.0], [5.0]], [[1.0, 0.0], [2.0, 3.0]])
    """

    size: Tensor

    def __len__(self) -> int:
        return len(self.size)

    @cached_property
    def of(self) -> Tensor:
        """Position of each record's person, shape (n_records,), int64."""
        return torch.arange(len(self), device=self.size.device).repeat_interleave(self.size)

    @cached_property
    def end(self) -> Tensor:
        """Position after each person's last record, shape (n_units,), int64."""
        return self.size.cumsum(0)

    @cached_property
    def first(self) -> Tensor:
        """Position of each person's first record, shape (n_units,), int64."""
        return self.end - self.size

    @cached_property
    def most(self) -> int:
        """Largest number of records of a person."""
        return int(self.size.max())

    @cached_property
    def share(self) -> Tensor:
        """One over the number of records of each record's person, (n_records,), float64."""
        return self.spread(1.0 / self.size.double())

    @cached_property
    def _places(self) -> Tensor | None:
        """Position of each record among ``len(self) * most`` places; None if all are taken."""
        if len(self) * self.most == len(self.of):
            return None
        within = torch.arange(len(self.of), device=self.of.device) - self.spread(self.first)
        return self.of * self.most + within

    def sum(self, rows: Tensor) -> Tensor:
        """Return the sum (n_units, ...) of the rows of each person."""
        if self._places is None:
            return rows.view(len(self), self.most, *rows.shape[1:]).sum(1)
        return rows.new_zeros((len(self), *rows.shape[1:])).index_add_(0, self.of, rows)

    def mean(self, rows: Tensor) -> Tensor:
        """Return the mean (n_units, ...) of the rows of each person."""
        return self.sum(rows) / self.size.view(-1, *[1] * (rows.dim() - 1)).to(rows.dtype)

    def spread(self, values: Tensor) -> Tensor:
        """Return the value of each record's person, (n_records, ...)."""
        return values.index_select(0, self.of)

    def whole(self, counts: Tensor) -> Tensor:
        """Return which persons (n_units,) have no record that does not count."""
        return self.sum((~counts).to(torch.int64)) == 0

    def pad(self, rows: Tensor) -> Tensor:
        """Return the rows of each person, (n_units, most, ...), zeros after the last."""
        shape = (len(self), self.most, *rows.shape[1:])
        if self._places is None:
            return rows.reshape(shape)
        padded = rows.new_zeros((len(self) * self.most, *rows.shape[1:]))
        return padded.index_copy_(0, self._places, rows).view(shape)

    def unpad(self, padded: Tensor) -> Tensor:
        """Return the rows (n_records, ...) of persons, from what `pad` returns."""
        rows = padded.flatten(0, 1)
        return rows if self._places is None else rows.index_select(0, self._places)

    def split(self, most: int) -> list[Units]:
        """Return the persons in chunks of at most ``most`` records, and at least one person."""
        chunks, held = [[0, 0]], self.size.tolist()
        for n in held:
            if chunks[-1][0] and chunks[-1][1] + n > most:
                chunks.append([0, 0])
            chunks[-1] = [chunks[-1][0] + 1, chunks[-1][1] + n]
        return [Units(part) for part in self.size.split([n for n, _ in chunks])]
