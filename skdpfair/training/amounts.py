"""Which amounts get fine curves: a choice by noisy counts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from skdpfair.inputs.rows import Rows
from skdpfair.inputs.table import Table
from skdpfair.preprocessing._piecewise_linear import CHOICES, hats
from skdpfair.training.plan import AMOUNT_COUNTS
from skdpfair.training.run import Run

_MAX_NUMBERS = 2**28  # of a memory map: one GiB
N_CELLS = 256  # of equal width on the axis of an amount
# standard deviations by which cells differ from a coarse curve, where the fine one pays
SIGNIFICANT = 4.0


def can_be_fine(rows: Rows) -> bool:
    """Return whether rows can be held in memory with fine knots."""
    is_small = not isinstance(rows, np.memmap) or rows.size <= _MAX_NUMBERS
    return isinstance(rows, np.ndarray) and is_small


def choose_fine_curves(run: Run, table: Table) -> None:
    """Set in the plan which amounts get fine curves."""
    network = run.plan.module
    release = run.plan.one_time_releases.get(AMOUNT_COUNTS)
    sensitivity = np.sqrt(len(network.amounts))
    counts = run.noisy_counts(counted(table, network.amounts), release, sensitivity)
    noise = 0.0 if release is None else sensitivity * release.joint_noise_multiplier
    fine = tuple(i for i, n in zip(network.amounts, counts, strict=True) if is_rough(n, noise))
    # which computes on its own machine
    fine = run.processes.broadcast(fine)
    run.plan = replace(run.plan, module=network.with_fine(fine))


def counted(table: Table, amounts: Sequence[int]) -> np.ndarray:
    """Return how many records lie in each cell, of shape (n_amounts, n_classes, N_CELLS).

    A record counts in one cell of each amount, and the records of a person as one record together:
    without one of them, the L2 norm of all counts changes by at most the root of ``n_amounts``.
    In the middle of an axis, where missing amounts are, fine knots are zero, and nothing counts.
    """
    x: Any = table.x
    weight = np.ones(len(table.y))
    if table.person is not None:
        # -1 stands for records that take no part
        weight = (table.person >= 0) / np.bincount(table.person + 1)[table.person + 1]
    counts = np.zeros((len(amounts), table.n_outputs, N_CELLS))
    for place, column in enumerate(amounts):
        position = (np.clip(x[:, column], -1, 1) + 1) / 2
        is_middle = position == 0.5
        cell = np.minimum((position * N_CELLS).astype(np.intp), N_CELLS - 1)
        np.add.at(counts[place], (table.y, cell), weight * ~is_middle)
    return counts


def is_rough(counts: np.ndarray, noise: float) -> bool:
    """Return whether classes change from cell to cell more than a coarse curve can follow.

    ``counts`` (n_classes, N_CELLS) have noise of the standard deviation ``noise``. The test is that
    of Pearson: what the coarse curve of a class leaves of each count, squared, over its variance.
    """
    size = counts.sum(0)
    if size.sum() <= 0:
        return False
    class_frequencies = counts.sum(1) / size.sum()
    coarse = CHOICES[-1]
    design = hats((np.arange(N_CELLS) + 0.5) / N_CELLS, coarse)
    # where there are few records, the frequency among all.  `size` has noise of sd
    # noise * sqrt(n_classes) in each of N_CELLS / coarse cells of an interval: three sd of their
    # sum keep what is solved positive definite
    ridge = 3 * noise * np.sqrt(len(counts) * N_CELLS / coarse) * np.eye(design.shape[1])
    moments = design.T @ (counts.T - size[:, None] * class_frequencies)
    bends = np.linalg.lstsq((design.T * size) @ design + ridge, moments)[0]
    expected = np.clip(class_frequencies + design @ bends, 0, 1)
    residual = counts.T - size[:, None] * expected
    variance = noise**2 * ((1 - expected) ** 2 + (len(counts) - 1) * expected**2)
    variance += np.maximum(size, 0)[:, None] * expected * (1 - expected)
    tested = (size > 0)[:, None] & (variance > 0)
    excess = np.divide(residual**2, variance, out=np.ones_like(residual), where=tested) - 1
    return bool((excess.sum(0) > SIGNIFICANT * np.sqrt(2 * tested.sum(0))).any())
