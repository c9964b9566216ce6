"""Gaussian noise from a stream of its own; never torch's or numpy's global state."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from skdpfair._utils.keystream import Gaussians, Keystream


def is_cryptographic(device: str | torch.device) -> bool:
    """Return whether noise on a device comes from AES-256, which copies to a GPU would delay."""
    return torch.device(device).type == "cpu"


class Noise:
    """Gaussian noise by :class:`Gaussians` where it is cryptographic, else by torch's generator.

    ``kind="gaussian_sum"`` draws each number as half the sum of four float64 Gaussians, which hides
    the gaps that a single floating-point Gaussian leaves (Holohan and Braghin 2021).
    """

    def __init__(
        self, stream: Keystream, device: str | torch.device = "cpu", kind: str = "standard"
    ) -> None:
        self.kind = kind
        self._gaussians = Gaussians(stream)
        self._generator: torch.Generator | None = None
        if not is_cryptographic(device):
            self._generator = torch.Generator(device).manual_seed(stream.integers(2**63))

    def fill_(
        self, out: torch.Tensor, sensitivity: float | Tensor, noise_multiplier: float = 1.0
    ) -> torch.Tensor:
        """Overwrite a tensor with Gaussian noise, and return it.

        Its standard deviation is ``noise_multiplier`` times the L2 ``sensitivity`` (a number, or a
        0-d tensor on the device of ``out``) of what the noise is added to.
        """
        if self.kind == "standard":
            return self._fill(out, sensitivity, noise_multiplier)
        four = torch.empty((4, *out.shape), dtype=torch.float64, device=out.device)
        return out.copy_(self._fill(four, sensitivity, noise_multiplier / 2).sum(0))

    def all_reduce_(self, sums: Tensor) -> Tensor:
        """Overwrite a noisy sum with that over all processes, here this one alone; return it."""
        return sums

    def _fill(self, out: Tensor, sensitivity: float | Tensor, noise_multiplier: float) -> Tensor:
        if self._generator is not None:
            return out.normal_(generator=self._generator).mul_(sensitivity * noise_multiplier)
        if out.dtype not in _NUMPY:
            wide = torch.empty_like(out, dtype=torch.float32)
            return out.copy_(self._fill(wide, sensitivity, noise_multiplier))
        scale = _NUMPY[out.dtype](float(sensitivity) * noise_multiplier)
        self._gaussians.fill_all_((out if out.dim() == 1 else out.view(-1)).numpy(), scale)
        return out


_NUMPY: dict[torch.dtype, type[np.floating]]
_NUMPY = {torch.float32: np.float32, torch.float64: np.float64}
