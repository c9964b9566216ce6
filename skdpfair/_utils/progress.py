"""Progress bars that show the epsilon spent so far."""

import math
from typing import Self

from tqdm.auto import tqdm


class ProgressBar:
    """A bar over things that get done, on a terminal or in a notebook, if it is ``visible``."""

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

    def close(self) -> None:
        """Take the bar away, or leave it as it is."""
        self._bar.close()
