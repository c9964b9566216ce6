"""Tables of docs/what_holds.md, from the runs kept in benchmarks/results/reproductions.

skdpfair reproduce NAME -o benchmarks/results/reproductions/NAME      (once for each NAME)
python benchmarks/what_holds.py
"""

import shutil
from pathlib import Path

import pandas as pd
from pages import DOCS, put

from skdpfair.reproduce import STUDIES, compared
from skdpfair.reproduce._written import options_of

RESULTS = Path(__file__).parent / "results" / "reproductions"
PAGE = "what_holds.md"
PIVOTED = ("fair-comparison", "step-size", "knolle-figure2")  # nothing of these is in print
PICTURES = {"fair-comparison": "fair_comparison.png", "esipova-table1": "errors.png"}


def main():
    page = (DOCS / PAGE).read_text()
    for folder in sorted(RESULTS.iterdir()):
        name = folder.name.removesuffix("-as-published")
        if f"<!-- {folder.name} -->" not in page:
            continue
        frame = pd.read_csv(folder / "runs.csv")
        found = compared(STUDIES[name], options_of(folder), frame, folder)
        lines = [] if name in PIVOTED else [found.summary, ""]
        lines += pivoted(found) if name in PIVOTED else exceptions(found)
        lines += spent(found) + claims(found)
        put(PAGE, folder.name, ["", *lines, ""])
        if name in PICTURES:
            shutil.copy(folder / "comparison.png", DOCS / "images" / PICTURES[name])
    put("choosing.md", "choosing", ["", *choosing(), ""])


def choosing():
    """Return one line per method of the fair comparison: accuracy, worst cost, gap."""
    cells = pd.read_csv(RESULTS / "fair-comparison" / "cells.csv")
    cells[["data", "method"]] = cells["row"].str.split("/", expand=True)
    lines = [
        "| method | Adult: accuracy | women pay | men pay | gap "
        "| Dutch: accuracy | women pay | men pay | gap |",
        "| --- |" + " ---: |" * 8,
    ]
    measures = ("accuracy", "cost[female]", "cost[male]", "cost gap")
    for method in cells["method"].unique():
        own = cells[cells["method"] == method].set_index(["data", "measure"])
        found = [own.loc[(data, m)] for data in ("adult", "dutch") for m in measures]
        values = [f"{cell['ours']:.2f} ± {cell['ours_se']:.2f}" for cell in found]
        name = "untuned defaults" if method == "default" else f"`{method}`"
        lines.append(f"| {name} | {' | '.join(values)} |")
    return lines


def exceptions(found):
    """Return the cells that are not as printed."""
    cells = found.cells[~found.cells["verdict"].isin(["same", "not in print"])]
    if cells.empty:
        return []
    heads = "| row | measure | ours | paper | difference | verdict |"
    rows = [f"| {' | '.join(row)} |" for row in found.lines(cells)]
    return [heads, "| --- | --- | ---: | ---: | ---: | --- |", *rows, ""]


def pivoted(found):
    """Return one line per row of the study, one column per measure."""
    table = {}
    for row, measure, ours, *_ in found.lines(found.cells):
        table.setdefault(row, {})[measure] = ours
    table = pd.DataFrame.from_dict(table, orient="index")
    heads = f"| | {' | '.join(table.columns)} |"
    rows = [
        f"| {name} | {' | '.join(map(str, row))} |"
        for name, row in zip(table.index, table.to_numpy(), strict=True)
    ]
    return [heads, "| --- |" + " ---: |" * table.shape[1], *rows, ""]


def spent(found):
    """Return what the private rows spend, in a sentence."""
    if "epsilon" not in found.runs:
        return []
    most = found.runs.groupby("row", sort=False)["epsilon"].max()
    most = most[most < float("inf")]
    if most.empty or found.study.name in ("fair-comparison", "li-figures"):
        return []
    told = "; ".join(f"{row}: {value:.3f}" for row, value in most.items())
    return [f"Epsilon of these runs, by row: {told}.", ""]


def claims(found):
    """Return the claims made in words."""
    if found.claims.empty:
        return []
    lines = ["| claim | measured | verdict |", "| --- | ---: | --- |"]
    for row in found.claims.itertuples():
        digits = 2 if row.unit == "points" else 3
        measured = f"{row.measured:.{digits}f} ± {row.se:.{digits}f} {row.unit}"
        lines.append(f"| {row.claim} | {measured} | {row.verdict} |")
    return lines


if __name__ == "__main__":
    main()
