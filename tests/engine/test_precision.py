"""Full precision while a fit lasts, and settings that are put back."""

from contextlib import nullcontext

import pytest
import torch

from skdpfair.engine.precision import current_device, full_precision, is_exact

CUDA = torch.device("cuda")


def cuda_settings():
    places = [("cuda", name) for name in ("matmul", "conv", "rnn")]
    return [torch._C._get_fp32_precision_getter(*place) for place in places]


@pytest.fixture
def tf32():
    """What torch sets on a GPU by default: TF32 for cuDNN."""
    before = cuda_settings()
    assert before[1:] == ["tf32", "tf32"] and not is_exact(CUDA)
    yield
    assert cuda_settings() == before


def test_full_precision_covers_cudas_products(tf32):
    with full_precision("cuda"):
        assert is_exact(CUDA) and cuda_settings() == ["ieee"] * 3


def test_full_precision_lasts_as_long_as_any_fit(tf32):
    first, second = full_precision("cuda"), full_precision("cuda")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert is_exact(CUDA)
    second.__exit__(None, None, None)


def test_current_device_enters_a_cuda_device_only(monkeypatch):
    entered = []
    monkeypatch.setattr(torch.cuda, "device", lambda at: entered.append(at) or nullcontext())
    with current_device("cuda:1"), current_device("cpu"):
        assert entered == [torch.device("cuda:1")]
