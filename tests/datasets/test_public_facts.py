"""Public facts of the tables."""

import pytest

from skdpfair.datasets import public_facts


def test_public_facts_are_copies_of_a_known_table():
    public_facts("adult")["bounds"].clear()
    assert public_facts("adult")["bounds"]
    with pytest.raises(ValueError, match="name must be one of 'adult', 'dutch'"):
        public_facts("adlut")
