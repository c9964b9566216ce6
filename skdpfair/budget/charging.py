"""Charging a fit to the active ledger."""

import os
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import numpy as np

from skdpfair.budget import active_ledger
from skdpfair.budget.journal import Journal, Line
from skdpfair.budget.privacy_ledger import PrivacyLedger
from skdpfair.budget.spending import REFERENCE
from skdpfair.exceptions import PrivacyAccountingError
from skdpfair.privacy.releases import NoisyRelease
from skdpfair.privacy.renyi import ORDERS, rdp_curve

_PREPAID: ContextVar[list[Any] | None] = ContextVar("skdpfair_prepaid_fit", default=None)


def current_ledger() -> PrivacyLedger | None:
    """Return the ledger whose block this process, or the one that started it, is in."""
    where = active_ledger.current()
    if where is None or active_ledger.is_searching():
        return None
    return PrivacyLedger(Journal(where["path"], where["memory"]), data=where["data"])


def entry_of(
    planned: Sequence[NoisyRelease],
    *,
    private: bool = True,
    reasons: Sequence[str] = (),
    curve: np.ndarray | None = None,
    what: str = "steps",
    protects: str = "record",
    persons: str | None = None,
) -> Line:
    """Return a planned fit as a ledger's file holds it.

    It is not ``private`` if its epsilon is infinite; ``reasons`` say why more than the releases is
    seen, see :mod:`skdpfair.budget.spending`; ``curve`` is the Renyi curve, at ``renyi.ORDERS``, of
    a release named ``what`` that is no run of sampled Gaussians; ``protects`` is "record" or
    "person", and ``persons`` the name of the column of the persons, if it has one.
    """
    return {
        "private": bool(private),
        "curve": None if curve is None else {"orders": ORDERS.tolist(), "rdp": curve.tolist()},
        "what": what,
        "reasons": list(dict.fromkeys([REFERENCE] * (not private) + [*reasons])),
        "protects": protects,
        "persons": persons,
        "entries": [vars(release) for release in planned],
    }


@contextmanager
def charged(
    planned: Sequence[NoisyRelease], releases: Sequence[NoisyRelease], **about: Any
) -> Iterator[str | None]:
    """Charge a fit, see `entry_of`, to the current ledger, if there is any.

    ``releases`` is the list to which the fit adds its releases; those in it were charged before.
    Yields the name under which the fit is charged.

    Before the block, BudgetExceededError is raised if the plan exceeds the budget, and
    PrivacyAccountingError inside a private search that has not paid for this fit, or in another
    thread or process while one runs.
    """
    fit = entry_of(planned, **about)
    if active_ledger.is_searching():
        _consume_prepaid_fit(planned, fit["private"] and fit["curve"] is None)
        yield None
        return
    ledger = current_ledger()
    if ledger is None:
        yield None
        return
    name = uuid.uuid4().hex
    before = _counted(releases)
    fit |= {"fit": name, "state": "planned", "data": ledger.data}
    ledger._begin(fit)
    pid = os.getpid()
    try:
        yield name
    finally:
        # no copy of the process ends a fit that goes on
        if os.getpid() == pid:
            new = _counted(releases) - before
            ledger._end(name, [vars(replace(release, steps=n)) for release, n in new.items()])


@contextmanager
def ledger_suspended() -> Iterator[None]:
    """Keep fits out of the ledger, whose cost has been charged as a whole, and let none happen.

    Inside the block, no other thread of the process and no process that it starts can fit, because
    such a fit might be a step of a trial.
    """
    with active_ledger.searching(), prepaid_fit(None):
        yield


@contextmanager
def prepaid_fit(curve: np.ndarray | None) -> Iterator[None]:
    """Let this thread do one private fit, of at most this Renyi curve, under `ledger_suspended`.

    None is for no fit.
    """
    token = _PREPAID.set([os.getpid(), curve])
    try:
        yield
    finally:
        _PREPAID.reset(token)


def _consume_prepaid_fit(planned: Sequence[NoisyRelease], is_plain: bool) -> None:
    """Use up the fit that was paid for, or raise where it is not enough."""
    where, curve = prepaid = _PREPAID.get() or [None, None]
    prepaid[1] = None
    enough = where == os.getpid() and curve is not None and is_plain
    if enough and (rdp_curve(planned) <= curve * (1 + 1e-9)).all():
        return
    raise PrivacyAccountingError(
        "Trials of DPRandomizedSearch are running, whose cost covers one model each: the fit of a "
        "step, in any thread or process, would not be charged. Fit that step once beforehand, in a "
        "PrivacyLedger that adds up the costs, and replace it by "
        "sklearn.frozen.FrozenEstimator(fitted). An unrelated fit must wait for the end of the "
        "search, or run in a process that was started elsewhere."
    )


def _counted(entries: Iterable[NoisyRelease]) -> Counter[NoisyRelease]:
    total: Counter[NoisyRelease] = Counter()
    for e in entries:
        total[replace(e, steps=1)] += e.steps
    return total
