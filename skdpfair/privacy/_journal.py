"""An append-only file of JSON lines that many processes write, and that survives a kill."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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

    A line is written and flushed to the disk at once.  What a kill left of a line without an end
    is cut off by the next writer; its event had not begun.

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
        self.path, self._handle = Path(path).absolute(), None

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
        with self.path.open("r+b") as handle:
            _lock(handle)
            handle.seek(0)
            whole = handle.read()
            end = whole.rfind(b"\n") + 1
            if end < len(whole):
                handle.truncate(end)
            self._handle = handle
            try:
                yield self._parsed(whole[:end])
            finally:
                self._handle = None

    def append(self, line: dict) -> None:
        """Write one line; only inside :meth:`locked`."""
        self._handle.seek(0, os.SEEK_END)
        self._handle.write(json.dumps(line).encode() + b"\n")
        self._handle.flush()
        os.fsync(self._handle.fileno())

    def read(self) -> list[dict]:
        """Return the lines so far."""
        with self.locked() as lines:
            return lines

    def _parsed(self, text):
        try:
            return [json.loads(line) for line in text.splitlines()]
        except ValueError:
            raise ValueError(
                f"path={str(self.path)!r} is not a ledger, or was edited: a line is not JSON. "
                "Restore the file, or name a new one."
            ) from None
