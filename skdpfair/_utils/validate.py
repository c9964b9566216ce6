"""Keyword validators: each names the parameter, the offending value and the remedy."""

import difflib
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from numbers import Integral, Real
from typing import Any, ClassVar, Self, TypeGuard

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import (
    Interval,
    InvalidParameterError,
    StrOptions,
    make_constraint,
)

MAX_TEXT = 200  # characters of a value in a message
# what numpy and torch count with
_LARGEST = 2**63 - 1
_BRACKETS: dict[type, Any] = {list: "[]", tuple: "()", set: "{}", frozenset: ("frozenset({", "})")}
# arrays, tables, sparse matrices
_OF_DATA = ("__array__", "__arrow_c_stream__", "toarray")
# float32 holds the squares of the numbers between them
LARGE, SMALL = 1e15, 1e-15
# of parameters with parameters of their own
_EXAMPLES = {"attack": ", such as PGD(0.1)", "module": ", such as MLP((64,))"}
_TURNS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def invalid(name: str, problem: str, kind: type[Exception] = ValueError) -> Exception:
    """Return the error of a parameter, which carries its name as ``parameter``."""
    error = kind(f"{name} {problem}")
    vars(error).update(parameter=name)
    return error


def number(
    name: str,
    value: Any,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    low_open: bool = False,
    high_open: bool = False,
) -> float:
    """Return ``value`` as a float in the stated interval, else raise."""
    wanted = _interval(low, high, low_open, high_open)
    if not isinstance(value, Real) or isinstance(value, (bool, np.timedelta64)):
        problem = f"must be {wanted}, got {safe_repr(value)} ({type(value).__name__})."
        raise invalid(name, problem, TypeError)
    with error_context(name):
        real = float(value)
    is_above = real > low if low_open else real >= low
    is_below = real < high if high_open else real <= high
    if not (is_above and is_below):  # NaN is neither
        raise invalid(name, f"must be {wanted}, got {real!r}.")
    return real


def integer(name: str, value: Any, *, low: int = 1, high: int = _LARGEST) -> int:
    """Return ``value`` as an int from ``low`` to ``high``, else raise."""
    if not is_integer(value):
        problem = f"must be an integer >= {low}, got {safe_repr(value)} ({type(value).__name__})."
        raise invalid(name, problem, TypeError)
    if value < low:
        raise invalid(name, f"must be an integer >= {low}, got {safe_repr(value)}.")
    if value > high:
        raise invalid(name, f"must be an integer <= {_rounded(high)}, got {safe_repr(value)}.")
    return int(value)


def is_integer(value: object) -> TypeGuard[int]:
    """Tell whether a value is a whole number; bool and numpy.timedelta64 are not."""
    return isinstance(value, Integral) and not isinstance(value, (bool, np.timedelta64))


def generator(name: str, value: Any) -> np.random.Generator:
    """Return the generator of a seed; of a RandomState, one that is seeded by a draw from it."""
    if value is None or isinstance(value, np.random.Generator):
        return np.random.default_rng(value)
    if isinstance(value, np.random.RandomState):
        return np.random.default_rng(value.randint(2**31))
    if is_integer(value) and value >= 0:
        return np.random.default_rng(int(value))
    problem = f"must be None, an integer >= 0 or a numpy Generator, got {safe_repr(value)}."
    raise invalid(name, problem, ValueError if is_integer(value) else TypeError)


def one_of(name: str, value: Any, options: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``options``, else raise with the nearest option."""
    options = tuple(options)
    text = str.__str__(value) if isinstance(value, str) else None
    if text in options:
        return text
    options = tuple(map(_without_group, options))
    hint = nearest(safe_repr(value) if text is None else text, options)
    listed = ", ".join(dict.fromkeys(map(repr, options)))
    raise invalid(name, f"must be one of {listed}, got {safe_repr(value)}.{hint}")


def nearest(text: str, options: Sequence[str]) -> str:
    """Return a question for the option that a text resembles, "" if there is none."""
    # a text as long as a book resembles nothing, and would be compared for minutes
    near = difflib.get_close_matches(text[:MAX_TEXT].lower(), options, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _without_group(option: str) -> str:
    """Return a column such as accuracy[F], whose group may be a cell of the data, as its kind."""
    kind, bracket, _ = option.partition("[")
    return f"{kind}[GROUP]" if bracket else option


def flag(name: str, value: Any) -> bool:
    """Return ``value``, True or False of Python or numpy, as a bool, else raise."""
    if not isinstance(value, (bool, np.bool_)):
        raise invalid(name, f"must be True or False, got {safe_repr(value)}.", TypeError)
    return bool(value)


def listed(name: str, value: Any, of: str) -> list[Any]:
    """Return the members of a list, tuple, one-dimensional array, Index or Series, else raise.

    Sets have no order, and texts and dicts are seldom meant to be taken apart: none is a list.
    """
    unordered_or_text = isinstance(value, (str, bytes, Mapping, Set))
    with error_context(name):
        sized = hasattr(value, "__len__") and hasattr(value, "__iter__")
        if not unordered_or_text and sized and getattr(value, "ndim", 1) == 1:
            return list(value)
    raise invalid(name, f"must be a list of {of}, got {safe_repr(value)}.", TypeError)


def is_auto(value: Any) -> bool:
    """Tell whether a parameter was left at ``"auto"``."""
    return isinstance(value, str) and str.__str__(value) == "auto"


def safe_repr(value: Any) -> str:
    """Return a parameter's value for a message: never too long, never data.

    Arrays, tables and tensors may be data, wherever they lie in the value: see `outline`.
    """
    try:
        text = _spelt(value)
    except Exception:  # of the value's own making
        return f"<{type(value).__name__} that cannot be shown>"
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "..."


def _spelt(value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        some = islice(value.items(), MAX_TEXT)
        return "{" + ", ".join(f"{_spelt(k)}: {_spelt(v)}" for k, v in some) + "}"
    if type(value) in _BRACKETS and value:
        opening, closing = _BRACKETS[type(value)]
        comma = "," * (type(value) is tuple and len(value) == 1)
        return f"{opening}{', '.join(map(_spelt, islice(value, MAX_TEXT)))}{comma}{closing}"
    is_data = any(hasattr(type(value), name) for name in _OF_DATA)
    return outline(value) if is_data else repr(value)


def outline(value: Any) -> str:
    """Return an outline of data, labels or groups for a message: type and shape, no cell."""
    name = "None" if value is None else type(value).__name__
    with suppress(Exception):  # of the value's own making
        shape = tuple(value.shape)
        return f"{name} of shape {shape}" if shape and all(map(is_integer, shape)) else name
    return name


def visible(text: object) -> str:
    r"""Return a text with its control characters escaped.

    Control characters, overrides of the direction of writing, and what is no Unicode are escaped
    as in JSON; line breaks and tabs stay.
    """
    return "".join(rf"\u{ord(c):04x}" if _is_hidden(c) else c for c in str(text))


def _is_hidden(character: str) -> bool:
    if character.isprintable() or character in "\n\t":
        return False
    turns = unicodedata.bidirectional(character) in _TURNS or character in "\u200e\u200f\u061c"
    return turns or unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")


@contextmanager
def error_context(
    name: str, what: str = "cannot be used", *, quotes: bool = True
) -> Iterator[None]:
    """Raise errors of the block as ValueError or TypeError that name the parameter.

    The message quotes what went wrong; ``quotes=False`` is for data, labels and groups.
    """
    try:
        yield
    except Warning:
        # made an error by the user's filters
        raise
    except Exception as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        if not quotes:
            without_text(error)
            raise kind(f"{name} {what} ({type(error).__name__}).") from None
        if isinstance(error, (ValueError, TypeError)) and str(error).startswith(name):
            raise
        says = isinstance(error, (ValueError, TypeError, RuntimeError, AssertionError))
        reason = str(error) if says and str(error) else safe_repr(error)
        raise kind(f"{name} {what}: {reason[: 5 * MAX_TEXT]}") from error


def without_text(error: BaseException) -> None:
    """Empty an error whose text may hold a cell, as it stays the context of the one after it."""
    error.args, error.__cause__, error.__context__ = (), None, None


error_context_without_data = partial(error_context, quotes=False)


def _interval(low: float, high: float, low_open: bool, high_open: bool) -> str:
    parts = []
    if low > -math.inf:
        parts.append(f"{'>' if low_open else '>='} {low:g}")
    if high < math.inf:
        parts.append(f"{'<' if high_open else '<='} {high:g}")
    return "a number" + (" " + " and ".join(parts) if parts else "")


def check_parameter(name: str, value: Any, constraints: Sequence[Any], of: str = "") -> Any:
    """Return a parameter that satisfies one of its constraints, written as scikit-learn's.

    Texts, flags and numbers become Python's own: a float where an interval of reals allows them.
    A flag is no number here.
    """
    allowed = [make_constraint(constraint) for constraint in constraints]
    builtin = _as_builtin(value)
    is_no_number = isinstance(builtin, bool) and "boolean" not in constraints
    is_no_number |= isinstance(value, np.timedelta64)
    if is_no_number or not any(_satisfies(builtin, constraint) for constraint in allowed):
        options = [o for c in allowed if isinstance(c, StrOptions) for o in sorted(c.options)]
        hint = nearest(builtin, options) if isinstance(builtin, str) else ""
        problem = f"must be {_wanted(allowed)}, got {safe_repr(value)}.{hint}"
        raise invalid(f"{name}{of}", problem, InvalidParameterError)
    if any(isinstance(c, Interval) and c.type is Real for c in allowed) and is_integer(builtin):
        with suppress(OverflowError):
            return float(builtin)
    return builtin


def _wanted(constraints: Sequence[Any]) -> str:
    """Return constraints in words, with round numbers and public names of classes."""
    text = " or ".join(map(str, constraints))
    return re.sub(r"\d{16,}", lambda m: _rounded(int(m[0])), re.sub(r"\b_\w+\.|mtrand\.", "", text))


def _rounded(bound: int) -> str:
    return str(bound) if bound < 2**60 else f"2**{math.log2(bound):.0f}"


def _as_builtin(value: Any) -> Any:
    """Return a text, flag or number as Python's own, and other values unchanged."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    # beyond the floats, or of the value's own making
    with suppress(Exception):
        if isinstance(value, Real):
            return int(value) if isinstance(value, Integral) else float(value)
    return value


def _satisfies(value: Any, constraint: Any) -> bool:
    try:
        return bool(constraint.is_satisfied_by(value))
    except Exception:  # of the value's own making
        return False


class Parametrised(BaseEstimator):
    """An object with parameters, some of which may have parameters of their own."""

    def set_params(self, **params: Any) -> Self:
        """Set parameters, as scikit-learn does; raise ValueError where there is none of a name."""
        values = self.get_params(deep=False) | params
        for nested in params:
            name, is_nested, _ = nested.partition("__")
            value = values.get(name, self)
            if is_nested and (isinstance(value, type) or not hasattr(value, "set_params")):
                of_class = f", such as {value.__name__}()" if isinstance(value, type) else ""
                example = _EXAMPLES.get(name, of_class)
                raise invalid(
                    nested,
                    f"cannot be set, since {name}={safe_repr(value)} has no parameters. Leave it "
                    f"out, or set {name} to an object that has some{example}.",
                )
        same: Self = super().set_params(**params)
        return same


class ParameterObject(Parametrised):
    """Parameters that belong together, as one parameter of an estimator.

    ``_parameter_constraints`` holds their constraints, as scikit-learn writes them.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {}

    def checked(self) -> Self:
        """Return a copy whose values are Python's own; raise if one breaks its constraint."""
        of = f" of {type(self).__name__}"
        values = self.get_params(deep=False).items()
        limits = self._parameter_constraints
        return type(self)(**{k: check_parameter(k, v, limits[k], of) for k, v in values})
