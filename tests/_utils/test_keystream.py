"""The generator of all noise; tests/engine/test_randomness.py has the laws of its numbers."""

import copy

import numpy as np
import pytest

from skdpfair._utils.keystream import Gaussians, Keystream


def test_seeded_keystreams_have_no_copy():
    first, same, other = (Keystream.seeded(1, seed).words(8) for seed in ("a", "a", "b"))
    assert (first == same).all() and not (first == other).any()
    with pytest.raises(TypeError):
        copy.copy(Keystream.fresh())


def test_gaussians_of_any_length_continue_one_stream():
    at_once, by_part = np.empty(2**17, np.float32), np.empty(2**17, np.float32)
    Gaussians(Keystream(b"seed")).fill_all_(at_once, np.float32(2.0))
    source = Gaussians(Keystream(b"seed"))
    for part in np.split(by_part, [3, 5, 2**16 + 7]):
        source.fill_all_(part, np.float32(2.0))
    assert at_once.std() == pytest.approx(2.0, rel=0.02) and len(np.unique(at_once)) > 2**16
    np.testing.assert_array_equal(by_part[:5], at_once[:5])
    assert Keystream(b"seed").standard_normal((3, 2)).shape == (3, 2)
