"""The cost of all fits on a data set, in numbers and in words."""

from dataclasses import dataclass

from skdpfair.privacy.statement import rounded_up

UNKNOWN = "the estimators around the fits were not checked: use ledger.fit(model, X, y)"

SCORES = "scores on private records are not private: select with DPRandomizedSearch instead"
DIAGNOSTICS = "a fitted object holds diagnostics, which are not private (a recorder)"
LEAKS = "{} learn{} from private records outside the budget: see check_pipeline"
TORN = "a line of the ledger's file was cut off: a fit may be missing"
ELSEWHERE = "{} spend{} another budget, which is not counted here"
SPLIT = (
    "every fit counts for every person, as folds may split her records: ledger.fit(search, X, y, "
    "groups=persons, ...) with cv=GroupKFold costs less"
)
REFERENCE = (
    "a non-private reference model is trained on the same records (epsilon=None, or "
    "keep_reference=True)"
)

COST = "at most {epsilon} {spent}{budget}, at {delta} {at}"
OF_BUDGET = " of {}"
PRIVATE = "The {n} private fits in {ledger} together cost {cost}."
ONE_PRIVATE = "The one private fit in {ledger} costs {cost}."
NO_PRIVATE = "There is no private fit in {ledger}."
PLAIN = (
    "Models without privacy were trained on the same records, too ({n} {fits}): no {epsilon} "
    "covers them, so do not share these models, or figures that were computed with them."
)
NOT_COUNTED = "Not counted: {}."


@dataclass(frozen=True, repr=False)
class Spending:
    """The privacy spent on a data set, see :meth:`PrivacyLedger.report`.

    Parameters
    ----------
    epsilon : float
        Cost of all private fits together, for the record with the largest cost; each fit is
        assumed to read every record at most once.
    epsilon_total : float
        Cost of everything, including scores, reference models and other steps that learn from the
        records.  Infinite if no bound is known.
    delta : float
        The delta of both.
    accountant : str
        Name of the accountant that computed them.
    reasons : tuple of str
        Why ``epsilon_total`` exceeds ``epsilon``.
    n_fits, n_fits_per_record : int
        Number of fits, and the largest number of fits that read the same record.
    assumptions : tuple of str
        Facts that must be public for the numbers to hold.
    notes : tuple of str
        Unverified assumptions of ``epsilon_total``.
    unit : {"record", "person"}, default="record"
        What the fits protect.  If persons, a record in these lines is all records of a person.
    n_private : int, default=0
        Number of private fits among ``n_fits``.
    """

    epsilon: float
    epsilon_total: float
    delta: float
    accountant: str
    reasons: tuple[str, ...]
    n_fits: int
    n_fits_per_record: int
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unit: str = "record"
    n_private: int = 0

    @property
    def known(self) -> bool:
        """Whether the estimators around the fits were checked, or no epsilon covers them."""
        return UNKNOWN not in self.reasons

    def sentences(
        self,
        ledger: str,
        *,
        budget: float | None = None,
        names: tuple[str, str] = ("epsilon", "delta"),
    ) -> list[str]:
        """Return what the private fits cost together, and then what this total does not cover.

        Parameters
        ----------
        ledger : str
            What to call the ledger.
        budget : float or None, default=None
            Epsilon of its budget.
        names : tuple of (str, str), default=("epsilon", "delta")
            What to call epsilon and delta.

        Returns
        -------
        list of str
            Sentences.

        Examples
        --------
        >>> from skdpfair.budget.spending import REFERENCE, Spending
        >>> spent = Spending(0.5, float("inf"), 1e-5, "pld", (REFERENCE,), 3, 3, n_private=2)
        >>> for sentence in spent.sentences("loans.jsonl"):
        ...     print(sentence)
        The 2 private fits in loans.jsonl together cost at most epsilon 0.5, at delta 1e-05.
        Models without privacy were trained on the same records, too (1 fit): no epsilon covers
        them, so do not share these models, or figures that were computed with them.
        """
        words = {"ledger": ledger, "epsilon": names[0], "delta": names[1]}
        n, n_plain = self.n_private, self.n_fits - self.n_private
        cost = COST.format(
            **words,
            spent=rounded_up(self.epsilon),
            budget="" if budget is None else OF_BUDGET.format(f"{budget:g}"),
            at=rounded_up(self.delta, 3),
        )
        private = NO_PRIVATE if not n else ONE_PRIVATE if n == 1 else PRIVATE
        found = [private.format(**words, n=f"{n:,}", cost=cost)]
        if n_plain:
            fits = "fit" if n_plain == 1 else "fits"
            found.append(PLAIN.format(**words, n=f"{n_plain:,}", fits=fits))
        reasons = [why for why in self.reasons if not (n_plain and why == REFERENCE)]
        found += [NOT_COUNTED.format(why) for why in reasons]
        return found

    def __repr__(self) -> str:
        n_fits = self.n_fits
        total = f"epsilon={rounded_up(self.epsilon_total)}" if self.known else "unknown"
        lines = [
            f"{type(self).__name__}: {n_fits} fit{'s' * (n_fits != 1)}, at most "
            f"{self.n_fits_per_record} per {self.unit}",
            f"  private fits   epsilon={rounded_up(self.epsilon)} at delta={self.delta:g} "
            f"({self.accountant})",
            f"  as a whole     {total}",
            *(f"    - {reason}" for reason in self.reasons),
            *(f"  taken as public: {what}" for what in self.assumptions),
            *(f"  note: {note}" for note in self.notes),
        ]
        return "\n".join(lines)
