"""What an estimator learns: from the table, its tags, its parameters."""

from dataclasses import replace

from sklearn.utils import get_tags

from skdpfair.preprocessing._candidates import is_container, params_of, parts_of
from skdpfair.preprocessing._learners import FREE, MODEL, MODULES, RESAMPLER, ROWS, UNKNOWN, Row

_MECHANISM = {"delta", "noise_multiplier", "accountant"}


def verdict(estimator) -> Row:
    """Return what an estimator learns by itself; ``learns`` is "" if its parameters rule it out.

    Examples
    --------
    >>> from sklearn.preprocessing import OneHotEncoder
    >>> verdict(OneHotEncoder()).learns
    'the categories that occur, or which of them are frequent'
    >>> verdict(OneHotEncoder(categories=[["a", "b"]])).learns
    ''
    """
    params, parents = params_of(estimator), type(estimator).__mro__
    own_fit = _depth(parents, "fit", "fit_transform", "partial_fit")
    if _says_it_reads_nothing(estimator, own_fit):
        return FREE
    for depth, parent in enumerate(parents):
        row = _known(parent)
        if row is None:
            continue
        if row.learns and row.when is not None and not row.when(params):
            row = replace(row, learns="")
        overridden = own_fit < depth and not (row.learns or row.spends or is_container(estimator))
        return UNKNOWN if overridden else row
    return FREE if is_container(estimator) else _unlisted(estimator, params)


def kind_of(estimator) -> str:
    """Return "resampler", "transformer" or "model"."""
    if hasattr(estimator, "fit_resample"):
        return "resampler"
    transforms = hasattr(estimator, "transform") or hasattr(estimator, "fit_transform")
    return "transformer" if transforms else "model"


def _unlisted(estimator, params):
    private = getattr(getattr(estimator, "privacy_", None), "is_private", None)
    if private or (private is None and _seems_private(params)):
        return Row(spends=True)
    if hasattr(estimator, "fit_resample"):
        return RESAMPLER
    if _root(type(estimator)) == "sklearn":
        return MODEL
    plain = kind_of(estimator) == "model" and not any(parts_of(estimator))
    return MODEL if plain else UNKNOWN


def _known(parent):
    if parent.__name__.startswith("_") or parent.__name__.endswith("Mixin"):
        return None
    module = f"{parent.__module__}."
    rows = (row for name, row in MODULES.items() if module.startswith(f"{name}."))
    return ROWS.get(f"{_root(parent)}.{parent.__name__}") or next(rows, None)


def _root(kind):
    return kind.__module__.partition(".")[0]


def _depth(parents, *names):
    """Return how far up one of the methods is defined."""
    return next(
        (i for i, p in enumerate(parents) if any(n in vars(p) for n in names)), len(parents)
    )


def _says_it_reads_nothing(estimator, own_fit):
    """Tell whether the tags of a class that is not listed say so, and are no older than ``fit``."""
    if kind_of(estimator) != "transformer" or _known(type(estimator)) is not None:
        return False
    try:
        requires_fit = get_tags(estimator).requires_fit
    except (AttributeError, TypeError, ValueError):
        return False
    return not requires_fit and _depth(type(estimator).__mro__, "__sklearn_tags__") <= own_fit


def _seems_private(params):
    """Tell whether the parameters are those of a mechanism with a budget."""
    given = params.get("epsilon") is not None or bool(params.get("noise_multiplier"))
    return "epsilon" in params and given and not _MECHANISM.isdisjoint(params)
