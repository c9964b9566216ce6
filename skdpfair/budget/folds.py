"""Positions of fits in a search, and the fits that one record can be part of.

A record is in no fit of its own test fold.
"""

from collections.abc import Iterable, Mapping
from itertools import product
from math import prod
from typing import Any, TypeAlias

from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneOut,
    RepeatedKFold,
    RepeatedStratifiedKFold,
    StratifiedGroupKFold,
    StratifiedKFold,
)

Line: TypeAlias = dict[str, Any]  # of a ledger's file, for instance a fit or a search

_PARTITIONS = (KFold, StratifiedKFold, GroupKFold, StratifiedGroupKFold, LeaveOneOut)
_REPEATED = (RepeatedKFold, RepeatedStratifiedKFold)
_BY_LABELS = (StratifiedKFold, GroupKFold, StratifiedGroupKFold, RepeatedStratifiedKFold)
# scikit-learn's name of one fit and test of a search
_FOLD = "candidate-split-evaluation"
_SEARCH_TASKS = {_FOLD, "refit-with-best-params"}
_METHODS = {"split", "_iter_test_indices", "_iter_test_masks"}  # of a splitter
MAX_FOLDS = 50
MAX_VIEWS = 16


def ancestors(context: Any) -> list[Any]:
    """Return a task of scikit-learn's, the task around it, and so on."""
    chain = [context]
    while chain[-1].parent is not None:
        chain.append(chain[-1].parent)
    return chain


def search_position(context: Any) -> dict[str, Any]:
    """Return the position of a task of scikit-learn: its path, and the nearest search around it.

    ``path`` names the estimator's task.  For a fit inside a search's fold there are also
    ``search``, the search's path; ``round``, where a search runs several; and ``index``.
    """
    chain = ancestors(context)
    names = [f"{task.task_name}.{task.task_id}" for task in chain]
    root = str(context.root_uuid)

    def path(i: int) -> str:
        return "/".join([root, *reversed(names[i:])])

    fits = [i for i, task in enumerate(chain) if i + 1 == len(chain) or task.source_estimator_name]
    place = {"path": path(fits[0])}
    for i, task in enumerate(chain):
        if _FOLD in (task.task_name, task.source_task_name):
            outer = next(j for j in fits if j > i)
            return place | {"search": path(outer), "round": path(i + 1), "index": task.task_id}
    return place


def is_in_search(context: Any) -> bool:
    """Return whether a search called the fit that a task belongs to, for a fold or its refit."""
    return any(
        not _SEARCH_TASKS.isdisjoint((task.task_name, task.source_task_name))
        for task in ancestors(context)
    )


def steps_before(context: Any) -> tuple[str, ...]:
    """Return the names of the steps that pipelines around a task have fitted before it."""
    prefix = "fit-transform-"
    names: list[str] = []
    for task in ancestors(context):
        if (task.source_task_name or "").startswith("fit-"):  # a step of a Pipeline
            siblings = [t for t in task.parent if t.parent is task.parent and t is not task]
            names[:0] = [t.source_task_name or t.task_name for t in siblings]
    return tuple(name.removeprefix(prefix) for name in names if name.startswith(prefix))


def folds_of(cv: Any, n_splits: int) -> int | None:
    """Return the number of splits in a row whose test folds hold each record exactly once.

    None for a splitter of which that is not known; a subclass may split in its own way.
    """
    if cv is None or isinstance(cv, int):
        return n_splits
    if type(cv) not in _PARTITIONS + _REPEATED or _METHODS & vars(cv).keys():
        return None
    return n_splits // cv.n_repeats if type(cv) in _REPEATED else n_splits


def takes_as_public(cv: Any) -> str | None:
    """Return the facts that folds depend on, other than the number of records, or None."""
    kind = StratifiedKFold if cv is None or isinstance(cv, int) else type(cv)
    if kind not in _BY_LABELS:
        return None
    return f"the labels or groups by which {kind.__name__} makes its folds"


def fits_seen_by_record(fits: Iterable[Line], searches: Mapping[str, Line]) -> list[list[Line]]:
    """Return, for each kind of record, the fits whose training records it can be among.

    A fit's ``place`` holds its search, round and position, or is None outside of searches.  A
    search has ``splits`` per candidate, and ``folds`` (see `folds_of`).

    A record lies in the test fold of one split in ``folds`` of a search, the same for all
    candidates, so it misses that split's fits and no other.  Until a fit of every split is in
    the ledger, some record may have missed none.  A person, whose records may lie in several
    folds, counts in all fits.  Where there would be too many combinations, further searches count
    in full.
    """
    always: list[Line] = []
    groups: dict[tuple[str, str, int], list[list[Line]]] = {}
    for fit in fits:
        place: Line = fit.get("place") or {}
        search = searches.get(place.get("search", ""), {"folds": None})
        folds = search["folds"]
        if fit.get("unit") == "person" or folds is None or folds > MAX_FOLDS:
            always.append(fit)
            continue
        repeat, split = divmod(place["index"] % search["splits"], folds)
        key = (place["search"], place["round"], repeat)
        groups.setdefault(key, [[] for _ in range(folds)])[split].append(fit)
    ways: list[list[list[Line]]] = []
    for fold_fits in groups.values():
        way = _ways(fold_fits)
        n_views = prod(map(len, ways)) * len(way)
        ways.append(way if n_views <= MAX_VIEWS else [_joined(fold_fits)])
    return [always + _joined(way) for way in product(*ways)]


def _ways(folds: list[list[Line]]) -> list[list[Line]]:
    """Return the fits without those of one fold, once for each fold that makes a difference."""
    if not all(folds):
        return [_joined(folds)]
    kinds = {tuple(sorted(map(_content, fold))): i for i, fold in enumerate(folds)}
    return [_joined(folds[:i] + folds[i + 1 :]) for i in sorted(kinds.values())]


def _content(fit: Line) -> str:
    return f"{fit['entries']}{fit.get('curve')}"


def _joined(lists: Iterable[Iterable[Line]]) -> list[Line]:
    return [fit for part in lists for fit in part]
