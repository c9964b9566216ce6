"""Ascents and the two equations of BAM in the study of Knolle et al."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cosine_similarity

from benchmarks.papers import STUDIES, Run, knolle
from skdpfair.engine import Batch
from tests.analysis.problems import gradient


def test_ascent_is_the_cosine_record_by_record():
    rng = np.random.default_rng(0)
    x, y = rng.random((5, 3, 32, 32)).astype(np.float32), rng.integers(0, 10, 5)
    module = knolle.network()
    rows = torch.stack([gradient(module, x[i : i + 1], y[i : i + 1]) for i in range(5)])
    mean, last = rows.mean(0), rows[0] - rows[1]
    for where, own in ((None, rows), (last, last[None])):
        expected = float(cosine_similarity(own, mean[None]).mean())
        assert knolle._ascent(module, (x, y), where) == pytest.approx(expected, rel=1e-4)


def test_distance_of_the_two_equations_of_bam_is_small():
    x = torch.randn(20, 8, generator=torch.Generator().manual_seed(0))
    batch = Batch(x, torch.arange(20) % 10, torch.zeros(20, dtype=torch.int64))
    assert 1e-5 < knolle._distance(knolle._deep(2, 8, 0), batch) < 0.01


@pytest.mark.slow
@pytest.mark.usefixtures("environment")
def test_figure_2_measures_a_network_in_training(monkeypatch):
    monkeypatch.setattr(knolle, "EVERY", 2)
    found = STUDIES["knolle-figure2"].measure(Run("dp_sat", 0, {"steps": 2}), "cpu")
    assert found["bias[2]"] > 0 and 0 <= found["accuracy"] <= 100
