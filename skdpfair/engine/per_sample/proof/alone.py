"""Results of a record in a batch and alone: one comparison for all checks, and equal draws."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from skdpfair._utils.torch_internals import TorchDispatchMode, tree_map_only


def same_alone_and_together(
    together: Tensor, alone: Iterable[Tensor], rtol: float, atol: float, *, equal_nan: bool = True
) -> bool:
    """Return whether the first rows of a batch's results are those of its records alone.

    Whole numbers and bools are compared exactly, and others up to rounding.
    """

    def is_same(row: Tensor, one: Tensor) -> bool:
        if row.shape == one.shape and (row.is_floating_point() or row.is_complex()):
            return torch.allclose(row, one, rtol, atol, equal_nan)
        return torch.equal(row, one)

    return all(map(is_same, together, alone))


@contextmanager
def fixed_draws(device: torch.device, seed: int = 0) -> Iterator[None]:
    """Let torch's global generators of the device start anew, and leave them as they were."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


class ConstantDraws(TorchDispatchMode):
    """Makes every random number of torch the same, so that equal calls give equal results."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch states no types

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # this operation returns the product, too
        if func is torch.ops.aten.native_dropout.default:
            x, p, _ = args
            return x * (0.5 / (1 - p)), torch.ones_like(x, dtype=torch.bool)
        out = func(*args, **(kwargs or {}))
        fused = any(a.name == "dropout_p" for a in func._schema.arguments)  # attention is no draw
        if torch.Tag.nondeterministic_seeded in func.tags and not fused:
            tree_map_only(Tensor, lambda t: t.fill_(0.5 if t.is_floating_point() else 0), out)
        return out
