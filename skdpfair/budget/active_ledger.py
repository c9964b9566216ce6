"""The active ledger of a process.

A fit finds the ledger that it is charged to in a variable of the process's environment, which
reaches the processes that it starts.  Whoever activates a ledger counts as one user of the
variable, so that the first to deactivate it does not take it from the others.  Another variable
says that the trials of a private search are running.
"""

import json
import os
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver
from typing import Any

from joblib.parallel import get_active_backend

from skdpfair.exceptions import UnaccountedWarning

VARIABLE = "SKDPFAIR_LEDGER"
SEARCH = "SKDPFAIR_PRIVATE_SEARCH"
_LOCK = threading.RLock()
_USERS: Counter[str] = Counter()
# whose workers have the environment of this process
_BACKENDS = "Loky", "Multiprocessing", "Sequential", "Threading"


def current() -> dict[str, Any] | None:
    """Return path, data and memory of the active ledger, if there is one."""
    described = os.environ.get(VARIABLE)
    return json.loads(described) if described else None


def activate(path: str | os.PathLike[str], data: str, memory: Sequence[Any]) -> None:
    """Become a user of a ledger, the name of a data set, and what the ledger has seen of its file.

    RuntimeError is raised if another ledger is active, or if the workers of joblib's backend run
    already.
    """
    backend = type(get_active_backend()[0]).__name__
    if not backend.startswith(_BACKENDS):
        raise RuntimeError(
            f"joblib's backend is {backend}, whose workers run already and would not charge their "
            'fits. Open the ledger outside of parallel_config, and choose the backend "loky".'
        )
    with _LOCK:
        active = current()
        if active and (active["path"], active["data"]) != (str(path), data):
            raise RuntimeError(
                f"The ledger {active['path']!r} is already open with data={active['data']!r}, and "
                "a fit is charged to only one. Leave its block first."
            )
        _add_user(VARIABLE, json.dumps({"path": str(path), "data": data, "memory": memory}))


def deactivate() -> None:
    """Stop using the active ledger."""
    _remove_user(VARIABLE)


def is_searching() -> bool:
    """Return whether this process, or one that started it, runs trials of a private search."""
    return SEARCH in os.environ


@contextmanager
def searching() -> Iterator[None]:
    """Let all threads, and the processes that they start, know that trials run."""
    _add_user(SEARCH, str(os.getpid()))
    try:
        yield
    finally:
        _remove_user(SEARCH)


def _add_user(variable: str, value: str) -> None:
    """Count a user of a variable of the environment, which the first one sets."""
    with _LOCK:
        if not _USERS[variable] and variable in os.environ:
            _USERS[variable] = 1  # the process that started this one
        if not _USERS[variable]:
            os.environ[variable] = value
            _restart_workers()
        _USERS[variable] += 1


def _remove_user(variable: str) -> None:
    """Count one user less of a variable, which the last one clears."""
    with _LOCK:
        _USERS[variable] -= 1
        if _USERS[variable] <= 0:
            del _USERS[variable]
            os.environ.pop(variable, None)
            _restart_workers()


def _restart_workers() -> None:
    """Let no worker process keep an environment that has changed since."""
    from joblib.externals.loky import reusable_executor

    if getattr(reusable_executor, "_executor", True) is not None:
        reusable_executor.get_reusable_executor().shutdown(wait=True)
    server = getattr(forkserver, "_forkserver", None)
    if getattr(server, "_forkserver_pid", None) is not None:
        warnings.warn(
            "A fork server is already running: the fits of processes that it starts inside the "
            "block are not charged. Enter the block before the first of them starts, or use "
            "joblib.",
            UnaccountedWarning,
            stacklevel=5,
        )
