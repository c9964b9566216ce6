"""A budget over many fits: clones, searches, worker processes and data sets."""

import math
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeAlias

import pandas as pd

from skdpfair._utils.validate import number, one_of, safe_repr
from skdpfair.budget import active_ledger
from skdpfair.budget.journal import FORMAT_VERSION, Journal, Line, Totals, frame, spending
from skdpfair.budget.spending import REFERENCE, Spending
from skdpfair.exceptions import BudgetExceededError
from skdpfair.privacy.accounting import ACCOUNTANTS
from skdpfair.privacy.privacy_report import rounded_up

Linter: TypeAlias = Callable[[Any, Iterable[str]], None]
_LINTERS: list[Linter] = []


def linter(function: Linter) -> Linter:
    """Register the function that warns if an estimator learns outside the ledger.

    It also gets the names of the keywords of a fit, and may refuse it.  A higher layer sets it.
    """
    _LINTERS[:] = [function]
    return function


class PrivacyLedger:
    """A budget over many fits, with a file that records each private fit before it starts.

    Inside ``with PrivacyLedger(...)``, every fit of this process, of its threads and of the
    worker processes that it starts is charged to the file.  A fit that would exceed the budget
    raises :class:`~skdpfair.exceptions.BudgetExceededError` before it reads a record.

    Parameters
    ----------
    path : path-like
        The file, with one JSON line per event; it is created if missing.  It holds noise
        multipliers, rates and numbers of steps, never data.
    epsilon : float > 0 or None, default=None
        The budget of each data set; None sets no limit.
    delta : float in (0, 1) or None, default=None
        The delta of the budget.  The budget of an existing file cannot be changed.
    data : str, default="data"
        Name of the data set.  Fits under one name share the budget; different names declare that no
        person is in both data sets.
    accountant : {"pld", "prv", "rdp"} or None, default=None
        The accountant that computes epsilon; None uses the one of the file, or ``"pld"`` for a new
        file.  A private selection is always composed by ``"rdp"``.

    Notes
    -----
    The ledger is a file because clones and workers are other objects in other processes.
    ``with ledger:`` sets the environment variable ``SKDPFAIR_LEDGER``, which processes that are
    started inside the block inherit; loky's are restarted at both ends.
    ``ledger.fit(model, X, y)`` checks the model, and fits it in such a block.

    Every fit is charged as if it read all records, also the fits of folds.

    A fit is recorded as planned before it starts, and with its actual releases when it ends, also
    after an error.  A killed fit stays charged as planned.  Data sets are identified by name, as a
    digest would release information about the data.

    Examples
    --------
    >>> import tempfile
    >>> from skdpfair.preprocessing import DPQuantileScaler
    >>> path, ages = tempfile.mkdtemp() + "/budget.jsonl", [[30.0], [41.0]] * 1000
    >>> with PrivacyLedger(path, epsilon=1.0, delta=1e-5) as ledger:
    ...     scaler = DPQuantileScaler(bounds=(0, 120), epsilon=0.5, delta=1e-5).fit(ages)
    >>> print(f"{ledger.epsilon():.2f}", ledger.frame().state.tolist())
    0.50 ['done']
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Journal,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        data: str = "data",
        accountant: str | None = None,
    ) -> None:
        _check_budget(epsilon, delta, "pld" if accountant is None else accountant)
        if not isinstance(data, str) or not data:
            raise TypeError(f"data must be the name of a data set, got {safe_repr(data)}.")
        self.data = data
        self._journal = path if isinstance(path, Journal) else Journal(path)
        budget = {"epsilon": epsilon, "delta": delta, "accountant": accountant}
        new: Line = {"format_version": FORMAT_VERSION, "id": uuid.uuid4().hex}
        new["budget"] = budget | {"accountant": accountant or "pld"}
        self._open_file(self._journal.begin(new), budget)

    def _open_file(self, first: Line, budget: Mapping[str, Any]) -> None:
        """Take the budget of the file, from which that of the parameters must not differ."""
        stored: Any = first.get("budget")
        try:
            _check_budget(**stored)
        except (TypeError, ValueError):
            raise ValueError(
                f"path={str(self.path)!r} is not a ledger, or was edited: its line 1 does not "
                "hold the epsilon, delta and accountant of a budget. Restore the file, or name a "
                "new one."
            ) from None
        for name, value in budget.items():
            if value is not None and value != stored[name]:
                raise ValueError(
                    f"{name}={safe_repr(value)} differs from {name}={safe_repr(stored[name])} of "
                    f"the existing file {str(self.path)!r}, whose budget cannot be changed. Leave "
                    f"{name} out."
                )
        self.id: str | None = first.get("id")  # of the file, wherever it is mounted
        self.budget: float | None = stored["epsilon"]
        self.delta: float | None = stored["delta"]
        self.accountant: str = stored["accountant"]

    @property
    def path(self) -> Path:
        """The file."""
        return self._journal.path

    def __repr__(self) -> str:
        limit = "no budget" if self.budget is None else f"epsilon={self.budget:g}"
        return f"PrivacyLedger({str(self.path)!r}, {limit}, delta={self.delta}, data={self.data!r})"

    def __enter__(self) -> Self:
        active_ledger.activate(self.path, self.data, self._journal.memory)
        return self

    def __exit__(self, *exc: object) -> None:
        active_ledger.deactivate()

    def fit(self, estimator: Any, X: Any, y: Any = None, **params: Any) -> Any:
        """Fit an estimator, such as a Pipeline or a search, inside ``with ledger:``; return it.

        A PrivacyLeakWarning names what it learns outside the budget, before the fit.
        BudgetExceededError is raised if a private fit would exceed the budget, and ValueError,
        before anything is fitted, if a step protects records and a classifier persons.  ``params``
        are passed to its ``fit``.  Earlier processing of the data is unknown to the ledger.
        """
        data = (X,) if y is None else (X, y)
        with self:
            for lint in _LINTERS:
                lint(estimator, params)
            estimator.fit(*data, **params)
        return estimator

    def epsilon(self, delta: float | None = None) -> float:
        """Return the epsilon of all fits on the data set, at ``delta`` or the ledger's delta.

        It covers the fits alone, and is infinite if one was not private.
        """
        return Totals.of(self._fits()).cost(self._delta(delta), self.accountant)

    def report(self, delta: float | None = None) -> Spending:
        """Return the cost of the private fits on the data set, and what it does not cover.

        The ledger does not know what estimators around the fits learned, so ``epsilon_total`` is
        infinite once there is a fit; ``known`` tells whether a fit itself gives a reason.
        """
        return spending(self._fits(), self._delta(delta), self.accountant)

    def frame(self) -> pd.DataFrame:
        """Return the fits on all data sets as a table with one row per fit.

        ``state`` is "planned" for a fit that runs or was killed, and ``epsilon`` covers this fit
        alone.
        """
        return frame(self._journal.fits(), self.delta, self.accountant)

    def _delta(self, delta: float | None) -> float:
        delta = self.delta if delta is None else delta
        if delta is None:
            raise ValueError(
                "delta must be given, got None, because this ledger has no delta. Pass a "
                "number below 1 / n_samples, for instance delta=1e-6."
            )
        return delta

    def _fits(self) -> list[Line]:
        return self._journal.fits(self.data)

    def check(self, fits: Iterable[Line]) -> None:
        """Raise an error if planned fits cannot be charged together; record none of them.

        Parameters
        ----------
        fits : iterable of dict
            Planned fits, as lines of the file of a ledger.

        Raises
        ------
        BudgetExceededError
            If they would exceed the budget together.
        """
        if planned := list(fits):
            self._check(Totals.of(self._fits()), planned)

    def n_unrecorded(self, names: Iterable[str | None]) -> int:
        """Return how many fits are not in this ledger, on its data set.

        Parameters
        ----------
        names : iterable of str or None
            Names of fits in the file of a ledger; None stands for a fit in no ledger.

        Returns
        -------
        int
        """
        recorded = {fit["fit"] for fit in self._fits()}
        return sum(name not in recorded for name in names)

    @property
    def holds_other_data(self) -> bool:
        """Whether the file has fits on data sets with other names."""
        return any(fit["data"] != self.data for fit in self._journal.fits())

    def _begin(self, fit: Line) -> None:
        """Record a planned fit, or raise BudgetExceededError if it would exceed the budget.

        ValueError is raised if it protects persons and earlier fits records, or other persons.
        """
        # nobody else spends what is left meanwhile
        with self._journal.locked():
            self._check(self._journal.totals(self.data), [fit])
            self._journal.append(fit)

    def _end(self, name: str, entries: list[Line]) -> None:
        """Record the actual releases of a fit."""
        with self._journal.locked():
            self._journal.append({"fit": name, "state": "done", "entries": entries})

    def _check(self, totals: Totals, fits: Sequence[Line]) -> None:
        _refuse_other_protection(fits[0], totals.protected)
        if self.budget is None:
            return
        assert self.delta is not None  # which a budget has
        no_privacy = any(REFERENCE in f["reasons"] for f in fits)  # of the fit or its reference
        after = math.inf if no_privacy else totals.cost(self.delta, "rdp", fits)
        # the fast bound may be loose
        if self.budget < after < math.inf:
            after = min(after, totals.cost(self.delta, self.accountant, fits))
        if after > self.budget:
            before = totals.cost(self.delta, self.accountant)
            remedy = "Lower epsilon, or fit less often. A new ledger undoes no earlier release."
            if no_privacy:
                remedy = (
                    "The fit or its reference is not private, which no budget allows: remove "
                    "epsilon=None and keep_reference=True, or record it in a ledger with a delta "
                    "alone."
                )
            what = "This fit" if len(fits) == 1 else f"These {len(fits)} fits together"
            raise BudgetExceededError(
                f"{what} would bring epsilon on data={self.data!r} from {rounded_up(before)} to "
                f"{rounded_up(after)} at delta={self.delta:g}, above the budget "
                f"epsilon={self.budget:g} of {str(self.path)!r}. Nothing was fitted. {remedy}"
            )


def _check_budget(epsilon: Any, delta: Any, accountant: Any) -> None:
    positive: dict[str, Any] = {"low": 0, "low_open": True, "high_open": True}
    if epsilon is not None:
        number("epsilon", epsilon, high=math.inf, **positive)
        if delta is None:
            raise ValueError(
                f"delta must be given with epsilon={safe_repr(epsilon)}, got None: set it "
                "below 1 / n_samples, for instance delta=1e-6."
            )
    if delta is not None:
        number("delta", delta, high=1, **positive)
    one_of("accountant", accountant, ACCOUNTANTS)


def _refuse_other_protection(fit: Line, before: Iterable[tuple[str, str | None]]) -> None:
    protects, persons = fit["protects"], fit["persons"]
    others = sorted({name for _, name in before if name} - {persons})
    unlike = {other for other, _ in before} - {protects}
    if unlike:
        what, other, kinds = f"each {protects}", f"each {unlike.pop()}", "records and persons"
    elif persons and others:
        what, other = f"the persons of the column {persons!r}", f"those of {others[0]!r}"
        kinds = "these columns"
    else:
        return
    raise ValueError(
        f"This fit protects {what}, but earlier fits in the ledger protect {other}, and their "
        "epsilons cannot be added: one may be several of the other. Let all fits protect the same, "
        f"or use separate ledgers for {kinds}."
    )
