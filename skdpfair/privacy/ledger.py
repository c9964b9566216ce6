"""The ledger of a fit: its releases in order, as public numbers."""

from collections.abc import Iterable
from dataclasses import fields, replace
from itertools import groupby
from operator import attrgetter

import numpy as np

from skdpfair.privacy.accounting import epsilon as epsilon_of
from skdpfair.privacy.releases import Release, all_releases

# rates of groups that are accounted for one by one
_MAX_RATES = 8
_KIND = attrgetter(*(f.name for f in fields(Release) if f.name != "steps"))


class Ledger:
    """The releases of a fit in order, with equal consecutive releases merged.

    Parameters
    ----------
    releases : iterable of Release, default=()
        Earlier releases.
    """

    def __init__(self, releases: Iterable[Release] = ()) -> None:
        self._releases = all_releases(releases)

    @property
    def entries(self) -> tuple[Release, ...]:
        """The releases so far."""
        runs = (list(run) for _, run in groupby(self._releases, key=_KIND))
        return tuple(replace(run[0], steps=sum(r.steps for r in run)) for run in runs)

    @property
    def steps(self) -> int:
        """Total number of steps, including empty batches, but without one-time releases."""
        return sum(release.steps for release in self._releases if not release.is_one_time)

    def record(self, release: Release) -> None:
        """Add a release; every step of a fit passes here before it is taken."""
        self._releases.append(release)

    def epsilon(self, delta: float, accountant: str = "pld", records_per_person: int = 1) -> float:
        """Return the epsilon of all releases, see :func:`skdpfair.privacy.epsilon`."""
        return epsilon_of(self.entries, delta, accountant, records_per_person)

    def group_epsilons(self, n_groups: int, delta: float, accountant: str) -> list[float] | None:
        """Return the epsilon of each group at its own rate; None where all rates are equal.

        Where rates are many, groups of similar ones pay for the largest rate among them.
        """
        entries = self.entries
        if all(e.group_rates is None for e in entries):
            return None
        by_group = [e.group_rates or (e.sample_rate,) * n_groups for e in entries]
        rates, which = np.unique(np.array(by_group).T, axis=0, return_inverse=True)
        alike = np.array_split(np.argsort(rates.max(axis=1)), min(len(rates), _MAX_RATES))
        epsilons = np.empty(len(rates))
        for rows in alike:
            worst = zip(entries, rates[rows].max(axis=0).tolist(), strict=True)
            releases = [replace(e, sample_rate=rate) for e, rate in worst if rate > 0]
            epsilons[rows] = epsilon_of(releases, delta, accountant)
        of_groups: list[float] = epsilons[which.ravel()].tolist()
        return of_groups

    def __getstate__(self) -> dict[str, object]:
        return {"_releases": list(self.entries)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ledger) and self.entries == other.entries

    __hash__ = None  # type: ignore[assignment]  # typeshed knows no class without a hash

    def __repr__(self) -> str:
        rows = (
            f"{e.steps} x {e.what} [q={e.sample_rate:.6g}, noise {e.noise_multipliers}]"
            for e in self.entries
        )
        return f"Ledger({'; '.join(rows)})"
