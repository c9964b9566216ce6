"""The parts of a reproduction: its options, runs, cells and claims."""

from dataclasses import dataclass, field
from pathlib import Path

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
    """The user's choices."""

    sound: bool = True  # this library's algorithms and accounting, or what the paper prints
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    epochs: int | None = None  # instead of the paper's; the comparison is then labelled as short
    rows: tuple[str, ...] | None = None  # None for the usual ones
    device: str = "cpu"


@dataclass(frozen=True)
class Run:
    """One row of a table at one seed; ``settings`` are all numbers and names that decide it."""

    row: str
    seed: int
    settings: dict = field(hash=False)


class Study:
    """One table or figure; subclasses describe it.

    Examples
    --------
    >>> from benchmarks.papers import STUDIES
    >>> runs = STUDIES["kulynych-table9"].runs(Options(seeds=(0, 1), rows=("dpsgd",)))
    >>> [(run.row, run.seed) for run in runs]
    [('dpsgd', 0), ('dpsgd', 1)]
    """

    name: str  # on the command line
    title: str
    source: str  # where it was printed
    rows: tuple[str, ...]  # all, in the order of the table; Options.rows chooses among them
    usual: tuple[str, ...] | None = None  # the rows that are trained unless others are named
    epochs: int | str | None = None  # the paper's, in words where rows differ
    compared_with = "printed"  # after "as"
    differs_as_published = False  # whether Options.sound=False changes anything

    def runs(self, options) -> list[Run]:
        """Return the runs to train, by row and seed; reference rows come along."""
        named = options.rows or self.usual or self.rows
        wanted = {*named, *(self.reference_of(row) for row in named)}
        return [
            Run(row, seed, self.settings(row, options))
            for row in self.rows
            if row in wanted
            for seed in options.seeds
        ]

    def reference_of(self, row) -> str:
        """Return the row that this one is compared with; by default there is none but itself."""
        return row

    def settings(self, row, options) -> dict:
        """Return all that decides a run of the row, apart from its seed."""
        raise NotImplementedError

    def measure(self, run, device) -> dict[str, float]:
        """Train one run, in any process, and measure."""
        raise NotImplementedError

    def cells(self, rows):
        """Yield the cells of a table, see :func:`cell`.

        ``rows`` holds the finished runs of each row, in the order of the table, indexed by seed.
        """
        raise NotImplementedError

    def claims(self, rows) -> list[dict]:
        """Judge the claims that the paper makes in words, see :func:`claim`."""
        return []

    def notes(self, options) -> list[str]:
        """Return notes for the reader of the comparison."""
        return []

    def draw(self, found):
        """Draw a Reproduction; None leaves it to the common figure, which shows all cells."""
        return None


def cell(row, measure, values, rule, paper=np.nan, paper_se=np.nan, *, absolute=False) -> dict:
    """Compare the mean over the seeds with the number in print, and return a row of a table.

    ``rule`` says what is "same" and "near": at most ``within`` and ``near`` apart, in the unit of
    the values, or 2 (4) combined standard errors if these are more.  With ``absolute`` the paper
    prints the absolute value of the mean.

    Examples
    --------
    >>> cell("dpsgd", "accuracy", [70.0, 70.4], POINTS, 69.9, 0.4)["verdict"]
    'same'
    """
    mean, ours_se, n_seeds = _mean(values)
    ours = abs(mean) if absolute else mean
    combined = np.hypot(np.nan_to_num(ours_se), np.nan_to_num(paper_se))
    within, near = max(2 * combined, rule["within"]), max(4 * combined, rule["near"])
    difference = ours - paper
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
        "n_seeds": n_seeds,
        "paper": paper,
        "paper_se": paper_se,
        "difference": difference,
        "allowed": within,
        "verdict": verdict,
    }


def claim(said, values, *, unit="points", above=0.0, below=None) -> dict:
    """Judge a claim that a difference is above or below a limit, by its mean over the seeds.

    The verdict is "holds" or "fails" where the limit is outside of the 95 % interval (Student's),
    else "undecided".  ``below`` counts where it is given.

    Examples
    --------
    >>> claim("b is larger than a", [1.0, 1.2, 0.9])["verdict"]
    'holds'
    """
    mean, error, n_seeds = _mean(values)
    lead = mean - above if below is None else below - mean
    verdict = "undecided"
    if n_seeds > 1 and abs(lead) > t.ppf(0.975, n_seeds - 1) * error:
        verdict = "holds" if lead > 0 else "fails"
    return {"claim": said, "measured": mean, "se": error, "unit": unit, "verdict": verdict}


def _mean(values):
    """Return the mean over the seeds, its standard error, and how many there are."""
    values = np.asarray(values, dtype=float)
    n_seeds = len(values)
    return values.mean(), values.std(ddof=1) / n_seeds**0.5 if n_seeds > 1 else np.nan, n_seeds


def less_apart(plain, other):
    r"""Return by how much smaller the gap \|mean over seeds\| of one row is, one value per seed.

    ``plain`` and ``other`` are Series of signed differences of two groups, by seed; seeds that only
    one of them has are left out.
    """
    return (np.sign(plain.mean()) * plain - np.sign(other.mean()) * other).dropna()


def rows_of(frame) -> dict[str, pd.DataFrame]:
    """Return the runs of each row of a table, numbers alone, indexed by seed."""
    parts = frame.groupby("row", sort=False)
    return {row: part.drop(columns="row").set_index("seed").sort_index() for row, part in parts}


def printed(name) -> pd.DataFrame:
    """Return a table in print, of a CSV file in ``tables/``.

    Examples
    --------
    >>> table = printed("esipova2023").set_index(["dataset", "method"])
    >>> float(table.loc[("adult", "dpsgd"), "accuracy_a"])
    69.9
    """
    return pd.read_csv(Path(__file__).parent / "tables" / f"{name}.csv")
