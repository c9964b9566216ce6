"""Keyword validators: each names the parameter, the offending value and the remedy."""

import difflib
import math
from collections.abc import Iterable
from numbers import Integral, Real


def number(name, value, *, low=-math.inf, high=math.inf, low_open=False, high_open=False):
    """Return ``value`` as a float in the stated interval, else raise.

    Examples
    --------
    >>> number("epsilon", 1, low=0, low_open=True)
    1.0
    >>> number("epsilon", -1.0, low=0, low_open=True)
    Traceback (most recent call last):
    ...
    ValueError: epsilon must be a number > 0, got -1.0.
    """
    wanted = _interval(low, high, low_open, high_open)
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be {wanted}, got {value!r} ({type(value).__name__}).")
    value = float(value)
    too_low = value <= low if low_open else value < low
    too_high = value >= high if high_open else value > high
    if math.isnan(value) or too_low or too_high:
        raise ValueError(f"{name} must be {wanted}, got {value!r}.")
    return value


def integer(name, value, *, low=1):
    """Return ``value`` as an int of at least ``low``, else raise."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(
            f"{name} must be an integer >= {low}, got {value!r} ({type(value).__name__})."
        )
    if value < low:
        raise ValueError(f"{name} must be an integer >= {low}, got {value!r}.")
    return int(value)


def one_of(name, value, options: Iterable[str]):
    """Return ``value`` if it is one of ``options``, else raise with the nearest option.

    Examples
    --------
    >>> one_of("accountant", "pdl", ("pld", "rdp"))
    Traceback (most recent call last):
    ...
    ValueError: accountant must be one of 'pld', 'rdp', got 'pdl'. Did you mean 'pld'?
    """
    options = tuple(options)
    if isinstance(value, str) and value in options:
        return value
    near = difflib.get_close_matches(str(value).lower(), options, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(repr(o) for o in options)
    raise ValueError(f"{name} must be one of {listed}, got {value!r}.{hint}")


def _interval(low, high, low_open, high_open):
    parts = []
    if low > -math.inf:
        parts.append(f"{'>' if low_open else '>='} {low:g}")
    if high < math.inf:
        parts.append(f"{'<' if high_open else '<='} {high:g}")
    return "a number" + (" " + " and ".join(parts) if parts else "")
