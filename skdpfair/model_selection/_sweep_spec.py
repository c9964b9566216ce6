"""Settings of a sweep, and facts about its records."""

from dataclasses import dataclass, field
from typing import Any

FORMAT_VERSION = 1  # of a sweep's folder


@dataclass(frozen=True)
class SweepSpec:
    """The settings of a sweep and facts on its records; the defaults are of an unknown one."""

    methods: dict[str, str] = field(default_factory=dict)  # descriptions, by name
    epsilons: list[float] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    cv: str = "None"  # "None" holds out 20 % per seed
    # descriptions of those that all fits share
    params: dict[str, str] = field(default_factory=dict)
    keep_predictions: bool = False
    delta: float | None = None  # at which all private fits together are stated
    n_samples: int | None = None
    n_features: int | None = None
    n_examples: int | None = None  # records or persons, see protects: what each fit protects
    protects: str = "record"
    # fewest and most persons of one fit, None for a sweep on records
    n_persons_of_fit: list[int] | None = None
    # names of the target and of the columns of the groups, "" if they are not known
    variables: list[str] = field(default_factory=lambda: [""])
    classes: list[Any] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    rarest_class: str = ""  # the class with the fewest records
    counts: list[list[int]] = field(default_factory=list)  # records by group and class
    features: str | None = None  # what computed the features from each record alone
    format_version: int = FORMAT_VERSION
    skdpfair: str = ""
    torch: str = ""
    # the first and the last of the fits, and their names in a PrivacyLedger
    days: list[str] = field(default_factory=list)
    ledger_fits: list[str | None] = field(default_factory=list)

    @property
    def is_known(self) -> bool:
        """Whether the results are those of a sweep, and of no bare table."""
        return bool(self.skdpfair)
