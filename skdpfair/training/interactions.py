"""Score tests for interactions of pairs of columns, on noisy counts of their cells."""

from collections import defaultdict

import numpy as np
from scipy.special import softmax
from scipy.stats import chi2

from skdpfair._networks import n_cells

# largest p-value of a pair that interacts, and pairs below it on average where none interacts
MAX_P_VALUE, FALSE_PAIRS = 0.02, 0.7
# least share of the variance of the classes that the cells of a pair explain beyond its columns
MIN_INTERACTION = 0.005
MAX_PAIRS = 10
_POWERS = np.polynomial.legendre.legvander(np.linspace(-1, 1, n_cells(1)), 2)[:, 1:]
# of a logistic regression on counts; noise may have no optimum
_NEWTON_STEPS, _MAX_STEP, _CONVERGED, _LEAST_VARIANCE = 12, 1.0, 1e-3, 1e-3


def chosen_pairs(
    candidates: list[tuple[int, ...]], tables: list[tuple[np.ndarray, float]]
) -> dict[tuple[int, ...], float]:
    """Return the pairs of columns whose cells tell more than the columns, the clearest first.

    ``tables`` are counts with the standard deviation of their noise. Values are lower bounds on the
    share of the variance of a class that a pair explains.
    """
    # tables of one shape are tested together
    alike = defaultdict(list)
    for pair, (counts, noise) in zip(candidates, tables, strict=True):
        alike[counts.shape, noise, pair[1] == 1, pair[3] == 1].append((pair, counts))
    clear = dict[tuple[int, ...], float]()
    largest = min(MAX_P_VALUE, FALSE_PAIRS / max(len(candidates), 1))
    for (_, noise, *are_numbers), group in alike.items():
        pairs, counts = zip(*group, strict=True)
        p_values, shares = interactions(np.stack(counts), noise, are_numbers)
        taken = np.flatnonzero((p_values < largest) & (shares > MIN_INTERACTION))
        clear |= {pairs[i]: float(shares[i]) for i in taken}
    return dict(sorted(clear.items(), key=lambda item: -item[1])[:MAX_PAIRS])


def interactions(
    counts: np.ndarray, noise: float, are_numbers: list[bool]
) -> tuple[np.ndarray, np.ndarray]:
    """Return p-values of score tests for interactions, and lower bounds on their sizes, by table.

    ``counts`` (n_tables, n_classes, n, m) have noise of the standard deviation ``noise``, and
    ``are_numbers`` says whether rows and columns are cells of a number. The null hypothesis is a
    multinomial logistic regression that is additive in rows and columns; the alternatives are
    products of categories, and of first and second powers of numbers. The size is the share of the
    variance of a class that they explain, less one standard error. The class with the least p-value
    is taken.
    """
    n_tables, n_classes, n, m = counts.shape
    row, column = np.divmod(np.arange(n * m), m)
    design = np.hstack([np.eye(n)[row], np.eye(m)[column]])
    bases = [
        _POWERS if is_number else np.eye(k)
        for is_number, k in zip(are_numbers, (n, m), strict=True)
    ]
    products = (bases[0][row, :, None] * bases[1][column, None, :]).reshape(n * m, -1)
    counts = counts.reshape(n_tables, n_classes, -1)
    # cells that may be empty tell nothing
    tested = counts.sum(1) > noise * np.sqrt(n_classes)
    has_cells = tested.sum(1) > (tested @ design > 0).sum(1)
    p_values, shares = np.ones(n_tables), np.zeros(n_tables)
    if has_cells.any():
        tested = tested[has_cells]
        of_class = counts[has_cells] * tested[:, None]
        ridge = 1 + noise * np.sqrt(n_classes * max(n, m)) / 2
        expected = _additive_fit(of_class, design, ridge)
        # two classes leave residuals of equal size
        tests = [
            _score_tests(of_class, expected, k, tested, design, products, noise)
            for k in range(1 if n_classes == 2 else 0, n_classes)
        ]
        each, best = np.array(tests), np.argmin([p for p, _ in tests], axis=0)
        p_values[has_cells], shares[has_cells] = each[best, :, np.arange(len(best))].T
    return p_values, shares


def _additive_fit(of_class: np.ndarray, design: np.ndarray, ridge: float) -> np.ndarray:
    """Return the shares of the classes, like ``of_class`` (n_tables, n_classes, n_cells)."""
    size = of_class.sum(1)
    start = np.clip(of_class.sum(2) / size.sum(1)[:, None], 1e-3, 1)[..., None]
    effects = np.zeros((*start.shape[:2], design.shape[1]))
    for _ in range(_NEWTON_STEPS):
        largest = 0.0
        # the first class is what others are compared with
        for k in range(1, effects.shape[1]):
            share = softmax(np.log(start) + effects @ design.T, axis=1)[:, k]
            penalty = ridge * start[:, k] * (1 - start[:, k])
            slope = (of_class[:, k] - size * share) @ design - penalty * effects[:, k]
            curvature = _products(_variance(size, share), design, design)
            curvature += penalty[..., None] * np.eye(design.shape[1])
            step = np.linalg.solve(curvature, slope[..., None])[..., 0]
            effects[:, k] += np.clip(step, -_MAX_STEP, _MAX_STEP)
            largest = max(largest, float(np.abs(step).max()))
        if largest < _CONVERGED:
            break
    return np.asarray(softmax(np.log(start) + effects @ design.T, axis=1))


def _variance(size: np.ndarray, share: np.ndarray) -> np.ndarray:
    return np.asarray(size * np.maximum(share * (1 - share), _LEAST_VARIANCE))


def _products(weight: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a' W b for each row of weights of the cells."""
    joint: np.ndarray = weight @ (a[:, :, None] * b[:, None, :]).reshape(len(a), -1)
    return joint.reshape(len(weight), a.shape[1], b.shape[1])


def _score_tests(
    of_class: np.ndarray,
    expected: np.ndarray,
    k: int,
    tested: np.ndarray,
    design: np.ndarray,
    products: np.ndarray,
    noise: float,
) -> tuple[np.ndarray, np.ndarray]:
    size, share, n_classes = of_class.sum(1), expected[:, k], of_class.shape[1]
    binomial = size * share * (1 - share)
    variance = noise**2 * ((1 - share) ** 2 + (n_classes - 1) * share**2) + binomial
    # rows and columns may fit a little badly: what they could explain is taken off
    weight = _variance(size, share)
    information = _products(weight, design, design) + np.eye(design.shape[1])
    taken_off = design @ np.linalg.solve(information, _products(weight, design, products))
    directions = np.swapaxes(products - taken_off, 1, 2)
    score = directions @ (of_class[:, k] - size * share)[..., None]
    covariance = (directions * (variance * tested)[:, None]) @ np.swapaxes(directions, 1, 2)
    values, vectors = np.linalg.eigh(covariance)
    varied = values > 1e-6 * values[:, -1:]
    squares = (np.swapaxes(vectors, 1, 2) @ score)[..., 0] ** 2
    statistic = np.divide(squares, values, out=np.zeros_like(values), where=varied).sum(1)
    n_varied = varied.sum(1)
    records = np.maximum(size**2 - n_classes * noise**2, 0) * share * (1 - share)
    records = np.divide(records, variance, out=np.zeros_like(records), where=tested).sum(1)
    excess = statistic - n_varied - np.sqrt(2 * n_varied)
    return chi2.sf(statistic, n_varied), excess / np.maximum(records, 1e-9)
