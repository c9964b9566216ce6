"""The generator of all noise; tests/engine/test_randomness.py has the laws of its numbers."""

import copy

import pytest

from skdpfair._utils.keystream import Keystream


def test_equal_seeds_of_a_keystream_give_equal_words_and_there_is_no_copy():
    first, same, other = (Keystream.seeded(1, seed).words(8) for seed in ("a", "a", "b"))
    assert (first == same).all() and not (first == other).any()
    assert Keystream.fresh().standard_normal((3, 2)).shape == (3, 2)
    with pytest.raises(TypeError):
        copy.copy(Keystream.fresh())
