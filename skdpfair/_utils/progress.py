"""Progress bars that show the epsilon spent so far, and lines where there is no terminal."""

import math
import sys
from time import monotonic
from typing import Self

from tqdm.auto import tqdm

PAUSE = 30.0  # seconds between lines, at least


class ProgressBar:
    """A progress bar, if it is ``visible``; without a terminal, a line now and then.

    ``unit`` names one item of the work.
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
        of_all = "" if total is None else f" of {total:,}"
        self._line = f"{description}: {{:,}}{of_all} {unit}s"
        self._next = -math.inf if visible and self._bar.disable else math.inf  # line, at this time

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def is_hidden(self) -> bool:
        """Whether the next move is not shown."""
        return bool(self._bar.disable) and monotonic() < self._next

    def start_at(self, done: int) -> None:
        """Count the work of an earlier run, which does not enter the estimate of the time left."""
        self._bar.initial = self._bar.n = done

    def move_to(self, done: int, epsilon: float | None = None) -> None:
        """Show how many are done, and an upper bound of the epsilon spent, if it is known."""
        spent = ""
        if epsilon is not None:
            spent = f"epsilon <= {epsilon:.3g}" if epsilon < math.inf else "a fit was not private"
            self._bar.set_postfix_str(spent, refresh=False)
        self._bar.update(done - self._bar.n)
        if self._bar.disable and not self.is_hidden:
            self._next = monotonic() + PAUSE
            sys.stderr.write(", ".join(filter(None, (self._line.format(done), spent))) + "\n")

    def close(self) -> None:
        """Remove the bar, or leave it as it is."""
        self._bar.close()
