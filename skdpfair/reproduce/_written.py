"""A comparison as CSV, Markdown and figure."""

import json
from dataclasses import asdict
from math import isnan

import numpy as np

from skdpfair.plotting._axes import PALETTE, dress
from skdpfair.reproduce._study import RULES, Options

_COLOURS = {"same": PALETTE[2], "near": PALETTE[1], "differs": PALETTE[5], "not in print": "0.6"}
_OPTIONS = "options.json"


def write(found, folder) -> None:
    """Write all of it to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _OPTIONS).write_text(json.dumps(asdict(found.options)) + "\n", encoding="utf-8")
    found.claims.to_csv(folder / "claims.csv", index=False, float_format="%.6g")
    found.cells.to_csv(folder / "cells.csv", index=False, float_format="%.6g")
    found.runs.sort_values(["row", "seed"]).to_csv(
        folder / "runs.csv", index=False, float_format="%.6g"
    )
    (folder / "comparison.md").write_text(page(found), encoding="utf-8")
    try:
        drawn = figure(found)
    except ImportError:  # figures are an extra
        return
    drawn.savefig(folder / "comparison.png", dpi=150)
    drawn.clear()


def summary(found) -> str:
    """Return how many cells are as printed, in a sentence."""
    verdicts = found.cells["verdict"].value_counts()
    compared = int(verdicts[verdicts.index.isin(["same", "near", "differs"])].sum())
    if not compared:
        short = found.shortness is not None
        return "Nothing of this is in print" + (" at this length." if short else " as numbers.")
    same, near = verdicts.get("same", 0), verdicts.get("near", 0)
    share = 100 * same / compared
    parts = [f"{same} of {compared} cells are as {found.study.reference} ({share:.0f} %)"]
    if near:
        parts.append(f"{near} are near")
    if differs := verdicts.get("differs", 0):
        parts.append(f"{differs} differ{'s' if differs == 1 else ''}")
    return ", ".join(parts) + "."


def page(found) -> str:
    """Return the comparison as Markdown."""
    study, options = found.study, found.options
    variant = "sound" if options.sound else "as published"
    counts = found.runs.groupby("row")["seed"].nunique()
    seeds = (
        f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"
    )
    lines = [f"# {study.title}", "", f"{study.source}; {variant}; {seeds} seeds per row."]
    if found.shortness is not None:
        lines += ["", f"**{found.shortness}**"]
    lines += ["", summary(found), ""]
    lines += _table(found.cells)
    lines += _claims(found.claims)
    lines += ["", *(f"- {note}" for note in study.notes(options)), f"- {_rules(found.cells)}"]
    if "epsilon" in found.runs:
        lines += ["", "| row | epsilon |", "| --- | ---: |"]
        spent = found.runs.groupby("row", sort=False)["epsilon"].max()
        lines += [f"| {row} | {_epsilon(value)} |" for row, value in spent.items()]
    return "\n".join([*lines, "", f"Command: `{_command(study, options)}`", ""])


def options_of(folder):
    """Return the options that a folder was written with."""
    kept = json.loads((folder / _OPTIONS).read_text(encoding="utf-8"))
    lists = {name: tuple(value) for name, value in kept.items() if isinstance(value, list)}
    return Options(**kept | lists)


def _command(study, options):
    """Return the call that gives the same."""
    parts = ["skdpfair", "reproduce", study.name] + ["--as-published"] * (not options.sound)
    n_seeds = len(options.seeds)
    if options.seeds == tuple(range(n_seeds)) and n_seeds != len(Options().seeds):
        parts.append(f"--seeds {n_seeds}")
    if options.epochs is not None:
        parts.append(f"--epochs {options.epochs}")
    if options.rows is not None:
        parts.append(f'--rows "{",".join(options.rows)}"')
    return " ".join(parts)


def _claims(claims):
    """Return a table of what is said in words."""
    if claims.empty:
        return []
    lines = ["", "| claim | measured | verdict |", "| --- | ---: | --- |"]
    for row in claims.itertuples():
        measured = f"{_number(row.measured, row.se, row.unit)} {row.unit}"
        lines.append(f"| {row.claim} | {measured} | {row.verdict} |")
    return lines


def _rules(cells):
    limits = dict.fromkeys(cells.loc[cells["verdict"] != "not in print", "unit"])
    said = ", ".join(
        f"{within:g} ({near:g}) {unit}" for unit, (within, near) in RULES.items() if unit in limits
    )
    told = "± is one standard error of the mean over the seeds."
    if not said:
        return told
    said = f"at most {said} apart, or 2 (4) combined standard errors if these are more"
    return f"same (near): {said}; {told}"


def lines(cells) -> list[list[str]]:
    """Return each cell as text: row, measure, ours, paper, difference, verdict.

    Examples
    --------
    >>> from skdpfair.reproduce._study import POINTS, cell, cells_of
    >>> lines(cells_of([cell("dpsgd", "accuracy", [70.0, 70.4], 69.9, 0.4, POINTS)]))
    [['dpsgd', 'accuracy', '70.20 ± 0.20', '69.90 ± 0.40', '+0.30', 'same']]
    """
    return [
        [
            cell.row,
            cell.measure,
            _number(cell.ours, cell.ours_se, cell.unit),
            _number(cell.paper, cell.paper_se, cell.unit),
            "" if isnan(cell.paper) else f"{cell.difference:+.{_digits(cell.unit)}f}",
            cell.verdict,
        ]
        for cell in cells.itertuples()
    ]


def _table(cells):
    heads = ["row", "measure", "ours", "paper", "difference", "verdict"]
    return [f"| {' | '.join(row)} |" for row in [heads, _rule(heads), *lines(cells)]]


def _rule(heads):
    return ["---" if h in ("row", "measure", "verdict") else "---:" for h in heads]


def _digits(unit):
    return {"points": 2, "share": 3}.get(unit, 3)


def _number(value, error, unit):
    if isnan(value):
        return ""
    digits = _digits(unit)
    return f"{value:.{digits}f}" + ("" if isnan(error) else f" ± {error:.{digits}f}")


def _epsilon(value):
    if isnan(value):
        return "several"
    return "none" if np.isinf(value) else f"{value:.3f}"


def figure(found):
    """Draw what the study draws, or each cell's distance from print."""
    if found.study.draw is not None:
        return found.study.draw(found.runs, found.cells)
    return distances(found)


def distances(found):
    """Draw ours and, where there are such, the paper's numbers, one panel per measure."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError('figures need matplotlib: pip install "skdpfair[plot]".') from error
    printed = found.cells["verdict"] != "not in print"
    cells = found.cells[printed] if printed.any() else found.cells
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
            for value, error, style, shift in (
                (part.paper, part.paper_se, {"color": "0.35", "marker": "D"}, 0.16),
                (part.ours, part.ours_se, {"color": _COLOURS[part.verdict], "marker": "o"}, -0.16),
            ):
                if isnan(value):
                    continue
                error = None if isnan(error) else 2 * error
                ax.errorbar(value, place + shift, xerr=error, capsize=2, markersize=4, **style)
        ax.set_yticks(range(len(rows)), rows)
        ax.set_ylim(-0.6, len(rows) - 0.4)
        dress(ax, measure.replace("_", " "), grid="both", pad=6)
    for ax in list(axes.flat)[len(measures) :]:
        ax.set_visible(False)
    marks = [("paper", "0.35", "D")] * bool(printed.any())
    marks += [
        (f"ours, {verdict}", _COLOURS[verdict], "o")
        for verdict in _COLOURS
        if (cells["verdict"] == verdict).any()
    ]
    handles = [
        plt.Line2D([], [], color=colour, marker=marker, linestyle="none", label=label)
        for label, colour, marker in marks
    ]
    drawn.legend(handles=handles, loc="outside lower left", ncols=len(handles), frameon=False)
    drawn.suptitle(
        f"{found.study.title}\n{found.study.source}; bars are 2 standard errors",
        x=0.01,
        ha="left",
        fontsize=10,
    )
    return drawn
