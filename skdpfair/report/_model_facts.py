"""What page, card and checklist state of one fit: its report, its model, its file, its ledger."""

from dataclasses import replace

import skdpfair
from skdpfair._utils.group_names import display_names
from skdpfair.privacy import privacy_report
from skdpfair.privacy.privacy_report import SEVERAL_RECORDS, percent, rounded_up
from skdpfair.report._charts import tradeoff
from skdpfair.report._ledger_facts import ledger_facts

_SELECTION = (
    "The best of a random number of trials was released. The costliest trial has {:,} steps with "
    "sampling rate {:.4g} and noise {:.4g}. The number of trials and their scores are secret."
)
_RELEASES = {  # in words
    "above_z": "count of gradients above the threshold",
    "counts": "counts by group",
    "groups": "statistics by group",
}
_FALSE_ALARMS = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0, *range(10, 101, 10))  # per cent


def model_facts(privacy, model=None, *, version=None, file=None, ledger=None) -> dict:
    """Return what templates state of a fit.

    ``model`` has the fitted attributes that are known, None without any, and ``file`` says which
    file it was read from.
    """
    n, chosen = privacy.records_per_person or 1, privacy.method == "private selection"
    of_person = n > 1 and privacy.is_private and (rounded_up(privacy.epsilon_for(n)), str(n))
    uncovered = [t for t in privacy.not_accounted if not (of_person and t == SEVERAL_RECORDS)]
    by_group, method = privacy.group_epsilons or {}, privacy.method
    groups = display_names(by_group, variables(model)[1:])
    if getattr(model, "method_", None) is not None:  # a file may leave it out
        method = model.method_.name + f", by {method}" * chosen
    numbers = privacy.steps, privacy.sample_rate, privacy.noise_multiplier
    return {
        "privacy": replace(privacy, not_accounted=tuple(uncovered)),
        "method": method,
        "day": getattr(model, "_day", None),
        "version": None if model is None else version or skdpfair.__version__,
        "file": file,
        "epsilon": rounded_up(privacy.epsilon),
        "delta": rounded_up(privacy.delta, 3),
        "mu": rounded_up(privacy.mu) if privacy.is_private else None,
        "mu_from": rounded_up(privacy.mu_from, 2) if privacy.is_private else None,
        "adjacency": privacy_report.ADJACENCY_IN_WORDS[privacy.adjacency],
        "protected": privacy_report.PROTECTED[privacy.protects],
        "of_person": of_person,
        "selection": _SELECTION.format(*numbers) if chosen else None,
        "group_epsilons": dict(zip(groups, map(rounded_up, by_group.values()), strict=True)),
        "releases": [
            (
                " + ".join(_RELEASES.get(part, part) for part in e.what.split(" + ")),
                f"{e.steps:,}",
                rounded_up(e.sample_rate),
                ", ".join(f"{noise:.4g}" for noise in e.noise_multipliers),
            )
            for e in privacy.releases
        ],
        "all_fits": ledger_facts(ledger, privacy, getattr(model, "_ledger_fits", None)),
    }


def attacker_chart(privacy):
    """Return a chart of what a private fit lets an attacker find, rounded up."""
    curve = [(a, float(percent(privacy.detection_rate(a / 100)))) for a in _FALSE_ALARMS]
    return tradeoff(curve, protects=privacy.protects)


def variables(model):
    """Return the names of the target and of the columns of the groups, "" if they are not known."""
    return getattr(model, "_variables", ("",))
