"""Bounds on total variation and on generalisation gaps, computed from the privacy budget."""

import math

from skdpfair._validate import integer, number, one_of, safe_repr
from skdpfair.metrics._generalisation import bins_of
from skdpfair.privacy import Ledger, PrivacyReport, Release
from skdpfair.privacy.accounting import RELATIONS, total_variation, tv_from_epsilon


def tv_bound(privacy, *, adjacency="add_remove"):
    """Bound the total variation between the models trained on neighbouring data sets.

    Parameters
    ----------
    privacy : PrivacyReport, Ledger or Release
        The releases: ``clf.privacy_``, its ``ledger`` unless that is empty, or a plan.
    adjacency : {"add_remove", "zero_out", "replace_one"}, default="add_remove"
        Neighbouring data sets differ by adding or removing one record, by replacing one with a
        null record as in the reports (which gives the same number), or with any other record.

    Returns
    -------
    float
        In [0, 1]; 0 if nothing was released, 1 if a release had no noise.

    Notes
    -----
    The bound is delta at epsilon 0 of the composed privacy loss distribution, rounded up: the
    total variation between the worst neighbours. It is far smaller than the bound from epsilon
    and delta alone (Proposition 2.6 of Kulynych et al.,
    `skdpfair.privacy.accounting.tv_from_epsilon`).

    Examples
    --------
    >>> from skdpfair.metrics import tv_bound
    >>> from skdpfair.privacy import Release
    >>> adult = Release("gradient sum", 1 / 92, (1.0,), steps=1840)
    >>> print(f"{tv_bound(adult):.3f}, {tv_bound(adult, adjacency='replace_one'):.3f}")
    0.235, 0.381
    """
    runs = _runs(privacy)
    return 1.0 if runs is None else total_variation(runs, adjacency)


def dg_bound(privacy, *, adjacency="replace_one"):
    """Bound the expected train-test gap of every test function with values in [0, 1].

    Parameters
    ----------
    privacy : PrivacyReport, Ledger or Release
        As in `tv_bound`.
    adjacency : {"replace_one", "add_remove", "zero_out"}, default="replace_one"
        The relation for which the total variation is bounded. "replace_one" is bounded directly;
        the others count twice, which never gives a smaller bound.

    Returns
    -------
    float
        In [0, 1].

    Notes
    -----
    By Theorem 2.5 of Kulynych et al., the distributional generalisation gap is at most the total
    variation by which the output of training changes when one record is replaced. By its
    Proposition C.6, the same holds for the records of each group. Both bound the mean over
    training sets and runs, for test functions of one record and the model; a single `dg_gap`
    varies about this mean.

    Examples
    --------
    >>> from skdpfair.metrics import dg_bound
    >>> from skdpfair.privacy import Release
    >>> adult = Release("gradient sum", 1 / 92, (1.0,), steps=1840)
    >>> print(f"{dg_bound(adult):.3f}, {dg_bound(adult, adjacency='add_remove'):.3f}")
    0.381, 0.471
    """
    one_of("adjacency", adjacency, RELATIONS)
    factor = 1 if adjacency == "replace_one" else 2
    return min(1.0, factor * tv_bound(privacy, adjacency=adjacency))


def dg_bound_from_epsilon(epsilon, delta=0.0, *, bound="tight"):
    """Bound the expected train-test gap of a test function in [0, 1] by epsilon and delta alone.

    Parameters
    ----------
    epsilon : float
        At least 0, for replace-one neighbours.
    delta : float, default=0.0
        In [0, 1].
    bound : {"tight", "additive", "mutual_information"}, default="tight"
        Proposition 2.6; the older bound of equation 2; or that of Steinke and Zakynthinou (2020),
        for ``delta=0`` only. Figure 2 compares the three.

    Returns
    -------
    float
        The older bounds may exceed 1, where they say nothing.

    Notes
    -----
    In this order, the bounds of Kulynych et al. are (e^epsilon - 1 + 2 delta) / (e^epsilon + 1),
    e^epsilon - 1 + delta, and epsilon. `dg_bound` is far smaller than all three, as it uses the
    releases themselves.

    Examples
    --------
    >>> from skdpfair.metrics import dg_bound_from_epsilon
    >>> bounds = ("tight", "mutual_information", "additive")
    >>> [round(dg_bound_from_epsilon(0.5, bound=bound), 3) for bound in bounds]
    [0.245, 0.5, 0.649]
    """
    one_of("bound", bound, ("tight", "additive", "mutual_information"))
    tight = tv_from_epsilon(epsilon, delta)
    if bound == "tight":
        return tight
    if bound == "additive":
        return math.expm1(epsilon) + delta if epsilon < 700 else math.inf
    if delta != 0:
        raise ValueError(
            f"delta must be 0 with bound='mutual_information', got {safe_repr(delta)}. Use "
            "bound='tight'."
        )
    return float(epsilon)


def strong_dg_bound(privacy, *, n_samples, failure_probability=None, adjacency="replace_one"):
    """Bound the expected ABSOLUTE train-test gap of every test function with values in [0, 1].

    `dg_bound` bounds the absolute value of the expected gap, in which gaps of different training
    sets may cancel.

    Parameters
    ----------
    privacy, adjacency
        As in `dg_bound`.
    n_samples : int
        Number of training records.
    failure_probability : float or None, default=None
        With a number p in (0, 1), return what the absolute gap of one training set and run exceeds
        with a probability below p. None bounds its mean.

    Returns
    -------
    float
        In [0, 1].

    Notes
    -----
    By Lemma C.3 of Kulynych et al., an algorithm whose output varies by at most delta in total
    variation has a mean of at most 4 delta, if n is at least 2 / delta^2. As it also varies by at
    most any larger delta, the bound is 4 max(delta, sqrt(2 / n)) for every n. Divided by p, it
    is that of Proposition C.2 (Markov's inequality). The gap is one between training
    records and the population; a finite test set adds its own error. The lemma does not cover
    the records of one group.

    Examples
    --------
    >>> from skdpfair.metrics import strong_dg_bound
    >>> from skdpfair.privacy import Release
    >>> release = Release("gradient sum", 0.01, (10.0,), steps=100)
    >>> mean = strong_dg_bound(release, n_samples=50_000)
    >>> single = strong_dg_bound(release, n_samples=50_000, failure_probability=0.1)
    >>> print(f"{mean:.3f} {single:.3f}")
    0.032 0.319
    """
    n_samples = integer("n_samples", n_samples)
    p = 1.0
    if failure_probability is not None:
        p = number(
            "failure_probability", failure_probability, low=0, high=1, low_open=True, high_open=True
        )
    stable = max(dg_bound(privacy, adjacency=adjacency), math.sqrt(2 / n_samples))
    return min(1.0, 4 * stable / p)


def calibration_bound(privacy, *, n_samples, tau=0.1, adjacency="replace_one"):
    """Bound the difference of the expected `calibration_gap` between training set and population.

    Parameters
    ----------
    privacy, n_samples, adjacency
        As in `strong_dg_bound`.
    tau : float, default=0.1
        Width of the bins: 1/m for an integer m.

    Returns
    -------
    float
        In [0, 1].

    Notes
    -----
    The bound is delta (1 / tau + 1) with delta = `strong_dg_bound`: one delta for each bin.
    Theorem C.8 of Kulynych et al. states delta / tau, for bins that are open, so that a
    probability of exactly 1 lies in none. `calibration_gap` counts it in one more bin.

    Examples
    --------
    >>> from skdpfair.metrics import calibration_bound
    >>> from skdpfair.privacy import Release
    >>> release = Release("gradient sum", 0.01, (10.0,), steps=100)
    >>> print(f"{calibration_bound(release, n_samples=50_000):.3f}")
    0.351
    """
    n_bins = bins_of(tau)
    strong = strong_dg_bound(privacy, n_samples=n_samples, adjacency=adjacency)
    return min(1.0, (n_bins + 1) * strong)


def _runs(privacy):
    """Return the releases as the accountants read them; None if they are not private at all."""
    if isinstance(privacy, Release):
        return [privacy]
    if isinstance(privacy, Ledger) and not privacy.entries:
        raise ValueError(
            "privacy must be a ledger with entries, got an empty one, as a fit without privacy "
            "also has. Pass its report, clf.privacy_."
        )
    if isinstance(privacy, PrivacyReport):
        if not privacy.is_private:
            return None
        if privacy.steps > privacy.ledger.steps:
            raise ValueError(
                f"privacy.ledger must hold all of the {privacy.steps} steps of the report, got "
                f"{privacy.ledger.steps}. Pass the report of a fit, clf.privacy_, as it is."
            )
        privacy = privacy.ledger
    if isinstance(privacy, Ledger):
        return privacy.entries
    raise TypeError(
        "privacy must be a PrivacyReport, a Ledger or a Release, got "
        f"{type(privacy).__name__}. Pass clf.privacy_."
    )
