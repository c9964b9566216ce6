"""Piecewise-linear encodings of numeric columns on public knots."""

import math
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from skdpfair._utils.validate import integer, is_auto, listed, number, safe_repr
from skdpfair.preprocessing._public_bounds import PublicBounds
from skdpfair.privacy.gdp import delta_for, gdp_parameter

MAX_INTERVALS, FINEST = 8, 128  # on linear and on logarithmic axes
CHOICES = 0, 2, 4, MAX_INTERVALS, FINEST  # of n_intervals="auto"
FINE_SIGNAL, RECORDS_PER_COLUMN = 1000.0, 80  # from which logarithmic axes are cut finest
MAX_MU = 8.0  # a budget so large, or none, that noise no longer matters
MIN_SIGNAL = 4.0  # signal-to-noise ratio for each interval of each axis
_ROWS = 1024  # at a time
DECADES = 3  # a range of so many powers of ten also gets a logarithmic axis


class PiecewiseLinearEncoder(PublicBounds):
    """Encode numeric columns by linear B-splines on public knots, see `public_preprocessor`.

    A linear model of the encoded columns is a sum of one continuous, piecewise-linear curve for
    each column. The knots divide the public bounds into equal intervals. Nothing is learned from
    the rows but their number.

    Parameters
    ----------
    bounds
        As in `BoundedScaler`.
    n_intervals : int >= 0 or "auto", default="auto"
        Number of intervals between knots on each axis; 0 for the scaled columns alone.
    log_columns, missing : list of str, default=()
        Columns that also get a logarithmic axis, and a column ``{column}_missing``.
    epsilon : float > 0 or None, default=1.0
        Budget of the fit that uses the columns; it affects ``n_intervals="auto"`` only.

    Notes
    -----
    Each axis maps the bounds to u in [0, 1]. Its columns are 2u - 1 and max(0, 1 - ``|Ku - k|``)
    for k = 0, ..., K, where K is the number of intervals. A logarithmic axis first maps x to
    sign(x) log(1 + ``|x|`` / c), where c is 1, or a thousandth of the largest bound in absolute
    value if that is less.

    If ``n_intervals`` is above 8, K is ``n_intervals`` halved until it is at most 8 or odd. On
    logarithmic axes, each halving back adds the columns of the new knots: J^(1/4) max(0, 1 -
    ``|Ju - j|``) for J = 2K, 4K, ..., ``n_intervals`` and odd j < J. The amounts of forms and
    tariffs are seldom smooth.

    ``n_intervals="auto"`` is the largest K of 8, 4 and 2 with n mu / p >= 4 K, or 0 if there is
    none. Here n is the number of rows, p that of the axes, and mu <= 8 the parameter of Gaussian
    DP for ``epsilon`` and ``delta="auto"``. It is 128 if there are logarithmic axes, n mu / p >=
    1000, and n is at least 80 times the number of the columns that this adds.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"age": [20.0, 35.0, 60.0, None]})
    >>> encoder = PiecewiseLinearEncoder({"age": (20, 60)}, n_intervals=2, missing=["age"])
    >>> encoder.set_output(transform="pandas").fit_transform(rows)
        age  age_at_20  age_at_40  age_at_60  age_missing
    0 -1.00       1.00       0.00        0.0          0.0
    1 -0.25       0.25       0.75        0.0          0.0
    2  1.00       0.00       0.00        1.0          0.0
    3  0.00       0.00       0.00        0.0          1.0
    """

    _fitted = "n_intervals_"

    def __init__(
        self, bounds=(-1.0, 1.0), *, n_intervals="auto", log_columns=(), epsilon=1.0, missing=()
    ):
        self.bounds = bounds
        self.n_intervals = n_intervals
        self.log_columns = log_columns
        self.epsilon = epsilon
        self.missing = missing

    def fit(self, X, y=None):
        """Choose the number of intervals by the number of rows; their values are not used."""
        n_samples = len(self._fit_columns(X))
        if self.epsilon is not None:
            number("epsilon", self.epsilon, low=0, low_open=True)
        if is_auto(self.n_intervals):
            axes = self.n_features_in_, len(self.log_columns)
            self.n_intervals_ = n_intervals_for(n_samples, *axes, self.epsilon)
        else:
            self.n_intervals_ = integer("n_intervals", self.n_intervals, low=0)
        names, counts = np.unique(self.get_feature_names_out().astype(str), return_counts=True)
        if equal := list(names[counts > 1]):
            raise ValueError(
                f"X has columns whose encodings have equal names: {safe_repr(equal)}. Rename "
                "one of the columns."
            )
        return self

    def transform(self, X):
        """Return the columns that `get_feature_names_out` names, as float32."""
        X, n_columns = self._numbers(X), len(self.get_feature_names_out())
        encoded = np.zeros((len(X), n_columns), np.float32)
        columns = [
            (column in self.missing, [(axis, self._levels(axis)) for axis in axes])
            for column, axes in self.axes()
        ]
        # in a cache
        for start in range(0, len(X), _ROWS):
            rows = slice(start, start + _ROWS)
            _encode(X[rows].astype(np.float64), columns, encoded[rows])
        return encoded

    def get_feature_names_out(self, input_features=None):
        """Return the names of the columns that `transform` makes.

        For each column, these are ``{column}`` and ``{column}_at_{knot}``; then ``{column}_log``
        and ``{column}_log_at_{knot}`` for a logarithmic axis; then ``{column}_missing``.
        """
        check_is_fitted(self, self._fitted)
        names, columns = [], _check_feature_names_in(self, input_features)
        for name, (column, axes) in zip(columns, self.axes(), strict=True):
            for axis in axes:
                label = f"{name}_log" if axis.unit else str(name)
                knots = np.concatenate([knots for knots, *_ in self._levels(axis)])
                names += [label, *(f"{label}_at_{knot:.12g}" for knot in axis.values(knots))]
            names += [f"{name}_missing"] * (column in self.missing)
        return np.asarray(names, dtype=object)

    def _levels(self, axis):
        """Return the positions of the hats of each level, their steepness and their height."""
        k = self.n_intervals_
        # linear axes and the coarsest level of logarithmic ones have few intervals
        while k > MAX_INTERVALS and k % 2 == 0:
            k //= 2
        levels = [(np.arange(k + 1) / k, k, 1.0)] if k else [(np.empty(0), 0, 1.0)]
        while axis.unit is not None and k < self.n_intervals_:
            k *= 2
            levels.append((np.arange(1, k, 2) / k, k, k**0.25))
        return levels

    def axes(self):
        """Return each column with its axes: a linear one, and for some a logarithmic one."""
        columns = getattr(self, "feature_names_in_", range(self.n_features_in_))
        out = []
        for column, (low, high) in zip(columns, self._pairs(), strict=True):
            out.append((column, [_Axis(low, high)]))
            if column in self.log_columns:
                # small amounts keep a resolution of their own where the bounds are below 1,000
                unit = min(1.0, max(abs(low), abs(high)) / 10**DECADES)
                out[-1][1].append(_Axis(low, high, unit))
        return out

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags


def _encode(X, columns, out):
    """Write some rows of numbers, encoded, to ``out``, which is zero."""
    at, rows = 0, np.arange(len(X))
    for x, (has_missing, axes) in zip(X.T, columns, strict=True):
        is_missing, start = np.isnan(x), at
        # a public value, also where a further column says that it is missing
        x = np.where(is_missing, axes[0][0].values(0.5), x)
        for axis, ((coarse, steepness, _), *finer) in axes:
            u = axis.position(x)
            out[:, at] = 2 * u - 1
            at += 1
            out[:, at : at + len(coarse)] = _hats(u[:, None], coarse, steepness)
            at += len(coarse)
            for knots, steepness, height in finer:
                nearest = np.floor(u * len(knots)).astype(np.intp)
                # all others are zero, and these two may be, by rounding, other than zero
                for neighbour in (-1, 0, 1):
                    i = np.clip(nearest + neighbour, 0, len(knots) - 1)
                    out[rows, at + i] = height * _hats(u, knots[i], steepness)
                at += len(knots)
        if has_missing:
            out[is_missing, start:at] = 0
            out[:, at] = is_missing
            at += 1


def _hats(u, knots, steepness):
    return np.maximum(1 - steepness * np.abs(u - knots), 0)


class _Axis:
    """A map of public bounds to [0, 1], logarithmic if it has a unit."""

    def __init__(self, low, high, unit=None):
        self.low, self.high, self.unit = low, high, unit
        self.start, self.stop = self._scaled(low), self._scaled(high)

    def position(self, x):
        """Return where values lie on the axis; values beyond the bounds are at its ends."""
        x = np.clip(x, self.low, self.high)
        return (self._scaled(x) - self.start) / (self.stop - self.start)

    def values(self, position):
        """Return the values that lie at positions in [0, 1] on the axis."""
        scaled = self.start + position * (self.stop - self.start)
        if self.unit is None:
            return scaled
        return np.sign(scaled) * self.unit * np.expm1(np.abs(scaled))

    def _scaled(self, x):
        return x if self.unit is None else np.sign(x) * np.log1p(np.abs(x) / self.unit)


def has_curves(names: Iterable[Any]) -> bool:
    """Return whether columns are, by their names, those of encoded ones with knots.

    Examples
    --------
    >>> has_curves(["age", "age_at_20", "age_at_40", "ward_A"]), has_curves(["price", "look_at_me"])
    (True, False)
    """
    columns = set(names)
    at_knots = (str(name).rpartition("_at_") for name in columns)
    return any(column in columns and _is_number(knot) for column, _, knot in at_knots)


def _is_number(text: str) -> bool:
    with suppress(ValueError):
        return math.isfinite(float(text))
    return False


def log_columns_of(chosen, bounds):
    """Return the columns with a logarithmic axis; of "auto", those of amounts, but not years."""
    if not is_auto(chosen):
        return listed("log_columns", chosen, "column names")
    return [
        column
        for column, (low, high) in bounds.items()
        if max(abs(low), abs(high)) >= 10**DECADES and (low <= 0 or high >= 10**DECADES * low)
    ]


def n_intervals_for(n_samples, n_linear, n_log, epsilon):
    """Return the number of intervals on each axis that records and budget allow."""
    delta = delta_for("auto", n_samples)
    mu = MAX_MU if epsilon is None else min(gdp_parameter(epsilon, delta), MAX_MU)
    signal = n_samples * mu / max(n_linear + n_log, 1)
    n_added = n_log * (FINEST - MAX_INTERVALS)
    if n_log and signal >= FINE_SIGNAL and n_samples >= RECORDS_PER_COLUMN * n_added:
        return FINEST
    allowed = [k for k in CHOICES if k <= MAX_INTERVALS and signal >= MIN_SIGNAL * k]
    return max(allowed)
