"""The scattering transform of pictures: Morlet wavelets, moduli and a local mean."""

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np
import torch
from torch import Tensor, nn

_AT_ONCE = 2**19  # complex numbers held by a part of a batch


class Scattering(nn.Module):
    r"""Maps grey pictures (n, height, width) to local means (n, paths, rows, columns).

    Of a picture x it returns, averaged by a Gaussian of width ``2**J`` at places of that distance,
    x itself, the moduli \|x * psi\| of its wavelet transform at J scales and L orientations, and
    those of second order, \|\|x * psi\| * psi'\|, where psi' has the larger scale, see Bruna and
    Mallat (2013).  Nothing in it is trained, and each picture is transformed by itself, reflected
    at its borders.

    ``mirrored`` says of each path which one the mirror image (left and right exchanged) has in its
    place, and ``group_sizes`` how many successive paths have one order and the same scales.
    """

    def __init__(self, shape: Sequence[int], J: int, L: int, max_order: int) -> None:
        super().__init__()
        self.J, self.max_order = J, max_order
        # scales, then orientations, which are multiples of pi / L
        first = [((j,), (k,)) for j in range(J) for k in range(L)]
        pairs = [(i, j) for i in range(J) for j in range(i + 1, J)] if max_order > 1 else []
        second = [(pair, (k, m)) for pair in pairs for k in range(L) for m in range(L)]
        paths = [((), ()), *first, *second]
        self.mirrored = [paths.index((j, tuple(-k % L for k in turn))) for j, turn in paths]
        self.group_sizes = [1] + [L] * J + [L**2] * len(pairs)
        # room for the widest filter on both sides, in whole places of means
        width = 2**J
        padded = [width * math.ceil(n / width + 2) for n in shape]
        for axis, (n, p) in enumerate(zip(shape, padded, strict=True)):
            self._constant(f"border_{axis}", _reflected(n, width, p - n - width))
        # wavelet j at resolution r, of the pictures sampled every 2**r pixels
        for j in range(J):
            wavelets = _wavelets(padded, j, L)
            for r in range(j + 1 if max_order > 1 else 1):
                self._constant(f"psi_{j}_{r}", _sampled(wavelets, r).float())
        for axis, (n, p) in enumerate(zip(shape, padded, strict=True)):
            for r in range(J):
                self._constant(f"mean_{axis}_{r}", _means(n, p, J, r).float())

    def forward(self, x: Tensor) -> Tensor:
        """Return the means, with bounded memory however many pictures there are."""
        # each number of a picture becomes a real and an imaginary part
        size = max(1, _AT_ONCE // (2 * self._get("psi_0_0").numel()))
        return torch.cat([self._part(part) for part in x.split(size)])

    def _part(self, x: Tensor) -> Tensor:
        x = x.index_select(1, self._get("border_0")).index_select(2, self._get("border_1"))
        first = [self._mean(x[:, None], 0)]
        second = []
        spectrum = torch.fft.fft2(x[:, None])
        for j in range(self.J):
            moduli = _moduli(spectrum, self._get(f"psi_{j}_0"), j)
            first.append(self._mean(moduli, j))
            if self.max_order == 1 or j + 1 == self.J:
                continue
            inner = torch.fft.fft2(moduli[:, :, None])
            for k in range(j + 1, self.J):
                pairs = _moduli(inner, self._get(f"psi_{k}_{j}"), k - j)
                second.append(self._mean(pairs.flatten(1, 2), k))
        return torch.cat([*first, *second], 1)

    def _mean(self, x: Tensor, r: int) -> Tensor:
        return self._get(f"mean_0_{r}") @ x @ self._get(f"mean_1_{r}").T

    def _constant(self, name: str, value: Tensor) -> None:
        self.register_buffer(name, value, persistent=False)

    def _get(self, name: str) -> Tensor:
        return getattr(self, name)


def _moduli(spectrum: Tensor, psi: Tensor, r: int) -> Tensor:
    """Return the moduli of convolutions with wavelets, every ``2**r`` pixels."""
    return torch.fft.ifft2(_folded(spectrum * psi, r)).abs()


def _folded(product: Tensor, r: int) -> Tensor:
    """Return the spectrum of every ``2**r``-th pixel of a signal, which averages over aliases."""
    for axis in (-2, -1) if r else ():
        product = reduce(torch.add, product.split(product.shape[axis] >> r, axis))
    return product * 4.0**-r if r else product


def _reflected(n: int, before: int, after: int) -> Tensor:
    """Return the positions of a picture's rows once it is reflected at its borders."""
    at = torch.arange(-before, n + after)
    if n == 1:
        return torch.zeros_like(at)
    at = at.remainder(2 * n - 2)
    return torch.minimum(at, 2 * n - 2 - at)


def _wavelets(shape: Sequence[int], j: int, L: int) -> Tensor:
    """Return the spectra (L, height, width), float64, of the Morlet wavelets of one scale."""
    sigma, xi, slant = 0.8 * 2**j, 0.75 * math.pi / 2**j, 4 / L
    waves = []
    for angle in [k * math.pi / L for k in range(L)]:
        wave = _gabor(shape, sigma, angle, xi, slant)
        bump = _gabor(shape, sigma, angle, 0.0, slant)
        # a wavelet has mean 0, so that a constant picture gives 0
        waves.append(np.fft.fft2(wave - wave.sum() / bump.sum() * bump).real)
    return torch.from_numpy(np.stack(waves))


def _gabor(shape: Sequence[int], sigma: float, angle: float, xi: float, slant: float) -> np.ndarray:
    """Return an oriented Gaussian times a wave of frequency ``xi``, periodic in the picture."""
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    curvature = turn @ np.diag([1.0, slant**2]) @ turn.T / (2 * sigma**2)
    rows, columns = (np.arange(-2 * n, 3 * n, dtype=float) for n in shape)
    u, v = rows[:, None], columns[None]
    exponent = -(curvature[0, 0] * u**2 + 2 * curvature[0, 1] * u * v + curvature[1, 1] * v**2)
    wave = np.exp(exponent + 1j * xi * (u * math.cos(angle) + v * math.sin(angle)))
    periodic = wave.reshape(5, shape[0], 5, shape[1]).sum((0, 2))
    return periodic / (2 * math.pi * sigma**2 / slant)


def _sampled(spectra: Tensor, r: int) -> Tensor:
    """Return the spectra of filters for signals of every ``2**r``-th pixel."""
    for axis in (-2, -1):
        n = spectra.shape[axis]
        low_frequencies = _low(n, r)
        spectra = (spectra.movedim(axis, -1) * low_frequencies).unflatten(-1, (-1, n >> r)).sum(-2)
        spectra = spectra.movedim(-1, axis)
    return spectra


def _low(n: int, r: int) -> Tensor:
    """Return 1 for the frequencies that sampling at every ``2**r``-th pixel keeps, else 0."""
    at = torch.arange(n)
    first = n >> (r + 1)
    high = (at >= first) & (at < first + n - (n >> r))
    return (~high).double()


def _means(n: int, padded: int, J: int, r: int) -> Tensor:
    """Return the matrix, float64, of the means of a line of ``padded >> r`` pixels.

    Their places are ``2**J`` pixels apart, and in the middle of the ``n`` pixels of the picture.
    """
    step = 2**J
    places = (n - 1) / 2 + step * (np.arange(n // step) - (n // step - 1) / 2)
    pixels = 2**r * np.arange(padded >> r) - step
    bell = np.exp(-((places[:, None] - pixels) ** 2) / (2 * (0.8 * 2 ** (J - 1)) ** 2))
    return torch.from_numpy(bell / bell.sum(1, keepdims=True))
