"""Rows in place, fetched or streamed, and batches drawn some steps at a time."""

import numpy as np
import pytest
import torch
from scipy import stats

from skdpfair._utils.keystream import Keystream
from skdpfair.engine import Batch, PoissonSampler
from skdpfair.inputs.rows import MappedRows
from skdpfair.training import batches
from skdpfair.training.batches import PoissonBatches, StreamedRows, rows_on


def test_poisson_batches_draw_some_steps_at_a_time(monkeypatch):
    """Positions in memory do not grow with the records; each step has its own sample."""
    monkeypatch.setattr(batches, "_DRAWN", 1000)
    n, drawn = 5000, []
    sampler = PoissonSampler(0.02, n, Keystream(b"0"))
    draw = sampler.draw
    monkeypatch.setattr(sampler, "draw", lambda steps: drawn.append(steps) or draw(steps))
    codes = torch.zeros(n, dtype=torch.int64)
    data = Batch(torch.zeros(n, 1), codes, codes)
    found = list(batches.PoissonBatches(data, sampler, lambda: 35))
    assert drawn == [10, 10, 10, 5] and len(found) == 35
    counts = np.bincount(np.concatenate(found), minlength=n)
    assert stats.binomtest(int(counts.sum()), 35 * n, 0.02).pvalue > 1e-6
    assert len({tuple(index.tolist()) for index in found}) == 35


def test_rows_on_the_device_are_used_in_place():
    y = np.zeros(4, np.int64)
    x = torch.rand(4, 3, requires_grad=True)
    found = rows_on("cpu", x, y, y)
    assert isinstance(found, Batch) and found.x.data_ptr() == x.data_ptr()
    assert not found.x.requires_grad
    for other in (x.detach().double(), torch.zeros((4, 2, 2), dtype=torch.uint8)):
        assert isinstance(rows_on("cpu", other, y, y), StreamedRows)
    assert isinstance(rows_on("meta", x, y, y), StreamedRows)


TABLE = np.arange(18, dtype=np.float32).reshape(6, 3)
STREAMED = {
    "on disk": lambda folder: np.memmap(folder / "rows", np.float32, "w+", shape=TABLE.shape),
    "computed when they are read": lambda folder: MappedRows(TABLE, lambda rows: rows, (3,)),
    "in another memory": lambda folder: torch.tensor(TABLE),
    "pictures of bytes": lambda folder: torch.zeros((6, 2, 2), dtype=torch.uint8),
}


@pytest.mark.parametrize(
    ("unit", "n_rows", "each"),
    [(None, 2, None), ([0, 0, 1, 1, 2, 2], 4, 2), ([0, 1, 1, 2, 2, -1], 3, None)],
    ids=["records", "equal persons", "persons"],
)
@pytest.mark.parametrize("weight", [None, np.ones(6)], ids=["", "weights"])
@pytest.mark.parametrize("kind", STREAMED)
def test_rows_of_another_memory_are_fetched_for_any_device(
    kind, weight, unit, n_rows, each, tmp_path
):
    """The device "meta" stands for a card: no numbers are read from it."""
    y, unit = np.zeros(6, np.int64), unit if unit is None else np.array(unit)
    data = rows_on("meta", STREAMED[kind](tmp_path), y, y, weight, unit)
    batch = PoissonBatches(data, None, lambda: 1).select(torch.tensor([0, 1]), reuses=True)
    parts = [batch.x, batch.y, batch.group, *([] if weight is None else [batch.weight])]
    assert all(part.device.type == "meta" and len(part) == n_rows for part in parts)
    if unit is not None:
        assert len(batch.examples) == 2 and batch.examples.rows_per_example == each
    if unit is not None and each is None:
        assert batch.examples.sizes.device.type == "meta"
