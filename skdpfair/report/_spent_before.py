"""What a ledger tells about all fits on the same records, in fixed sentences with numbers."""

from dataclasses import asdict, replace

import numpy as np

from skdpfair._utils.validate import safe_repr
from skdpfair.budget.spending import DIAGNOSTICS, REFERENCE, SCORES, UNKNOWN
from skdpfair.privacy.statement import rounded_up

HOLDS = "{ledger} holds {n} {fits}{own}."
LEDGERS = "The ledger of these records", "The given ledger, which may be of other records,"
OWN = {  # by whether the fits of a model are in the ledger
    "all": ", that of this model among them",
    "none": ", and that of this model is NOT among them",
    "some": ", and NOT all of those of this model are among them",
    "unknown": ", and whether that of this model is among them is not known",
}
IN_ADDITION = "What is not in the ledger comes in addition to its total: this model spent {own}."
OWN_COST = ("ε = {} at δ = {}", "an ε without a bound")
DELTAS = (
    "The ε of this model holds at the δ of this model, and the total at the δ with which the "
    "ledger was begun: the same noise has a smaller ε at a larger δ, so the two ε may differ even "
    "for a single fit, and must not be subtracted from each other."
)
OTHER_DATA = (
    "The ledger also holds fits under other names of data sets, which declare that no person is in "
    "both; they are not counted here."
)
TRUST = "The whole rests on what is taken on trust: the ledger lists it."
NO_ALARM = (
    "What is not counted, or has no privacy, does not weaken the guarantee of this model, which "
    "holds as stated above."
)
_OTHER = "the ledger gives a reason that this page does not repeat"
REASONS = (REFERENCE, DIAGNOSTICS, SCORES, UNKNOWN, _OTHER)


def beside(ledger, privacy, fits):
    """Return what a ledger tells beside the report of one model, None without a ledger.

    Parameters
    ----------
    ledger : PrivacyLedger or None
        The ledger of the records on which the model was trained.
    privacy : PrivacyReport
        Of the model.
    fits : sequence of str or None, or None
        Names of the model's fits in ledgers; None if they are not known.

    Returns
    -------
    dict or None
        ``sentences``, texts without a name that anybody gave, and ``all_fits``, the whole report as
        plain JSON types, and the sentences as its ``statement``.
    """
    if ledger is None:
        return None
    check_ledger(ledger)
    n_lacking = None if fits is None else ledger.n_unrecorded(fits)
    held = "unknown" if fits is None else _amount(n_lacking, len(fits))
    spent = ledger.report(ledger.delta or privacy.delta)
    reasons = {reason if reason in REASONS else _OTHER for reason in spent.reasons}
    known = replace(spent, reasons=tuple(r for r in REASONS if r in reasons), notes=())
    bound, no_bound = OWN_COST
    cost = bound.format(rounded_up(privacy.epsilon), rounded_up(privacy.delta, 3))
    notes = {
        IN_ADDITION.format(own=cost if privacy.is_private else no_bound): held != "all",
        DELTAS: ledger.delta not in (None, privacy.delta) and privacy.is_private,
        OTHER_DATA: ledger.holds_other_data,
        TRUST: bool(spent.notes),
        NO_ALARM: np.isinf(spent.epsilon_total) and privacy.is_private,
    }
    sentences = [
        holds(spent, OWN[held], held in ("all", "some")),
        *known.sentences("it", budget=ledger.budget, names=("ε", "δ")),
        *(note for note, is_true in notes.items() if is_true),
    ]
    numbers = asdict(spent) | {"budget": ledger.budget, "holds_this_model": held}
    numbers = {k: "inf" if v == np.inf else v for k, v in numbers.items()}
    all_fits = numbers | {"statement": " ".join(sentences)}
    return {"sentences": sentences, "all_fits": all_fits}


def holds(spent, own="", is_theirs=True):
    """Return how many fits a ledger holds as a sentence, with one of `OWN`.

    It is the ledger of some records if it holds a fit on them.
    """
    return HOLDS.format(
        ledger=LEDGERS[not is_theirs],
        n=f"{spent.n_fits:,}",
        fits="fit" if spent.n_fits == 1 else "fits",
        own=own,
    )


def check_ledger(ledger) -> None:
    """Raise a TypeError if a ledger is none, and not None."""
    if ledger is not None and not callable(getattr(ledger, "report", None)):
        raise TypeError(f"ledger must be a PrivacyLedger or None, got {safe_repr(ledger)}.")


def _amount(n_lacking, n):
    return "all" if not n_lacking else "none" if n_lacking == n else "some"
