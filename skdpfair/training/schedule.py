"""Schedule of the steps, batches of an epoch, and iterate averaging."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from skdpfair.engine import Batch, PoissonSampler, ScaleSearch
from skdpfair.engine.batch import Examples
from skdpfair.inputs.streaming import BYTES, SparseRows, are_bytes, as_rows, is_streamed
from skdpfair.inputs.table import Rows
from skdpfair.mechanism import Mechanism


@dataclass(frozen=True)
class Schedule:
    """Number of steps, learning rate and averaging.

    Parameters
    ----------
    n_steps : int
        Steps on the data, the warm-up's among them.
    steps_per_epoch : int
        Steps between two epoch callbacks.
    search : ScaleSearch or None
        The warm-up, if the gradient scale is to be found.
    warm_up : int
        Its number of steps.
    lr_scale : float or None
        Learning rate in units of the method's own; None to take the optimizer's as given.
    norm_growth : float
        See :meth:`skdpfair.mechanism.Method.at_scale`.
    averaged : float
        Share, in [0, 1], of the last steps whose parameters are averaged.
    clip_slope : float
        Slope of the loss at which gradients are clipped, over that of the warm-up.
    """

    n_steps: int
    steps_per_epoch: int
    search: ScaleSearch | None = None
    warm_up: int = 0
    lr_scale: float | None = None
    norm_growth: float = 1.0
    averaged: float = 0.0
    clip_slope: float = 1.0

    @property
    def first_averaged(self) -> int:
        """Number of the first step whose parameters enter the average."""
        return self.n_steps - round(self.averaged * (self.n_steps - self.warm_up)) + 1


class StreamedRows:
    """Rows on disk, sparse, or in another memory than the device's: fetched batch by batch."""

    def __init__(
        self,
        x: Rows,
        y: Tensor,
        group: Tensor,
        weight: Tensor | None,
        device: str | torch.device,
    ) -> None:
        self.x, self.y, self.group, self.device = x, y, group, device
        self.weight = weight

    def select(self, index: Tensor, out: Tensor | None = None) -> Batch:
        """Return the records at ``index`` on the device; in the memory of ``out``, if it fits."""
        x: Tensor | SparseRows
        if out is not None and isinstance(self.x, np.ndarray):
            np.take(self.x, index.numpy(), 0, out.numpy(), "clip")  # the others make copies
            x = out
        elif isinstance(self.x, SparseRows):
            x = self.x.index_select(0, index)  # made dense chunk by chunk
        elif isinstance(self.x, torch.Tensor):
            x = self.x.index_select(0, index.to(self.x.device))
            x = x.to(self.device, torch.float32) / (BYTES if are_bytes(self.x) else 1)
        else:
            # copies to the device run beside the steps; to pin rows first takes longer than that
            aside = torch.device(self.device).type == "cuda"
            x = torch.from_numpy(as_rows(self.x, index.numpy())).to(self.device, non_blocking=aside)
        at = index.to(self.device)
        columns = Batch(self.y, self.y, self.group, weight=self.weight)
        return replace(columns.select(at), x=x)


class UnitRows:
    """Rows of persons: a position is that of a person, who comes with all her records.

    ``unit`` (n,) is the number of each record's person, -1 for records that take no part.
    """

    def __init__(self, rows: Batch | StreamedRows, unit: np.ndarray) -> None:
        self.rows = rows
        place, taken = rows.y.device, np.flatnonzero(unit >= 0)
        size = np.bincount(unit[taken])
        order = taken[np.argsort(unit[taken], kind="stable")]
        self._each = int(size[0]) if len(np.unique(size)) == 1 else None
        shape = len(order) if self._each is None else (-1, self._each)
        self._order = torch.as_tensor(order, device=place).view(shape)
        self._size = torch.as_tensor(size, device=place)
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
            examples = Examples(self._size.index_select(0, at))
            start = self._first.index_select(0, at) - examples.first
            records = self._order.index_select(0, examples.spread(start) + examples.at)
        return replace(self.rows.select(records), examples=examples)


def _is_plain(data: Batch | StreamedRows) -> bool:
    """Tell whether records are float32 numbers in memory, or in a memory map, for the CPU."""
    if isinstance(data, StreamedRows):
        mapped = isinstance(data.x, np.ndarray) and data.x.dtype == np.float32
        return mapped and torch.device(data.device).type == "cpu"
    x = data.x
    return isinstance(x, Tensor) and x.device.type == "cpu" and x.dtype == torch.float32


class PoissonBatches:
    """The data and its sampler; iterating draws the batches of one epoch, afresh each time.

    What it yields is for :meth:`select`.  ``steps()`` returns how many steps the epoch has.  The
    indices of an epoch go to the device at once.
    """

    def __init__(
        self,
        data: Batch | StreamedRows | UnitRows,
        sampler: PoissonSampler,
        steps: Callable[[], int],
    ) -> None:
        self.data, self.sampler, self.steps = data, sampler, steps
        self._room: Tensor | None = None
        self._reuses = not isinstance(data, UnitRows) and _is_plain(data)

    def __iter__(self) -> Iterator[Tensor]:
        indices = self.sampler.draw(self.steps())
        if not isinstance(self.data, Batch) or not indices:
            return iter(indices)
        sizes = [len(index) for index in indices]
        return iter(torch.cat(indices).to(self.data.x.device).split(sizes))

    def in_order(self, index: Tensor) -> Tensor:
        """Return the positions of records or persons in the order of their batch."""
        return self.data.in_order(index) if isinstance(self.data, UnitRows) else index

    def select(self, index: Tensor) -> Batch:
        """Return a batch on the device."""
        return self.data.select(index)

    def select_anew(self, index: Tensor) -> Batch:
        """Return a batch in the memory of the one before: to fetch it anew takes longer."""
        if not self._reuses or isinstance(self.data, UnitRows):
            return self.data.select(index)
        if self._room is None or len(index) > len(self._room):
            shape = (len(index), *self.data.x.shape[1:])
            self._room = torch.empty(shape, dtype=torch.float32)
        return self.data.select(index, self._room[: len(index)])


class Average:
    """The mean of the last iterates, which is post-processing and costs no privacy.

    ``first`` is the number of the first step whose parameters count.
    """

    def __init__(self, first: int) -> None:
        self.first = first
        self.mean: Tensor | None = None

    def add(self, flat: torch.Tensor, step: int) -> None:
        """Count the parameters after a step."""
        if step < self.first:
            return
        if self.mean is None:
            self.mean = flat.detach().clone()
        else:
            self.mean.lerp_(flat, 1.0 / (step - self.first + 1))


def rows_on(
    device: str | torch.device,
    x: Rows,
    y: np.ndarray,
    group: np.ndarray,
    weight: np.ndarray | None = None,
    unit: np.ndarray | None = None,
) -> Batch | StreamedRows | UnitRows:
    """Return all records on the device, or :class:`StreamedRows` if they are streamed.

    A tensor of float32 that lies on the device is taken as it is.

    They are :class:`UnitRows` if some belong to one person.
    """
    codes, groups = (torch.as_tensor(a, device=device) for a in (y, group))
    weights = None if weight is None else torch.as_tensor(weight, device=device)
    if isinstance(x, SparseRows):
        x = SparseRows(x.matrix, device)
    rows: Batch | StreamedRows
    if isinstance(x, Tensor) and x.device == codes.device and x.dtype == torch.float32:
        rows = Batch(x.detach(), codes, groups, weight=weights)
    elif is_streamed(x):
        rows = StreamedRows(x, codes, groups, weights, device)
    else:
        rows = Batch(torch.as_tensor(x, device=device), codes, groups, weight=weights)
    return rows if unit is None else UnitRows(rows, unit)


def record_rates(mechanism: Mechanism, group: np.ndarray) -> float | np.ndarray:
    """Return the sampling rate of every record, or one number if all are equal."""
    rates = mechanism.rates
    if bool((rates == rates[0]).all()):
        return float(rates[0])
    return rates[torch.as_tensor(group)].numpy()
