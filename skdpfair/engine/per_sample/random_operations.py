"""Random operations of a recorded forward pass, drawn from a generator that nobody else uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def _mask(x: Tensor, shape: Sequence[int], p: float, generator: torch.Generator) -> Tensor:
    return torch.empty(shape, dtype=x.dtype, device=x.device).bernoulli_(1 - p, generator=generator)


def _dropout(n_kept_axes: int | None) -> Callable[..., Tensor]:
    """Return dropout of single numbers, or of all that lies behind the first axes."""

    def draw(
        x: Tensor,
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
        *,
        generator: torch.Generator,
    ) -> Tensor:
        if not training or p == 0.0:
            return x
        kept = n_kept_axes or x.dim()
        shape = (*x.shape[:kept], *[1] * (x.dim() - kept))
        return x * (_mask(x, shape, p, generator) / max(1 - p, torch.finfo(x.dtype).tiny))

    return draw


def _rand_like(x: Tensor, *, generator: torch.Generator, **kwargs: Any) -> Tensor:
    like: dict[str, Any] = {"dtype": x.dtype, "device": x.device} | kwargs
    return torch.rand(x.shape, generator=generator, **like)


def _randn_like(x: Tensor, *, generator: torch.Generator, **kwargs: Any) -> Tensor:
    like: dict[str, Any] = {"dtype": kwargs.get("dtype", x.dtype), "device": x.device}
    return torch.empty(x.shape, **like).normal_(generator=generator)


def _bernoulli(x: Tensor, *, generator: torch.Generator) -> Tensor:
    return torch.bernoulli(x, generator=generator)


# torch's name -> what draws, given ``generator=``
DRAWN: dict[str, Callable[..., Tensor]] = {
    "dropout": _dropout(None),
    **{f"dropout{k}d": _dropout(2) for k in (1, 2, 3)},
    "rand_like": _rand_like,
    "randn_like": _randn_like,
    "bernoulli": _bernoulli,
}
