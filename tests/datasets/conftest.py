"""The folder of the real data: absent on a laptop is a skip, absent in CI a failure."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def local_data():
    """Return the folder that SKDPFAIR_DATA names."""
    folder = os.environ.get("SKDPFAIR_DATA")
    if folder:
        return Path(folder)
    reason = "SKDPFAIR_DATA is unset: it names the folder of the data that are not bundled"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
