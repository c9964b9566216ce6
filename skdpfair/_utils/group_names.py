"""Names of groups and classes for people, no two of them alike."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

MAX_NAME = 100  # characters
# flags, numbers, ranges and codes of two characters
_NEEDS_VARIABLE = re.compile(r"[\W\d]+|yes|no|true|false|\(missing\)|.{1,2}", re.IGNORECASE)
_DECIMAL = re.compile(r"\s*[-+]?\d*\.\d+(e[-+]?\d+)?\s*", re.IGNORECASE)


def is_word(value: Any) -> bool:
    """Return whether a value is a text short enough for a name."""
    return isinstance(value, str) and len(value) <= MAX_NAME


def is_name(value: Any) -> bool:
    """Return whether a value is a short text that is no measurement."""
    return is_word(value) and not _DECIMAL.fullmatch(value)


def group_names(levels: Iterable[Any]) -> list[str]:
    """Return the names of groups in keys and columns, no two of them alike.

    Values of intersections are joined by commas.  A value that looks like another of its column, as
    "1" beside 1, or that has a comma inside an intersection, is in quotes.
    """
    return [", ".join(texts) for texts in _level_texts(levels)]


def display_names(levels: Iterable[Any], variables: Sequence[str] = ()) -> list[str]:
    """Return groups for readers, with the names of their variables where values say too little."""
    return [display_name(texts, variables) for texts in _level_texts(levels)]


def display_name(texts: Sequence[str], variables: Sequence[str]) -> str:
    """Return one group for readers, of the texts of its values: "Female", or 'member "yes"'."""
    known = variables if len(variables) == len(texts) else [""] * len(texts)
    readable_texts = [text if text.strip() else "(missing)" for text in texts]
    return ", ".join(
        f"{n} “{t}”" if n and _NEEDS_VARIABLE.fullmatch(t) else t
        for n, t in zip(known, readable_texts, strict=True)
    )


def class_names(classes: Iterable[Any], variable: str) -> list[str]:
    """Return classes for readers, with the name of the target if it is known: income “>50K”."""
    return [f"{variable} “{text}”".lstrip() for text in display_names(classes)]


def escape_reserved(names: Iterable[Any], reserved: Sequence[str]) -> list[Any]:
    """Return names of groups, in quotes where the package has ``reserved`` them."""
    return [f"'{n}'" if isinstance(n, str) and n.strip("'") in reserved else n for n in names]


def read_from_rows(
    variables: Sequence[str], classes: Iterable[Any] | None, levels: Iterable[Any] | None
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the name of each column that classes or groups were read from, and these.

    ``variables`` are the names of the target and of the columns of the groups, "" for none.
    ``classes`` and ``levels`` are None where they were declared.
    """
    target, *names = variables
    read = [] if classes is None else [(target or "classes", classes)]
    if levels is not None:
        rows = [v if isinstance(v, tuple) else (v,) for v in levels]
        columns = list(zip(*rows, strict=True))
        known = names if len(names) == len(columns) else [""] * len(columns)
        read += [(n or "groups", dict.fromkeys(c)) for n, c in zip(known, columns, strict=True)]
    return tuple(dict.fromkeys((name, tuple(_quoted(values, "\0"))) for name, values in read))


def level_key(value: Any) -> Any:
    """Return a hashable stand-in, equal for all kinds of missing values and of numbers."""
    if isinstance(value, tuple):
        return tuple(level_key(v) for v in value)
    missing = pd.isna(value)
    return "\0missing" if isinstance(missing, bool) and missing else value


def _level_texts(levels: Iterable[Any]) -> list[tuple[str, ...]]:
    """Return the texts of the values of each group, of an intersection one for each column."""
    levels = list(levels)
    widths = {len(level) if isinstance(level, tuple) else 0 for level in levels}
    if len(widths) != 1 or widths == {0}:
        return [(text,) for text in _quoted(levels, "\0")]
    columns = [_quoted(values, ", ") for values in zip(*levels, strict=True)]
    return list(zip(*columns, strict=True))


def _quoted(values: Iterable[Any], comma: str) -> list[str]:
    """Return values as texts, in quotes where they could be taken for others."""
    values = [str.__str__(v) if isinstance(v, str) else v for v in values]
    looks = {level_key(value): _normalised(str(value)) for value in values}
    count = Counter(looks.values())

    def is_quoted(value: Any) -> bool:
        is_alike = count[looks[level_key(value)]] > 1
        return is_alike or comma in str(value) or str(value)[:1] in ("'", '"')

    return [ascii(value) if is_quoted(value) else str(value) for value in values]


def _normalised(text: str) -> str:
    """Return a text but for spaces, decimals of whole numbers and forms of letters."""
    text = "".join(c for c in text if unicodedata.category(c) != "Cf")
    return " ".join(unicodedata.normalize("NFKC", text).split()).removesuffix(".0")
