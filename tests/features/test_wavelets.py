"""Scattering coefficients against a direct computation."""

import math

import numpy as np
import torch
from scipy.ndimage import convolve

from skdpfair.features._wavelets import Scattering


def morlet(j, angle, L, size):
    """The wavelet of one scale and orientation, from its formula."""
    half = size // 2
    u, v = np.mgrid[-half : half + 1, -half : half + 1].astype(float)
    along = u * math.cos(angle) + v * math.sin(angle)
    across = -u * math.sin(angle) + v * math.cos(angle)
    sigma = 0.8 * 2**j
    bell = np.exp(-(along**2 + (4 / L * across) ** 2) / (2 * sigma**2))
    bell *= 4 / L / (2 * math.pi * sigma**2)
    wave = bell * np.exp(0.75j * math.pi / 2**j * along)
    return wave - wave.sum() / bell.sum() * bell


def local_means(x, J, pad, shape):
    """Gaussian means at the middles of blocks of ``2**J`` pixels, of a padded picture."""
    places = [[2**J * (i + 0.5) - 0.5 + pad for i in range(n // 2**J)] for n in shape]
    sigma, out = 0.8 * 2 ** (J - 1), np.zeros([len(p) for p in places])
    rows, columns = np.mgrid[: x.shape[0], : x.shape[1]]
    for a, p in enumerate(places[0]):
        for b, q in enumerate(places[1]):
            weight = np.exp(-((rows - p) ** 2 + (columns - q) ** 2) / (2 * sigma**2))
            out[a, b] = (weight * x).sum() / weight.sum()
    return out


def modulus(x, psi):
    """The modulus of a convolution, periodic like the padded picture."""
    return np.hypot(convolve(x, psi.real, mode="wrap"), convolve(x, psi.imag, mode="wrap"))


def test_scattering_coefficients_are_those_of_direct_convolutions(waves):
    """By float64 convolutions in space, without Fourier transforms or samples in between."""
    J, L, x = 2, 4, waves[0].astype(float)
    padded = np.pad(x, 4, mode="reflect")
    found = Scattering(x.shape, J, L, 2)(torch.from_numpy(waves[:1]))[0].numpy()
    psi = {(j, k): morlet(j, k * math.pi / L, L, 23 + 20 * j) for j in range(J) for k in range(L)}
    first = {at: modulus(padded, wave) for at, wave in psi.items()}
    maps = [padded, *first.values()]
    maps += [modulus(first[0, k], psi[1, m]) for k in range(L) for m in range(L)]
    expected = np.array([local_means(u, J, 4, x.shape) for u in maps])
    assert found.shape == expected.shape == (1 + J * L + L**2, 5, 6)
    np.testing.assert_allclose(found[: 1 + L], expected[: 1 + L], atol=1e-5)
    # moduli of larger wavelets are sampled, which loses what little they have of high frequencies
    error = np.abs(found - expected).max((1, 2)) / np.abs(expected).max((1, 2))
    assert error.max() < 0.06
    assert error.mean() < 0.03
