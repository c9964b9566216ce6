"""A bar over the fits in a ledger, for as long as a search runs."""

import math
from threading import Event, Thread

from tqdm.auto import tqdm

_EVERY = 0.5  # seconds between two looks at the file


class FitsBar(Thread):
    """Follows a ledger's file, to which fits in any process write.

    Parameters
    ----------
    ledger : PrivacyLedger
        Whose fits.
    """

    _running = {}  # by task; threads cannot go where pickled callbacks go

    def __init__(self, ledger):
        super().__init__(daemon=True)
        self.ledger, self._over, self._size = ledger, Event(), -1
        self.before = ledger.so_far()[0]
        self.bar = tqdm(desc="private fits", unit="fit", leave=False, disable=None)

    @classmethod
    def begin(cls, task, ledger):
        """Show a bar, unless nobody would see it."""
        bar = cls(ledger)
        if not bar.bar.disable:
            cls._running[task] = bar
            bar.start()

    @classmethod
    def end(cls, task):
        """Take the bar away."""
        bar = cls._running.pop(task, None)
        if bar is not None:
            bar.finish()

    def run(self):
        """Look at the file until the end."""
        while not self._over.wait(_EVERY):
            self.look()

    def look(self):
        """Move the bar if the file has grown."""
        size = self.ledger.path.stat().st_size
        if size == self._size:
            return
        self._size = size
        done, cost = self.ledger.so_far()
        if cost is not None:
            told = f"epsilon <= {cost:.3g}" if cost < math.inf else "a fit was not private"
            self.bar.set_postfix_str(told, refresh=False)
        self.bar.update(done - self.before - self.bar.n)
        self.bar.refresh()

    def finish(self):
        """Look a last time, and close the bar."""
        self._over.set()
        self.join()
        self.look()
        self.bar.close()
