"""The attacks of an audit: thresholds on likelihood ratios, learnt and known."""

import numpy as np

from skdpfair.privacy.auditing import mu_lower_bound

_TRAINING = 0.25  # share of the outputs that the attack is learnt on
_TAILS = np.array([0.002, 0.005, 0.01, 0.02])
_THRESHOLDS = np.concatenate([_TAILS, np.linspace(0, 1, 17)[1:-1], 1 - _TAILS])
_RIDGE = 1e-9


def mu_of(without, with_record, failure: float) -> float:
    """Return the least ``mu`` that outputs on two neighbours leave possible.

    Parameters
    ----------
    without, with_record : ndarray of shape (n_draws, n_seen)
        What the attack sees; the last column is a likelihood ratio that it has computed.
    failure : float in (0, 1)
        Chance that the bound exceeds the truth.

    Notes
    -----
    Two attacks: the last column as it is, and the likelihood ratio of normal distributions that
    are fitted to a part of the draws, which finds what nobody thought of.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.normal(size=(2, 5000, 3))
    >>> print(f"{mu_of(a, b + [2.0, 0.0, 0.0], 1e-6):.1f} {mu_of(a, b, 1e-6):.1f}")
    1.7 0.0
    """
    n, bounds = int(_TRAINING * len(without)), []
    learnt = likelihood_ratio(without[:n], with_record[:n])
    for score in (learnt, lambda rows: rows[:, -1]):
        known = np.concatenate([score(without[:n]), score(with_record[:n])])
        thresholds = np.quantile(known, _THRESHOLDS)
        scores = score(without[n:]), score(with_record[n:])
        bounds.append(mu_lower_bound(*scores, thresholds, failure / 2))
    return max(bounds)


def best_mu(n_draws: int, failure: float) -> float:
    """Return the bound of an attack that is never wrong.

    Examples
    --------
    >>> print(f"{best_mu(1000, 1e-6):.1f} {best_mu(20_000, 1e-6):.1f}")
    3.9 6.1
    """
    n = n_draws - int(_TRAINING * n_draws)
    return mu_lower_bound(np.zeros(n), np.ones(n), np.full(len(_THRESHOLDS), 0.5), failure / 2)


def likelihood_ratio(without, with_record):
    """Return the log-likelihood ratio of normal distributions fitted to two samples."""
    both = np.vstack([without, with_record])
    centre, scale = both.mean(0), both.std(0)
    moves = scale > 1e-12 * (1 + np.abs(centre))

    def standard(rows):
        return (rows[:, moves] - centre[moves]) / scale[moves]

    fits = []
    for rows in (without, with_record):
        z = standard(rows)
        spread = np.atleast_2d(np.cov(z, rowvar=False)) + _RIDGE * np.eye(z.shape[1])
        fits.append((z.mean(0), np.linalg.inv(spread), np.linalg.slogdet(spread)[1]))

    def ratio(rows):
        z = standard(rows)
        logs = [
            np.einsum("ij,jk,ik->i", z - mean, inverse, z - mean) + logdet
            for mean, inverse, logdet in fits
        ]
        return (logs[0] - logs[1]) / 2

    return ratio
