"""The search for the scale of the gradients: a noisy count of the batch, and nothing else."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from skdpfair import get_method
from skdpfair.engine import Batch, ScaleSearch, Streams, select_strategy
from skdpfair.engine.mechanism import Mechanism
from skdpfair.testing import example_task

ALPHA, SIZE, STEPS = 1e-6, 1000.0, 1500  # the chance that correct code fails one of the tests


def search_beside(name):
    mechanism = Mechanism(get_method(name), example_task(), 1.5)
    return ScaleSearch.for_mechanism(mechanism, 0.5), mechanism


def counts(search, n_rows):
    """Return the counts that steps on one batch, of rows with long gradients, worked with."""
    rows, zeros = torch.full((n_rows, 5), 1e3), torch.zeros(n_rows, dtype=torch.int64)
    batch, z = Batch(rows, zeros, zeros), torch.ones(())
    noise = Streams.seeded(n_rows, digest=b"").noise()
    module = nn.Linear(5, 3)
    for p in module.parameters():
        nn.init.zeros_(p)  # no row is predicted well
    with select_strategy(module, torch.zeros(1, 5), 3) as model:
        scales = [search.step(model, batch, z, SIZE, noise) for _ in range(STEPS)]
    logs = torch.stack(scales).double().log()
    return ((logs / search.gain + search.target_quantile) * SIZE).numpy()


@pytest.mark.parametrize("name", ["dpsgd", "global_adapt"])
def test_scale_search_has_no_less_noise_than_the_step_it_is_charged_as(name):
    search, mechanism = search_beside(name)
    assert search.noise_multiplier >= mechanism.release.joint_noise_multiplier


@pytest.mark.parametrize("n_rows", [0, 1, 9])
def test_scale_search_counts_with_fresh_noise_of_the_claimed_scale(n_rows):
    search, _ = search_beside("dpsgd")
    noise = (counts(search, n_rows) - n_rows) / search.noise_multiplier
    total = float((noise**2).sum())
    assert ALPHA / 2 < stats.chi2.cdf(total, STEPS) < 1 - ALPHA / 2
    assert abs(noise.mean()) < 5 / STEPS**0.5  # a row counts 1, however long its gradient is
    assert abs(np.mean(noise[1:] * noise[:-1])) < 5 / STEPS**0.5
