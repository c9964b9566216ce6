"""What a ledger tells about all fits on the same records, in fixed sentences with numbers."""

from dataclasses import asdict, replace

import numpy as np

from skdpfair._utils.validate import safe_repr
from skdpfair.budget.spending import DIAGNOSTICS, ELSEWHERE, LEAKS, REFERENCE, SCORES, UNKNOWN
from skdpfair.privacy.privacy_report import rounded_up

_AMONG = {  # by whether the fits of a model are in the ledger
    "all": ", that of this model among them",
    "none": ", and that of this model is NOT among them",
    "some": ", and NOT all of those of this model are among them",
    "unknown": ", and whether that of this model is among them is not known",
}
_IN_ADDITION = "What is not in the ledger comes in addition to its total: this model spent {}."
_DELTAS = (
    "The total holds at the δ of the ledger and the ε of this model at its own δ, so do not "
    "subtract one from the other."
)
_OTHER_DATA = (
    "The ledger also holds fits under other names of data sets, which declare that no person is in "
    "both; they are not counted here."
)
_TRUST = "The total relies on assumptions that the ledger lists."
_NO_ALARM = "The guarantee of this model holds regardless of the other fits."
_OTHER_REASON = "the ledger gives a reason that this page does not repeat"


def ledger_facts(ledger, privacy, fits):
    """Return what a ledger tells beside the report of one model, None without a ledger.

    ``fits`` are the names of the model's fits in ledgers, None if they are not known. The result
    has plain JSON types; its ``sentences`` repeat no name that anybody gave.
    """
    if ledger is None:
        return None
    check_ledger(ledger)
    recorded_part = "unknown"
    if fits is not None:
        n_lacking = ledger.n_unrecorded(fits)
        recorded_part = "all" if not n_lacking else "none" if n_lacking == len(fits) else "some"
    spent = ledger.report(ledger.delta or privacy.delta)
    reasons = tuple(dict.fromkeys(map(_without_names, spent.reasons)))
    cost = "an ε without a bound"
    if privacy.is_private:
        cost = f"ε = {rounded_up(privacy.epsilon)} at δ = {rounded_up(privacy.delta, 3)}"
    notes = {
        _IN_ADDITION.format(cost): recorded_part != "all",
        _DELTAS: ledger.delta not in (None, privacy.delta) and privacy.is_private,
        _OTHER_DATA: ledger.holds_other_data,
        _TRUST: bool(spent.notes),
        _NO_ALARM: np.isinf(spent.epsilon_total) and privacy.is_private,
    }
    stated, is_recorded = replace(spent, reasons=reasons), recorded_part in ("all", "some")
    sentences = ledger_sentences(stated, ledger, is_recorded, _AMONG[recorded_part])
    sentences += [note for note, is_true in notes.items() if is_true]
    numbers = asdict(spent) | {"budget": ledger.budget, "holds_this_model": recorded_part}
    numbers = {k: "inf" if v == np.inf else v for k, v in numbers.items()}
    return numbers | {"sentences": sentences}


def ledger_sentences(spent, ledger, is_theirs, among="") -> list[str]:
    """Return what the fits in a ledger cost; it is that of some records if it holds fits on them.

    ``among`` says whether the fits of a model are among them.
    """
    name = "The ledger of these records"
    if not is_theirs:
        name = "The given ledger, which may be of other records,"
    fits = f"{spent.n_fits:,} fit{'s' * (spent.n_fits != 1)}"
    costs = spent.sentences("it", budget=ledger.budget, names=("ε", "δ"))
    return [f"{name} holds {fits}{among}.", *costs]


def check_ledger(ledger) -> None:
    """Raise a TypeError if a ledger is none, and not None."""
    if ledger is not None and not callable(getattr(ledger, "report", None)):
        raise TypeError(f"ledger must be a PrivacyLedger or None, got {safe_repr(ledger)}.")


def _without_names(reason):
    """Return a reason of a ledger without the names of steps that it may hold."""
    for text in (LEAKS, ELSEWHERE):
        if text.split("{}")[-1] in reason:
            return text.format("a step around a fit", "s")
    return reason if reason in (REFERENCE, DIAGNOSTICS, SCORES, UNKNOWN) else _OTHER_REASON
