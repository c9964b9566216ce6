"""The journal of a ledger: an append-only file of JSON lines, and the fits that these describe."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from io import FileIO
from typing import Any, Self, TypeAlias

import numpy as np
import pandas as pd

from skdpfair._utils.files import lock, path_of
from skdpfair._utils.validate import number
from skdpfair.budget.spending import SCORES, UNKNOWN, Spending
from skdpfair.privacy.accounting import compute_epsilon
from skdpfair.privacy.privacy_report import ASSUMPTIONS, PROTECTED, are_names
from skdpfair.privacy.releases import NoisyRelease
from skdpfair.privacy.renyi import ORDERS, curve_epsilon, rdp_curve

Line: TypeAlias = dict[str, Any]  # of a ledger's file, for instance a fit


@dataclass
class Totals:
    """The sum of fits; adding one takes the same time, however many there are.

    ``releases`` counts equal releases, each as JSON; ``protected`` has what fits protect, and the
    columns of persons.
    """

    releases: Counter[str] = field(default_factory=Counter)
    curves: list[Any] = field(default_factory=list)
    all_private: bool = True
    protected: set[tuple[str, str | None]] = field(default_factory=set)

    @classmethod
    def of(cls, fits: Iterable[Line]) -> Self:
        """Return the totals of fits."""
        totals = cls()
        for fit in fits:
            totals.add(fit)
        return totals

    def add(self, fit: Line) -> None:
        """Add a fit."""
        self.releases.update(map(json.dumps, fit["entries"]))
        self.curves += [] if fit["curve"] is None else [fit["curve"]]
        self.all_private &= fit["private"]
        self.protected.add((fit["protects"], fit["persons"]))

    def end(self, fit: Line, entries: list[Line]) -> None:
        """Replace the planned releases of a fit by those that happened."""
        self.releases.subtract(map(json.dumps, fit["entries"]))
        self.releases.update(map(json.dumps, entries))

    def cost(self, delta: float, accountant: str, more: Sequence[Line] = ()) -> float:
        """Return the epsilon of the fits and of ``more``, as if each read all records."""
        if not (self.all_private and all(fit["private"] for fit in more)):
            return math.inf
        new = Totals.of(more)
        releases = _releases(self.releases + new.releases)
        curves = [*self.curves, *new.curves]
        if not all(np.array_equal(curve["orders"], ORDERS) for curve in curves):
            raise ValueError(
                "The ledger holds a private selection whose Renyi orders are not those of the "
                "installed dp-accounting. Read it with the version that wrote it."
            )
        if curves:
            selections = np.sum([curve["rdp"] for curve in curves], axis=0)
            return curve_epsilon(selections + rdp_curve(releases), delta)
        return compute_epsilon(releases, delta, accountant)


@dataclass
class _Seen:
    """The part of a file that this process, or the one that started it, has read.

    ``totals`` are by data set.
    """

    size: int
    digest: str
    n_read: int = 0  # bytes that this process has taken in, and their lines
    n_lines: int = 0
    hash: Any = field(default_factory=hashlib.blake2b)  # of them
    state: tuple[int, ...] = ()  # of the file, when it was read
    is_sealed: bool = False
    first: Line | None = None
    fits: dict[str, Line] = field(default_factory=dict)
    totals: defaultdict[str, Totals] = field(default_factory=lambda: defaultdict(Totals))

    def take(self, text: bytes) -> None:
        """Take in lines that were read or written at the end; each is parsed once in a process."""
        for line in text.splitlines(keepends=True):
            self._check_seal(line)
            self._take_line(json.loads(line))
            self.is_sealed = _SEAL in line
            self.n_read, self.n_lines = self.n_read + len(line), self.n_lines + 1
            self.hash.update(line)
        self.size, self.digest = self.n_read, self.hash.hexdigest()

    def _take_line(self, line: Line) -> None:
        """Take in a line; ValueError or TypeError if it is none that a ledger writes here."""
        if not isinstance(line, dict):
            raise TypeError("it is no object")
        if self.first is None:
            self.first = line
            return
        _check(line)
        fit = self.fits.get(line["fit"])
        if "data" in line:
            if fit is not None:
                raise ValueError("it begins a fit that an earlier line began")
            self.totals[line["data"]].add(line)
            fit = line
        else:
            if fit is None or fit["state"] != "planned":
                raise ValueError("it ends a fit that no earlier line began, or that has ended")
            self.totals[fit["data"]].end(fit, line["entries"])
        self.fits[line["fit"]] = fit | line

    def sealed(self, text: bytes) -> bytes:
        """Return a line with a digest of it and of all lines before, as its last entry."""
        seal = self.hash.copy()
        seal.update(text)
        digest: str = seal.hexdigest()[:32]
        return text[:-1] + _SEAL + digest.encode() + b'"}'

    def _check_seal(self, line: bytes) -> None:
        text, seal, _ = line.rpartition(_SEAL)
        # files begun by earlier versions have lines without
        if self.sealed(text + b"}") + b"\n" != line if seal else self.is_sealed:
            raise ValueError("it, or a line before it, is not as it was written")


FORMAT_VERSION = 1
_VERSION = re.compile(rb'{"format_version": (\d+)')  # the first entry of the first line
_SEAL = b', "seal": "'
_BEFORE_STEPS = "group counts", "column counts"  # of fits
_SEEN: dict[str, _Seen] = {}  # by name of a journal and of all its copies


class Journal:
    """Lines of a file, read and written under a lock; a line is flushed to the disk at once.

    The part of the file that this object or a copy, as in a pickle, has read must not change: a
    copy has the ``memory`` of its original.
    """

    def __init__(self, path: str | os.PathLike[str], memory: Sequence[Any] | None = None) -> None:
        self.path = path_of(path).absolute()
        self._handle: FileIO | None = None
        name, size, digest = memory or (uuid.uuid4().hex, 0, _digest(b""))
        self._name: str = name
        if name not in _SEEN or size > _SEEN[name].size:
            _SEEN[name] = _Seen(size, digest)

    @property
    def memory(self) -> tuple[str, int, str]:
        """The part of the file that this object and its copies have read."""
        return self._name, _SEEN[self._name].size, _SEEN[self._name].digest

    def __reduce__(self) -> tuple[Any, ...]:
        return Journal, (self.path, self.memory)

    def begin(self, first: Line) -> Line:
        """Make the file with a first line, if it is missing or empty; return its first line."""
        # a file that was read before and is missing was lost
        if not _SEEN[self._name].size:
            self.path.touch(exist_ok=True)
        with self.locked():
            seen = _SEEN[self._name]
            if seen.first is None:
                self.append(first)
            assert seen.first is not None  # `append` has taken it in
            return seen.first

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the file, whose new lines are taken in, for one writer, which calls `append`."""
        try:
            opened = self.path.open("r+b", buffering=0)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"The ledger {str(self.path)!r} does not exist any more, so fits cannot be "
                "charged. Restore the file."
            ) from None
        with opened as handle:
            lock(handle)
            seen = _SEEN[self._name]
            # only this process has written since: its own lines need not be read again
            if _state(handle) != seen.state:
                self._read(handle.read(), seen)
                seen.state = _state(handle)
            self._handle = handle
            try:
                yield
            finally:
                self._handle = None

    def _read(self, content: bytes, seen: _Seen) -> None:
        """Take in the content of the file, which begins with what was seen of it."""
        if _digest(content[: seen.size]) != seen.digest:
            raise ValueError(
                f"The ledger {str(self.path)!r} no longer begins with its earlier lines: it was "
                "emptied, replaced or edited, and fits would be lost. Restore the file, or make a "
                "new PrivacyLedger object if you replaced it on purpose."
            )
        version = _VERSION.match(content)
        if version and int(version[1]) != FORMAT_VERSION:
            raise ValueError(
                f"The ledger {str(self.path)!r} has format version {int(version[1])}; this "
                f"skdpfair reads {FORMAT_VERSION}. Read it with the version that wrote it, or a "
                "newer one."
            )
        try:
            seen.take(content[seen.n_read : content.rfind(b"\n") + 1])
            if content and not content.endswith(b"\n"):
                raise ValueError("the last line has no end")
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ValueError(
                f"path={str(self.path)!r} is not a ledger, or its line {seen.n_lines + 1} was "
                "edited or cut off by a crash or a copy. Restore the file, or name a new one. "
                "After a power failure you may delete an incomplete last line: its fit never "
                f"started. ({str(error)[:200]})"
            ) from None

    def append(self, line: Line) -> None:
        """Write one line, whole or not at all; only inside :meth:`locked`."""
        text = _SEEN[self._name].sealed(json.dumps(line).encode()) + b"\n"
        handle = self._handle
        assert handle is not None
        end = handle.seek(0, os.SEEK_END)
        try:
            # a full disk takes a part
            if handle.write(text) < len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            os.fsync(handle.fileno())
        except OSError:
            handle.truncate(end)
            raise
        _SEEN[self._name].take(text)
        _SEEN[self._name].state = _state(handle)

    def fits(self, data: str | None = None) -> list[Line]:
        """Return the fits on a data set, or on all, as they ended or else as planned."""
        with self.locked():
            return [fit for fit in _SEEN[self._name].fits.values() if data in (None, fit["data"])]

    def totals(self, data: str) -> Totals:
        """Return what the fits on a data set add up to; only inside :meth:`locked`."""
        return _SEEN[self._name].totals[data]


class Unbegun(Journal):
    """A journal whose file is still to be made: it has no fits, and takes none."""

    def begin(self, first: Line) -> Line:
        """Return the first line, which is not written."""
        return first

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold nothing."""
        yield


def _state(handle: FileIO) -> tuple[int, ...]:
    """Return what changes with the content of a file, whoever writes."""
    about = os.fstat(handle.fileno())
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def _digest(text: bytes) -> str:
    return hashlib.blake2b(text).hexdigest()


def spending(
    fits: Sequence[Line], delta: float, accountant: str, around: Sequence[str] | None = None
) -> Spending:
    """Return the cost of fits.

    ``around`` is why the estimators around them reveal more; None if that is not known.
    """
    private = Totals.of(fit for fit in fits if fit["private"])
    known = dict.fromkeys([*(why for fit in fits for why in fit["reasons"]), *(around or ())])
    reasons = sorted(known, key=lambda why: why == SCORES)  # scores come last
    if around is None and fits and not reasons:
        reasons.append(UNKNOWN)
    protects = next((fit["protects"] for fit in fits), "record")
    is_trusted = protects == "person" and len(fits) > 1
    is_trusted &= not are_names(fit["persons"] for fit in fits)
    spent = private.cost(delta, accountant)
    return Spending(
        epsilon=spent,
        epsilon_total=math.inf if reasons else spent,
        delta=delta,
        accountant="rdp" if private.curves else accountant,
        reasons=tuple(reasons),
        n_fits=len(fits),
        notes=(ASSUMPTIONS["persons"],) * is_trusted,
        protects=protects,
        n_private=sum(fit["private"] for fit in fits),
    )


def frame(fits: Sequence[Line], delta: float | None, accountant: str) -> pd.DataFrame:
    """Return one row per fit, see :meth:`PrivacyLedger.frame`."""
    rows = []
    for fit in fits:
        releases = releases_of(fit)
        what = "; ".join(dict.fromkeys(r.what for r in releases)) or fit["what"]
        noises = (r.joint_noise_multiplier for r in releases)
        rows.append(
            {
                "data": fit["data"],
                "what": what if fit["private"] else "not private",
                "state": fit["state"],
                "steps": sum(r.steps for r in releases if r.what not in _BEFORE_STEPS),
                "sample_rate": max((r.sample_rate for r in releases), default=math.nan),
                "noise_multiplier": min(noises, default=math.nan),
                "epsilon": Totals.of([fit]).cost(delta, accountant) if delta else math.nan,
            }
        )
    columns = ["data", "what", "state", "steps", "sample_rate", "noise_multiplier", "epsilon"]
    return pd.DataFrame(rows, columns=columns)


def releases_of(fit: Line) -> list[NoisyRelease]:
    """Return what a fit released; equal releases are one of so many steps."""
    return _releases(Totals.of([fit]).releases)


def _releases(counts: Counter[str]) -> list[NoisyRelease]:
    releases = [(_release(text), n) for text, n in counts.items() if n]
    return [replace(release, steps=n * release.steps) for release, n in releases]


@lru_cache(maxsize=4096)  # most fits release the same
def _release(text: str) -> NoisyRelease:
    return NoisyRelease(**json.loads(text))


# types of what lines hold, by what they are about
_FIT: dict[str, Any] = {"fit": str, "entries": list}
_PLAN: dict[str, Any] = {"data": str, "what": str, "protects": str, "private": bool}
_PLAN |= {"reasons": list, "persons": str | None, "curve": dict | None}


def _check(line: Line) -> None:
    """Raise ValueError or TypeError unless a line after the first is one that fits write."""
    is_plan = "data" in line
    types = _FIT | _PLAN if is_plan else _FIT
    wrong = [name for name, of in types.items() if not isinstance(line.get(name), of)]
    if line.get("state") != ("planned" if is_plan else "done"):
        wrong.append("state")
    if line.get("protects", "record") not in PROTECTED:
        wrong.append("protects")
    if wrong:
        raise ValueError(f"no fit writes its {wrong[0]}")
    for entry in line["entries"]:
        _release(json.dumps(entry))
    "".join(line.get("reasons", []))  # of texts
    if (curve := line.get("curve")) is not None:
        rdp = [number("curve", value, low=0) for value in curve["rdp"]]
        if len(rdp) != len(curve["orders"]):
            raise ValueError("its curve has no value for each order")
