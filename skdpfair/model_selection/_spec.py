"""What a sweep compares, and on which records."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class SweepSpec:
    """The settings of a sweep and facts on its records; the defaults are those of an unknown one.

    Parameters
    ----------
    methods : dict of str to str
        Descriptions of the methods, by name.
    epsilons, seeds : list
        Budgets and seeds.
    cv : str
        Description of the splitter; "None" holds out 20 % per seed.
    params : dict of str to str
        Descriptions of the parameters that all fits share.
    keep_predictions : bool
        Whether predictions were kept.
    delta : float or None
        Delta at which all private fits together are stated.
    n_samples, n_features, n_units : int or None
        Number of records, of features, and of records or persons, see ``unit``.
    unit : {"record", "person"}
        What each fit protects.
    n_units_of_fit : list of int, or None
        Fewest and most persons of one fit, None for a sweep on records.
    variables : list of str
        Names of the target and of the columns of the groups, "" if they are not known.
    classes, groups : list
        Class labels, and names of the groups.
    rarest_class : str
        The class with the fewest records.
    counts : list of shape (n_groups, n_classes)
        Number of records by group and class.
    features : str or None
        What computed the features from each record alone.
    skdpfair, torch : str
        Versions.
    days, calls : list
        First and last day of the fits, and their names in a `PrivacyLedger`.
    """

    methods: dict[str, str] = field(default_factory=dict)
    epsilons: list[float] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    cv: str = "None"
    params: dict[str, str] = field(default_factory=dict)
    keep_predictions: bool = False
    delta: float | None = None
    n_samples: int | None = None
    n_features: int | None = None
    n_units: int | None = None
    unit: str = "record"
    n_units_of_fit: list[int] | None = None
    variables: list[str] = field(default_factory=lambda: [""])
    classes: list[Any] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    rarest_class: str = ""
    counts: list[list[int]] = field(default_factory=list)
    features: str | None = None
    skdpfair: str = ""
    torch: str = ""
    days: list[str] = field(default_factory=list)
    calls: list[str | None] = field(default_factory=list)

    @property
    def is_known(self) -> bool:
        """Whether the results are those of a sweep, and of no bare table."""
        return bool(self.skdpfair)
