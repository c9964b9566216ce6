"""What privacy promises about train and test: bounds that the measured gaps may be held against."""

from skdpfair._validate import one_of
from skdpfair.privacy import Ledger, PrivacyPlan, PrivacyReport
from skdpfair.privacy.accounting import RELATIONS, total_variation


def tv_bound(privacy, *, adjacency="add_remove"):
    """Bound the total variation between the models trained on neighbouring data sets.

    Parameters
    ----------
    privacy : PrivacyReport, Ledger or PrivacyPlan
        The releases: ``clf.privacy_``, its ``ledger`` unless that is empty, or a plan.
    adjacency : {"add_remove", "zero_out", "replace_one"}, default="add_remove"
        Which data sets are neighbours: one record more or less; one record replaced by a null
        record, as in the reports, which gives the same number; or one replaced by any other.

    Returns
    -------
    float
        In [0, 1]; 0 if nothing was released, 1 if a release had no noise.

    Raises
    ------
    TypeError, ValueError
        If ``privacy`` is of another type or says less than it spent, or the adjacency is unknown.

    Notes
    -----
    Delta at epsilon 0 of the composed privacy loss distribution, rounded up. It is the largest
    total variation between the worst neighbours, far below what epsilon and delta alone give
    (Proposition 2.6 of [kulynych2022]_, `skdpfair.privacy.accounting.tv_from_epsilon`).

    References
    ----------
    .. [kulynych2022] B. Kulynych et al., "What You See is What You Get: Principled Deep Learning
       via Distributional Generalization", NeurIPS 2022.

    Examples
    --------
    >>> from skdpfair.metrics import tv_bound
    >>> from skdpfair.privacy import PrivacyPlan
    >>> adult = PrivacyPlan(steps=1840, sample_rate=1 / 92, noise_multipliers=(1.0,))
    >>> print(f"{tv_bound(adult):.3f}, {tv_bound(adult, adjacency='replace_one'):.3f}")
    0.235, 0.381
    """
    runs = _runs(privacy)
    return 1.0 if runs is None else total_variation(runs, adjacency)


def dg_bound(privacy, *, adjacency="replace_one"):
    """Bound the expected gap between train and test of every test function in [0, 1].

    Parameters
    ----------
    privacy : PrivacyReport, Ledger or PrivacyPlan
        As in `tv_bound`.
    adjacency : {"replace_one", "add_remove", "zero_out"}, default="replace_one"
        How neighbours of the same size are bounded: directly, or by twice the value of one record
        more or less (or zeroed), which is never the smaller.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    TypeError, ValueError
        As `tv_bound`.

    Notes
    -----
    Theorem 2.5 of [kulynych2022]_: a training algorithm whose output moves by at most this total
    variation when one record is replaced has a distributional generalisation gap of at most this.
    By its Proposition C.6 the same holds for the records of each group. Both speak of the mean
    over training sets and runs, of test functions of one record and the model; a single
    `dg_gap` varies about that mean.

    References
    ----------
    .. [kulynych2022] B. Kulynych et al., "What You See is What You Get: Principled Deep Learning
       via Distributional Generalization", NeurIPS 2022.

    Examples
    --------
    >>> from skdpfair.metrics import dg_bound
    >>> from skdpfair.privacy import PrivacyPlan
    >>> adult = PrivacyPlan(steps=1840, sample_rate=1 / 92, noise_multipliers=(1.0,))
    >>> print(f"{dg_bound(adult):.3f}, {dg_bound(adult, adjacency='add_remove'):.3f}")
    0.381, 0.471
    """
    one_of("adjacency", adjacency, RELATIONS)
    factor = 1 if adjacency == "replace_one" else 2
    return min(1.0, factor * tv_bound(privacy, adjacency=adjacency))


def _runs(privacy):
    """Return the releases as the accountants read them; None if they are not private at all."""
    if isinstance(privacy, PrivacyPlan):
        return privacy.runs
    if isinstance(privacy, Ledger) and not privacy.entries:
        raise ValueError(
            "privacy must be a ledger with entries, got an empty one, which a fit without privacy "
            "leaves too. Pass its report, clf.privacy_."
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
        return [entry.run for entry in privacy.entries]
    raise TypeError(
        "privacy must be a PrivacyReport, a Ledger or a PrivacyPlan, got "
        f"{type(privacy).__name__}. Pass clf.privacy_."
    )
