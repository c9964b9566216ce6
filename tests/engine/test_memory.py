"""Devices that are used, errors of memory that ran out, and batches that fit."""

import pytest
import torch
from torch import nn

from skdpfair.engine import memory
from skdpfair.engine.memory import affordable_batch, is_out_of_memory, used_device


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
def test_is_out_of_memory_by_the_texts_of_all_devices(text):
    assert is_out_of_memory(RuntimeError(text)) and not is_out_of_memory(ValueError(text))


def test_affordable_batch_follows_the_free_memory_of_a_card(monkeypatch):
    on_cpu = affordable_batch(nn.Linear(10, 10), torch.zeros(1, 10))
    facts = {"mem_get_info": (3 * 2**30, 0), "memory_reserved": 2**30, "memory_allocated": 0}
    for name, value in facts.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    assert memory._budget(torch.device("cuda:1")) == 2 * memory.ACTIVATION_BUDGET
    assert on_cpu == memory.ACTIVATION_BUDGET // 30


def test_used_device_is_never_mps(monkeypatch):
    """Apple's accelerator has no float64."""
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert used_device("auto") == "cpu"
