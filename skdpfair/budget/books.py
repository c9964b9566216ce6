"""Reading a ledger's lines: which fits there were, and what they cost together."""

import math

import numpy as np
import pandas as pd

from skdpfair.budget.folds import views
from skdpfair.budget.spending import SCORES, TORN, UNKNOWN, Spending
from skdpfair.privacy.accounting import epsilon as epsilon_of
from skdpfair.privacy.ledger import LedgerEntry
from skdpfair.privacy.renyi import ORDERS, curve_epsilon, rdp_curve

_COLUMNS = [
    "data",
    "what",
    "state",
    "steps",
    "sample_rate",
    "noise_multiplier",
    "epsilon",
    "around",
]


def read_books(lines, data=None):
    """Return the fits on a data set, each as it ended or else as planned, and the searches."""
    fits, searches = {}, {}
    for line in lines:
        if "fit" in line:
            fits[line["fit"]] = fits.get(line["fit"], {}) | line
        elif "search" in line:
            searches[line["search"]] = line
    return [fit for fit in fits.values() if data is None or fit["data"] == data], searches


def surroundings(lines, data=None) -> dict:
    """Return what was looked at around fits on a data set, by the name of the call or task."""
    looks = (line for line in lines if "outermost" in line)
    return {line["around"]: line for line in looks if data is None or line["data"] == data}


def is_known(fit, around) -> bool:
    """Tell whether the ledger knows all that stood around a fit."""
    return around.get(fit.get("around"), {}).get("outermost", False)


def spending(lines, data, delta, accountant) -> Spending:
    """Return what the fits on a data set cost, and all that is known of what stood around them."""
    (fits, searches), around = read_books(lines, data), surroundings(lines, data)
    private = [fit for fit in fits if fit["private"]]
    own = [search for search in searches.values() if search["data"] == data]
    looks = around.values()
    reasons = dict.fromkeys(why for line in (*fits, *looks) for why in line["reasons"])
    if any("torn" in line for line in lines):
        reasons[TORN] = None
    if reasons.pop(SCORES, False) is None or own:
        reasons[SCORES] = None  # comes last
    if not reasons and not all(is_known(fit, around) for fit in fits):
        reasons[UNKNOWN] = None
    notes = () if reasons else dict.fromkeys(note for line in looks for note in line["notes"])
    spent = cost(private, searches, delta, accountant)
    return Spending(
        epsilon=spent,
        whole=math.inf if reasons else spent,
        delta=delta,
        accountant="rdp" if any(fit["curve"] for fit in private) else accountant,
        reasons=tuple(reasons),
        fits=len(fits),
        seen=max(map(len, views(fits, searches))),
        assumptions=tuple(dict.fromkeys(s["public"] for s in own if s["public"])),
        notes=tuple(notes),
    )


def frame_of(lines, delta, accountant) -> pd.DataFrame:
    """Return one row per fit, see :meth:`PrivacyLedger.frame`."""
    rows, around = [], surroundings(lines)
    for fit in read_books(lines)[0]:
        found = around.get(fit.get("around"), {"reasons": ()})
        runs = runs_of(fit)
        what = "; ".join(dict.fromkeys([e[0] for e in fit["entries"]])) or fit["what"]
        rows.append(
            (
                fit["data"],
                what if fit["private"] else "not private",
                fit["state"],
                sum(e[3] for e in fit["entries"] if e[0] != "group counts"),
                max((run.sample_rate for run in runs), default=math.nan),
                min((run.noise_multiplier for run in runs), default=math.nan),
                cost([fit], {}, delta, accountant) if delta else math.nan,
                "; ".join(found["reasons"]) or ("nothing" if is_known(fit, around) else "unknown"),
            )
        )
    return pd.DataFrame(rows, columns=_COLUMNS)


def cost(fits, searches, delta, accountant) -> float:
    """Return the epsilon of fits as the worst-off record sees them; infinite with a twin."""
    if not all(fit["private"] for fit in fits):
        return math.inf
    return max(_composed(view, delta, accountant) for view in views(fits, searches))


def runs_of(fit) -> list:
    """Return the runs that a fit released."""
    return [LedgerEntry(w, q, tuple(s), t, once).run for w, q, s, t, once in fit["entries"]]


def stored(curve) -> dict | None:
    """Return a Renyi curve as a line holds it, with the orders that it is taken at."""
    if curve is None:
        return None
    return {"orders": [float(a) for a in ORDERS], "rdp": [float(v) for v in curve]}


def _composed(fits, delta, accountant):
    runs = [run for fit in fits for run in runs_of(fit)]
    curves = [_curve(fit["curve"]) for fit in fits if fit["curve"] is not None]
    if curves:
        return curve_epsilon(sum(curves) + rdp_curve(runs), delta)
    return epsilon_of(runs, delta, accountant)


def _curve(held):
    if not np.array_equal(held["orders"], ORDERS):
        raise ValueError(
            "The ledger holds a private selection whose Renyi orders are not those of the "
            "installed dp-accounting. Read it with the version that wrote it."
        )
    return np.array(held["rdp"])
