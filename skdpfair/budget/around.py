"""What stands around the fits of a ledger: the call they belong to, and what else learns there."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module

_CALL = ContextVar("skdpfair_call_of_a_ledger", default=(None, None))
_LINTERS = []


def linter(function: Callable) -> Callable:
    """Make ``function`` the one that is asked what an estimator learns outside the books.

    It takes an estimator and returns two lists of texts: why its fit reveals more than the
    private fits in it do, and what was taken on trust.  A floor above sets it.
    """
    _LINTERS[:] = [function]
    return function


def looked_at(estimator) -> dict:
    """Return what the linter finds, as a line of the ledger's file holds it."""
    if not _LINTERS:  # no classifier was imported, which brings the linter with it
        import_module("skdpfair.preprocessing")
    reasons, notes = _LINTERS[0](estimator)
    return {"reasons": reasons, "notes": notes}


@contextmanager
def call_of(estimator) -> Iterator[str]:
    """Know the fits of this thread, inside the block, as those of a call of ``estimator.fit``.

    A fit in another thread or process is not known to be of that call, unless the tasks of
    scikit-learn's callbacks lead back to it.
    """
    name = uuid.uuid4().hex
    token = _CALL.set((name, estimator))
    try:
        yield name
    finally:
        _CALL.reset(token)


def current_call() -> str | None:
    """Return the name of the call that this thread is in."""
    return _CALL.get()[0]


def is_called(estimator) -> bool:
    """Tell whether the call that this thread is in is that of this very object, no clone."""
    return estimator is not None and _CALL.get()[1] is estimator
