"""A scaler by quantiles that are estimated under differential privacy."""

import math
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any

import numpy as np
from sklearn.isotonic import isotonic_regression

from skdpfair._utils.validate import integer, number, one_of, safe_repr
from skdpfair.budget.charging import charged
from skdpfair.preprocessing._linter import refuse_persons_around
from skdpfair.preprocessing._public_bounds import ColumnScaler, shares_of
from skdpfair.privacy import NoisyRelease, calibrate_noise, compute_epsilon
from skdpfair.privacy.gdp import delta_for
from skdpfair.privacy.one_time_noise import generator_of, noisy
from skdpfair.privacy.privacy_report import ASSUMPTIONS, NOT_ACCOUNTED, PrivacyReport

_ACCOUNTANT = "pld"


@dataclass(repr=False, eq=False)
class DPQuantileScaler(ColumnScaler):
    """Scale each column by two of its quantiles, estimated under differential privacy.

    Use it for columns whose public bounds are far from most values. ``fit`` makes one noisy release
    for all columns and spends its own epsilon in addition to the classifier's; a
    :class:`~skdpfair.budget.PrivacyLedger` adds them up.

    Parameters
    ----------
    bounds : tuple, dict or array-like of shape (n_features, 2), default=(-1.0, 1.0)
        Public bounds, as in `BoundedScaler`. Values beyond them count as the nearer bound. The
        resolution of the quantiles is about (high - low) / 2^depth.
    epsilon : float > 0 or None, default=1.0
        The epsilon that ``fit`` spends; None if ``noise_multiplier`` is given.
    delta : float in (0, 1/n_samples) or "auto", default="auto"
        "auto" is the largest power of ten that is at most 1/(10 n_samples).
    noise_multiplier : float from 0.001 to 1e6 or None, default=None
        Standard deviation of the noise over the L2 sensitivity of the counts, instead of epsilon.
    quantiles : tuple of (low, high), default=(0.01, 0.99)
        Quantiles to map to -1 and 1, 0 < low < high < 1; (0.25, 0.75) scales by the interquartile
        range. Values beyond them are moved to the nearer one; NaN stays, and is not counted.
    depth : int, default=10
        Depth of the tree of counts, from 1 to 16.
    noise_sampler : {"standard", "gaussian_sum"}, default="standard"
        "gaussian_sum" draws each noise value as a sum of four Gaussians.
    random_state : int or None, default=None
        None takes a fresh key of the operating system for the noise. An int makes it reproducible
        and raises a warning, because whoever knows the seed can remove the noise.

    Attributes
    ----------
    quantiles_ : ndarray of shape (n_features, 2)
        The estimates, in the units of the columns, low < high.
    privacy_ : PrivacyReport
        The privacy that ``fit`` spent.
    n_features_in_, feature_names_in_
        As in `BoundedScaler`.

    Notes
    -----
    The range between the public bounds of each of the d columns is halved L = ``depth`` times,
    and for l = 1..L the values in each of the 2^l intervals of level l are counted, as in
    Hay et al. (2010).  All d (2^(L+1) - 2) counts, as one vector f(X), are released once with
    independent Gaussian noise of standard deviation ``noise_multiplier`` * sqrt(d L).

    The L2 sensitivity of f is sqrt(d L).  Let X and X' be neighbours under zero-out adjacency: in
    X', one record i is replaced by the null record, which is not counted; n is public.  f is a sum
    of one vector v(x_j) per record, because the interval of a value depends only on that value and
    the public bounds.  So f(X) - f(X') = v(x_i).  The intervals of a level are disjoint and cover
    the range, so v(x_i) is 1 in exactly one interval of each level of each column that holds a
    number, and 0 in all others and for NaN.  Hence ``|v(x_i)|^2 <= d L``, with equality for a
    record without NaN.  The release is a Gaussian mechanism with parameter mu = 1 /
    ``noise_multiplier``.  Everything else is computed from the noisy counts: the consistent
    least-squares tree, its running sum made monotone, and the quantiles.

    A flat histogram of 2^L bins has sensitivity sqrt(d), but a quantile sums up to 2^L noise
    values; in the tree it sums at most L, each with a standard deviation sqrt(L) times as large.

    References
    ----------
    Hay, Rastogi, Miklau and Suciu, "Boosting the Accuracy of Differentially Private Histograms
    Through Consistency", 2010, section 4.

    Examples
    --------
    >>> import pandas as pd
    >>> from skdpfair.preprocessing import DPQuantileScaler
    >>> rows = pd.DataFrame({"age": np.arange(17, 67).repeat(200) + 0.5})
    >>> scaler = DPQuantileScaler({"age": (0, 120)}, epsilon=1.0, quantiles=(0.25, 0.75)).fit(rows)
    >>> bool(abs(scaler.quantiles_ - [29.5, 54.5]).max() < 2)
    True
    >>> scaler.privacy_.releases[0].noise_multipliers
    (3.73...,)
    """

    _fitted = "quantiles_"

    bounds: Any = (-1.0, 1.0)
    _: KW_ONLY
    epsilon: float | None = 1.0
    delta: float | str = "auto"
    noise_multiplier: float | None = None
    quantiles: tuple[float, float] = (0.01, 0.99)
    depth: int = 10
    noise_sampler: str = "standard"
    random_state: Any = None

    def fit(self, X, y=None):
        """Release noisy counts of the rows once, and estimate the quantiles from them.

        Raises `BudgetExceededError`, before anything is counted, if a privacy ledger is open and
        the release would exceed its budget, `InfeasibleBudgetError` if no supported noise meets
        epsilon and delta, and ValueError in front of a classifier that protects persons. Warns with
        `InsecureSeedWarning` if ``random_state`` is given.
        """
        self._check()
        refuse_persons_around("record")
        X = self._fit_columns(X)
        limits = self._pairs()
        # before anything is counted: a value beyond the bounds must not fall out of the tree
        positions = shares_of(X, limits).astype(np.float64)
        n_samples, n_columns = positions.shape
        delta, release = delta_for(self.delta, n_samples), self.planned(n_samples, n_columns)
        generator = generator_of(self.random_state, positions, self)
        releases: list[NoisyRelease] = []
        # the budget is charged first, so that a refusal reveals nothing
        with charged((release,), releases):
            counts = tree_counts(positions, self.depth)
            scale = tree_sensitivity(n_columns, self.depth), release.joint_noise_multiplier
            counts = noisy(counts, *scale, generator, self.noise_sampler)
            releases.append(release)
        low, high = limits.T[:, :, None]
        unit_quantiles = quantiles_of(consistent_leaves(counts), self.quantiles)
        self.quantiles_ = low + (high - low) * unit_quantiles
        self.privacy_ = self._report(releases, delta, n_samples)
        return self

    def _limits(self):
        return self.quantiles_

    def planned(self, n_samples, n_features=1) -> NoisyRelease:
        """Return the `NoisyRelease` that ``fit`` will make of ``n_samples`` records.

        Its noise does not depend on the number of columns, ``n_features``.
        """
        integer("n_samples", n_samples)
        integer("n_features", n_features)
        self._check()
        what = f"quantiles of {n_features} column{'s' * (n_features != 1)}"
        noise = 1.0 if self.noise_multiplier is None else self.noise_multiplier
        release = NoisyRelease(what, 1.0, (noise,), is_one_time=True)
        if self.epsilon is None:
            return release
        delta = delta_for(self.delta, n_samples)
        return calibrate_noise([release], self.epsilon, delta, _ACCOUNTANT)[0]

    def _check(self):
        budget = {"epsilon": self.epsilon, "noise_multiplier": self.noise_multiplier}
        budget = {name: value for name, value in budget.items() if value is not None}
        if len(budget) != 1:
            raise ValueError(
                "epsilon and noise_multiplier both set the noise, and exactly one must be given, "
                f"got {safe_repr(budget) if budget else 'neither'}. Set epsilon=None to choose the "
                "noise."
            )
        for name, value in budget.items():
            is_noise = name == "noise_multiplier"
            number(name, value, low=1e-3 if is_noise else 0, low_open=not is_noise, high=1e6)
        integer("depth", self.depth, high=16)
        one_of("noise_sampler", self.noise_sampler, ("standard", "gaussian_sum"))
        quantiles = list(self.quantiles) if np.ndim(self.quantiles) == 1 else []
        quantiles = [q for q in quantiles if isinstance(q, Real)]
        if len(quantiles) != 2 or not 0 < quantiles[0] < quantiles[1] < 1:
            raise ValueError(
                "quantiles must be a pair of numbers 0 < low < high < 1, got "
                f"{safe_repr(self.quantiles)}. Take (0.01, 0.99), for instance."
            )

    def _report(self, releases, delta, n_samples):
        return PrivacyReport(
            method="quantiles",
            what="quantiles",
            epsilon=compute_epsilon(releases, delta, _ACCOUNTANT),
            delta=delta,
            accountant=_ACCOUNTANT,
            noise_multiplier=releases[0].noise_multipliers[0],
            sample_rate=1.0,
            steps=1,
            expected_batch_size=float(n_samples),
            is_private=True,
            seeded=self.random_state is not None,
            assumptions=(ASSUMPTIONS["n"], ASSUMPTIONS["bounds"]),
            not_accounted=NOT_ACCOUNTED[1:],  # the first is preprocessing: this is it
            releases=tuple(releases),
        )

    def __getstate__(self):
        """Drop the seed of a fitted scaler, with which the noise could be removed."""
        state = super().__getstate__().copy()
        return state | {"random_state": None} if "quantiles_" in state else state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        return tags


def tree_counts(positions: np.ndarray, depth: int) -> np.ndarray:
    """Count the values of each column in every node of a dyadic tree over [0, 1].

    Level l = 1..depth cuts [0, 1] into 2^l equal intervals; a row of the result has the counts of
    a column level by level from the coarsest.  NaN is counted nowhere.
    """
    n_columns, n_leaves = positions.shape[1], 2**depth
    rows, columns = np.nonzero(~np.isnan(positions))
    # the upper bound itself belongs to the last interval
    leaf = np.minimum(positions[rows, columns] * n_leaves, n_leaves - 1).astype(np.int64)
    counts = np.bincount(columns * n_leaves + leaf, minlength=n_columns * n_leaves)
    finest = counts.reshape(n_columns, n_leaves).astype(np.float64)
    every = [finest.reshape(n_columns, 2**level, -1).sum(2) for level in range(1, depth + 1)]
    return np.concatenate(every, axis=1)


def tree_sensitivity(n_columns: int, depth: int) -> float:
    """Return how far one record can move :func:`tree_counts`, in the L2 norm."""
    return math.sqrt(n_columns * depth)


def consistent_leaves(noisy_counts: np.ndarray) -> np.ndarray:
    """Return the least-squares estimate of the finest counts from noisy counts of all levels.

    The two passes of theorem 3 in Hay et al. (2010): from below, each node's count is averaged with
    the sum of its children's, weighted by their precisions; from above, children share what their
    parent's count differs from their sum.  Estimates may be negative.
    """
    depth = int(math.log2(noisy_counts.shape[1] + 2)) - 1
    parts = np.split(noisy_counts, np.cumsum(2 ** np.arange(1, depth)), axis=1)
    up = [parts[-1]]
    for height, counts in enumerate(reversed(parts[:-1]), start=2):
        # inverse variances of the node's own count and of the sum of its children
        share = 2 ** (height - 1) / (2**height - 1)
        up.append(share * counts + (1 - share) * _pairs(up[-1]).sum(2))
    estimate = up.pop()
    while up:
        children = _pairs(up.pop())
        correction = (estimate - children.sum(2)) / 2
        estimate = (children + correction[:, :, None]).reshape(len(children), -1)
    return estimate


def quantiles_of(leaves: np.ndarray, quantiles) -> np.ndarray:
    """Return two quantiles of each column in [0, 1] from noisy counts of equal intervals.

    They are at least one interval apart; 0 and 1 where less than one count is left.  The running
    sum becomes monotone by isotonic regression, and is inverted by linear interpolation.
    """
    n_leaves = leaves.shape[1]
    edges, out = np.arange(n_leaves + 1) / n_leaves, []
    for counts in leaves:
        below = np.concatenate([[0.0], isotonic_regression(counts.cumsum(), y_min=0.0)])
        wanted = np.asarray(quantiles) * below[-1]
        out.append(np.interp(wanted, below, edges) if below[-1] >= 1 else (0.0, 1.0))
    low, high = np.array(out).T
    # a column with one value would otherwise be divided by zero
    narrow = high - low < 1 / n_leaves
    start = np.clip((low + high - 1 / n_leaves) / 2, 0, 1 - 1 / n_leaves)
    low, high = np.where(narrow, start, low), np.where(narrow, start + 1 / n_leaves, high)
    return np.column_stack([low, high])


def _pairs(counts):
    return counts.reshape(len(counts), -1, 2)
