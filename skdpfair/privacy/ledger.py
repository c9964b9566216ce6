"""The ledger of a fit: its releases in order, as public numbers."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pandas as pd

from skdpfair._validate import error_context, flag, integer, listed, number, safe_repr
from skdpfair.privacy.accounting import SampledGaussian, of_person
from skdpfair.privacy.accounting import epsilon as epsilon_of
from skdpfair.privacy.calibration import PrivacyPlan, compose_noise_multipliers


@dataclass(frozen=True)
class LedgerEntry:
    """A run of equal releases.

    Parameters
    ----------
    what : str
        Name of the release.
    sample_rate : float
        Poisson sampling rate; 1 for a release on all records.
    noise_multipliers : tuple of float
        Noise multipliers of the releases that read one sample.
    steps : int
        Number of releases.
    is_one_time : bool
        Whether the release was made before the steps, on all records.
    group_rates : tuple of float or None
        Sampling rate of each group, at most ``sample_rate``, if the rates differ.

    Examples
    --------
    >>> entry = LedgerEntry("gradient sum", 0.01, (1.0,), steps=100, group_rates=(0.01, 0.002))
    >>> entry.run_of(group=1)
    SampledGaussian(sample_rate=0.002, noise_multiplier=1.0, steps=100, records=1)
    """

    what: str
    sample_rate: float
    noise_multipliers: tuple[float, ...]
    steps: int = 1
    is_one_time: bool = False
    group_rates: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        PrivacyPlan(
            steps=self.steps,
            sample_rate=self.sample_rate,
            noise_multipliers=self.noise_multipliers,
        )
        if not isinstance(self.what, str):
            raise TypeError(
                f"what must be the name of a release, a text, got {safe_repr(self.what)}."
            )
        flag("is_one_time", self.is_one_time)
        if self.group_rates is not None:
            for rate in listed("group_rates", self.group_rates, "the groups' sampling rates"):
                number("group_rates", rate, low=0, high=1)

    @property
    def run(self) -> SampledGaussian:
        """The entry in the form that the accountants use."""
        return SampledGaussian(
            self.sample_rate, compose_noise_multipliers(self.noise_multipliers), self.steps
        )

    def run_of(self, group: int) -> SampledGaussian:
        """Return the entry for the records of one group.

        Parameters
        ----------
        group : int
            Position in ``group_rates``.

        Returns
        -------
        SampledGaussian
        """
        if self.group_rates is None:
            return self.run
        return self.run._replace(sample_rate=self.group_rates[group])


class Ledger:
    """The releases of a fit in order, with equal consecutive releases merged.

    Parameters
    ----------
    entries : iterable of LedgerEntry, default=()
        Earlier releases.

    Examples
    --------
    >>> ledger = Ledger()
    >>> for _ in range(100):
    ...     ledger.record("gradient sum", sample_rate=0.01, noise_multipliers=(1.0,))
    >>> ledger
    Ledger(100 x gradient sum [q=0.01, noise (1.0,)])
    >>> print(f"{ledger.epsilon(1e-5):.2f}")
    0.72
    """

    def __init__(self, entries: Iterable[LedgerEntry] = ()) -> None:
        with error_context("entries", "must be a list of LedgerEntry"):
            entries = list(entries)
        for entry in entries:
            if not isinstance(entry, LedgerEntry):
                raise TypeError(
                    f"entries must be a list of LedgerEntry, got {safe_repr(entry)} in it."
                )
        self._entries = entries
        self._last: tuple[object, ...] | None = None
        self._more = 0  # releases like the last entry that are not counted in it yet

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """The entries so far."""
        self._settle()
        return tuple(self._entries)

    @property
    def steps(self) -> int:
        """Total number of steps, including empty batches, but without one-time releases."""
        return sum(entry.steps for entry in self.entries if not entry.is_one_time)

    def record(
        self,
        what: str,
        *,
        sample_rate: float,
        noise_multipliers: Iterable[float],
        steps: int = 1,
        is_one_time: bool = False,
        group_rates: tuple[float, ...] | None = None,
    ) -> None:
        """Record ``steps`` equal releases.

        Parameters
        ----------
        what, sample_rate, noise_multipliers, steps, is_one_time, group_rates
            As in :class:`LedgerEntry`.
        """
        with error_context("noise_multipliers", "must be a tuple of numbers"):
            noise_multipliers = tuple(noise_multipliers)
        if not isinstance(sample_rate, float):
            sample_rate = number("sample_rate", sample_rate, low=0, high=1, low_open=True)
        steps = integer("steps", steps, low=0)
        key = (what, float(sample_rate), noise_multipliers, group_rates)
        if steps == 1 and key == self._last:  # every step of a fit passes here
            self._more += 1
            return
        entry = LedgerEntry(*key[:3], steps, is_one_time, group_rates)
        self._settle()
        last = self._entries[-1] if self._entries else None
        if last is not None and replace(last, steps=steps) == entry:
            self._entries[-1] = replace(last, steps=last.steps + steps)
        else:
            self._entries.append(entry)
        self._last = key

    def _settle(self) -> None:
        if self._more:
            last = self._entries[-1]
            self._entries[-1], self._more = replace(last, steps=last.steps + self._more), 0

    def epsilon(self, delta: float, accountant: str = "pld", records_per_person: int = 1) -> float:
        """Return the epsilon of the composition of all entries.

        Parameters
        ----------
        delta : float
            In (0, 1).
        accountant : {"pld", "prv", "rdp"}, default="pld"
            See :func:`skdpfair.privacy.epsilon`.
        records_per_person : int, default=1
            From 1 to 1000; epsilon is that of a person with so many records.

        Returns
        -------
        float
            Epsilon >= 0.
        """
        runs = of_person((entry.run for entry in self.entries), records_per_person)
        return epsilon_of(runs, delta, accountant)

    def to_frame(self) -> pd.DataFrame:
        """Return the entries as a table.

        Returns
        -------
        pandas.DataFrame
            One row per entry.
        """
        columns = ["what", "steps", "sample_rate", "noise_multipliers", "joint_noise_multiplier"]
        rows = [
            (e.what, e.steps, e.sample_rate, e.noise_multipliers, e.run.noise_multiplier)
            for e in self.entries
        ]
        return pd.DataFrame(rows, columns=columns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ledger) and self.entries == other.entries

    __hash__ = None  # type: ignore[assignment]  # typeshed knows no class without a hash

    def __repr__(self) -> str:
        rows = (
            f"{e.steps} x {e.what} [q={e.sample_rate:.6g}, noise {e.noise_multipliers}]"
            for e in self.entries
        )
        return f"Ledger({'; '.join(rows)})"
