"""What a ledger tells about all fits on the same records, in fixed sentences with numbers."""

import re
from dataclasses import asdict, fields

import numpy as np

from skdpfair._utils.validate import safe_repr
from skdpfair.budget.spending import (
    DIAGNOSTICS,
    ELSEWHERE,
    LEAKS,
    REFERENCE,
    SCORES,
    UNKNOWN,
    Spending,
)
from skdpfair.privacy.accounting import ACCOUNTANTS
from skdpfair.privacy.statement import UNITS, rounded_up

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
_MAX_NUMBER = 1e12
_SOMETHING = "a step around a fit"
_OF_STEPS = {text: text.format(_SOMETHING, "s") for text in (LEAKS, ELSEWHERE)}
_OTHER = "the ledger gives a reason that this page does not repeat"
REASONS = (REFERENCE, DIAGNOSTICS, *_OF_STEPS.values(), SCORES, UNKNOWN, _OTHER)


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
        ``sentences``, texts without a name that anybody gave; ``facts``, from which
        `sentences_of` makes them; and ``all_fits``, the whole report as plain JSON types, and the
        sentences as its ``statement``.
    """
    if ledger is None:
        return None
    check_ledger(ledger)
    n_lacking = None if fits is None else ledger.n_unrecorded(fits)
    spent = ledger.report(ledger.delta or privacy.delta)
    numbers = asdict(spent) | {
        "budget": ledger.budget,
        "holds_this_model": "unknown" if fits is None else _amount(n_lacking, len(fits)),
    }
    reasons = {_fixed(reason) for reason in spent.reasons}
    facts = numbers | {
        "reasons": [reason for reason in REASONS if reason in reasons],
        "notes": [],
        "has_own_delta": ledger.delta not in (None, privacy.delta),
        "has_other_data": ledger.holds_other_data,
        "has_notes": bool(spent.notes),
    }
    numbers, facts = (
        {k: "inf" if v == np.inf else v for k, v in part.items()} for part in (numbers, facts)
    )
    sentences = sentences_of(facts, privacy)
    all_fits = numbers | {"statement": " ".join(sentences)}
    return {"sentences": sentences, "facts": facts, "all_fits": all_fits}


def sentences_of(facts, privacy) -> list[str]:
    """Return the sentences that facts of a ledger make beside the report of a model."""
    spent = Spending(**{f.name: _number(facts[f.name]) for f in fields(Spending)})
    held = facts["holds_this_model"]
    bound, no_bound = OWN_COST
    cost = bound.format(rounded_up(privacy.epsilon), rounded_up(privacy.delta, 3))
    notes = {
        IN_ADDITION.format(own=cost if privacy.is_private else no_bound): held != "all",
        DELTAS: facts["has_own_delta"] and privacy.is_private,
        OTHER_DATA: facts["has_other_data"],
        TRUST: facts["has_notes"],
        NO_ALARM: np.isinf(spent.epsilon_total) and privacy.is_private,
    }
    return [
        holds(spent, OWN[held], held in ("all", "some")),
        *spent.sentences("it", budget=facts["budget"], names=("ε", "δ")),
        *(note for note, is_true in notes.items() if is_true),
    ]


def are_ledger_facts(facts) -> bool:
    """Return whether facts of a ledger are numbers and fixed reasons, and no more."""
    words = {"accountant": ACCOUNTANTS, "unit": UNITS.values(), "holds_this_model": OWN}
    flags = {"has_own_delta", "has_other_data", "has_notes"}
    numbers = [v for k, v in facts.items() if k not in {*words, *flags, "reasons", "notes"}]
    return (
        set(facts) == {f.name for f in fields(Spending)} | {*words, *flags, "budget"}
        and facts["reasons"] == [reason for reason in REASONS if reason in facts["reasons"]]
        and facts["notes"] == []
        and all(facts[name] in known for name, known in words.items())
        and all(v in (None, "inf") or 0 <= v < _MAX_NUMBER for v in numbers)
        and all(isinstance(facts[name], bool) for name in flags)
    )


def _number(value):
    return np.inf if value == "inf" else value


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


def _fixed(reason):
    """Return a reason without the names of steps that it may hold."""
    for text, fixed in _OF_STEPS.items():
        if re.fullmatch(re.sub(r"\\{\\}", ".*", re.escape(text)), reason, re.S):
            return fixed
    return reason if reason in REASONS else _OTHER
