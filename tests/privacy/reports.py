"""A report of a private fit, of which tests change what they are about."""

from skdpfair.privacy import Release
from skdpfair.privacy.ledger import Ledger
from skdpfair.privacy.statement import PrivacyReport

DPSGD = Release("gradient sum", 0.05, (2.0,), 50)


def report(release=DPSGD, delta=1e-5, **changes):
    """Return a report of one release, which its ledger holds; ``release`` may be None."""
    ledger = Ledger([] if release is None else [release])
    if "epsilon" not in changes:
        changes["epsilon"] = ledger.epsilon(delta)
    values = {
        "method": "dpsgd",
        "delta": delta,
        "accountant": "pld",
        "noise_multiplier": 2.0,
        "sample_rate": 0.05,
        "steps": ledger.steps,
        "expected_batch_size": 50.0,
        "is_private": True,
        "seeded": False,
        "ledger": ledger,
    }
    return PrivacyReport(**(values | changes))
