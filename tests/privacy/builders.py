"""Releases and a report of a private fit, of which tests change what they are about."""

import mpmath

from skdpfair.privacy import NoisyRelease, compute_epsilon
from skdpfair.privacy.privacy_report import PrivacyReport


def run(rate, *noise, steps=1, **more):
    """Return steps at a sampling rate, with the noise multipliers of gradient and queries."""
    return NoisyRelease("steps", rate, noise, steps, **more)


ADULT, DPSGD = run(1 / 92, 1.0, steps=1840), run(0.05, 2.0, steps=50)


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


def exact_epsilon(mu, delta):
    """Return the epsilon of the plain Gaussian mechanism from its closed form, to 60 digits."""
    with mpmath.workdps(60):
        low, high, mu = mpmath.mpf(0), mpmath.mpf(mu) * (mpmath.mpf(mu) / 2 + 60), mpmath.mpf(mu)
        for _ in range(80):
            middle = (low + high) / 2
            gain = mpmath.ncdf(mu / 2 - middle / mu)
            loss = mpmath.exp(middle) * mpmath.ncdf(-mu / 2 - middle / mu)
            low, high = (middle, high) if gain - loss > delta else (low, middle)
        return float(high)


def hockey_stick(eps, q, sigma, k):
    """Return delta of one step at ``eps`` to 60 digits, the larger of both directions."""
    shares = [mpmath.binomial(k, j) * q**j * (1 - q) ** (k - j) for j in range(k + 1)]
    terms = [(j, p * mpmath.exp(-(j**2) / (2 * sigma**2))) for j, p in enumerate(shares)]

    def threshold(ratio):
        low, high = mpmath.mpf(-1e6), mpmath.mpf(1e6)
        for _ in range(160):
            x = (low + high) / 2
            below = sum(c * mpmath.exp(j * x / sigma**2) for j, c in terms) < ratio
            low, high = (x, high) if below else (low, x)
        return high

    x = threshold(mpmath.exp(eps))
    above = sum(p * mpmath.ncdf((j - x) / sigma) for j, p in enumerate(shares))
    removed = above - mpmath.exp(eps) * mpmath.ncdf(-x / sigma)
    if mpmath.exp(-eps) <= shares[0]:
        return removed
    x = threshold(mpmath.exp(-eps))
    below = sum(p * mpmath.ncdf((x - j) / sigma) for j, p in enumerate(shares))
    return max(removed, mpmath.ncdf(x / sigma) - mpmath.exp(eps) * below)
