"""A study without data, whose runs are files; and records to train on."""

import numpy as np
import pytest

from benchmarks.papers import STUDIES, Study
from benchmarks.papers.data import Split
from benchmarks.papers.study import POINTS, cell


class Toy(Study):
    """Counts the calls in files; is interrupted as the folder says."""

    name, title, source = "toy", "A toy", "Nobody"
    rows = ("one", "two")
    epochs = 20

    def __init__(self, folder):
        self.folder = folder

    def settings(self, row, options):
        return {"x": 1}

    def measure(self, run, device):
        (self.folder / f"called-{run.row}-{run.seed}").write_text("")
        stops = self.folder / f"stop-{run.row}-{run.seed}"
        if stops.exists():
            stops.unlink()
            raise KeyboardInterrupt
        return {"value": 1.0 + run.seed, "epsilon": 2.0}

    def cells(self, rows):
        for row, own in rows.items():
            yield cell(row, "value", own["value"], POINTS, 1.0, 0.1)


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Return the folder of the study "toy"."""
    monkeypatch.setitem(STUDIES, "toy", Toy(tmp_path))
    return tmp_path


@pytest.fixture
def environment(outside_data, monkeypatch):
    """Let the environment name the folder of the data sets that are not in the package."""
    monkeypatch.setenv("SKDPFAIR_DATA", str(outside_data))


@pytest.fixture
def split():
    """Return records whose two groups differ, to train and to test on."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3)).astype(np.float32)
    y, group = (x[:, 0] > 0).astype(int), np.where(x[:, 1] > 0.3, "a", "b")
    return Split(x, y, group, x[:20], y[:20], group[:20])
