"""A comparison as CSV, Markdown and figure."""

import json
import shlex
from dataclasses import asdict
from math import isinf, isnan

import skdpfair
from benchmarks import pages
from benchmarks.papers.study import RULES, Options
from skdpfair.report._displays import PALETTE, dress

_COLOURS = {"same": PALETTE[2], "near": PALETTE[1], "differs": PALETTE[5], "not in print": "0.6"}
_OPTIONS = "options.json"


def write(found, folder) -> None:
    """Write all of a Reproduction to a folder; the figure only if matplotlib is installed."""
    folder.mkdir(parents=True, exist_ok=True)
    options = asdict(found.options) | {"skdpfair": skdpfair.__version__}
    (folder / _OPTIONS).write_text(json.dumps(options) + "\n", encoding="utf-8")
    runs = found.runs.sort_values(["row", "seed"])
    for name, table in {"claims": found.claims, "cells": found.cells, "runs": runs}.items():
        table.to_csv(folder / f"{name}.csv", index=False, float_format="%.6g")
    (folder / "comparison.md").write_text(page(found), encoding="utf-8")
    try:
        drawn = figure(found)
    except ImportError:  # figures are an extra
        return
    drawn.savefig(folder / "comparison.png", dpi=150)
    drawn.clear()


def options_of(folder) -> Options:
    """Return the options that a folder was written with."""
    kept = json.loads((folder / _OPTIONS).read_text(encoding="utf-8"))
    for name in ("skdpfair", "revision"):
        kept.pop(name, None)
    lists = {name: tuple(value) for name, value in kept.items() if isinstance(value, list)}
    return Options(**kept | lists)


def engine_of(folder) -> str:
    """Return the version of this library that trained the runs of a folder, in words."""
    kept = json.loads((folder / _OPTIONS).read_text(encoding="utf-8"))
    if "skdpfair" in kept:
        return f"skdpfair {kept['skdpfair']}"
    # runs before 1.0 recorded no version: that which first held their numbers
    return f"revision {kept['revision']}, before 1.0"


def summary(found) -> str:
    """Return how many cells are as printed, in a sentence."""
    counts = found.cells["verdict"].value_counts()
    same, near, differs = (int(counts.get(name, 0)) for name in ("same", "near", "differs"))
    compared = same + near + differs
    if not compared:
        short = found.shortness is not None
        return "Nothing of this is in print" + (" at this length." if short else " as numbers.")
    share = 100 * same / compared
    parts = [f"{same} of {compared} cells are as {found.study.compared_with} ({share:.0f} %)"]
    if near:
        parts.append(f"{near} {'is' if near == 1 else 'are'} near")
    if differs:
        parts.append(f"{differs} differ{'s' if differs == 1 else ''}")
    return ", ".join(parts) + "."


def page(found) -> str:
    """Return the comparison as Markdown."""
    study, options = found.study, found.options
    variant = "sound" if options.sound else "as published"
    counts = found.runs.groupby("row")["seed"].nunique()
    fewest, most = int(counts.min()), int(counts.max())
    seeds = f"{most} seed{'s' * (most > 1)}" if fewest == most else f"{fewest} to {most} seeds"
    lines = [f"# {study.title}", "", f"{study.source}; {variant}; {seeds} per row."]
    if found.shortness is not None:
        lines += ["", f"**{found.shortness}**"]
    lines += ["", summary(found), "", *table(found.cells), *claims_table(found.claims)]
    notes = study.notes(options)
    if not options.sound and not study.differs_as_published:
        notes = [*notes, "As published: nothing differs here."]
    lines += ["", *(f"- {note}" for note in [*notes, _rules(found.cells)])]
    if "epsilon" in found.runs:
        rows = [(row, _epsilon(value)) for row, value in spent(found).items()]
        lines += ["", *pages.table(["row", "epsilon"], rows)]
    return "\n".join([*lines, "", f"Command: `{command(study, options)}`", ""])


def spent(found) -> dict[str, float]:
    """Return the largest epsilon of each row's runs, in the order of the table."""
    largest = found.runs.groupby("row")["epsilon"].max()
    return {row: largest[row] for row in found.study.rows if row in largest}


def command(study, options):
    """Return the command that gives the same."""
    parts = ["python -m benchmarks.papers", study.name]
    parts += ["--as-published"] * (not options.sound)
    n_seeds = len(options.seeds)
    if options.seeds == tuple(range(n_seeds)) and n_seeds != len(Options().seeds):
        parts.append(f"--seeds {n_seeds}")
    if options.epochs is not None:
        parts.append(f"--epochs {options.epochs}")
    if options.rows is not None:
        parts.append(f"--rows {shlex.join(options.rows)}")
    return " ".join(parts)


def _rules(cells):
    """Return how cells are judged, in a sentence."""
    limits = dict.fromkeys(cells.loc[cells["verdict"] != "not in print", "unit"])
    said = ", ".join(
        f"{within:g} ({near:g}) {unit}" for unit, (within, near) in RULES.items() if unit in limits
    )
    errors = "± is one standard error of the mean over the seeds."
    if not said:
        return errors
    said = f"at most {said} apart, or 2 (4) combined standard errors if these are more"
    return f"same (near): {said}; {errors}"


def lines_of(cells) -> list[list[str]]:
    """Return each cell as text: row, measure, ours, paper, difference, verdict.

    Examples
    --------
    >>> import pandas as pd
    >>> from benchmarks.papers.study import POINTS, cell
    >>> lines_of(pd.DataFrame([cell("dpsgd", "accuracy", [70.0, 70.4], POINTS, 69.9, 0.4)]))
    [['dpsgd', 'accuracy', '70.20 ± 0.20', '69.90 ± 0.40', '+0.30', 'same']]
    """
    return [
        [
            cell.row,
            cell.measure,
            number(cell.ours, cell.ours_se, cell.unit),
            number(cell.paper, cell.paper_se, cell.unit),
            "" if isnan(cell.paper) else f"{cell.difference:+.{_digits(cell.unit)}f}",
            cell.verdict,
        ]
        for cell in cells.itertuples()
    ]


def table(cells) -> list[str]:
    """Return the lines of a table of cells."""
    heads = ["row", "measure", "ours", "paper", "difference", "verdict"]
    return pages.table(heads, lines_of(cells), left=(0, 1, 5))


def claims_of(claims) -> list[list[str]]:
    """Return each claim made in words as text: claim, measured and its unit, verdict."""
    return [
        [row.claim, f"{number(row.measured, row.se, row.unit)} {row.unit}", row.verdict]
        for row in claims.itertuples()
    ]


def claims_table(claims) -> list[str]:
    """Return the lines of a table of the claims; none if there are no claims."""
    if claims.empty:
        return []
    return ["", *pages.table(["claim", "measured", "verdict"], claims_of(claims), left=(0, 2))]


def number(value, error, unit) -> str:
    """Return a value and its standard error, in the digits of its unit; NaN is left out."""
    if isnan(value):
        return ""
    digits = _digits(unit)
    return f"{value:.{digits}f}" + ("" if isnan(error) else f" ± {error:.{digits}f}")


def _digits(unit):
    return 2 if unit == "points" else 3


def _epsilon(value):
    if isnan(value):
        return "several"
    return "none" if isinf(value) else f"{value:.3f}"


def figure(found):
    """Draw the study's own figure, or each cell's distance from print."""
    drawn = found.study.draw(found)
    return _distances(found) if drawn is None else drawn


def _distances(found):
    """Draw ours and, where there are such, the paper's numbers, one panel per measure."""
    import matplotlib.pyplot as plt

    is_printed = found.cells["verdict"] != "not in print"
    cells = found.cells[is_printed] if is_printed.any() else found.cells
    measures = list(dict.fromkeys(cells["measure"]))
    rows = list(dict.fromkeys(cells["row"]))[::-1]
    n_columns = min(len(measures), 4)
    n_lines = -(-len(measures) // n_columns)
    drawn, axes = plt.subplots(
        n_lines,
        n_columns,
        figsize=(3.1 * n_columns + 1, (0.32 * len(rows) + 1.0) * n_lines + 0.6),
        layout="constrained",
        sharey=True,
        squeeze=False,
    )
    for ax, measure in zip(axes.flat, measures, strict=False):
        for part in cells[cells["measure"] == measure].itertuples():
            place = rows.index(part.row)
            ours = {"color": _COLOURS.get(part.verdict, "0.6"), "marker": "o"}
            for value, error, style, shift in (
                (part.paper, part.paper_se, {"color": "0.35", "marker": "D"}, 0.16),
                (part.ours, part.ours_se, ours, -0.16),
            ):
                if not isnan(value):
                    bars = None if isnan(error) else 2 * error
                    ax.errorbar(value, place + shift, xerr=bars, capsize=2, markersize=4, **style)
        ax.set_yticks(range(len(rows)), rows)
        ax.set_ylim(-0.6, len(rows) - 0.4)
        dress(ax, measure.replace("_", " "), grid="both")
    for ax in list(axes.flat)[len(measures) :]:
        ax.set_visible(False)
    handles = [("paper", "0.35", "D")] * bool(is_printed.any())
    verdicts = set(cells["verdict"])
    handles += [(f"ours, {v}", colour, "o") for v, colour in _COLOURS.items() if v in verdicts]
    handles = [
        plt.Line2D([], [], color=colour, marker=marker, linestyle="none", label=label)
        for label, colour, marker in handles
    ]
    drawn.legend(handles=handles, loc="outside lower left", ncols=len(handles), frameon=False)
    headline(drawn, f"{found.study.title}\n{found.study.source}; bars are 2 standard errors")
    return drawn


def headline(figure, text):
    """Write the title of a figure, from its left edge."""
    figure.suptitle(text, x=0.01, ha="left", fontsize=10)
