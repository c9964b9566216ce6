"""Full precision while a fit lasts, and settings that are put back."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn

from skdpfair.engine import select_strategy
from skdpfair.engine.precision import current_device, full_precision, is_exact
from tests.engine.per_sample.modules import clipped_mean, seeded

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


def test_private_step_runs_in_full_precision_whatever_the_process_prefers():
    module = nn.Sequential(nn.Linear(6, 200), nn.GELU(), nn.Linear(200, 3))
    x, used = seeded(torch.rand, 9, 6), []
    with select_strategy(module, x, 3) as strategy:
        exact = clipped_mean(strategy, x)
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu"), select_strategy(module, x, 3) as strategy:
            records = strategy.per_sample_gradients

            def observed(*args):
                used.append(torch.backends.mkldnn.matmul.fp32_precision)
                used.append(torch.is_autocast_enabled("cpu"))
                return records(*args)

            strategy.per_sample_gradients = observed
            found = clipped_mean(strategy, x)
            assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"  # as it was before
    finally:
        torch.set_float32_matmul_precision("highest")
    assert used == ["ieee", False]
    torch.testing.assert_close(found, exact, rtol=1e-6, atol=1e-9)
    with full_precision("cpu"):
        assert not torch.is_autocast_enabled("cpu")
