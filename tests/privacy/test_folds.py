"""What one record meets of a search, against counting record by record."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneOut,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedKFold,
    TimeSeriesSplit,
)

from skdpfair.budget.folds import fits_seen_by_record, folds_of
from skdpfair.budget.journal import History
from skdpfair.privacy import Release, epsilon


class Odd(KFold):
    """May split in its own way."""


def fit(name, search=None, index=None, cost=1, round_=0):
    place = None if search is None else {"search": search, "round": round_, "index": index}
    return {"name": name, "entries": [cost], "curve": None, "place": place}


def cost(fits):
    return sum(f["entries"][0] for f in fits)


SEARCH = st.tuples(
    st.integers(2, 4),  # folds
    st.integers(1, 2),  # repeats
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 1), st.integers(1, 3)), max_size=12),
)


@given(st.lists(SEARCH, max_size=2), st.lists(st.integers(1, 3), max_size=2))
def test_the_largest_view_is_that_of_the_worst_off_record(searches, outside):
    """A record is one test fold for each search, round and repeat."""
    fits = [fit(i, cost=c) for i, c in enumerate(outside)]
    known, folds_in = {}, {}
    for s, (folds, repeats, made) in enumerate(searches):
        known[str(s)] = {"splits": folds * repeats, "folds": folds}
        for index, round_, c in made:
            fits.append(fit(len(fits), str(s), index, c, round_))
            for repeat in range(repeats):
                folds_in[str(s), round_, repeat] = folds

    def misses(record, f):
        if f["place"] is None:
            return False
        search, split = f["place"]["search"], f["place"]["index"]
        repeat, fold = divmod(split % known[search]["splits"], known[search]["folds"])
        return record[search, f["place"]["round"], repeat] == fold

    records = [dict(zip(folds_in, w, strict=True)) for w in product(*map(range, folds_in.values()))]
    worst = max(cost(f for f in fits if not misses(r, f)) for r in records)
    largest = max(map(cost, fits_seen_by_record(fits, known)))
    many = sum(folds - 1 for folds in folds_in.values()) > 4  # may be rounded up to all
    assert largest == worst or (many and worst <= largest <= cost(fits))


def test_splitters_whose_folds_may_overlap_leave_nobody_out():
    assert [folds_of(cv, 3) for cv in (3, None, StratifiedKFold(3), GroupKFold(3))] == [3] * 4
    assert folds_of(LeaveOneOut(), 7) == 7
    assert folds_of(RepeatedStratifiedKFold(n_splits=2, n_repeats=5), 10) == 2
    assert [folds_of(cv, 3) for cv in (ShuffleSplit(3), TimeSeriesSplit(3), [([0], [1])])] == (
        [None] * 3
    )
    own = KFold(3)
    own.split = lambda X, y=None, groups=None: iter(())
    assert [folds_of(cv, 3) for cv in (Odd(3), own)] == [None] * 2
    fits = [fit(i, "s", i) for i in range(3)]
    assert fits_seen_by_record(fits, {"s": {"splits": 3, "folds": None}}) == [fits]
    assert fits_seen_by_record(fits, {}) == [fits]


def test_too_many_ways_are_counted_in_full():
    fits = [fit(i, str(s), i, cost=i + 1) for s in range(12) for i in range(5)]
    known = {str(s): {"splits": 5, "folds": 5} for s in range(12)}
    seen = fits_seen_by_record(fits, known)
    assert len(seen) <= 16
    assert max(map(cost, seen)) >= 12 * cost(fits[:5]) - 12


def test_the_costliest_view_is_charged_wherever_it_comes():
    for steps in ([10, 1000], [1000, 10]):
        costs = [vars(Release("steps", 0.01, (1.0,), n)) for n in steps]
        fits = [fit(i, "s", i, cost=cost) for i, cost in enumerate(costs)]
        fits = [f | {"private": True} for f in fits]
        worst = epsilon([Release("steps", 0.01, (1.0,), 1000)], 1e-5)
        history = History(fits, {"s": {"splits": 2, "folds": 2}}, {})
        assert history.cost(1e-5, "pld") == worst
