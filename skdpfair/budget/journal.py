"""An append-only file of JSON lines that many processes write, and that survives a kill."""

import hashlib
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from skdpfair.exceptions import UnaccountedWarning

try:
    import fcntl

    def _lock(handle):
        fcntl.flock(handle, fcntl.LOCK_EX)  # the system frees it when its process dies
except ImportError:  # Windows
    import msvcrt

    def _lock(handle):
        handle.seek(2**40)  # a byte that is never written, so that readers are not kept out
        msvcrt.locking(handle.fileno(), msvcrt.LK_LOCK, 1)


class Journal:
    """Lines of a file, read and written under a lock.

    A line is written and flushed to the disk at once.  A last line without an end is kept if it
    is whole; of half a line, the next reader warns and leaves a line that says so.  What this
    object has seen of the file must stay as it is.

    Parameters
    ----------
    path : path-like
        Of the file.

    Examples
    --------
    >>> import tempfile
    >>> journal = Journal(Path(tempfile.mkdtemp()) / "lines.jsonl")
    >>> journal.begin({"first": 0})
    [{'first': 0}]
    >>> with journal.locked() as lines:
    ...     journal.append({"a": 1})
    >>> journal.read()
    [{'first': 0}, {'a': 1}]
    """

    def __init__(self, path):
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"path must name a file, got {path!r}: a string or a pathlib.Path.")
        self.path, self._handle, self._whole = Path(path).absolute(), None, b""
        self._known = 0, _digest(b"")

    def begin(self, first: dict) -> list[dict]:
        """Make the file with a first line, if it is missing or empty; return its lines."""
        self.path.touch(exist_ok=True)
        with self.locked() as lines:
            if not lines:
                self.append(first)
            return lines or [first]

    @contextmanager
    def locked(self) -> Iterator[list[dict]]:
        """Hold the file for one writer; yields the lines so far."""
        with self._opened() as handle:
            _lock(handle)
            handle.seek(0)
            self._handle, self._whole = handle, handle.read()
            self._compare()
            try:
                self._mend()
                yield self._parsed()
            finally:
                self._known = len(self._whole), _digest(self._whole)
                self._handle, self._whole = None, b""

    def _opened(self):
        try:
            return self.path.open("r+b")
        except FileNotFoundError:
            raise FileNotFoundError(
                f"The ledger {str(self.path)!r} is gone, so that fits cannot be charged. Restore "
                "the file."
            ) from None

    def _compare(self):
        size, seen = self._known
        if len(self._whole) < size or _digest(self._whole[:size]) != seen:
            raise ValueError(
                f"The ledger {str(self.path)!r} does not begin with the lines any more that it "
                "held: it was emptied, replaced or edited, and fits would be lost. Restore the "
                "file, or make a new PrivacyLedger object if it is another one on purpose."
            )

    def _mend(self):
        """End a last line that has no end; put a line in the place of half a line."""
        end = self._whole.rfind(b"\n") + 1
        torn = self._whole[end:]
        try:
            json.loads(torn or b"0")
        except ValueError:
            if not end:
                return  # no ledger: nothing of a file of other things is written over
            self._handle.truncate(end)
            self._whole = self._whole[:end]
            self.append({"torn": len(torn)})
            warnings.warn(
                f"The last line of the ledger {str(self.path)!r} was cut off, by a crash or in a "
                "copy: a fit may be missing. Compare with a backup; the report says so from now "
                "on.",
                UnaccountedWarning,
                stacklevel=5,
            )
        else:
            if torn:
                self._write(b"\n")

    def append(self, line: dict) -> None:
        """Write one line; only inside :meth:`locked`."""
        self._write(json.dumps(line).encode() + b"\n")

    def _write(self, text):
        self._handle.seek(0, os.SEEK_END)
        self._handle.write(text)
        self._whole += text
        self._handle.flush()
        os.fsync(self._handle.fileno())

    def read(self) -> list[dict]:
        """Return the lines so far."""
        with self.locked() as lines:
            return lines

    def _parsed(self):
        try:
            return [json.loads(line) for line in self._whole.splitlines()]
        except ValueError:
            raise ValueError(
                f"path={str(self.path)!r} is not a ledger, or was edited: a line is not JSON. "
                "Restore the file, or name a new one."
            ) from None


def _digest(text):
    return hashlib.blake2b(text).digest()
