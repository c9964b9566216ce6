"""What surrounds the steps: memory, precision, devices, and what is left of a fit."""

import gc
import weakref
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn

from skdpfair import DPFairClassifier
from skdpfair.datasets import make_two_groups
from skdpfair.engine import Batch, memory, precision
from skdpfair.engine.memory import affordable_batch, is_out_of_memory
from skdpfair.engine.precision import current_device, full_precision, is_exact
from skdpfair.inputs.rows import MappedRows
from skdpfair.training import loop
from skdpfair.training.batches import PoissonBatches, StreamedRows, rows_on


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: out of memory",
        "MPS backend out of memory (MPS allocated: 1 GB)",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory",
    ],
)
def test_texts_of_memory_that_ran_out(text):
    assert is_out_of_memory(RuntimeError(text)) and not is_out_of_memory(ValueError(text))


def test_chunks_follow_the_free_memory_of_a_card(monkeypatch):
    example, module = torch.zeros(1, 10), nn.Linear(10, 10)
    at_home = affordable_batch(module, example)
    facts = {"mem_get_info": (3 * 2**30, 0), "memory_reserved": 2**30, "memory_allocated": 0}
    for name, value in facts.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    assert memory._budget(torch.device("cuda:1")) == 2 * memory.ACTIVATION_BUDGET
    assert at_home == memory.ACTIVATION_BUDGET // 30


PLACES = [("cuda", name) for name in ("matmul", "conv", "rnn")]


def cuda_settings():
    return [torch._C._get_fp32_precision_getter(*place) for place in PLACES]


@pytest.fixture
def tf32():
    """What torch sets on a GPU by default: TF32 for cuDNN."""
    before = cuda_settings()
    assert before[1:] == ["tf32", "tf32"] and not is_exact(torch.device("cuda"))
    yield
    assert cuda_settings() == before


def test_full_precision_covers_cudas_products(tf32):
    with full_precision("cuda"):
        assert is_exact(torch.device("cuda")) and cuda_settings() == ["ieee"] * 3


def test_full_precision_lasts_as_long_as_any_fit(tf32):
    first, second = full_precision("cuda"), full_precision("cuda")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert is_exact(torch.device("cuda"))
    second.__exit__(None, None, None)


def test_full_precision_of_older_versions_of_torch(monkeypatch):
    monkeypatch.setattr(precision, "get_fp32_precision", None)
    assert not is_exact(torch.device("cuda")) and is_exact(torch.device("cpu"))
    with full_precision("cuda"):
        assert is_exact(torch.device("cuda")) and not torch.backends.cudnn.allow_tf32
    assert torch.backends.cudnn.allow_tf32


def test_a_fit_makes_its_device_the_current_one(monkeypatch):
    entered = []
    monkeypatch.setattr(
        torch.cuda, "device", lambda device: entered.append(device) or nullcontext()
    )
    with current_device("cuda:1"), current_device("cpu"):
        assert entered == [torch.device("cuda:1")]


def test_tensors_on_the_device_are_used_in_place():
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


def test_a_fit_leaves_no_cycle_that_holds_the_rows(monkeypatch):
    data = make_two_groups(900, random_state=0)
    x, held = torch.tensor(np.asarray(data.data, np.float32)), []
    plain = loop.TrainingLoop.next_epoch

    def next_epoch(loop):
        held[:] = map(weakref.ref, (loop, loop.batches, loop.batches.data))
        return plain(loop)

    monkeypatch.setattr(loop.TrainingLoop, "next_epoch", next_epoch)
    gc.collect()
    gc.disable()
    try:
        model = DPFairClassifier(epsilon=9.0, batch_size=50, max_epochs=3).fit(x, data.target)
        assert model.n_steps_ > 0 and [ref() for ref in held] == [None] * 3
    finally:
        gc.enable()
