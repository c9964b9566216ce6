"""A budget over many fits: estimators, clones, searches, worker processes and data sets."""

import json
import math
import os

import numpy as np
import pandas as pd

from skdpfair._validate import number, one_of
from skdpfair.exceptions import BudgetExceeded
from skdpfair.privacy._journal import Journal
from skdpfair.privacy._progress import FitsBar
from skdpfair.privacy.accounting import ACCOUNTANTS
from skdpfair.privacy.accounting import epsilon as epsilon_of
from skdpfair.privacy.folds import folds_of, place_of, views
from skdpfair.privacy.ledger import LedgerEntry
from skdpfair.privacy.renyi import curve_epsilon, rdp_curve
from skdpfair.privacy.spending import SCORES, TWIN, Spending

VARIABLE = "SKDPFAIR_LEDGER"


class PrivacyLedger:
    """A file in which every private fit is entered before it starts, and a budget over them.

    Inside ``with PrivacyLedger(...)``, every fit of this process, of its threads and of the
    worker processes that it starts is charged to the file.  A fit that would exceed the budget
    raises :class:`~skdpfair.exceptions.BudgetExceeded` before it touches a record.

    Parameters
    ----------
    path : path-like
        The file, one JSON line per event; made if missing.  It holds noise multipliers, rates
        and numbers of steps, never data.
    epsilon : float > 0 or None, default=None
        The budget of each data set; None only keeps the books.
    delta : float in (0, 1) or None, default=None
        At which the budget is stated.  A file keeps the budget that it was made with.
    data : str, default="data"
        Name of the data set.  Fits under one name add up; distinct names declare that no
        person is in both.
    accountant : {"pld", "prv", "rdp"}, default="pld"
        How epsilon is computed; a private selection is always composed by ``"rdp"``.
    progress : bool, default=True
        As a callback, show fits done and epsilon so far, on a terminal or in a notebook.

    Notes
    -----
    Clones and workers are other objects in other processes: an accountant held by the estimator
    is copied with it and its books are lost with the copy.  So the books are a file, and there
    are two ways to it, which may be combined.

    ``with ledger:`` names the file in the environment variable ``SKDPFAIR_LEDGER``, which
    reaches joblib's processes; loky's, which outlive a search, are restarted at both ends of
    the block.  Workers of other back ends must be started inside the block.

    ``search.set_callbacks(ledger)`` (scikit-learn 1.9 or later) does that for each fit of the
    search, a Pipeline or a classifier, follows it into workers of every back end, and tells the
    books which fold a fit belongs to.  k folds leave each record out of one fit in k of each
    candidate; so many are charged then.  Without the callback, and for splitters whose test
    folds may overlap, every fit is charged as if it read all records.  Neighbouring data sets
    have the same folds: one holds nothing in the place of a record of the other.

    A fit is entered as planned before it starts, and as it was once it ends, with an error or
    without.  A killed fit stays charged as planned.  Data sets are told apart by name, not by a
    digest, since folds of one table have different digests, and a digest would be a release
    about the data.

    Examples
    --------
    >>> import tempfile
    >>> from skdpfair.privacy import Ledger
    >>> from skdpfair.privacy.charging import charged, planned_entries
    >>> release = {"sample_rate": 0.01, "noise_multipliers": (1.0,), "steps": 100}
    >>> path, spent = tempfile.mkdtemp() + "/budget.jsonl", Ledger()
    >>> with PrivacyLedger(path, epsilon=1.0, delta=1e-5) as ledger:
    ...     with charged(planned_entries(**release), spent):  # what a fit does
    ...         spent.record("gradient sum", **release)
    >>> print(f"{ledger.epsilon():.2f}", ledger.frame().state.tolist())
    0.72 ['done']
    """

    max_propagation_depth = 0  # scikit-learn warns of every step that takes no callbacks

    def __init__(
        self, path, *, epsilon=None, delta=None, data="data", accountant="pld", progress=True
    ):
        positive = {"low": 0, "low_open": True, "high_open": True}
        if epsilon is not None:
            number("epsilon", epsilon, high=math.inf, **positive)
            if delta is None:
                raise ValueError(
                    f"delta must be given with epsilon={epsilon!r}, got None: set it below "
                    "1 / n_samples, for instance delta=1e-6."
                )
        if delta is not None:
            number("delta", delta, high=1, **positive)
        if not isinstance(data, str) or not data:
            raise TypeError(f"data must be the name of a data set, a string, got {data!r}.")
        one_of("accountant", accountant, ACCOUNTANTS)
        self.data, self.progress = data, progress
        self._journal, self._opened, self._refused = Journal(path, create=True), set(), {}
        given = {"epsilon": epsilon, "delta": delta, "accountant": accountant}
        with self._journal.locked() as lines:
            if not lines:
                self._journal.append({"budget": given})
                lines = [{"budget": given}]
        self._take(lines, given)

    def _take(self, lines, given):
        held = lines[0].get("budget")
        if held is None:
            raise ValueError(f"path={str(self.path)!r} is not a ledger. Name another file.")
        for name in ("epsilon", "delta"):
            if given[name] is not None and given[name] != held[name]:
                raise ValueError(
                    f"{name}={given[name]!r} differs from {held[name]!r}, with which "
                    f"{str(self.path)!r} was made. Leave it out, or name a new file."
                )
        self.budget, self.delta, self.accountant = (
            held["epsilon"],
            held["delta"],
            held["accountant"],
        )

    @property
    def path(self):
        """The file."""
        return self._journal.path

    def __enter__(self):
        if os.environ.get(VARIABLE):
            raise RuntimeError(
                f"A ledger is open already ({os.environ[VARIABLE]}), and a fit is charged to one "
                "only. Leave its block first."
            )
        os.environ[VARIABLE] = self._address
        _restart_workers()
        return self

    def __exit__(self, *exc):
        os.environ.pop(VARIABLE, None)
        _restart_workers()

    @property
    def _address(self):
        return json.dumps({"path": str(self.path), "data": self.data})

    def setup(self, estimator, context) -> None:
        """Open the books for a fit on which this is set as a callback of scikit-learn."""
        if os.environ.get(VARIABLE) != self._address:
            self.__enter__()
            self._opened.add(context.root_uuid)
        self._refused[context.root_uuid] = len(self._refusals())
        if self.progress:
            FitsBar.begin(context.root_uuid, self)

    def teardown(self, estimator, context) -> None:
        """Close what `setup` opened; raise BudgetExceeded if a search took it for a bad score."""
        try:
            FitsBar.end(context.root_uuid)
        finally:
            if context.root_uuid in self._opened:
                self._opened.remove(context.root_uuid)
                self.__exit__()
        before = self._refused.pop(context.root_uuid, None)
        new = [] if before is None else self._refusals()[before:]
        if new:
            more = f" So were {len(new) - 1} more fits." if len(new) > 1 else ""
            raise BudgetExceeded(f"{new[0]}{more}")

    def _refusals(self):
        return [line["refused"] for line in self._journal.read() if "refused" in line]

    def on_fit_task_begin(self, estimator, context) -> None:
        """Enter how a search splits the records."""
        if context.task_name == "search" and hasattr(estimator, "n_splits_"):
            search = place_of(context)["path"]
            splits = estimator.n_splits_
            line = {"search": search, "splits": splits, "folds": folds_of(estimator.cv, splits)}
            with self._journal.locked():
                self._journal.append(line | {"data": self.data})

    def on_fit_task_end(self, estimator, context) -> None:
        """Nothing: fits enter themselves."""

    def epsilon(self, delta=None, data=None) -> float:
        """Return what all fits on the data set ``data`` (default: this ledger's) cost."""
        return self._cost(*self._books(data or self.data), self._delta(delta))

    def report(self, delta=None, data=None) -> Spending:
        """Return what the private fits cost, and what everything costs, with reasons."""
        delta, data = self._delta(delta), data or self.data
        fits, searches = self._books(data)
        private = [fit for fit in fits if fit["private"]]
        reasons = [TWIN] * (len(private) < len(fits))
        reasons += [SCORES] * any(search["data"] == data for search in searches.values())
        spent = self._cost(private, searches, delta)
        whole = math.inf if reasons else spent
        seen = max(map(len, views(fits, searches)))
        kind = "rdp" if any(fit["curve"] for fit in private) else self.accountant
        return Spending(spent, whole, delta, kind, tuple(reasons), len(fits), seen)

    def frame(self) -> pd.DataFrame:
        """Return one row per fit; ``state`` is "planned" for one that runs or was killed."""
        columns = ["data", "what", "state", "steps", "sample_rate", "noise_multiplier", "epsilon"]
        rows = []
        for fit in self._books(None)[0]:
            runs = _runs(fit)
            what = "; ".join(dict.fromkeys([e[0] for e in fit["entries"]])) or fit["what"]
            rows.append(
                (
                    fit["data"],
                    what if fit["private"] else "not private",
                    fit["state"],
                    sum(entry[3] for entry in fit["entries"] if not entry[4]),
                    max((run.sample_rate for run in runs), default=math.nan),
                    min((run.noise_multiplier for run in runs), default=math.nan),
                    self._cost([fit], {}, self.delta) if self.delta else math.nan,
                )
            )
        return pd.DataFrame(rows, columns=columns)

    def _delta(self, delta):
        if delta is None and self.delta is None:
            raise ValueError("delta must be given, as this ledger has none, got None: delta=1e-6.")
        return delta if delta is not None else self.delta

    def _books(self, data, lines=None):
        """Return the fits on a data set, each as it ended or else as planned, and the searches."""
        fits, searches = {}, {}
        for line in self._journal.read() if lines is None else lines:
            if "fit" in line:
                fits[line["fit"]] = fits.get(line["fit"], {}) | line
            elif "search" in line:
                searches[line["search"]] = line
        return [fit for fit in fits.values() if data is None or fit["data"] == data], searches

    def _cost(self, fits, searches, delta, accountant=None):
        if not all(fit["private"] for fit in fits):
            return math.inf
        seen = views(fits, searches)
        return max(_composed(view, delta, accountant or self.accountant) for view in seen)

    def begin(self, fit: dict) -> None:
        """Enter a fit as planned, or raise BudgetExceeded."""
        with self._journal.locked() as lines:
            if self.budget is not None:
                try:
                    self._check(*self._books(self.data, lines), fit)
                except BudgetExceeded as error:
                    self._journal.append({"refused": str(error)})
                    raise
            self._journal.append(fit)

    def _check(self, before, searches, fit):
        cost = self._cost([*before, fit], searches, self.delta, "rdp")
        if cost > self.budget:  # the fast bound may be loose
            cost = min(cost, self._cost([*before, fit], searches, self.delta))
        if cost > self.budget:
            why = (
                ""
                if fit["private"]
                else (" It has no privacy (epsilon=None without noise, or keep_reference=True).")
            )
            raise BudgetExceeded(
                f"This fit would bring epsilon on data={self.data!r} from "
                f"{self._cost(before, searches, self.delta):.4g} to {cost:.4g} at "
                f"delta={self.delta:g}, above the budget epsilon={self.budget:g} of "
                f"{str(self.path)!r}.{why} Nothing was fitted. Lower the estimator's epsilon, fit "
                "less often, or name a new ledger with a larger epsilon."
            )

    def end(self, name: str, entries: list) -> None:
        """Enter what a fit released."""
        with self._journal.locked():
            self._journal.append({"fit": name, "state": "done", "entries": entries})

    def so_far(self) -> tuple[int, float | None]:
        """Return the number of fits that ended, and a fast upper bound of the private ones' cost.

        None without a delta.
        """
        fits, searches = self._books(self.data)
        private = [fit for fit in fits if fit["private"]]
        cost = self._cost(private, searches, self.delta, "rdp") if self.delta else None
        return sum(fit["state"] == "done" for fit in fits), cost


def _runs(fit):
    return [LedgerEntry(w, q, tuple(s), t, once).run for w, q, s, t, once in fit["entries"]]


def _composed(fits, delta, accountant):
    runs = [run for fit in fits for run in _runs(fit)]
    curves = [np.array(fit["curve"]) for fit in fits if fit["curve"] is not None]
    if curves:
        return curve_epsilon(sum(curves) + rdp_curve(runs), delta)
    return epsilon_of(runs, delta, accountant)


def _restart_workers():
    """Let no worker process keep the environment of another block."""
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True)
