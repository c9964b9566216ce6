"""The cost of all fits on a data set, in numbers and in words."""

from dataclasses import dataclass

from skdpfair.privacy.statement import rounded_up

UNKNOWN = "what stood around the fits was not looked at: fit by ledger.fit(model, X, y)"

SCORES = "scores on private records are not private: select with DPRandomizedSearch instead"
DIAGNOSTICS = "a fitted object holds diagnostics, which are not private (diagnostics=True)"
LEAKS = "{} learn{} from private records outside the budget: see check_pipeline"
TORN = "a line of the ledger's file was cut off: a fit may be missing"
ELSEWHERE = "{} spend{} a budget besides, which is not counted here"
REFERENCE = (
    "a non-private reference model is trained on the same records (epsilon=None, or "
    "keep_reference=True)"
)


@dataclass(frozen=True, repr=False)
class Spending:
    """What has been spent on a data set, see :meth:`PrivacyLedger.report`.

    Parameters
    ----------
    epsilon : float
        Of all private fits together, as the worst-off record sees them; each is taken to have
        read every record at most once.
    epsilon_total : float
        Of everything: scores, reference models, and what else learned around the fits.  Infinite
        where no bound is known.
    delta : float
        The one delta of both.
    accountant : str
        Name of the accountant that computed them.
    reasons : tuple of str
        Why ``epsilon_total`` exceeds ``epsilon``.
    n_fits, n_fits_per_record : int
        How many fits there were, and how many of them read the worst-off record.
    assumptions : tuple of str
        What must be public for the numbers to hold.
    notes : tuple of str
        What ``epsilon_total`` takes on trust around the fits.
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

    @property
    def known(self) -> bool:
        """Whether it is known what stood around the fits, or that no epsilon covers it."""
        return UNKNOWN not in self.reasons

    def __repr__(self) -> str:
        n_fits = self.n_fits
        total = f"epsilon={rounded_up(self.epsilon_total)}" if self.known else "unknown"
        lines = [
            f"{type(self).__name__}: {n_fits} fit{'s' * (n_fits != 1)}, of which "
            f"{self.n_fits_per_record} read the worst-off record",
            f"  private fits   epsilon={rounded_up(self.epsilon)} at delta={self.delta:g} "
            f"({self.accountant})",
            f"  as a whole     {total}",
            *(f"    - {reason}" for reason in self.reasons),
            *(f"  taken as public: {what}" for what in self.assumptions),
            *(f"  note: {note}" for note in self.notes),
        ]
        return "\n".join(lines)
