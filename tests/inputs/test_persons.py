"""Codes of persons, their refusals, thinning and groups."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from skdpfair import Persons
from skdpfair.inputs.groups import GroupCodes
from skdpfair.inputs.persons import codes, encode, grouped, thinned

ALPHA = 1e-6  # the chance that a correct draw fails a statistical test
N = 40
X = pd.DataFrame({"a": np.arange(N), "sex": ["f", "m"] * (N // 2), "person": np.arange(N) // 4})
AS_TEXT = X.assign(person=[f"p{i}" for i in X["person"]])


def bounded(column="person", max_records=4, **params):
    return Persons.of(Persons(column, max_records, **params))


@pytest.mark.parametrize(
    ("make", "values", "match"),
    [
        (lambda: bounded(max_records=None), None, "max_records=None declares no"),
        (lambda: bounded(max_records=0), None, "max_records of Persons.*got 0"),
        (lambda: bounded(max_records=3, surplus="raise"), None, "more than max_records=3"),
        (lambda: bounded(surplus="drop"), None, "surplus of Persons.*got 'drop'"),
        (lambda: bounded("sex"), None, "persons='sex' .*group_col"),
        (lambda: bounded("patient"), None, "persons='patient' is not a column of X"),
        (lambda: bounded(["person"]), None, "column of Persons must be"),
        (bounded, np.zeros(1), "column or as an array"),
        (lambda: bounded(None), np.zeros(3), "persons has 3 values for 40 "),
        (lambda: bounded(None), np.zeros((3, 2)), r"persons .*got an array of shape \(3, 2\)"),
        (lambda: bounded(None), "person", r"persons=Persons\('person'"),
        (lambda: bounded(None), AS_TEXT["person"], "persons is the column 'person' of X"),
    ],
)
def test_encode_refuses_what_names_no_persons(make, values, match):
    with pytest.raises(ValueError, match=match) as caught:
        encode(AS_TEXT, N, values, make(), group_col="sex")
    message = str(caught.value)
    assert "Error)" not in message and not any(cell in message for cell in AS_TEXT["person"])


@pytest.mark.parametrize("missing", [np.nan, None, pd.NA, "", " "])
def test_encode_refuses_missing_persons(missing):
    column = AS_TEXT["person"].astype(object)
    column[3] = missing
    for table, values, persons, name in (
        (X.assign(person=column), None, bounded(), "persons='person'"),
        (X[["a"]], column.tolist(), bounded(None), "persons"),
    ):
        with pytest.raises(ValueError, match=f"^{name} has missing values"):
            encode(table, N, values, persons)


@pytest.mark.parametrize(
    "values, expected",
    [
        # texts are compared stripped and in Unicode's form NFKC
        (["a", " a", "a\t", "A", "a b"], [0, 0, 0, 1, 2]),
        (["\u00e9", "e\u0301", "\uff11\uff17", "17", "\u00a017"], [0, 0, 1, 1, 1]),
        (pd.Series(["b", "a", "b "], dtype="category"), [0, 1, 0]),
        (np.array(["b", "a", "b\t"]), [0, 1, 0]),
        # whole numbers and their texts are one
        ([17, "17", 17.0, "17.0 ", np.int64(17), Decimal(17), "18"], [0] * 6 + [1]),
        (["10000000000000002", 10**16 + 3, "10000000000000003"], [0, 1, 1]),
        ([0.0, -0.0, "0", False, -3, "-3.0"], [0, 0, 0, 0, 1, 1]),
        (pd.Series([2, 1, 2], dtype="Int64"), [0, 1, 0]),
        (np.array([[3.0], [1.0], [3.0]]), [0, 1, 0]),
        (np.array([10**18, 10**18 + 1]), [0, 1]),
        # everything else is taken as it is
        (["007", "7", "+7", "1,000", "1000", "x.0", "x"], [0, 1, 2, 3, 4, 5, 6]),
        ([0.5, "0.5", 1.5, 0.5], [0, 1, 2, 0]),
        ([b"17", "17", b"17 ", b"17"], [0, 1, 2, 0]),
        (pd.to_datetime(["2001-01-02", "2001-01-01", "2001-01-02"]), [0, 1, 0]),
    ],
)
def test_codes_are_the_same_for_every_spelling_of_a_person(values, expected):
    assert codes("persons", values, len(expected)).tolist() == expected
    alone = [codes("persons", values[i : i + 1], 1).tolist() for i in range(len(values))]
    assert alone == [[0]] * len(values)


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=20), most=st.integers(1, 9))
@settings(max_examples=50, deadline=None)
def test_thinned_leaves_at_most_so_many_records_of_each_person(sizes, most):
    person = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    found = thinned(person, most, np.random.default_rng(1))
    assert ((found == person) | (found == -1)).all()
    assert np.bincount(found[found >= 0]).tolist() == np.minimum(sizes, most).tolist()


def test_thinned_draws_evenly_from_the_records_of_a_person_whoever_else_is_there():
    alone, others = np.zeros(4, dtype=np.int64), np.repeat([1, 2], [50, 3])
    generator, n, counts = np.random.default_rng(0), 4000, []
    for person in (alone, np.concatenate([alone, others])):
        draws = [thinned(person, 2, generator)[:4] >= 0 for _ in range(n)]
        pairs = np.array([np.flatnonzero(d) @ [4, 1] for d in draws])
        counts.append(np.unique(pairs, return_counts=True)[1])
    for found in counts:  # six pairs, equally likely
        assert len(found) == 6 and stats.chisquare(found).pvalue > ALPHA
    assert stats.chi2_contingency(counts).pvalue > ALPHA


def test_grouped_gives_a_person_the_first_of_the_groups_of_most_records():
    groups = GroupCodes(np.array([0, 1, 1, 2, 0, 2]), np.array(["a", "b", "c"]), True)
    person = np.array([0, 0, 0, 1, 1, 1])
    assert grouped(groups, person).code.tolist() == [1, 1, 1, 2, 2, 2]
    assert grouped(groups, np.array([0, 0, 1, 1, 1, 1])).code[:2].tolist() == [0, 0]
