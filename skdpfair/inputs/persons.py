"""Persons of the records: codes, thinning to a public number of records, and groups."""

import re
import sys
import unicodedata
from dataclasses import replace
from datetime import date
from decimal import Decimal
from functools import cache
from numbers import Integral, Number
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
from sklearn.utils._param_validation import Interval, StrOptions

from skdpfair._utils.keystream import Keystream
from skdpfair._utils.validate import ParameterObject, error_context_without_data, safe_repr
from skdpfair.inputs import labels
from skdpfair.inputs.columns import in_pandas, refuse_masked
from skdpfair.inputs.groups import GroupCodes, position, positions

_ONE_FOR_EACH = "one value for each record that names its person, without missing values"
_KINDS = (str, bytes, Number, date, UUID, pd.Period, np.generic)  # whose equality tells
_WHOLE = re.compile(r"(-?[1-9][0-9]*|0)(?:\.0{1,2})?|-0(?:\.0{1,2})?")
# numbers as texts: as they are printed (12e34 is rather a code), and with marks of thousands
_PLAIN = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]\d{1,3})?|[+-]?\d(?:\.\d*)?[eE]\d{1,3}")
_GROUPED = re.compile(r"[+-]?\d{1,3}([,.'’_ ])\d{3}(?:\1\d{3})*")
_NUMBER = re.compile(f"{_GROUPED.pattern}|{_PLAIN.pattern}")
# lines of ASCII that may be in no normal form, or numbers but no plain ones
_ODD = re.compile(r"^(?:[-+.]|0.|[1-9]\d*[^\d\n]|[^\S\n]|$)|[^\S\n]$|[^\s!-~]", re.M)


class Persons(ParameterObject):
    """The persons behind the records, as the parameter ``persons`` of an estimator.

    The guarantee is then for all records of a person: batches are samples of persons, and the
    gradients of a person's records are averaged and clipped as one.  Her group is that of most of
    her records.

    Parameters
    ----------
    column : str, int or None, default=None
        Column of X that names the person of each record, never a feature.  None where ``fit`` is
        given ``persons``.  Without both, records are sampled one by one, and the statement says
        what a person with ``max_records`` records is guaranteed.
    max_records : int >= 1 or None, default=None
        Public bound on the records of one person, needed where persons are named.
    surplus : {"thin", "raise"}, default="thin"
        Of a person with more records, draw ``max_records`` at random, anew in each fit; or raise
        an error.

    Examples
    --------
    >>> from skdpfair import DPFairClassifier
    >>> clf = DPFairClassifier(persons=Persons("customer_id", max_records=10))
    >>> clf.set_params(persons__max_records=5).persons
    Persons(column='customer_id', max_records=5)
    """

    _parameter_constraints = {
        "column": [str, Integral, None],
        "max_records": [Interval(Integral, 1, 2**63 - 1, closed="both"), None],
        "surplus": [StrOptions({"thin", "raise"})],
    }

    def __init__(
        self,
        column: str | int | None = None,
        max_records: int | None = None,
        surplus: str = "thin",
    ) -> None:
        self.column = column
        self.max_records = max_records
        self.surplus = surplus

    @classmethod
    def of(cls, persons: Any) -> "Persons":
        """Return the ``persons`` of an estimator, checked but for whether X has the column."""
        if persons is not None and not isinstance(persons, cls):
            raise TypeError(
                f"persons must be None or a Persons object, got {safe_repr(persons)}. Give "
                "Persons(column, max_records=...)."
            )
        return (persons or cls()).checked()


def columns(X: Any, persons: Any, group_col: Any) -> list[int]:
    """Return the position in X of the column of persons, in a list; empty without one."""
    column = Persons.of(persons).column
    if column is None:
        return []
    at = position(X, column, "persons")
    if at in positions(X, group_col):
        raise ValueError(
            f"persons={safe_repr(column)} is also in group_col. A person is not a group: name "
            "another column in one of them."
        )
    return [at]


def encode(X: Any, n_samples: int, *, at: list[int], persons: Any) -> np.ndarray | None:
    """Return the number of each record's person, (n_samples,) int64; None without persons.

    They are the column of X at the position in ``at``, see `columns`, or else ``persons``.
    """
    if at and persons is not None:
        raise ValueError("Give persons by a column or as an array, not both.")
    if not at and persons is None:
        return None
    name = name_of(X, at, persons)
    if at:
        values = (X.iloc if hasattr(X, "iloc") else np.asarray(X))[:, at[0]]
        column = safe_repr(name if hasattr(X, "columns") else at[0])
        return codes(f"persons={column}", values, n_samples)
    code = codes("persons", persons, n_samples)
    if name in list(map(str, getattr(X, "columns", ()))):
        raise ValueError(
            f"persons is the column {safe_repr(name)} of X, which would also be a feature. Drop "
            "the column from X (in a pipeline, take it out of passthrough=), or set "
            f"persons=Persons({safe_repr(name)}, max_records=...) instead."
        )
    return code


def name_of(X: Any, at: list[int], persons: Any) -> str | None:
    """Return the name of the column of persons, see `encode`; None for values without one."""
    names = getattr(X if at else persons, "columns", None)
    if names is None:
        name = at[0] if at else getattr(persons, "name", None)
    else:
        name = names[at[0] if at else 0]
    return None if name in (None, "") else str(name)


def codes(name: str, values: Any, n_samples: int) -> np.ndarray:
    """Return a number for each record, (n_samples,) int64, the same for all of one person.

    No other place tells whether two values name one person.  Texts are compared in Unicode's form
    NFKC, without invisible characters and spaces around them; "17" and "17.0" are one person.
    Numbers are compared by value, and as floats if some are floats.  Texts that may be one number,
    such as "17" and "+17", several types and fractions are refused.
    """
    values = _column(name, values, n_samples)
    with error_context_without_data(name, f"must hold {_ONE_FOR_EACH}"):
        kind = values.dtype.kind
        if kind not in "biumM":
            values = values.astype(np.float64 if kind == "f" else object)
        code, distinct = pd.factorize(values)
        keys, fault = ([], "") if kind in "biumM" else _keys(distinct)
        if keys:
            again, _ = pd.factorize(np.array(keys, dtype=object))
            code = np.append(again, -1)[code]
    if (code < 0).any():
        fault = (
            f"has missing values, but must hold {_ONE_FOR_EACH}. Give each record without a person "
            "a value of its own, if each belongs to another person; else drop them."
        )
    if fault:
        raise ValueError(f"{name} {fault}")
    return np.asarray(code, dtype=np.int64)


def _column(name: str, values: Any, n_samples: int) -> np.ndarray:
    """Return one column of n_samples values."""
    if isinstance(values, str):
        raise ValueError(
            f"{name} must be an array, got {safe_repr(values)}; to name a column, set "
            f"persons=Persons({safe_repr(values)}, max_records=...)."
        )
    refuse_masked(name, values)
    values = in_pandas(values)
    with error_context_without_data(name, f"must hold {_ONE_FOR_EACH}"):
        # numpy would turn NaN and None beside texts to texts
        values = np.asarray(values, dtype=None if hasattr(values, "dtype") else object)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise ValueError(
            f"{name} must hold {_ONE_FOR_EACH}, got shape {values.shape}. Number persons that "
            "several columns name: table.groupby(columns).ngroup()."
        )
    if len(values) != n_samples:
        raise ValueError(
            f"{name} has {len(values):,} values for {n_samples:,} records. Give one for each."
        )
    column: np.ndarray = values
    return column


def _keys(distinct: np.ndarray) -> tuple[list[Any], str]:
    """Return what is equal for one person, if the values are not, and what is wrong with them."""
    keys, kinds = distinct.tolist(), sorted(labels.kinds(distinct))
    types = set(map(type, keys))
    if len(kinds) > 1 or not all(issubclass(each, _KINDS) for each in types):
        return [], (
            f"holds {' and '.join(kinds)}, so that one person may have two values; give texts or "
            "numbers of one type, as by astype(str)."
        )
    if kinds == ["numbers"]:
        if any(value % 1 != 0 for value in keys if not isinstance(value, Integral)):
            return [], (
                "holds fractions, so it names no persons. Name another column, or pass the "
                "persons as fit(..., persons=...)."
            )
        is_inexact = any(issubclass(each, (float, np.floating)) for each in types)
        return [float(value) for value in keys] if is_inexact and len(types) > 1 else [], ""
    if kinds not in (["texts"], ["bytes"]):
        return [], ""
    if kinds == ["bytes"]:
        keys = [text.decode(errors="surrogateescape") for text in keys]
    lines = "\n".join(keys)
    # as most columns: no look at each text
    if lines.isascii() and not _ODD.search(lines):
        return [], ""
    keys = [_spelt(text) for text in keys]
    if _are_ambiguous({*keys} - {None}):
        return [], (
            "holds texts that may be one number but are spelt in several ways, as 17 and +17 or "
            "1000 and 1,000 are, so that one person may be there twice. Clean the column: spell "
            "each person in one way, and put a letter before codes that are no numbers."
        )
    return keys, ""


def _spelt(text: str) -> str | None:
    """Return a text in its normal form, None for nothing."""
    if not (text.isascii() and text.isprintable()):
        text = unicodedata.normalize("NFKC", text.translate(_invisible()))
    text = text.strip()
    whole = _WHOLE.fullmatch(text)
    return (whole[1] or "0" if whole else str.__str__(text)) or None


@cache
def _invisible() -> dict[int, None]:
    """Return the characters that nobody sees: format, control and filling characters."""
    points = ((i, chr(i)) for i in range(sys.maxunicode))
    formats = (i for i, c in points if unicodedata.category(c) in ("Cf", "Cc") and not c.isspace())
    fillers = 0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0
    selectors = *range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)
    return dict.fromkeys((*formats, *fillers, *selectors))


def _are_ambiguous(texts: set[str]) -> bool:
    """Return whether one of some texts may be the same number as another."""
    wholes = [text for text in texts if text.isdecimal() and text.isascii()]  # maybe very many
    seen = {text.lstrip("0") or "0" for text in wholes}
    if len(seen) < len(wholes):
        return True
    for text in filter(_NUMBER.fullmatch, texts.difference(wholes)):
        numbers = _readings(text)
        if not seen.isdisjoint(numbers):
            return True
        seen |= numbers
    return False


def _readings(text: str) -> set[str]:
    """Return the numbers that a text may stand for, spelt in one way."""
    numbers = [text] * bool(_PLAIN.fullmatch(text))
    numbers += [re.sub(r"[,.'’_ ]", "", text)] * bool(_GROUPED.fullmatch(text))
    plain = (f"{Decimal(number) or 0:f}" for number in numbers)
    return {number.rstrip("0").rstrip(".") if "." in number else number for number in plain}


def check(person: np.ndarray, persons: Persons) -> None:
    """Raise ValueError without a bound on a person's records, or if they may not be thinned."""
    most = persons.max_records
    if most is None:
        raise ValueError(
            "Persons are given, but max_records=None declares no bound on the records of one "
            "person. Declare a public number by persons=Persons(..., max_records=...); of a person "
            "with more records, so many take part, drawn at random."
        )
    if persons.surplus == "raise" and np.bincount(person).max() > most:
        raise ValueError(
            f"Some persons have more than max_records={most} records, and surplus='raise' forbids "
            f"thinning. Set surplus='thin' of persons, which keeps {most} records of a person at "
            "random, or a larger max_records."
        )


def thinned(person: np.ndarray, most: int, generator: Keystream) -> np.ndarray:
    """Return the persons with -1 for surplus records: at most ``most`` of each person stay.

    Which of her records stay depends on her own records and a fresh draw only.
    """
    order = np.lexsort((generator.random(len(person)), person))
    size = np.bincount(person)
    rank = np.arange(len(person)) - np.repeat(np.cumsum(size) - size, size)
    kept = person.copy()
    kept[order[rank >= most]] = -1
    return kept


def grouped(groups: GroupCodes, person: np.ndarray) -> GroupCodes:
    """Return groups in which a person has one: the first of those that most of her records have."""
    votes = np.zeros((person.max() + 1, groups.n_groups), dtype=np.int64)
    np.add.at(votes, (person, groups.code), 1)
    return replace(groups, code=votes.argmax(axis=1)[person])


def group_of_persons(group: np.ndarray, person: np.ndarray | None) -> np.ndarray:
    """Return the group code of each person, which all her records have; of each record without."""
    if person is None:
        return group
    of_person = np.zeros(person.max() + 1, dtype=np.int64)
    of_person[person[person >= 0]] = group[person >= 0]
    return of_person


def share_of(person: np.ndarray | None) -> np.ndarray | None:
    """Return one over the number of records of each record's person; None without persons."""
    return None if person is None else 1.0 / np.bincount(person)[person]
