"""Score tests for interactions: false alarms, power, and the pairs that are chosen."""

from types import SimpleNamespace

import numpy as np
import pytest

from skdpfair._networks import Curves
from skdpfair.training import interactions
from skdpfair.training.column_counts import counted


def shares_of_pairs(effect, n_tables, kinds=(True, False), n_classes=2, n=8000, noise=40.0):
    """Return p-values and sizes for noisy tables of two columns; ``effect`` is their product's."""
    rng, found = np.random.default_rng(n_classes), []
    for _ in range(n_tables):
        x = rng.uniform(-1, 1, (n, 2)).astype(np.float32)
        level = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
        x = np.hstack([x, np.eye(4)[level]])
        number = x[:, 1] if kinds[1] else np.array([1, -1, 1, -1])[level]
        slopes, steps = rng.normal(0, 1, (n_classes, 2)), rng.normal(0, 1, (4, n_classes))
        scores = x[:, :2] @ slopes.T + (0 if kinds[1] else steps[level])
        scores[:, 0] += effect * x[:, 0] * number
        y = np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)
        columns = ((0, 1), (1, 1)) if kinds[1] else ((0, 1), (2, 4))
        network = Curves((), columns=columns)
        classes = range(n_classes)
        table = SimpleNamespace(x=x, y=y, person=None, classes=classes, n_outputs=n_classes)
        (counts,) = counted(table, network)
        found.append(counts + noise * rng.standard_normal(counts.shape))
    return interactions.interactions(np.stack(found), noise, kinds)


@pytest.mark.parametrize("kinds", [(True, True), (True, False)], ids=["numbers", "categories"])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_interactions_of_additive_columns_is_rarely_small(kinds, n_classes):
    p_values, _ = shares_of_pairs(0.0, 200, kinds, n_classes)
    # the least of four p-values, where there are four classes; more have a probability of 1e-4
    assert (p_values < 0.05 / (1 if n_classes == 2 else 4)).sum() <= 23


@pytest.mark.parametrize("kinds", [(True, True), (True, False)], ids=["numbers", "categories"])
def test_interactions_find_products_and_their_size(kinds):
    p_values, sizes = shares_of_pairs(2.0, 20, kinds, noise=20.0)
    assert (p_values < 0.001).all() and (sizes > interactions.MIN_INTERACTION).all()


def test_interactions_of_counts_that_are_noise_is_none():
    rng = np.random.default_rng(0)
    counts = 50.0 * rng.standard_normal((40, 3, 6, 6))
    p_values, sizes = interactions.interactions(counts, 50.0, (True, True))
    assert np.isfinite([p_values, sizes]).all() and (p_values < 0.01).sum() <= 4


def test_interactions_do_not_depend_on_other_tables():
    rng = np.random.default_rng(0)
    counts = rng.poisson(60, (5, 3, 6, 4)) + 5 * rng.standard_normal((5, 3, 6, 4))
    counts[3] = -1  # nothing tells
    joint = np.transpose(interactions.interactions(counts, 5.0, (True, False)))
    alone = [np.ravel(interactions.interactions(c[None], 5.0, (True, False))) for c in counts]
    np.testing.assert_allclose(joint, alone, rtol=1e-2, atol=1e-12)
    assert tuple(joint[3]) == (1.0, 0.0)


def test_chosen_pairs_are_few_and_the_clearest_first():
    x, y = np.meshgrid(np.linspace(-1, 1, 6), np.linspace(-1, 1, 6))
    tables = []
    for strength in np.linspace(0.4, 1, 12):
        upper = 200 * (0.5 + 0.45 * strength * x * y)
        tables.append((np.stack([200 - upper, upper]), 0.0))
    pairs = [(2 * i, 1, 2 * i + 1, 1) for i in range(12)]
    chosen = interactions.chosen_pairs(pairs, tables)
    assert [*chosen] == pairs[:1:-1] and interactions.chosen_pairs([], []) == {}
    assert len(chosen) == interactions.MAX_PAIRS
