"""The runs of a study, in parallel, each kept once it is finished, and their comparison."""

import warnings
from dataclasses import dataclass
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
from tqdm.auto import tqdm

import skdpfair
from benchmarks.papers import esipova, fair, knolle, kulynych, li, rendering, xu
from benchmarks.papers.study import POINTS, Options, Study, cell, claim, rows_of
from skdpfair._utils import validate
from skdpfair.model_selection._store import Store, key_of, run_missing
from skdpfair.model_selection._sweep import seeds_of

STUDIES: dict[str, Study] = {
    study.name: study
    for paper in (esipova, kulynych, xu, knolle, li, fair)
    for study in paper.STUDIES
}
_CELL = list(cell("", "", [0.0], POINTS))
_CLAIM = list(claim("", [0.0]))


@dataclass(frozen=True)
class Reproduction:
    """The finished runs of a study, and their comparison with print; NOT private."""

    study: Study
    options: Options
    runs: pd.DataFrame  # one row a run: row, seed, and what was measured
    cells: pd.DataFrame  # see `benchmarks.papers.study.cell`
    claims: pd.DataFrame  # see `benchmarks.papers.study.claim`

    @property
    def shortness(self) -> str | None:
        """A warning for runs of another length than the paper's, or None."""
        epochs, printed = self.options.epochs, self.study.epochs
        if epochs in (None, printed):
            return None
        s = "s" if epochs > 1 else ""
        return f"{epochs} epoch{s} where the paper took {printed}: compared with nothing in print."


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

    The folder ``output`` gets the finished runs (``runs/``), ``cells.csv``, ``runs.csv``,
    ``comparison.md`` and ``comparison.png``; None is ``reproductions/<name>``, or
    ``<name>-as-published``.  ``sound=False`` imitates what the paper prints, with the epsilon that
    this is worth; fewer ``epochs`` than the paper's are named in the comparison; ``rows=None`` are
    the usual ones.  After an interrupt, of which a UserWarning tells, the same call continues.
    """
    study = STUDIES[validate.one_of("name", name, sorted(STUDIES))]
    options = Options(
        sound=validate.flag("sound", sound),
        seeds=tuple(seeds_of(seeds)),
        epochs=None if epochs is None else validate.integer("epochs", epochs),
        rows=_rows(rows, study),
        device=device,
    )
    if epochs is not None and study.epochs is None:
        raise ValueError(f"epochs={epochs!r}: {name} counts no epochs. Leave it out.")
    folder = folder_of(study, options) if output is None else Path(output)
    frame = _finished(study, options, folder / "runs", n_jobs, progress)
    if frame.empty:
        raise KeyboardInterrupt(f"{name} was interrupted before its first run was finished.")
    found = compare(study, options, frame)
    rendering.write(found, folder)
    return found


def compare(study, options, frame) -> Reproduction:
    """Compare runs that are finished, one row each, with print.

    Examples
    --------
    >>> runs = {"row": "sgd", "seed": [0, 1], "accuracy_disparity": 0.66, "overall_accuracy": 0.8}
    >>> options = Options(seeds=(0, 1), rows=("sgd",))
    >>> found = compare(STUDIES["kulynych-table9"], options, pd.DataFrame(runs))
    >>> found.cells[["measure", "verdict"]].values.tolist()
    [['accuracy_disparity', 'same'], ['overall_accuracy', 'differs']]
    """
    rows = rows_of(frame)
    rows = {row: rows[row] for row in study.rows if row in rows}
    cells = pd.DataFrame(list(study.cells(rows)), columns=_CELL)
    claims = pd.DataFrame(study.claims(rows), columns=_CLAIM)
    if options.epochs not in (None, study.epochs):
        nothing = {"paper": np.nan, "paper_se": np.nan, "difference": np.nan}
        cells = cells.assign(**nothing, verdict="not in print")
    return Reproduction(study, options, frame, cells, claims)


def folder_of(study, options) -> Path:
    """Return the folder that a study is written to by default."""
    return Path("reproductions") / (study.name + ("" if options.sound else "-as-published"))


def _rows(rows, study):
    if rows is None:
        return None
    rows = [rows] if isinstance(rows, str) else list(rows)
    if not rows:
        raise ValueError(f"rows=[] trains nothing. Name rows of {study.name}: {list(study.rows)}.")
    return tuple(validate.one_of("rows", row, study.rows) for row in rows)


def _finished(study, options, folder, n_jobs, progress) -> pd.DataFrame:
    """Return one row per run, those in ``folder`` read and the others trained.

    On Ctrl-C the finished ones are returned, with a UserWarning; the same call continues.
    """
    manifest = {"study": study.name, "skdpfair": skdpfair.__version__}
    store = Store.open(folder, manifest).begin()
    runs = {_key(study, run): run for run in study.runs(options)}
    tasks = {k: joblib.delayed(study.measure)(run, options.device) for k, run in runs.items()}
    done = store.finished(runs)
    with tqdm(
        total=len(runs),
        initial=len(done),
        desc=study.name,
        unit="run",
        disable=None if progress else True,
    ) as bar:
        is_whole = run_missing(tasks, done, store, n_jobs=n_jobs, on_result=lambda _: bar.update())
    if not is_whole:
        warnings.warn(
            f"{study.name} was interrupted after {len(done)} of {len(runs)} runs; the comparison "
            f"holds these. The same call continues from {str(folder)!r}.",
            UserWarning,
            stacklevel=3,
        )
    kept = [(run, done[key]) for key, run in runs.items() if key in done]
    return pd.DataFrame([{"row": run.row, "seed": run.seed} | found for run, found in kept])


def _key(study, run):
    return key_of(study.name, run.row, run.seed, repr(sorted(run.settings.items())))
