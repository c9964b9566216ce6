"""Which amounts get fine curves, and which pairs of columns cells: a choice by noisy counts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from skdpfair._networks import Curves, cell_of, n_cells
from skdpfair.inputs.rows import Rows
from skdpfair.inputs.table import Table
from skdpfair.preprocessing._piecewise_linear import (
    CHOICES,
    column_name,
    hats,
    linear_positions,
    pair_name,
)
from skdpfair.training import defaults
from skdpfair.training.interactions import MIN_INTERACTION, chosen_pairs
from skdpfair.training.plan import COLUMN_COUNTS
from skdpfair.training.run import Run

_MAX_NUMBERS = 2**28  # of a memory map: one GiB
N_CELLS = 256  # of equal width on the axis of an amount
# standard deviations by which cells differ from a coarse curve, where the fine one pays
SIGNIFICANT = 4.0
# the same, from the curves of both axes, which follow a part of what is rough: from 2.5 on, the
# gains of Adult would be missed more often at epsilon 0.5
_BY_BOTH = 2.0


def can_be_fine(rows: Rows) -> bool:
    """Return whether rows can be held in memory with fine columns."""
    is_small = not isinstance(rows, np.memmap) or rows.size <= _MAX_NUMBERS
    return isinstance(rows, np.ndarray) and is_small


def choose_columns(run: Run, table: Table) -> None:
    """Set in the plan which amounts get fine curves, and which pairs of columns cells."""
    network, release = run.plan.module, run.plan.one_time_releases.get(COLUMN_COUNTS)
    tables, shares = counted(table, network), defaults.count_shares(network)
    weights = np.sqrt([share / n for share, n in shares for _ in range(n)])
    # a record or person moves each table by at most 1, and so all of them by the norm
    sensitivity = float(np.linalg.norm(weights))
    joint = np.concatenate([w * counts.ravel() for w, counts in zip(weights, tables, strict=True)])
    joint = run.noisy_counts(joint, release, sensitivity)
    deviation = 0.0 if release is None else sensitivity * release.joint_noise_multiplier
    parts = np.split(joint, np.cumsum([counts.size for counts in tables])[:-1])
    noisy = [
        (part.reshape(counts.shape) / w, deviation / w)
        for part, counts, w in zip(parts, tables, weights, strict=True)
    ]
    limits = network.limits or [None] * len(network.amounts)
    roughness = [roughness_of(*counts, of) for counts, of in zip(noisy, limits, strict=False)]
    pairs = chosen_pairs(network.candidates, noisy[len(network.amounts) :])
    # which computes on its own machine
    roughness, pairs = run.processes.broadcast((roughness, pairs))
    scores = dict(zip(network.amounts, roughness, strict=True))
    fine = [amount for amount, score in scores.items() if score > SIGNIFICANT]
    run.plan = replace(run.plan, module=network.chosen(fine, [*pairs]))
    for i, score in scores.items():
        what = f"fine curve of {column_name(run.column_names, i, 1)}"
        run.choices.append((what, score, SIGNIFICANT))
    for pair, share in pairs.items():
        run.choices.append((pair_name(run.column_names, pair), share, MIN_INTERACTION))


def counted(table: Table, network: Curves) -> list[np.ndarray]:
    """Return how many records of each class lie in each cell.

    There is a table (n_classes, N_CELLS) for each amount, and one (n_classes, n, m) for each pair
    of columns. A record counts in one cell of each table, and the records of a person as one record
    together: without one of them, the L2 norm of a table changes by at most 1. In the middle of an
    axis, where missing numbers are, nothing counts. In a regression, the two classes are the ends
    of the public range, of both of which a record between them is a part.
    """
    x: Any = table.x
    parts: list[tuple[np.ndarray, np.ndarray | None]] = [(table.y, None)]
    if table.classes is None:
        upper = (np.clip(table.y, -1, 1) + 1) / 2.0
        parts = [(np.zeros(len(table.y), int), 1 - upper), (np.ones(len(table.y), int), upper)]
    if table.person is not None:
        # -1 stands for records that take no part
        taken = (table.person >= 0) / np.bincount(table.person + 1)[table.person + 1]
        parts = [(code, taken if weight is None else weight * taken) for code, weight in parts]
    n_classes = max(table.n_outputs, 2)

    def counts(cell: Any, has_value: Any, *shape: int) -> np.ndarray:
        n_each = int(np.prod(shape))
        total = np.zeros(n_classes * n_each)
        kept = slice(None) if has_value.all() else has_value
        for code, weight in parts:
            joint = (code * n_each + cell)[kept]
            weight = None if weight is None else weight[kept]
            total += np.bincount(joint, weight, len(total))
        return total.reshape(n_classes, *shape)

    tables = []
    for column in network.amounts:
        position = (np.clip(x[:, column], -1, 1) + 1) / 2
        place = np.minimum((position * N_CELLS).astype(np.intp), N_CELLS - 1)
        tables.append(counts(place, position != 0.5, N_CELLS))
    cells = {}
    for i, width in network.columns:
        block = torch.tensor(x[:, i : i + width])
        cells[i, width] = [part.numpy() for part in cell_of(block, 0, width)]
    for i, m, j, n in network.candidates:
        (row, has_row), (at, has_column) = cells[i, m], cells[j, n]
        cell = row * n_cells(n) + at
        tables.append(counts(cell, has_row & has_column, n_cells(m), n_cells(n)))
    return tables


def roughness_of(counts: np.ndarray, noise: float, limits: Sequence[float] | None = None) -> float:
    """Return by how many standard deviations cells differ from a coarse curve.

    ``counts`` (n_classes, N_CELLS) have noise of the standard deviation ``noise``. The test is that
    of Pearson: what the coarse curve of a class leaves of each count, squared, over its variance.
    The largest of the classes is returned. With the ``limits`` of the amount, the coarse curve of
    its linear axis must leave something, too: `_BY_BOTH` standard deviations count as much as
    `SIGNIFICANT` without.
    """
    position = (np.arange(N_CELLS) + 0.5) / N_CELLS
    design = hats(position, CHOICES[-1])
    deviations = _deviations(counts, noise, design)
    if limits is None or deviations <= SIGNIFICANT:
        return deviations
    linear = hats(linear_positions(limits[0], limits[1], position), CHOICES[-1])
    by_both = _deviations(counts, noise, np.hstack([design, linear]))
    return min(deviations, by_both + SIGNIFICANT - _BY_BOTH)


def _deviations(counts: np.ndarray, noise: float, design: np.ndarray) -> float:
    size = counts.sum(0)
    if size.sum() <= 0:
        return 0.0
    class_frequencies = counts.sum(1) / size.sum()
    # where there are few records, the frequency among all.  `size` has noise of sd
    # noise * sqrt(n_classes) in each of N_CELLS / 8 cells of an interval: three sd of their
    # sum keep what is solved positive definite
    ridge = 3 * noise * np.sqrt(len(counts) * N_CELLS / CHOICES[-1]) * np.eye(design.shape[1])
    moments = design.T @ (counts.T - size[:, None] * class_frequencies)
    bends = np.linalg.lstsq((design.T * size) @ design + ridge, moments)[0]
    expected = np.clip(class_frequencies + design @ bends, 0, 1)
    residual = counts.T - size[:, None] * expected
    variance = noise**2 * ((1 - expected) ** 2 + (len(counts) - 1) * expected**2)
    variance += np.maximum(size, 0)[:, None] * expected * (1 - expected)
    tested = (size > 0)[:, None] & (variance > 0)
    excess = np.divide(residual**2, variance, out=np.ones_like(residual), where=tested) - 1
    return float((excess.sum(0) / np.sqrt(np.maximum(2 * tested.sum(0), 1))).max())
