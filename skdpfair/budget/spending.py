"""The cost of all fits on a data set, in numbers and in words."""

import math
from dataclasses import dataclass

from skdpfair._utils import cards
from skdpfair.privacy.privacy_report import PROTECTED, rounded_up

UNKNOWN = "it is not known what steps around the fits learn from the records: see lint_pipeline"

SCORES = "scores on private records are not private: select with DPRandomizedSearch instead"
DIAGNOSTICS = "a fitted object holds diagnostics, which are not private (a recorder)"
LEAKS = "{} learn{} from private records outside the budget: see lint_pipeline"
ELSEWHERE = "{} spend{} another budget, which is not counted here"
REFERENCE = (
    "a non-private reference model is trained on the same records (epsilon=None, or "
    "keep_reference=True)"
)


@dataclass(frozen=True, repr=False)
class Spending:
    """The privacy spent on a data set, see :meth:`PrivacyLedger.report`.

    Parameters
    ----------
    epsilon, delta, accountant
        Cost of all private fits together, as if each read all records.
    epsilon_total : float
        Cost of everything, including scores, reference models and other steps that learn from the
        records; infinite if no bound is known.
    reasons : tuple of str
        Why ``epsilon_total`` exceeds ``epsilon``.
    n_fits, n_private : int
        Number of fits, and of the private ones.
    notes : tuple of str
        What was taken on trust.
    protects : {"record", "person"}, default="record"
        What the fits protect.
    """

    epsilon: float
    epsilon_total: float
    delta: float
    accountant: str
    reasons: tuple[str, ...]
    n_fits: int
    notes: tuple[str, ...] = ()
    protects: str = "record"
    n_private: int = 0

    @property
    def known(self) -> bool:
        """Whether the estimators around the fits are known, or no epsilon covers a fit."""
        return UNKNOWN not in self.reasons

    def sentences(
        self,
        ledger: str,
        *,
        budget: float | None = None,
        names: tuple[str, str] = ("epsilon", "delta"),
    ) -> list[str]:
        """Return what the private fits cost together, and then what this total does not cover.

        ``names`` is what to call epsilon and delta.
        """
        (epsilon, delta), n, n_plain = names, self.n_private, self.n_fits - self.n_private
        of_budget = "" if budget is None else f" of a budget of {budget:g}"
        cost = f"at most {epsilon} = {rounded_up(self.epsilon)}{of_budget} at {delta} = "
        cost += rounded_up(self.delta, 3)
        sentences = [f"The {n:,} private fits in {ledger} together cost {cost}."]
        if n < 2:
            one = f"The one private fit in {ledger} costs {cost}."
            sentences = [one if n else f"There is no private fit in {ledger}."]
        if n_plain:
            sentences.append(
                "Models without privacy were trained on the same records, too "
                f"({n_plain:,} fit{'s' * (n_plain != 1)}): no {epsilon} covers them, so do not "
                "share these models, or figures that were computed with them."
            )
        reasons = (why for why in self.reasons if not (n_plain and why == REFERENCE))
        return sentences + [f"{why[0].upper()}{why[1:]}." for why in reasons]

    @property
    def _head(self) -> str:
        n = cards.count(self.n_fits, "fit")
        return f"{type(self).__name__}: {n}, protecting {PROTECTED[self.protects]}"

    def __repr__(self) -> str:
        total = f"epsilon={rounded_up(self.epsilon_total)}" if self.known else "unknown"
        lines = [
            self._head,
            f"  private fits   epsilon={rounded_up(self.epsilon)} at "
            f"delta={rounded_up(self.delta, 3)} ({self.accountant})",
            f"  as a whole     {total}",
            *(f"    - {reason}" for reason in self.reasons),
            *(f"  note: {note}" for note in self.notes),
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        total = f"ε = {rounded_up(self.epsilon_total)}" if self.known else "unknown"
        if self.known and self.epsilon_total == math.inf:
            total = "no bound"
        at = f"at delta {rounded_up(self.delta, 3)} ({self.accountant} accountant)"
        why = "for the reasons below" if self.reasons else "nothing else learns from the records"
        tiles = cards.tiles(
            ("fits", f"{self.n_fits:,}", f"{self.n_private:,} private"),
            ("private fits together", f"ε = {rounded_up(self.epsilon)}", at),
            ("everything together", total, why),
        )
        notes = cards.items(f"note: {note}" for note in self.notes)
        return cards.card(self._head, tiles, cards.items(self.reasons), notes)
