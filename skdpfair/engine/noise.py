"""Gaussian noise from a stream of its own; never torch's or numpy's global state."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from skdpfair.engine.sfc64 import SFC64


class Noise:
    """Gaussian noise by :class:`Gaussians` on CPU, by torch's generator elsewhere.

    ``kind="gaussian_sum"`` draws each number as half the sum of four float64 Gaussians, which hides
    the gaps that a single floating-point Gaussian leaves (Holohan and Braghin 2021).
    """

    def __init__(
        self,
        sequence: np.random.SeedSequence,
        device: str | torch.device = "cpu",
        kind: str = "standard",
    ) -> None:
        self.kind = kind
        self._sequence = sequence
        self._gaussians: Gaussians | None = None
        self._generator: torch.Generator | None = None  # not on CPU
        if torch.device(device).type != "cpu":
            (child,) = sequence.spawn(1)
            seed = int(child.generate_state(1, np.uint64)[0] >> np.uint64(1))
            self._generator = torch.Generator(device).manual_seed(seed)

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
        # seeding takes milliseconds
        if self._gaussians is None:
            self._gaussians = Gaussians(self._sequence.generate_state(8, np.uint64).tobytes())
        scale = _NUMPY[out.dtype](float(sensitivity) * noise_multiplier)
        self._gaussians.fill_all_((out if out.dim() == 1 else out.view(-1)).numpy(), scale)
        return out


class Gaussians:
    """Blocks of Gaussian numbers, by Box and Muller from :class:`SFC64`."""

    N_GENERATORS = 2**15

    def __init__(self, seed: bytes) -> None:
        self.source = SFC64.from_bytes(seed, self.N_GENERATORS)
        # numbers drawn and not yet handed out, by type, and the memory they lie in
        self._left: dict[np.dtype[Any], np.ndarray] = {}
        self._pools: dict[np.dtype[Any], np.ndarray] = {}

    def block(self, dtype: np.dtype[Any] | type[np.floating]) -> int:
        """Return how many numbers of a floating type come from one word of each generator."""
        return self.N_GENERATORS * 8 // np.dtype(dtype).itemsize

    def fill_all_(self, flat: np.ndarray, scale: np.floating) -> None:
        """Overwrite an array of any length with numbers of standard deviation ``scale``."""
        dtype, n = flat.dtype, len(flat)
        left = self._left.get(dtype, _NOTHING)
        # small steps draw less than is left, and notice each operation
        if n <= len(left):
            np.multiply(left[:n], scale, out=flat)
            self._left[dtype] = left[n:]
            return
        block, done = self.block(dtype), 0
        while done < n:
            left, rest = self._left.get(dtype, _NOTHING), flat[done:]
            if len(left) == 0 and len(rest) >= block:
                self.fill_(rest[:block], scale)
                done += block
                continue
            if len(left) == 0:
                if dtype not in self._pools:
                    self._pools[dtype] = np.empty(block, dtype)
                left = self.fill_(self._pools[dtype], dtype.type(1.0))
            part = left[: len(rest)]
            np.multiply(part, scale, out=rest[: len(part)])
            self._left[dtype] = left[len(part) :]
            done += len(part)

    def fill_(self, out: np.ndarray, scale: np.floating) -> np.ndarray:
        """Overwrite a block with numbers of standard deviation ``scale``.

        Each float32 takes 32 random bits, and more beyond radius 5; each float64 takes 64.
        """
        dtype, bits = out.dtype.type, 8 * out.dtype.itemsize
        integers = self.source.words().view(f"i{bits // 8}").reshape(2, -1)
        # little memory is fast memory
        work = self.source.spare.view(dtype).reshape(2, -1)
        np.copyto(work, integers, casting="unsafe")
        (radius, angle), top = work, 2.0 ** (bits - 1)
        np.abs(radius, out=radius)
        self._refine(radius)
        np.divide(dtype(top), radius, out=radius)  # 1 / a uniform in (0, 1]
        np.log(radius, out=radius)
        np.sqrt(radius, out=radius)
        radius *= dtype(np.sqrt(2.0)) * scale
        angle *= dtype(np.pi / top)
        pairs = out.reshape(2, -1)
        np.cos(angle, out=pairs[0])
        np.sin(angle, out=pairs[1])
        pairs *= radius
        return out

    def _refine(self, radius: np.ndarray) -> None:
        """Make whole numbers from 0 continuous: the smallest, which become tails, by new bits."""
        if radius.min() >= _COARSE:
            radius += radius.dtype.type(0.5)
            return
        small = np.flatnonzero(radius < _COARSE)
        # radius lives there, and words() needs the room
        kept = self.source.spare.copy()
        fine = (self.source.words()[small] >> np.uint64(11)).astype(np.float64)
        self.source.spare[:] = kept
        refined = radius[small] + (fine + 0.5) * 2.0**-53
        radius += radius.dtype.type(0.5)
        radius[small] = refined


# integers below it lie too far apart, relatively: their logarithms would miss most tail values
_COARSE = 2.0**12
_NOTHING = np.empty(0)
_NUMPY: dict[torch.dtype, type[np.floating]]
_NUMPY = {torch.float32: np.float32, torch.float64: np.float64}
