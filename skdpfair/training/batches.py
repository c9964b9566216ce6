"""Records on their device, and the Poisson batches of an epoch."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from skdpfair.engine import Batch, PoissonSampler
from skdpfair.engine.batch import Examples
from skdpfair.engine.sparse_rows import SparseBatch
from skdpfair.inputs.rows import BYTES, Rows, SparseRows, are_bytes, is_streamed, select

_DRAWN = 2**20  # positions of records that are drawn and kept at once


def records_at(rows: Batch, index: Tensor, x: Any = None) -> Batch:
    """Return the records at some positions, each an example; ``x`` are their inputs, if given."""
    return Batch(
        rows.x.index_select(0, index) if x is None else x,
        rows.y.index_select(0, index),
        rows.group.index_select(0, index),
        weight=None if rows.weight is None else rows.weight.index_select(0, index),
    )


class StreamedRows:
    """Rows on disk or in another memory than the device's: fetched batch by batch.

    ``columns`` is a batch of all other columns, on the device.
    """

    def __init__(self, x: Rows, columns: Batch, device: str | torch.device) -> None:
        self.x, self.columns, self.device = x, columns, torch.device(device)

    def select(self, index: Tensor, out: Tensor | None = None) -> Batch:
        """Return the records at ``index`` on the device; in the memory of ``out``, if it fits."""
        if out is not None and isinstance(self.x, np.ndarray):
            # the other modes make copies
            np.take(self.x, index.numpy(), 0, out.numpy(), "clip")
            x = out
        elif isinstance(self.x, Tensor):
            x = self.x.index_select(0, index.to(self.x.device))
            x = x.to(self.device, torch.float32) / (BYTES if are_bytes(self.x) else 1)
        else:
            # copies to the device run beside the steps; to pin rows first takes longer than that
            is_async = self.device.type == "cuda"
            x = torch.from_numpy(select(self.x, index.numpy()))
            x = x.to(self.device, non_blocking=is_async)
        return records_at(self.columns, index.to(self.device), x)


class PersonRows:
    """Rows of persons: a position is that of a person, who comes with all her records.

    ``person`` (n,) is the number of each record's person, -1 for records that take no part.
    """

    def __init__(self, rows: Batch | StreamedRows, person: np.ndarray) -> None:
        self.rows = rows
        records = np.flatnonzero(person >= 0)
        size = np.bincount(person[records])
        order = records[np.argsort(person[records], kind="stable")]
        self._each = int(size[0]) if len(np.unique(size)) == 1 else None  # equal sizes are faster
        # positions lie where rows are fetched by them
        device = "cpu" if isinstance(rows, StreamedRows) else rows.y.device
        shape = len(order) if self._each is None else (-1, self._each)
        self._order = torch.as_tensor(order, device=device).view(shape)
        self._size = torch.as_tensor(size, device=device)
        self._first = self._size.cumsum(0) - self._size

    def in_order(self, index: Tensor) -> Tensor:
        """Return positions in the order of a batch: persons with few records come first."""
        at = index.to(self._size.device)
        if self._each is not None:
            return at
        return at.index_select(0, self._size.index_select(0, at).argsort())

    def select(self, index: Tensor) -> Batch:
        """Return the records of the persons at ``index``, on the device."""
        at = self.in_order(index)
        if self._each is not None:
            records = self._order.index_select(0, at).flatten()
            examples = Examples(self._each, len(records))
        else:
            size = self._size.index_select(0, at)
            examples = Examples(size)
            start = self._first.index_select(0, at) - examples.first_row
            records = self._order.index_select(0, examples.spread(start) + examples.row_index)
            if isinstance(self.rows, StreamedRows):
                examples = Examples(size.to(self.rows.device), len(records))
        return replace(_fetched(self.rows, records), examples=examples)


def _fetched(rows: Batch | StreamedRows, index: Tensor, out: Tensor | None = None) -> Batch:
    """Return the records at ``index`` on the device; their inputs lie in ``out``, if given."""
    if isinstance(rows, StreamedRows):
        return rows.select(index, out)
    x = None if out is None else torch.index_select(rows.x, 0, index, out=out)
    return records_at(rows, index, x)


AnyRows: TypeAlias = Batch | StreamedRows | PersonRows


class PoissonBatches:
    """The data and its sampler; iterating draws the batches of one epoch, afresh each time.

    What it yields is for :meth:`select`.  ``steps()`` returns how many steps the epoch has, and
    ``acceptance_rates(index)`` the probabilities with which those drawn take part in the next step;
    None is 1 for all.
    """

    def __init__(
        self,
        data: AnyRows,
        sampler: PoissonSampler,
        steps: Callable[[], int],
        acceptance_rates: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> None:
        self.data, self.sampler, self.steps = data, sampler, steps
        self.acceptance_rates = acceptance_rates
        self._memory: Tensor | None = None
        self._reuses = _is_plain(data)

    def __iter__(self) -> Iterator[Tensor]:
        n_left = self.steps()
        steps_at_once = max(1, _DRAWN // max(1, round(self.sampler.rate * self.sampler.n_samples)))
        while n_left > 0:
            indices = self.sampler.draw(min(n_left, steps_at_once))
            n_left -= len(indices)
            if self.acceptance_rates is not None:
                yield from map(self._thinned, indices)
            elif isinstance(self.data, Batch):
                # they go to the device at once
                sizes = [len(index) for index in indices]
                yield from torch.cat(indices).to(self.data.x.device).split(sizes)
            else:
                yield from indices

    def _thinned(self, index: Tensor) -> Tensor:
        """Return a Poisson sample at the rates of the next step, drawn when it is asked for."""
        assert self.acceptance_rates is not None
        accepted = self.sampler.generator.random(len(index)) < self.acceptance_rates(index.numpy())
        index = index[torch.from_numpy(accepted)]
        return index.to(self.data.x.device) if isinstance(self.data, Batch) else index

    def in_order(self, index: Tensor) -> Tensor:
        """Return the positions of records or persons in the order of their batch."""
        return self.data.in_order(index) if isinstance(self.data, PersonRows) else index

    def select(self, index: Tensor, *, reuses: bool = False) -> Batch:
        """Return a batch on the device; ``reuses`` overwrites the one before, which is faster."""
        if isinstance(self.data, PersonRows):
            return self.data.select(index)
        if not (reuses and self._reuses):
            return _fetched(self.data, index)
        if self._memory is None or len(index) > len(self._memory):
            self._memory = torch.empty((len(index), *self.data.x.shape[1:]), dtype=torch.float32)
        return _fetched(self.data, index, self._memory[: len(index)])


def _is_plain(data: AnyRows) -> bool:
    """Return whether records are float32 numbers in memory, or in a memory map, for the CPU."""
    if isinstance(data, StreamedRows):
        is_mapped = isinstance(data.x, np.ndarray) and data.x.dtype == np.float32
        return is_mapped and data.device.type == "cpu"
    x = data.x if isinstance(data, Batch) else None
    return isinstance(x, Tensor) and x.device.type == "cpu" and x.dtype == torch.float32


def rows_on(
    device: str | torch.device,
    x: Rows,
    y: np.ndarray,
    group: np.ndarray,
    weight: np.ndarray | None = None,
    person: np.ndarray | None = None,
) -> AnyRows:
    """Return all records on the device, or `StreamedRows`; `PersonRows` if there are persons.

    A tensor of float32 that lies on the device is taken as it is.
    """
    codes, groups = (torch.as_tensor(a, device=device) for a in (y, group))
    weights = None if weight is None else torch.as_tensor(weight, device=device)
    columns = Batch(codes, codes, groups, weight=weights)
    rows: Batch | StreamedRows
    if isinstance(x, SparseRows):
        rows = replace(columns, x=SparseBatch.of(x.matrix, device))
    elif isinstance(x, Tensor) and x.device == codes.device and x.dtype == torch.float32:
        rows = replace(columns, x=x.detach())
    elif is_streamed(x):
        rows = StreamedRows(x, columns, device)
    else:
        rows = replace(columns, x=torch.as_tensor(x, device=device))
    return rows if person is None else PersonRows(rows, person)


def record_rates(rates: Tensor, group: np.ndarray) -> float | np.ndarray:
    """Return the sampling rate of every record, or one number if all groups have the same."""
    if bool((rates == rates[0]).all()):
        return float(rates[0])
    return rates[torch.as_tensor(group)].numpy()
