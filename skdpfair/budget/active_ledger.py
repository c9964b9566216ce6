"""How a fit finds the ledger that it is charged to: a variable of the process's environment.

Whoever opens a ledger counts as one user of the variable, so that the first to leave does not
close it on the others.  Another variable tells that trials of a private search run.
"""

import json
import os
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver

from skdpfair.exceptions import UnaccountedWarning

VARIABLE = "SKDPFAIR_LEDGER"
SEARCH = "SKDPFAIR_PRIVATE_SEARCH"
_LOCK, _USERS = threading.RLock(), Counter()


def address(path, data, id=None) -> str:
    """Return the value of the variable for a ledger, its id and the name of a data set."""
    return json.dumps({"path": str(path), "data": data, "id": id})


def opened() -> dict | None:
    """Return path, data and id of the ledger that is open in this process, if one is."""
    described = os.environ.get(VARIABLE)
    return json.loads(described) if described else None


def enter(where: str) -> None:
    """Become a user of the ledger at an address.

    Raises
    ------
    RuntimeError
        If another one is open.
    """
    with _LOCK:
        current = os.environ.get(VARIABLE)
        if current and current != where:
            raise RuntimeError(
                f"A ledger is open already ({current}), and a fit is charged to one only. Leave "
                "its block first."
            )
        if not current:
            os.environ[VARIABLE] = where
            _restart_workers()
        elif not _USERS[where]:
            _USERS[where] = 1  # the process that started this one
        _USERS[where] += 1


def leave(where: str) -> None:
    """Be a user no more; the last one closes."""
    with _LOCK:
        _USERS[where] -= 1
        if _USERS[where] <= 0:
            del _USERS[where]
            os.environ.pop(VARIABLE, None)
            _restart_workers()


def is_searching() -> bool:
    """Tell whether this process, or one that started it, runs trials of a private search."""
    return SEARCH in os.environ


@contextmanager
def searching() -> Iterator[None]:
    """Let all threads, and the processes that they start, know that trials run."""
    with _LOCK:
        _USERS[SEARCH] += 1
        if _USERS[SEARCH] == 1:
            os.environ[SEARCH] = str(os.getpid())
            _restart_workers()
    try:
        yield
    finally:
        with _LOCK:
            _USERS[SEARCH] -= 1
            if not _USERS[SEARCH]:
                os.environ.pop(SEARCH, None)
                _restart_workers()


def _restart_workers():
    """Let no worker process keep an environment that has changed since."""
    from joblib.externals.loky import reusable_executor

    if getattr(reusable_executor, "_executor", True) is not None:
        reusable_executor.get_reusable_executor().shutdown(wait=True)
    server = getattr(forkserver, "_forkserver", None)
    if getattr(server, "_forkserver_pid", None) is not None:
        warnings.warn(
            "A fork server runs already: processes that it starts inside the block do not know "
            "of it, and their fits are not charged. Enter the block before the first of them "
            "starts, or use joblib.",
            UnaccountedWarning,
            stacklevel=4,
        )
