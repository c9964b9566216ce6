"""The journal of a ledger: an append-only file of JSON lines, and the fits that these describe."""

from __future__ import annotations

import hashlib
import json
import math
import os
import uuid
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Self

import numpy as np
import pandas as pd

from skdpfair._utils.files import lock, path_of
from skdpfair._utils.validate import error_context
from skdpfair.budget.folds import Line, fits_seen_by_record
from skdpfair.budget.spending import SCORES, SPLIT, TORN, UNKNOWN, Spending
from skdpfair.exceptions import UnaccountedWarning
from skdpfair.privacy.accounting import epsilon as epsilon_of
from skdpfair.privacy.releases import Release
from skdpfair.privacy.renyi import ORDERS, curve_epsilon, rdp_curve
from skdpfair.privacy.statement import ASSUMPTIONS, are_names


@dataclass
class Events:
    """Lines by what they are about, taken in as they come."""

    n_lines: int = 0
    fits: dict[str, Line] = field(default_factory=dict)
    searches: dict[str, Line] = field(default_factory=dict)
    around: dict[str, Line] = field(default_factory=dict)
    is_torn: bool = False

    def take(self, lines: Sequence[Line]) -> None:
        """Take in those of the lines that are new."""
        for line in lines[self.n_lines :]:
            if "fit" in line:
                self.fits[line["fit"]] = self.fits.get(line["fit"], {}) | line
            elif "search" in line:
                self.searches[line["search"]] = line
            elif "outermost" in line:
                self.around[line["around"]] = line
            self.is_torn |= "torn" in line
        self.n_lines = len(lines)


@dataclass
class _Seen:
    """What this process, or the one that a journal was copied from, has seen of its file."""

    size: int = 0
    digest: str = hashlib.blake2b().hexdigest()
    # once this process has read the file: its lines, the state of the digest, and the mark of the
    # file when it was left
    lines: list[Line] | None = None
    events: Events = field(default_factory=Events)
    hash: Any = None
    stamp: tuple[int, ...] | None = None

    @property
    def memory(self) -> tuple[int, str]:
        """What a copy in another process has to know."""
        return self.size, self.digest

    def took(self, text: bytes) -> None:
        """Note what was written at the end."""
        self.hash.update(text)
        self.size, self.digest = self.size + len(text), self.hash.hexdigest()


_SEEN: dict[str, _Seen] = {}  # in this process, by name of a journal and of all its copies


class Journal:
    """Lines of a file, read and written under a lock.

    A line is written and flushed to the disk at once.  A last line without an end is kept if it
    is whole; of half a line, the next reader warns and leaves a line that says so.  What this
    object or a copy of it, as in a pickle, has seen of the file must stay as it is: a copy has
    the ``memory`` of its original.
    """

    def __init__(self, path: str | os.PathLike[str], memory: Sequence[Any] | None = None) -> None:
        self.path = path_of(path).absolute()
        self._handle: BinaryIO | None = None
        name, size, digest = memory or (uuid.uuid4().hex, *_Seen().memory)
        self._name: str = name
        if name not in _SEEN or size > _SEEN[name].size:
            _SEEN[name] = _Seen(size, digest)

    @property
    def memory(self) -> tuple[str, int, str]:
        """What this object and its copies have seen of the file."""
        return (self._name, *_SEEN[self._name].memory)

    def __reduce__(self) -> tuple[Any, ...]:
        return Journal, (self.path, self.memory)

    def begin(self, first: Line) -> list[Line]:
        """Make the file with a first line, if it is missing or empty; return its lines."""
        # a file that was read before and is missing was lost
        if not _SEEN[self._name].size:
            self.path.touch(exist_ok=True)
        with self.locked() as lines:
            if not lines:
                self.append(first)
            return lines[:]

    @contextmanager
    def locked(self) -> Iterator[list[Line]]:
        """Hold the file for one writer; yields the lines, to which `append` adds."""
        seen = _SEEN[self._name]
        with self._opened() as handle:
            lock(handle)
            self._handle = handle
            try:
                # a file that nobody else has written to need not be read again
                if seen.lines is None or seen.stamp != _stamp(handle):
                    self._read(handle.read(), seen)
                assert seen.lines is not None
                yield seen.lines
                seen.stamp = _stamp(handle)
            finally:
                self._handle = None

    def _opened(self) -> BinaryIO:
        try:
            return self.path.open("r+b")
        except FileNotFoundError:
            raise FileNotFoundError(
                f"The ledger {str(self.path)!r} does not exist any more, so fits cannot be "
                "charged. Restore the file."
            ) from None

    def _read(self, content: bytes, seen: _Seen) -> None:
        """Take in the content of the file, which begins with what was seen of it."""
        if len(content) < seen.size or _hash(content[: seen.size]).hexdigest() != seen.digest:
            raise ValueError(
                f"The ledger {str(self.path)!r} no longer begins with its earlier lines: it was "
                "emptied, replaced or edited, and fits would be lost. Restore the file, or make a "
                "new PrivacyLedger object if you replaced it on purpose."
            )
        end = content.rfind(b"\n") + 1
        torn = content[end:]
        # a file of other things stays as it is
        is_cut = bool(end) and not _is_json(torn or b"0")
        if is_cut:
            content = content[:end]
        known = 0 if seen.lines is None else seen.size
        lines = [*(seen.lines or ()), *self._parsed(content[known:])]
        seen.lines, seen.size, seen.hash = lines, len(content), _hash(content)
        seen.digest = seen.hash.hexdigest()
        if is_cut:
            assert self._handle is not None
            self._handle.truncate(end)
            self.append({"torn": len(torn)})
            warnings.warn(
                f"The last line of the ledger {str(self.path)!r} was cut off by a crash or a "
                "copy, and a fit may be missing. Compare with a backup; all later reports mention "
                "this.",
                UnaccountedWarning,
                stacklevel=5,
            )
        elif torn:
            self._write(b"\n")

    def append(self, line: Line) -> None:
        """Write one line; only inside :meth:`locked`."""
        text = json.dumps(line).encode()
        self._write(text + b"\n")
        lines = _SEEN[self._name].lines
        assert lines is not None
        lines.append(json.loads(text))

    def _write(self, text: bytes) -> None:
        assert self._handle is not None
        self._handle.seek(0, os.SEEK_END)
        self._handle.write(text)
        self._handle.flush()
        os.fsync(self._handle.fileno())
        _SEEN[self._name].took(text)

    def read(self) -> list[Line]:
        """Return the lines so far."""
        with self.locked() as lines:
            return lines[:]

    def history(self, data: str | None = None) -> History:
        """Return the history of a data set, or of all."""
        with self.locked():
            return self.history_so_far(data)

    def history_so_far(self, data: str | None = None) -> History:
        """Return the same; only inside :meth:`locked`."""
        seen = _SEEN[self._name]
        assert seen.lines is not None
        seen.events.take(seen.lines)
        return History.of(seen.events, data)

    def _parsed(self, content: bytes) -> list[Line]:
        try:
            return [json.loads(line) for line in content.splitlines()]
        except ValueError:
            raise ValueError(
                f"path={str(self.path)!r} is not a ledger, or was edited: a line is not JSON. "
                "Restore the file, or name a new one."
            ) from None


def _hash(text: bytes) -> Any:
    return hashlib.blake2b(text)


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _stamp(handle: BinaryIO) -> tuple[int, ...]:
    """Return what changes when a file is written to, replaced or touched."""
    facts = os.fstat(handle.fileno())
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


@dataclass(frozen=True)
class History:
    """The lines of a ledger's file on one data set or on all.

    Fits are as they ended or else as planned; ``searches`` and the checks of estimators ``around``
    fits are by the names of their calls or tasks.
    """

    fits: list[Line]
    searches: dict[str, Line]
    around: dict[str, Line]
    is_torn: bool

    @classmethod
    def of(cls, events: Events, data: str | None = None) -> Self:
        """Return the history that a file's events make on a data set."""

        def of_data(lines: dict[str, Line]) -> dict[str, Line]:
            return {k: line for k, line in lines.items() if data in (None, line["data"])}

        fits, searches, around = map(of_data, (events.fits, events.searches, events.around))
        return cls(list(fits.values()), searches, around, events.is_torn)

    def is_known(self, fit: Line) -> bool:
        """Return whether the ledger knows all estimators around a fit."""
        known: bool = self.around.get(fit.get("around", ""), {}).get("outermost", False)
        return known

    def cost(self, delta: float, accountant: str, more: Sequence[Line] = ()) -> float:
        """Return the epsilon of the fits, and of ``more`` of them, for the costliest record."""
        return cost([*self.fits, *more], self.searches, delta, accountant)

    def spending(self, delta: float, accountant: str) -> Spending:
        """Return the cost of the fits, and of the estimators around them."""
        fits, searches, around = self.fits, self.searches.values(), self.around.values()
        private = [fit for fit in fits if fit["private"]]
        reasons = dict.fromkeys(why for line in (*fits, *around) for why in line["reasons"])
        if self.is_torn:
            reasons[TORN] = None
        if reasons.pop(SCORES, False) is None or searches:
            reasons[SCORES] = None  # comes last
        if not reasons and not all(map(self.is_known, fits)):
            reasons[UNKNOWN] = None
        notes = [] if reasons else [note for line in around for note in line["notes"]]
        unit = next((fit["unit"] for fit in fits), "record")
        split = [s for s in searches if unit == "person" and not s["persons_together"]]
        notes += [SPLIT] * bool(split)
        if unit == "person" and len(fits) > 1 and not are_names(f["persons"] for f in fits):
            notes.append(ASSUMPTIONS["persons"])
        public = (s["public"] for s in searches if s["public"] and s not in split)
        spent = cost(private, self.searches, delta, accountant)
        return Spending(
            epsilon=spent,
            epsilon_total=math.inf if reasons else spent,
            delta=delta,
            accountant="rdp" if any(fit["curve"] for fit in private) else accountant,
            reasons=tuple(reasons),
            n_fits=len(fits),
            n_fits_per_record=max(map(len, fits_seen_by_record(fits, self.searches))),
            assumptions=tuple(dict.fromkeys(public)),
            notes=tuple(dict.fromkeys(notes)),
            unit=unit,
            n_private=len(private),
        )

    def frame(self, delta: float | None, accountant: str) -> pd.DataFrame:
        """Return one row per fit, see :meth:`PrivacyLedger.frame`."""
        columns = ["data", "what", "state", "steps", "sample_rate", "noise_multiplier"]
        rows = []
        for fit in self.fits:
            releases = releases_of(fit)
            what = "; ".join(dict.fromkeys(r.what for r in releases)) or fit["what"]
            leaks = self.around.get(fit.get("around", ""), {"reasons": ()})["reasons"]
            rows.append(
                (
                    fit["data"],
                    what if fit["private"] else "not private",
                    fit["state"],
                    sum(r.steps for r in releases if r.what != "group counts"),
                    max((r.sample_rate for r in releases), default=math.nan),
                    min((r.joint_noise_multiplier for r in releases), default=math.nan),
                    cost([fit], {}, delta, accountant) if delta else math.nan,
                    "; ".join(leaks) or ("nothing" if self.is_known(fit) else "unknown"),
                )
            )
        return pd.DataFrame(rows, columns=[*columns, "epsilon", "around"])


def cost(
    fits: Sequence[Line], searches: Mapping[str, Line], delta: float, accountant: str
) -> float:
    """Return the epsilon of fits for the record with the largest cost."""
    if not all(fit["private"] for fit in fits):
        return math.inf
    return max(_composed(view, delta, accountant) for view in fits_seen_by_record(fits, searches))


def releases_of(*fits: Line) -> list[Release]:
    """Return what fits released; equal releases are one of so many steps."""
    entries = [entry for fit in fits for entry in fit["entries"]]
    texts = list(map(repr, entries))
    times, distinct = Counter(texts), dict(zip(texts, entries, strict=True))
    with error_context("The ledger's file", "has a line that this version cannot read"):
        releases = [(Release(**entry), times[text]) for text, entry in distinct.items()]
    return [replace(release, steps=n * release.steps) for release, n in releases]


def stored(curve: np.ndarray | None) -> dict[str, list[float]] | None:
    """Return a Renyi curve as a line holds it, with the orders that it is taken at."""
    if curve is None:
        return None
    return {"orders": [float(a) for a in ORDERS], "rdp": [float(v) for v in curve]}


def _composed(fits: Iterable[Line], delta: float, accountant: str) -> float:
    fits = list(fits)
    releases = releases_of(*fits)
    curves = [_curve(fit["curve"]) for fit in fits if fit["curve"] is not None]
    if curves:
        return curve_epsilon(sum(curves) + rdp_curve(releases), delta)
    return epsilon_of(releases, delta, accountant)


def _curve(curve: Mapping[str, Sequence[float]]) -> np.ndarray:
    if not np.array_equal(curve["orders"], ORDERS):
        raise ValueError(
            "The ledger holds a private selection whose Renyi orders are not those of the "
            "installed dp-accounting. Read it with the version that wrote it."
        )
    return np.array(curve["rdp"])
