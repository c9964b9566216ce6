"""Progress bars that show the epsilon spent so far."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import ClassVar, Self
from uuid import UUID

from tqdm.auto import tqdm

_EVERY = 0.5  # seconds between two looks at a ledger's file


class ProgressBar:
    """A bar over things that get done, on a terminal or in a notebook only, if it is ``visible``.

    Examples
    --------
    >>> with ProgressBar("sweep", "cell", total=2, visible=False) as bar:
    ...     bar.move_to(1, epsilon=0.5)
    """

    def __init__(
        self,
        description: str,
        unit: str,
        *,
        total: int | None = None,
        visible: bool = True,
        leave: bool = False,
    ) -> None:
        hidden = None if visible else True  # None asks for a terminal
        self._bar = tqdm(total=total, desc=description, unit=unit, leave=leave, disable=hidden)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def is_hidden(self) -> bool:
        """Whether nobody sees the bar."""
        return bool(self._bar.disable)

    def start_at(self, done: int) -> None:
        """Count what an earlier run did, which says nothing of the time left."""
        self._bar.initial = self._bar.n = done

    def move_to(self, done: int, epsilon: float | None = None) -> None:
        """Show that so many are done, and an upper bound of what was spent, if it is known."""
        if epsilon is not None:
            spent = f"epsilon <= {epsilon:.3g}" if epsilon < math.inf else "a fit was not private"
            self._bar.set_postfix_str(spent, refresh=False)
        self._bar.update(done - self._bar.n)

    def refresh(self) -> None:
        """Draw the bar now."""
        self._bar.refresh()

    def close(self) -> None:
        """Take the bar away, or leave it as it is."""
        self._bar.close()


class LedgerFollower(Thread):
    """A bar over the fits in a ledger's file, to which any process may write."""

    # by task; threads cannot go where pickled callbacks go
    _running: ClassVar[dict[UUID, LedgerFollower]] = {}

    def __init__(self, path: Path, so_far: Callable[[], tuple[int, float | None]]) -> None:
        super().__init__(daemon=True)
        self.path, self.so_far = path, so_far
        self.before = so_far()[0]
        self.bar = ProgressBar("private fits", "fit")
        self._over = Event()
        self._size = -1

    @classmethod
    def begin(cls, task: UUID, path: Path, so_far: Callable[[], tuple[int, float | None]]) -> None:
        """Show a bar, unless nobody would see it."""
        follower = cls(path, so_far)
        if not follower.bar.is_hidden:
            cls._running[task] = follower
            follower.start()

    @classmethod
    def end(cls, task: UUID) -> None:
        """Take the bar of a task away."""
        follower = cls._running.pop(task, None)
        if follower is not None:
            follower.finish()

    def run(self) -> None:
        """Look at the file until the end."""
        while not self._over.wait(_EVERY):
            self.look()

    def look(self) -> None:
        """Move the bar if the file has grown."""
        size = self.path.stat().st_size
        if size != self._size:
            self._size = size
            done, epsilon = self.so_far()
            self.bar.move_to(done - self.before, epsilon)
            self.bar.refresh()

    def finish(self) -> None:
        """Look a last time, and close the bar."""
        self._over.set()
        self.join()
        self.look()
        self.bar.close()
