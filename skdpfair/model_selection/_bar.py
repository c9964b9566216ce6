"""The progress bar of a sweep: cells done, time left, epsilon spent."""

from tqdm.auto import tqdm

from skdpfair.privacy.renyi import curve_epsilon, rdp_curve


class SpendingBar:
    """A bar that knows what the private fits on one data set cost together.

    Parameters
    ----------
    n_cells : int
        How many there will be.
    delta : float
        At which epsilon is told.
    shown : bool
        Whether to show it where there is a terminal or a notebook.

    Examples
    --------
    >>> bar = SpendingBar(2, 1e-5, shown=False)
    >>> with bar:
    ...     bar.add([{"runs": [[0.01, 1.0, 100]]}, {"runs": []}])
    >>> print(f"{bar.epsilon:.2f}")
    1.21
    """

    def __init__(self, n_cells, delta, *, shown):
        self.delta, self._curve = delta, 0.0
        hidden = None if shown else True
        self._bar = tqdm(total=n_cells, desc="sweep", unit="cell", disable=hidden)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self._bar.close()

    @property
    def epsilon(self) -> float:
        """An upper bound, by Renyi divergences, as if every fit read all records."""
        return 0.0 if isinstance(self._curve, float) else curve_epsilon(self._curve, self.delta)

    def add(self, cells, *, timed=True) -> None:
        """Count finished cells; those from an earlier run say nothing of the time left."""
        cells = list(cells)
        for cell in cells:
            if cell["runs"]:
                self._curve = self._curve + rdp_curve(cell["runs"])
        if not timed:
            self._bar.initial = len(cells)
            self._bar.n = len(cells)
        elif not self._bar.disable:
            if self.epsilon > 0:  # a fit without privacy has none
                told = f"private fits: epsilon <= {self.epsilon:.3g}"
                self._bar.set_postfix_str(told, refresh=False)
            self._bar.update(len(cells))
