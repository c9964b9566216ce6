"""What was spent on a data set, in numbers and in words."""

from dataclasses import dataclass

from skdpfair.privacy.statement import rounded_up

SCORES = "scores on private records are not private: select with DPRandomizedSearch instead"
DIAGNOSTICS = "a fitted object holds diagnostics, which are not private (diagnostics=True)"
LEAKS = "{} learn{} from private records outside the budget: see check_pipeline"
TORN = "a line of the ledger's file was cut off: a fit may be missing"
TWIN = "a non-private twin is trained on the same records (epsilon=None, or keep_reference=True)"


@dataclass(frozen=True, repr=False)
class Spending:
    """What has been spent on a data set, see :meth:`PrivacyLedger.report`.

    Parameters
    ----------
    epsilon : float
        Of all private fits together, as the worst-off record sees them.
    whole : float
        Of everything, scores and twins included.
    delta : float
        The one delta of both.
    accountant : str
        Who computed them.
    reasons : tuple of str
        Why ``whole`` exceeds ``epsilon``.
    fits, seen : int
        How many fits there were, and how many of them read the worst-off record.
    assumptions : tuple of str
        What must be public for the numbers to hold.
    """

    epsilon: float
    whole: float
    delta: float
    accountant: str
    reasons: tuple[str, ...]
    fits: int
    seen: int
    assumptions: tuple[str, ...] = ()

    def __repr__(self):
        return described("Spending", self, self.fits, self.seen)


def described(title, spent, fits, seen) -> str:
    """Return in words what was spent, or will be."""
    lines = [
        f"{title}: {fits} fit{'s' * (fits != 1)}, of which {seen} read the worst-off record",
        f"  private fits   epsilon={rounded_up(spent.epsilon)} at delta={spent.delta:g} "
        f"({spent.accountant})",
        f"  as a whole     epsilon={rounded_up(spent.whole)}",
        *(f"    - {reason}" for reason in spent.reasons),
        *(f"  taken as public: {what}" for what in spent.assumptions),
    ]
    return "\n".join(lines)
