"""A budget over many fits: clones, searches, worker processes and data sets."""

import math
import os
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pandas as pd

from skdpfair._utils.validate import number, one_of, safe_repr
from skdpfair.budget import active_ledger
from skdpfair.budget.journal import FORMAT_VERSION, History, Journal, Line, Totals
from skdpfair.budget.spending import REFERENCE, Spending
from skdpfair.exceptions import BudgetExceeded
from skdpfair.privacy.accounting import ACCOUNTANTS
from skdpfair.privacy.statement import rounded_up


class PrivacyLedger:
    """A budget over many fits, with a file that records each private fit before it starts.

    Inside ``with PrivacyLedger(...)``, every fit of this process, of its threads and of the
    worker processes that it starts is charged to the file.  A fit that would exceed the budget
    raises :class:`~skdpfair.exceptions.BudgetExceeded` before it reads a record.

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
        Name of the data set.  Fits under the same name add up; different names declare that no
        person is in both.
    accountant : {"pld", "prv", "rdp"} or None, default=None
        The accountant that computes epsilon; None uses the one of the file, or ``"pld"`` for a new
        file.  A private selection is always composed by ``"rdp"``.

    Notes
    -----
    Clones and workers are other objects in other processes, therefore the ledger is a file.  There
    are three ways to use it, which may be combined.

    ``ledger.fit(model, X, y)`` checks the model before fitting it, and uses the other two ways.
    Only for such fits are the estimators around them checked (see :meth:`report`).

    ``with ledger:`` sets the environment variable ``SKDPFAIR_LEDGER``, which joblib's processes
    inherit; loky's processes are restarted at both ends of the block.  Workers of other back ends
    must be started inside the block.

    ``search.set_callbacks(ledger)`` (scikit-learn 1.9 or later) does that for each fit of the
    search, a Pipeline or a classifier, in workers of every back end.

    Every fit is charged as if it read all records, also the fits of folds.

    A fit is recorded as planned before it starts, and with its actual releases when it ends, with
    or without an error.  A killed fit stays charged as planned.  Data sets are identified by name,
    as a digest would release information about the data.

    Examples
    --------
    >>> import tempfile
    >>> from skdpfair.privacy import Release
    >>> from skdpfair.privacy.ledger import Ledger
    >>> from skdpfair.budget.charging import charged
    >>> release = Release("gradient sum", 0.01, (1.0,), steps=100)
    >>> path, spent = tempfile.mkdtemp() + "/budget.jsonl", Ledger()
    >>> with PrivacyLedger(path, epsilon=1.0, delta=1e-5) as ledger:
    ...     with charged([release], spent):  # what a fit does
    ...         spent.record(release)
    >>> print(f"{ledger.epsilon():.2f}", ledger.frame().state.tolist())
    0.72 ['done']
    """

    # scikit-learn warns of every step that takes no callbacks
    max_propagation_depth = 0

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
        self._open: defaultdict[uuid.UUID, set[int]] = defaultdict(set)
        budget = {"epsilon": epsilon, "delta": delta, "accountant": accountant}
        new: Line = {"format_version": FORMAT_VERSION, "id": uuid.uuid4().hex}
        new["budget"] = budget | {"accountant": accountant or "pld"}
        self._open_file(self._journal.begin(new), budget)

    def _open_file(self, first: Line, budget: Mapping[str, Any]) -> None:
        """Take the budget of the file, from which that of the parameters must not differ."""
        stored: Any = first.get("budget") if isinstance(first, dict) else None
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

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": defaultdict(set)}  # of this process

    def __enter__(self) -> Self:
        active_ledger.activate(self.path, self.data, self._journal.memory)
        return self

    def __exit__(self, *exc: object) -> None:
        active_ledger.deactivate()

    def fit(self, estimator: Any, X: Any, y: Any = None, **params: Any) -> Any:
        """Check an estimator, and fit it with its private fits charged to this ledger.

        Only for such fits does the ledger know all the estimators around them.

        Parameters
        ----------
        estimator : estimator
            A DPFairClassifier, or an estimator that holds one: a Pipeline, a search, an ensemble.
        X, y : array-like
            As in its ``fit``.  Earlier processing of the data is unknown to the ledger.
        **params : dict
            Passed to its ``fit``.

        Returns
        -------
        estimator

        Raises
        ------
        BudgetExceeded
            If a private fit would exceed the budget.
        ValueError
            If a step protects records and a classifier persons, before anything is fitted.

        Warns
        -----
        PrivacyLeakWarning
            If a step learns from the records outside the budget.
        """
        data = (X,) if y is None else (X, y)
        with active_ledger.call_of(estimator) as name, self, self._set_on(estimator):
            self._check_around(name, estimator, params)
            estimator.fit(*data, **params)
        return estimator

    @contextmanager
    def _set_on(self, estimator: Any) -> Iterator[None]:
        """Follow the folds of an estimator that takes callbacks."""
        callbacks = getattr(estimator, "_skl_callbacks", [])
        if not hasattr(estimator, "set_callbacks") or self in callbacks:
            yield
            return
        estimator.set_callbacks(*callbacks, self)
        try:
            yield
        finally:
            estimator.set_callbacks(*callbacks)

    def _append(self, line: Line) -> None:
        with self._journal.locked():
            self._journal.append(line)

    def _check_around(self, name: str, estimator: Any, params: Iterable[str] = ()) -> None:
        """Enter what an estimator learns outside this ledger, and whether it is outermost."""
        line: Line = {
            "around": name,
            "data": self.data,
            "outermost": active_ledger.is_called(estimator),
        }
        line |= active_ledger.findings_of(estimator, params)
        if line["outermost"] or line["reasons"]:
            self._append(line)

    def setup(self, estimator: Any, context: Any) -> None:
        """Activate this ledger for a fit of which it is a callback of scikit-learn's."""
        self._activate_for(context)
        self._check_around(str(context.root_uuid), estimator)

    def teardown(self, estimator: Any, context: Any) -> None:
        """Undo `setup`, and what tasks that failed have left."""
        self._deactivate_for(context.root_uuid, set(self._open[context.root_uuid]))

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Activate this ledger for a task."""
        self._activate_for(context)

    def on_fit_task_end(self, estimator: Any, context: Any) -> None:
        """Deactivate this ledger after a task."""
        self._deactivate_for(context.root_uuid, {id(context)})

    def _activate_for(self, context: Any) -> None:
        tasks = self._open[context.root_uuid]
        if id(context) not in tasks:
            self.__enter__()
            tasks.add(id(context))

    def _deactivate_for(self, root: uuid.UUID, ended: set[int]) -> None:
        """Deactivate the ledger once for each task that ``ended`` and had activated it."""
        tasks = self._open[root]
        for task in tasks & ended:
            tasks.remove(task)
            active_ledger.deactivate()
        if not tasks:
            del self._open[root]

    def epsilon(self, delta: float | None = None) -> float:
        """Return the epsilon of all private fits on the data set, at ``delta`` or the ledger's.

        It is that of the fits alone, and infinite if one was not private; :meth:`report` includes
        the estimators around them.
        """
        return Totals.of(self._history().fits).cost(self._delta(delta), self.accountant)

    def report(self, delta: float | None = None) -> Spending:
        """Return the cost of the private fits on the data set, and the total cost with reasons.

        Its ``epsilon_total`` is infinite if no epsilon covers a step that learns, or if a fit was
        not part of a call of :meth:`fit`; ``known`` distinguishes the two cases.
        """
        return self._history().spending(self._delta(delta), self.accountant)

    def frame(self) -> pd.DataFrame:
        """Return the fits on all data sets as a table with one row per fit.

        ``state`` is "planned" for a fit that runs or was killed, ``epsilon`` is that of the fit
        alone, and ``around`` names other steps around it that learn: "nothing", names, or
        "unknown".
        """
        return self._journal.history().frame(self.delta, self.accountant)

    def _delta(self, delta: float | None) -> float:
        delta = self.delta if delta is None else delta
        if delta is None:
            raise ValueError(
                "delta must be given, got None, because this ledger has no delta. Pass a "
                "number below 1 / n_samples, for instance delta=1e-6."
            )
        return delta

    def _history(self) -> History:
        return self._journal.history(self.data)

    def check(self, fits: Iterable[Line]) -> None:
        """Raise, as the fits would, if they cannot be charged together; record none of them.

        Each is as :func:`skdpfair.budget.charging.entry_of` returns it.
        """
        if planned := list(fits):
            totals = Totals.of(self._history().fits)
            _refuse_other_unit(planned[0], totals.protected)
            self._check(totals, planned)

    def n_unrecorded(self, calls: Iterable[str | None]) -> int:
        """Return how many calls or fits are not in this ledger, on its data set.

        They are names that `active_ledger.call_of` or `charging.charged` gave; None is in no
        ledger.
        """
        fits = self._history().fits
        recorded = {fit.get(name) for fit in fits for name in ("fit", "around")} - {None}
        return sum(call not in recorded for call in calls)

    @property
    def holds_other_data(self) -> bool:
        """Whether the file has fits on data sets of other names."""
        return any(fit["data"] != self.data for fit in self._journal.history().fits)

    def _begin(self, fit: Line) -> None:
        """Record a planned fit, or raise BudgetExceeded if it would exceed the budget.

        ValueError is raised if it protects persons and earlier fits records, or other persons.
        """
        # nobody else spends what is left meanwhile
        with self._journal.locked():
            totals = self._journal.totals(self.data)
            _refuse_other_unit(fit, totals.protected)
            self._check(totals, [fit])
            self._journal.append(fit)

    def _end(self, name: str, entries: list[Line]) -> None:
        """Record the actual releases of a fit."""
        self._append({"fit": name, "state": "done", "entries": entries})

    def _check(self, totals: Totals, fits: Sequence[Line]) -> None:
        if self.budget is None:
            return
        assert self.delta is not None  # which a budget has
        no_privacy = any(REFERENCE in f["reasons"] for f in fits)  # of the fit or its reference
        after = math.inf if no_privacy else totals.cost(self.delta, "rdp", fits)
        # the fast bound may be loose
        if self.budget < after < math.inf:
            after = min(after, totals.cost(self.delta, self.accountant, fits))
        if after > self.budget:
            now = totals.cost(self.delta, self.accountant)
            remedy = "Lower epsilon, or fit less often: no other ledger undoes earlier releases."
            if no_privacy:
                remedy = (
                    "The fit or its reference is not private, which no budget allows: remove "
                    "epsilon=None and keep_reference=True, or record it in a ledger with a delta "
                    "alone."
                )
            what = "This fit" if len(fits) == 1 else f"These {len(fits)} fits together"
            raise BudgetExceeded(
                f"{what} would bring epsilon on data={self.data!r} from {rounded_up(now)} to "
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


def _refuse_other_unit(fit: Line, before: Iterable[tuple[str, str | None]]) -> None:
    unit, persons = fit["unit"], fit["persons"]
    others = sorted({name for _, name in before if name} - {persons})
    if any(other != unit for other, _ in before):
        what, other = f"each {unit}", "another unit"
    elif persons and others:
        what, other = f"the persons of the column {persons!r}", f"those of {others[0]!r}"
    else:
        return
    raise ValueError(
        f"This fit protects {what}, but earlier fits in the ledger protect {other}, and there is "
        "no sum of both: one may be several of the other. Let all fits protect the same, or use a "
        "ledger of its own for each unit."
    )
