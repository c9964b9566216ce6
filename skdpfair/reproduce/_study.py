"""What a reproduction is: its runs, what each measures, and the cells that come of them."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy.stats import t

POINTS = {"within": 0.5, "near": 1.5, "unit": "points"}
LOSS = {"within": 0.02, "near": 0.06, "unit": "nats"}
SHARE = {"within": 0.005, "near": 0.015, "unit": "share"}
OTHER = {"within": 0.05, "near": 0.1, "unit": "relative"}
RULES = {rule["unit"]: (rule["within"], rule["near"]) for rule in (POINTS, LOSS, SHARE, OTHER)}


@dataclass(frozen=True)
class Options:
    """What the user chose.

    Parameters
    ----------
    sound : bool
        This library's algorithms and accounting, or what the paper prints.
    seeds : tuple of int
        One run of each row per seed.
    epochs : int or None
        Instead of the paper's; the comparison is then labelled as short.
    rows : tuple of str or None
        The rows to run, None for all.
    device : str
        Of torch.

    Examples
    --------
    >>> from skdpfair.reproduce import STUDIES
    >>> options = Options(seeds=(0, 1), rows=("dpsgd",))
    >>> [(run.row, run.seed) for run in STUDIES["kulynych-table9"].runs(options)]
    [('dpsgd', 0), ('dpsgd', 1)]
    """

    sound: bool = True
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    epochs: int | None = None
    rows: tuple[str, ...] | None = None
    device: str = "cpu"


@dataclass(frozen=True)
class Run:
    """One row of a table at one seed; ``settings`` are all numbers and names that decide it."""

    row: str
    seed: int
    settings: dict = field(hash=False)


@dataclass(frozen=True)
class Study:
    """One table or figure of a paper.

    Parameters
    ----------
    name, title, source : str
        On the command line, in the report, and where it was printed.
    runs : callable ``(Options) -> list of Run``
        What to train.
    measure : callable ``(Run, device) -> dict of str to float``
        Train it, and measure; a function of a module, since it runs in other processes.
    cells : callable ``(DataFrame, Options) -> DataFrame``
        Compare: one row per run in, one row per cell out, see :func:`cell`.
    rows : tuple of str
        The names that ``Options.rows`` may hold.
    epochs : int, str or None
        How many the paper took, in words where rows differ; None where nothing is counted in
        epochs.
    reference : str
        What the cells are compared with, after "as".
    notes : callable ``(Options) -> list of str``
        What a reader must know.
    claims : callable ``(DataFrame, Options) -> list of dict``
        What the paper says in words, and whether the runs bear it out, see :func:`claim`.
    draw : callable ``(DataFrame, DataFrame) -> Figure`` or None
        Runs and cells in, a figure out; None draws the cells.
    """

    name: str
    title: str
    source: str
    runs: Callable
    measure: Callable
    cells: Callable
    rows: tuple[str, ...]
    epochs: int | str | None = None
    reference: str = "printed"
    notes: Callable = lambda options: []
    claims: Callable = lambda frame, options: []
    draw: Callable | None = None


def cell(row, measure, values, paper, paper_se, rule, *, absolute=False) -> dict:
    """Compare the mean over the seeds with the number in print.

    Parameters
    ----------
    row, measure : str
        Place in the table.
    values : array of shape (n_seeds,)
        One per seed.
    paper, paper_se : float
        As printed; NaN where nothing is.
    rule : dict
        ``within`` and ``near``, in the unit of the values: at most that far, or 2 (4) combined
        standard errors if these are more.
    absolute : bool, default=False
        Whether the paper prints the absolute value of the mean.

    Returns
    -------
    dict
        Columns of a table of cells; ``verdict`` is "same", "near", "differs", "not in print" or
        "not measured".

    Examples
    --------
    >>> cell("dpsgd", "accuracy", [70.0, 70.4], 69.9, 0.4, POINTS)["verdict"]
    'same'
    """
    values = np.asarray(values, dtype=float)
    mean, n = values.mean(), len(values)
    ours = abs(mean) if absolute else mean
    ours_se = values.std(ddof=1) / n**0.5 if n > 1 else np.nan
    combined = np.hypot(np.nan_to_num(ours_se), np.nan_to_num(paper_se))
    difference = ours - paper
    within, near = (max(k * combined, rule[limit]) for k, limit in ((2, "within"), (4, "near")))
    if np.isnan(mean):
        verdict = "not measured"
    elif np.isnan(paper):
        verdict = "not in print"
    else:
        distance = abs(difference) * (1 - 1e-9)  # .52 is .02 from .5
        verdict = "same" if distance <= within else "near" if distance <= near else "differs"
    return {
        "row": row,
        "measure": measure,
        "unit": rule["unit"],
        "ours": ours,
        "ours_se": ours_se,
        "n_seeds": n,
        "paper": paper,
        "paper_se": paper_se,
        "difference": difference,
        "allowed": within,
        "verdict": verdict,
    }


def same_in_print(options) -> list[str]:
    """Return the note of a study in which nothing differs as published."""
    return [] if options.sound else ["As published: nothing differs here."]


def claim(said, values, *, unit="points", above=0.0, below=None) -> dict:
    """Judge a claim that a difference is above or below a limit, by its mean over the seeds.

    Parameters
    ----------
    said : str
        The claim, in words.
    values : array of shape (n_seeds,)
        The difference, one per seed.
    unit : str
        Of the values.
    above, below : float or None
        The limit; ``below`` counts where it is given.

    Returns
    -------
    dict
        ``claim``, ``measured``, ``se``, ``unit`` and ``verdict``: "holds" or "fails" where the
        limit is outside of the 95 % interval (Student's), else "undecided".

    Examples
    --------
    >>> claim("b is larger than a", [1.0, 1.2, 0.9])["verdict"]
    'holds'
    """
    values = np.asarray(values, dtype=float)
    mean, n = values.mean(), len(values)
    error = values.std(ddof=1) / n**0.5 if n > 1 else np.nan
    lead = mean - above if below is None else below - mean
    verdict = "undecided"
    if n > 1 and abs(lead) > t.ppf(0.975, n - 1) * error:
        verdict = "holds" if lead > 0 else "fails"
    return {"claim": said, "measured": mean, "se": error, "unit": unit, "verdict": verdict}


def less_apart(plain, other):
    r"""Return by how much smaller the gap \|mean over seeds\| of one row is, one value per seed.

    Parameters
    ----------
    plain, other : pandas.Series
        Signed differences of two groups, by seed.
    """
    return np.sign(plain.mean()) * plain - np.sign(other.mean()) * other


def rows_of(frame) -> dict[str, pd.DataFrame]:
    """Return the runs of each row of a table, numbers alone, indexed by seed."""
    parts = frame.groupby("row", sort=False)
    return {row: part.drop(columns="row").set_index("seed").sort_index() for row, part in parts}


def cells_of(rows) -> pd.DataFrame:
    """Return cells as a table, in the order given; one without rows has the columns, too."""
    return pd.DataFrame(list(rows), columns=list(cell("", "", [0.0], np.nan, np.nan, POINTS)))
