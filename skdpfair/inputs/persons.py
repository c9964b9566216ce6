"""Persons of the records: codes, thinning to a public number of records, and groups."""

import unicodedata
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.utils._param_validation import Interval, StrOptions

from skdpfair._utils.keystream import Keystream
from skdpfair._utils.validate import ParameterObject, error_context_without_data, safe_repr
from skdpfair.inputs.columns import one_column
from skdpfair.inputs.groups import GroupCodes, position, positions

_ONE_FOR_EACH = "one value for each record that names its person, without missing values"
_SEVERAL = "Number persons that several columns name: table.groupby(columns).ngroup()."


@dataclass(repr=False, eq=False)
class Persons(ParameterObject):
    """The persons behind the records, as the parameter ``persons`` of an estimator.

    The guarantee is then for all records of a person: batches are samples of persons, and the
    gradients of a person's records are averaged and clipped as one.  Her group is that of most of
    her records.

    Parameters
    ----------
    column : str, int or None, default=None
        Column of X that names the person of each record, never a feature.  None if ``fit`` gets
        ``persons``.  With neither, records are sampled one by one, and the statement gives the
        guarantee of a person with ``max_records`` records.
    max_records : int >= 1 or None, default=None
        Public bound on the records of one person, needed where persons are named.
    surplus : {"thin", "raise"}, default="thin"
        For a person with more records, "thin" draws ``max_records`` at random in each fit, and
        "raise" raises an error.

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

    column: str | int | None = None
    max_records: int | None = None
    surplus: str = "thin"

    @classmethod
    def of(cls, persons: Any) -> "Persons":
        """Return the ``persons`` of an estimator, checked; X may still lack the column."""
        if persons is not None and not isinstance(persons, cls):
            raise TypeError(
                f"persons must be None or a Persons object, got {safe_repr(persons)}. Give "
                "Persons(column, max_records=...)."
            )
        return (persons or cls()).checked()


class PersonCodes(NamedTuple):
    """The persons of the records of a table."""

    code: np.ndarray | None = None  # number of each record's person, int64; None without persons
    positions: list[int] = []  # in X, of the column of persons; none if there is no column
    name: str | None = None  # of their column, where it has one


def positions_of(X: Any, persons: Any, group_col: Any = None) -> list[int]:
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


def encode(
    X: Any, n_samples: int, values: Any, persons: Persons | None = None, group_col: Any = None
) -> PersonCodes:
    """Return the persons of the records, from ``values`` or the column that ``persons`` names."""
    at = positions_of(X, persons, group_col)
    if not at and values is None:
        return PersonCodes()
    if at and values is not None:
        raise ValueError("Give persons by a column or as an array, not both.")
    if at:
        label = X.columns[at[0]] if hasattr(X, "columns") else at[0]
        column = (X.iloc if hasattr(X, "iloc") else np.asarray(X))[:, at[0]]
        code = codes(f"persons={safe_repr(label)}", column, n_samples)
    else:
        names = getattr(values, "columns", None)
        label = getattr(values, "name", None) if names is None else names[0]
        code = codes("persons", values, n_samples)
    name = None if label in (None, "") else str(label)
    if not at and name in list(map(str, getattr(X, "columns", ()))):
        raise ValueError(
            f"persons is the column {safe_repr(name)} of X, which would also be a feature. Drop "
            "the column from X (in a pipeline, take it out of passthrough=), or set "
            f"persons=Persons({safe_repr(name)}, max_records=...) instead."
        )
    if persons is not None:
        _check_records(code, persons)
    return PersonCodes(code, at, name)


def codes(name: str, values: Any, n_samples: int) -> np.ndarray:
    """Return a number for each record, (n_samples,) int64, the same for all of one person.

    Texts are compared stripped and in Unicode's form NFKC; whole numbers and their texts are one;
    other values are not changed.
    """
    if isinstance(values, str):
        raise ValueError(
            f"{name} must be an array, got {safe_repr(values)}; to name a column, set "
            f"persons=Persons({safe_repr(values)}, max_records=...)."
        )
    # numpy would turn NaN and None beside texts to texts
    values = one_column(name, values, _ONE_FOR_EACH, remedy=_SEVERAL, dtype=object)
    if len(values) != n_samples:
        raise ValueError(
            f"{name} has {len(values):,} values for {n_samples:,} records. Give one for each."
        )
    with error_context_without_data(name, f"must hold {_ONE_FOR_EACH}"):
        kind = values.dtype.kind
        if kind not in "biumM":
            values = values.astype(np.float64 if kind == "f" else object)
        code, distinct = pd.factorize(values)
        if values.dtype == object:
            again, _ = pd.factorize(pd.Series([_key(v) for v in distinct], dtype=object))
            code = np.append(again, -1)[code]
    if (code < 0).any():
        raise ValueError(
            f"{name} has missing values, but must hold {_ONE_FOR_EACH}. Give each record without a "
            "person a value of its own, if each belongs to another person; else drop them."
        )
    return np.asarray(code, dtype=np.int64)


def _key(value: Any) -> Any:
    """Return what is equal for two values of one person, None for an empty text: see `codes`."""
    if isinstance(value, str):
        text = unicodedata.normalize("NFKC", str.__str__(value)).strip()
        integer_text = text.removesuffix(".0")  # as a column of floats is printed
        return (integer_text if integer_text.removeprefix("-").isdecimal() else text) or None
    is_whole = isinstance(value, (Real, Decimal)) and value % 1 == 0
    return str(int(value)) if is_whole else value


def _check_records(person: np.ndarray, persons: Persons) -> None:
    """Raise ValueError without a bound on a person's records, or if they may not be thinned."""
    max_records = persons.max_records
    if max_records is None:
        raise ValueError(
            "Persons are given, but max_records=None declares no bound on the records of one "
            "person. Declare a public number by persons=Persons(..., max_records=...); if a person "
            "has more records, so many are drawn at random."
        )
    if persons.surplus == "raise" and np.bincount(person).max() > max_records:
        raise ValueError(
            f"Some persons have more than max_records={max_records} records, and surplus='raise' "
            f"forbids thinning. Set surplus='thin' of persons, which keeps {max_records} records "
            "of a person at random, or a larger max_records."
        )


def thinned(person: np.ndarray, max_records: int, generator: Keystream) -> np.ndarray:
    """Return the persons with -1 for surplus records: at most ``max_records`` of a person stay.

    Which of her records stay depends on her own records and a fresh draw only.
    """
    order = np.lexsort((generator.random(len(person)), person))
    size = np.bincount(person)
    rank = np.arange(len(person)) - np.repeat(np.cumsum(size) - size, size)
    thinned_person = person.copy()
    thinned_person[order[rank >= max_records]] = -1
    return thinned_person


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
