"""Shared data and the rule for data from outside: skip with the reason, but never in CI."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import Phase, settings

from skdpfair.datasets import load_adult, make_two_groups, public_facts
from skdpfair.preprocessing import public_preprocessor

# the same examples in every run; HYPOTHESIS_PROFILE=default looks for new ones
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("first", settings.get_profile("fixed"), phases=[Phase.generate])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def ctrl_c():
    """Hear Ctrl-C, which what a shell starts in the background ignores."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def outside_data():
    """Folder of the data sets that are not in the package."""
    folder = os.environ.get("SKDPFAIR_DATA")
    if folder and Path(folder).is_dir():
        return Path(folder)
    reason = "SKDPFAIR_DATA does not name a folder with the outside data sets"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def kept_results():
    """Folder of the kept results of benchmarks, which the sdist leaves out."""
    folder = Path(__file__).parents[1] / "benchmarks" / "results"
    if not folder.is_dir():
        pytest.skip("an sdist has no benchmarks/results")
    return folder


@pytest.fixture(scope="session")
def two_groups():
    return make_two_groups(600, random_state=0)


@pytest.fixture(scope="session")
def adult():
    """Adult's official split: (X, y, sex) for training and for testing, numbers only."""
    parts = []
    for subset in ("train", "test"):
        data = load_adult(subset=subset)
        features = public_preprocessor(**public_facts("adult"), encoding="linear").fit_transform(
            data.data
        )
        x = np.asarray(features, dtype=np.float32)
        y = (data.target == ">50K").to_numpy().astype(int)
        parts.append((x, y, data.sensitive_features["sex"].to_numpy()))
    return parts
