"""One call per table or figure: train what is missing, compare, write."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from skdpfair import _validate
from skdpfair.reproduce import _written, errors, esipova, fair, knolle, kulynych, li, step_size, xu
from skdpfair.reproduce._runs import frame_of
from skdpfair.reproduce._study import Options, Study

STUDIES: dict[str, Study] = {
    study.name: study
    for room in (esipova, errors, kulynych, xu, knolle, li, step_size, fair)
    for study in room.STUDIES
}


_CLAIM = ["claim", "measured", "se", "unit", "verdict"]


@dataclass(frozen=True)
class Reproduction:
    """What was trained again, and how it compares with print; NOT private.

    Parameters
    ----------
    study : Study
        The table or figure.
    options : Options
        What was chosen.
    runs : pandas.DataFrame
        One row per run: ``row``, ``seed``, and what was measured.
    cells : pandas.DataFrame
        One row per cell: ``row``, ``measure``, ``ours``, ``paper``, their standard errors,
        ``difference``, what is ``allowed``, and the ``verdict``.
    claims : pandas.DataFrame
        One row per claim made in words: ``claim``, ``measured``, ``se``, ``unit``, ``verdict``.
    folder : pathlib.Path
        Where it is written.

    Examples
    --------
    >>> runs = {"row": "sgd", "seed": [0, 1], "accuracy_disparity": 0.66, "overall_accuracy": 0.8}
    >>> options = Options(seeds=(0, 1), rows=("sgd",))
    >>> found = compared(STUDIES["kulynych-table9"], options, pd.DataFrame(runs), "nowhere")
    >>> found.cells[["measure", "verdict"]].values.tolist()
    [['accuracy_disparity', 'same'], ['overall_accuracy', 'differs']]
    """

    study: Study
    options: Options
    runs: pd.DataFrame
    cells: pd.DataFrame
    claims: pd.DataFrame
    folder: Path

    @property
    def shortness(self) -> str | None:
        """What runs of another length than the paper's have to say of themselves, or None."""
        epochs, printed = self.options.epochs, self.study.epochs
        if epochs in (None, printed):
            return None
        s = "s" if epochs > 1 else ""
        return f"{epochs} epoch{s} where the paper took {printed}: compared with nothing in print."

    @property
    def summary(self) -> str:
        """How many cells are as printed, in a sentence."""
        return _written.summary(self)

    def lines(self, cells=None) -> list[list[str]]:
        """Return cells, or all, as text: row, measure, ours, paper, difference, verdict."""
        return _written.lines(self.cells if cells is None else cells)

    def to_markdown(self) -> str:
        """Return the comparison as a page of Markdown."""
        return _written.page(self)

    def plot(self):
        """Draw the comparison; return matplotlib's figure."""
        return _written.figure(self)


def reproduce(
    name,
    output=None,
    *,
    sound=True,
    seeds=5,
    epochs=None,
    rows=None,
    device="cpu",
    n_jobs=-1,
    progress=True,
) -> Reproduction:
    """Train a table or figure of a paper again, and compare it with print.

    Parameters
    ----------
    name : str
        A key of ``STUDIES``, such as "esipova-table4".
    output : path-like or None, default=None
        Folder for finished runs (``runs/``), ``cells.csv``, ``runs.csv``, ``comparison.md`` and
        ``comparison.png``.  None means ``reproductions/<name>``, or ``<name>-as-published``.
    sound : bool, default=True
        This library's algorithms and accounting; False imitates what the paper prints, with the
        epsilon that this is worth.
    seeds : int or list of int, default=5
        A number n means 0 to n - 1.
    epochs : int or None, default=None
        Fewer epochs than the paper's, to look sooner; the comparison says so.
    rows : list of str or None, default=None
        Rows of the table to train; None for all.
    device : str, default="cpu"
        Of torch.
    n_jobs : int, default=-1
        Processes, by joblib; -1 for all cores.
    progress : bool, default=True
        Show runs done and time left, on a terminal or in a notebook.

    Returns
    -------
    Reproduction
        Not private: its runs have seeds, and compare with models that are not private.

    Raises
    ------
    ValueError, TypeError
        If an argument cannot be used, or ``output`` holds another study.
    DataIntegrityError
        If the data are not in the folder that ``SKDPFAIR_DATA`` names.

    Warns
    -----
    UserWarning
        If it was interrupted; the same call goes on.

    Examples
    --------
    >>> from skdpfair.reproduce import reproduce
    >>> found = reproduce("esipova-table4", "reproductions/table4")  # doctest: +SKIP
    >>> print(found.summary)  # doctest: +SKIP
    """
    study = STUDIES[_validate.one_of("name", name, sorted(STUDIES))]
    options = Options(
        sound=_validate.flag("sound", sound),
        seeds=_seeds(seeds),
        epochs=None if epochs is None else _validate.integer("epochs", epochs),
        rows=_rows(rows, study),
        device=device,
    )
    if epochs is not None and study.epochs is None:
        raise ValueError(f"epochs={epochs!r}: {name} counts no epochs. Leave it out.")
    folder = Path(output) if output is not None else _folder(study, options)
    frame = frame_of(study, options, folder / "runs", n_jobs=n_jobs, progress=progress)
    if frame.empty:
        raise KeyboardInterrupt(f"{name} was interrupted before its first run was finished.")
    found = compared(study, options, frame, folder)
    _written.write(found, folder)
    return found


def compared(study, options, frame, folder) -> Reproduction:
    """Compare runs that are finished, one row each, with print.

    Examples
    --------
    >>> runs = {"row": "sgd", "seed": [0], "accuracy_disparity": 0.3, "overall_accuracy": 0.8}
    >>> options = Options(seeds=(0,), rows=("sgd",), epochs=2)
    >>> found = compared(STUDIES["kulynych-table9"], options, pd.DataFrame(runs), "nowhere")
    >>> print(found.shortness)
    2 epochs where the paper took 20: compared with nothing in print.
    """
    claims = pd.DataFrame(study.claims(frame, options), columns=_CLAIM)
    found = Reproduction(study, options, frame, study.cells(frame, options), claims, Path(folder))
    if found.shortness is not None:
        nothing = {"paper": np.nan, "paper_se": np.nan, "difference": np.nan}
        found = replace(found, cells=found.cells.assign(**nothing, verdict="not in print"))
    return found


def _folder(study, options):
    return Path("reproductions") / (study.name + ("" if options.sound else "-as-published"))


def _seeds(seeds):
    if not hasattr(seeds, "__iter__"):
        return tuple(range(_validate.integer("seeds", seeds)))
    seeds = tuple(_validate.integer("seeds", seed, low=0) for seed in seeds)
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds must be integers >= 0, each once, got {seeds!r}.")
    return seeds


def _rows(rows, study):
    if rows is None:
        return None
    rows = [rows] if isinstance(rows, str) else list(rows)
    if not rows:
        raise ValueError(f"rows=[] trains nothing. Name rows of {study.name}: {list(study.rows)}.")
    return tuple(_validate.one_of("rows", row, study.rows) for row in rows)
