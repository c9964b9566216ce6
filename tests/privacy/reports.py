"""A report of a private fit, of which tests change what they are about."""

from skdpfair.privacy import NoisyRelease, compute_epsilon
from skdpfair.privacy.statement import PrivacyReport

DPSGD = NoisyRelease("gradient sum", 0.05, (2.0,), 50)


def report(release=DPSGD, delta=1e-5, **changes):
    """Return a report of one release, ``release`` may be None."""
    releases = () if release is None else (release,)
    if "epsilon" not in changes:
        changes["epsilon"] = compute_epsilon(releases, delta)
    values = {
        "method": "dpsgd",
        "delta": delta,
        "accountant": "pld",
        "noise_multiplier": 2.0,
        "sample_rate": 0.05,
        "steps": sum(r.steps for r in releases),
        "expected_batch_size": 50.0,
        "is_private": True,
        "seeded": False,
        "releases": releases,
    }
    return PrivacyReport(**(values | changes))
