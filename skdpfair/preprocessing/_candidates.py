"""The parts of an estimator, and what a search makes of it: without fitting anything."""

import math
from collections.abc import Mapping
from itertools import product
from numbers import Number

from sklearn.base import clone

_GRIDS = ("param_grid", "param_distributions", "search_spaces")
_CONTAINERS = ("steps", "transformers", "transformer_list")
_MOST = 256  # candidates that are looked at one by one
_DRAWS = 8  # values that stand for a distribution


def is_estimator(value) -> bool:
    """Tell whether an object can be fitted; classes and strings cannot."""
    fits = any(hasattr(value, name) for name in ("fit", "fit_transform", "fit_resample"))
    return fits and not isinstance(value, type)


def params_of(estimator) -> dict:
    """Return the parameters of an estimator, or the public attributes of one without."""
    if hasattr(estimator, "get_params"):
        return estimator.get_params(deep=False)
    held = getattr(estimator, "__dict__", {})
    return {k: v for k, v in held.items() if not (k.startswith("_") or k.endswith("_"))}


def parts_of(estimator):
    """Yield the name, the estimator and the columns, or None, of each part of an estimator.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import Normalizer
    >>> [name for name, *_ in parts_of(make_pipeline(Normalizer(), "passthrough"))]
    ['normalizer']
    """
    params = params_of(estimator)
    for name in sorted(params, key=lambda name: name not in _CONTAINERS):  # remainders come last
        yield from _within(name, params[name])


def is_container(estimator) -> bool:
    """Tell whether an object of any class holds named steps as a Pipeline does."""
    params = params_of(estimator)
    return any(any(_within(name, params.get(name))) for name in _CONTAINERS)


def grids_of(estimator) -> list | None:
    """Return the grids of a search, None of anything else."""
    params = params_of(estimator)
    given = [params[name] for name in _GRIDS if name in params]
    if not given or not is_estimator(params.get("estimator")):
        return None
    grids = given[0] if isinstance(given[0], (list, tuple)) else [given[0]]
    grids = [grid[0] if isinstance(grid, tuple) else grid for grid in grids]
    return [grid for grid in grids if isinstance(grid, Mapping)]


def configured(search) -> list:
    """Return the estimators that a search may fit, one of each kind that differs in more than size.

    Numbers stand for each other, but for 0; a distribution is drawn from.  Beyond 256 combinations
    the parameters are varied one at a time.
    """
    estimator, out = params_of(search)["estimator"], []
    for grid in grids_of(search):
        axes = {name: _kinds(values) for name, values in grid.items()}
        if math.prod(map(len, axes.values())) <= _MOST:
            every = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
        else:
            first = {name: values[0] for name, values in axes.items() if values}
            every = [first | {name: v} for name, values in axes.items() for v in values]
        out += [made for params in every if (made := _with(estimator, params)) is not None]
    return out or [estimator]


def _within(label, value, columns=None):
    if is_estimator(value):
        yield label, value, columns
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _within(str(key), item)
    elif isinstance(value, (list, tuple)) and not all(isinstance(v, (str, Number)) for v in value):
        for i, item in enumerate(value):
            if isinstance(item, (list, tuple)) and len(item) > 1 and isinstance(item[0], str):
                columns = item[2] if len(item) > 2 else None
                if not (isinstance(columns, list) and not columns):  # no columns: never fitted
                    yield from _within(item[0], item[1], columns)
            else:
                yield from _within(f"{label}[{i}]", item)


def _kinds(values):
    """Return one value of each kind."""
    values = getattr(values, "categories", values)
    if hasattr(values, "rvs"):
        values = [_draw(values, seed) for seed in range(_DRAWS)]
    try:
        values = list(values)
    except TypeError:
        return []
    return list({_kind(value): value for value in reversed(values)}.values())[::-1]


def _draw(distribution, seed):
    try:
        return distribution.rvs(random_state=seed)
    except TypeError:
        return distribution.rvs()


def _kind(value):
    if value is None or isinstance(value, (bool, str)):
        return repr(value)
    if isinstance(value, Number):
        return "number", value == 0
    if callable(value) or is_estimator(value) or any(_within("", value)):
        return id(value)
    return type(value).__name__


def _with(estimator, params):
    try:
        made = clone(estimator, safe=False)
        return made.set_params(**{k: clone(v, safe=False) for k, v in params.items()})
    except (AttributeError, TypeError, ValueError):  # the search will refuse it as well
        return None
