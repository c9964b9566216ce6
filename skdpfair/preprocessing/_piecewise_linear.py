"""Piecewise-linear encodings of numeric columns on public knots."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise, takewhile
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from skdpfair._utils.validate import integer, is_auto, listed, number, safe_repr
from skdpfair.preprocessing._public_bounds import PublicBounds
from skdpfair.privacy.gdp import delta_for, gdp_parameter

CHOICES = 0, 2, 4, 8  # of n_intervals="auto"
MAX_MU = 8.0  # a budget so large, or none, that noise no longer matters
MIN_SIGNAL = 4.0  # signal-to-noise ratio for each interval of each axis
_ROWS = 1024  # at a time
DIRECTIONS = "increasing", "decreasing"
_KNOT = re.compile(r"-?\d+(\.\d+)?(e[+-]\d+)?")  # in the name of a column
DECADES = 3  # a range of so many powers of ten also gets a logarithmic axis


@dataclass(repr=False, eq=False)
class PiecewiseLinearEncoder(PublicBounds):
    """Encode numeric columns by linear B-splines on public knots, see `public_preprocessor`.

    A linear model of the encoded columns is a sum of one continuous, piecewise-linear curve for
    each column. The knots divide the public bounds into equal intervals. Only the number of the
    rows is learned.

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
    monotone : dict of str to {"increasing", "decreasing"}, optional
        As in `public_preprocessor`.

    Notes
    -----
    Each axis maps the bounds to u in [0, 1]. Its columns are 2u - 1 and max(0, 1 - ``|Ku - k|``)
    for k = 0, ..., K, where K is the number of intervals. A logarithmic axis first maps x to
    sign(x) log(1 + ``|x|`` / c), where c is 1, or a thousandth of the largest bound in absolute
    value if that is less.

    ``n_intervals="auto"`` is the largest K of 8, 4 and 2 with n mu / p >= 4 K, or 0 if there is
    none. Here n is the number of rows, p that of the axes, and mu <= 8 the parameter of Gaussian
    DP for ``epsilon`` and ``delta="auto"``.
    """

    _fitted = "n_intervals_"

    bounds: Any = (-1.0, 1.0)
    _: KW_ONLY
    n_intervals: int | str = "auto"
    log_columns: Sequence[str] = ()
    epsilon: float | None = 1.0
    missing: Sequence[str] = ()
    monotone: Mapping[str, str] | None = None

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
        columns = [(column in self.missing, axes) for column, axes in self.axes()]
        # in a cache
        for start in range(0, len(X), _ROWS):
            rows = slice(start, start + _ROWS)
            _encode(X[rows].astype(np.float64), columns, self.n_intervals_, encoded[rows])
        return encoded

    def get_feature_names_out(self, input_features=None):
        """Return the names of the columns that `transform` makes.

        For each column, these are ``{column}`` and ``{column}_at_{knot}``; then ``{column}_log``
        and ``{column}_log_at_{knot}`` for a logarithmic axis; then ``{column}_missing``. A column
        that is to act monotonely is called ``{column}:increasing`` or ``{column}:decreasing``.
        """
        check_is_fitted(self, self._fitted)
        names, columns = [], _check_feature_names_in(self, input_features)
        knots = knots_of(self.n_intervals_)
        for name, (column, axes) in zip(columns, self.axes(), strict=True):
            if direction := (self.monotone or {}).get(column):
                name = f"{name}:{direction}"
            for axis in axes:
                label = f"{name}_log" if axis.unit else str(name)
                names += [label, *(f"{label}_at_{knot:.12g}" for knot in axis.values(knots))]
            names += [f"{name}_missing"] * (column in self.missing)
        return np.asarray(names, dtype=object)

    def names_for(self, n_samples):
        """Return the names of the columns that a fit to so many rows makes; bounds are a dict."""
        k = self.n_intervals
        if is_auto(k):
            k = n_intervals_for(n_samples, len(self.bounds), len(self.log_columns), self.epsilon)
        row = pd.DataFrame({column: [0.0] for column in self.bounds})
        return clone(self).set_params(n_intervals=k).fit(row).get_feature_names_out()

    def axes(self):
        """Return each column with its axes: a linear one, and for some a logarithmic one."""
        columns = getattr(self, "feature_names_in_", range(self.n_features_in_))
        out = []
        for column, (low, high) in zip(columns, self._pairs(), strict=True):
            out.append((column, [_Axis(low, high)]))
            if column in self.log_columns:
                out[-1][1].append(_Axis(low, high, _unit_of(low, high)))
        return out

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags


def _encode(X, columns, n_intervals, out):
    """Write some rows of numbers, encoded, to ``out``, which is zero."""
    at, knots = 0, knots_of(n_intervals)
    for x, (has_missing, axes) in zip(X.T, columns, strict=True):
        is_missing, start = np.isnan(x), at
        # a public value, also where a further column says that it is missing
        x = np.where(is_missing, axes[0].values(0.5), x)
        for axis in axes:
            u = axis.position(x)
            out[:, at] = 2 * u - 1
            out[:, at + 1 : at + 1 + len(knots)] = hats(u, n_intervals)
            at += 1 + len(knots)
        if has_missing:
            out[is_missing, start:at] = 0
            out[:, at] = is_missing
            at += 1


def knots_of(n_intervals: int) -> np.ndarray:
    """Return the knots between equal intervals of [0, 1]; none if there are no intervals."""
    return np.arange(n_intervals + 1) / n_intervals if n_intervals else np.empty(0)


def hats(u: np.ndarray, n_intervals: int) -> np.ndarray:
    """Return the linear B-splines on the knots at u in [0, 1], of shape (len(u), n_knots)."""
    return np.maximum(1 - n_intervals * np.abs(u[:, None] - knots_of(n_intervals)), 0)


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


def _unit_of(low: float, high: float) -> float:
    """Return where a logarithmic axis begins to be one."""
    # small amounts keep a resolution of their own where the bounds are below 1,000
    return min(1.0, max(abs(low), abs(high)) / 10**DECADES)


def linear_positions(low: float, high: float, position: np.ndarray) -> np.ndarray:
    """Return where positions on the logarithmic axis of an amount lie on its linear axis."""
    values = _Axis(low, high, _unit_of(low, high)).values(position)
    linear: np.ndarray = _Axis(low, high).position(values)
    return linear


def limits_of(names: Iterable[Any], amounts: Iterable[int]) -> tuple[tuple[float, float], ...]:
    """Return the bounds of encoded amounts, by the names of the knots of their linear axes.

    None are returned if somebody removed the knots of one.
    """
    columns, limits = list(map(str, names)), []
    axes = _axes_of(columns)
    for amount in amounts:
        linear = columns[amount].removesuffix("_log")
        values = [float(knot.rpartition("_at_")[2]) for knot, a in axes.items() if a == linear]
        if len(values) < 2:
            return ()
        limits.append((min(values), max(values)))
    return tuple(limits)


def amounts_among(names: Iterable[Any]) -> tuple[int, ...] | None:
    """Return the positions of the logarithmic axes among encoded columns, by their names.

    None if no column is encoded with knots. A monotone axis needs 8 intervals: with fewer, finer
    knots leave values between them that no weight moves by itself.
    """
    columns = list(map(str, names))
    n_knots = Counter(_axes_of(columns).values())
    axes = {f"{column}_log" for column in columns} & n_knots.keys()
    axes = {a for a in axes if not _direction_of(a) or n_knots[a] == CHOICES[-1] + 1}
    return tuple(i for i, name in enumerate(columns) if name in axes) if n_knots else None


def monotone_axes(names: Any) -> list[tuple[int, list[int], bool]]:
    """Return the axes of columns that are to act monotonely, by their names.

    Each has the position of its column, those of its knots, and whether it is to increase.
    """
    columns, monotone = [] if names is None else list(map(str, names)), []
    axes = _axes_of(columns)
    for place, column in enumerate(columns):
        if direction := _direction_of(column):
            knots = [i for i, name in enumerate(columns) if axes.get(name) == column]
            monotone.append((place, knots, direction == "increasing"))
    return monotone


def _direction_of(column: str) -> str:
    """Return the direction in which an encoded column acts, "" for none."""
    direction = column.removesuffix("_log").rpartition(":")[2]
    return direction if direction in DIRECTIONS else ""


def encoded_columns(names: Iterable[Any]) -> tuple[tuple[int, int], ...]:
    """Return the columns of an encoded table, by names: first position and width of each, in order.

    A number that is encoded with knots has the position of its last axis, and the width 1.
    Categories are neighbours whose names begin alike. None are returned without knots if some
    column is neither.
    """
    columns = list(map(str, names))
    axes = _axes_of(columns)
    # cells of a pair would not be monotone
    curved, monotone = set(axes.values()), filter(_direction_of, columns)
    apart = curved.union(axes, monotone)
    blocks = _blocks(columns, [i for i, name in enumerate(columns) if name not in apart])
    if not axes and sum(width for _, width in blocks) < len(columns):
        return ()
    last_axes = {a.removesuffix("_log"): a for a in columns if a in curved}
    numbers = ((columns.index(a), 1) for a in last_axes.values() if not _direction_of(a))
    return tuple(sorted((*numbers, *blocks)))


def column_name(names: Any, first: int, width: int) -> str:
    """Return the name of an encoded column, see `encoded_columns`; ``names`` may be None."""
    if names is None:
        return f"column {first}"
    if width > 1:
        return _beginning(*map(str, names[first : first + width]))
    name = str(names[first])
    column = name.removesuffix("_log")  # which may be a part of the name of a column
    return column if column in list(names) else name


def pair_name(names: Any, pair: Sequence[int]) -> str:
    """Return how reports name a pair of encoded columns, two first positions and widths."""
    return f"pair {column_name(names, *pair[:2])} × {column_name(names, *pair[2:])}"


def _axes_of(columns: list[str]) -> dict[str, str]:
    """Return the axis of each knot."""
    parts = {name: name.rpartition("_at_") for name in columns}
    known = set(columns)
    return {k: axis for k, (axis, _, at) in parts.items() if axis in known and _KNOT.fullmatch(at)}


def _blocks(columns: list[str], at: list[int]) -> list[tuple[int, int]]:
    """Return first positions and widths of neighbours whose names have a beginning in common.

    A name goes with the neighbour with which it has more in common.
    """
    common = [len(_beginning(columns[i], columns[j])) if j == i + 1 else 0 for i, j in pairwise(at)]
    blocks: list[tuple[int, int]] = []
    for i, before, after in zip(at, [0, *common], [*common, 0], strict=False):
        if 0 < before >= after:
            blocks[-1] = blocks[-1][0], blocks[-1][1] + 1
        else:
            blocks.append((i, 1))
    return [block for block in blocks if block[1] > 1]


def _beginning(*names: str) -> str:
    """Return what names have in common, up to an underscore."""
    alike = takewhile(lambda letters: len({*letters}) == 1, zip(*names, strict=False))
    return "".join(letters[0] for letters in alike).rpartition("_")[0]


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
    return max(k for k in CHOICES if signal >= MIN_SIGNAL * k)
