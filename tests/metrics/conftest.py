"""Small cases whose measures can be computed by hand."""

from types import SimpleNamespace

import pytest


@pytest.fixture
def case():
    """Return two groups: F loses one of its three hits, M gains one."""
    return SimpleNamespace(
        y_true=[1, 0, 1, 0, 1, 0],
        y_ref=[1, 0, 1, 0, 0, 1],
        y_pred=[1, 0, 0, 0, 1, 1],
        groups=["F", "F", "F", "M", "M", "M"],
        weight=[1, 1, 2, 1, 1, 2],
    )
