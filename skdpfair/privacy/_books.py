"""Reading a ledger's lines: which fits there were, and what they cost together."""

import math

import numpy as np

from skdpfair.privacy.accounting import epsilon as epsilon_of
from skdpfair.privacy.folds import views
from skdpfair.privacy.ledger import LedgerEntry
from skdpfair.privacy.renyi import ORDERS, curve_epsilon, rdp_curve


def read_books(lines, data=None):
    """Return the fits on a data set, each as it ended or else as planned, and the searches."""
    fits, searches = {}, {}
    for line in lines:
        if "fit" in line:
            fits[line["fit"]] = fits.get(line["fit"], {}) | line
        elif "search" in line:
            searches[line["search"]] = line
    return [fit for fit in fits.values() if data is None or fit["data"] == data], searches


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
