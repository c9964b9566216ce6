"""Tables of the documentation, from the runs kept in benchmarks/results/reproductions."""

import inspect
import re
import shutil
from collections import Counter
from pathlib import Path

import pandas as pd

from benchmarks.pages import DOCS, filled, table
from benchmarks.papers import rendering
from benchmarks.papers.runner import STUDIES, compare
from docs.methods_table import paper
from skdpfair.methods import METHODS

RESULTS = Path(__file__).parents[1] / "results" / "reproductions"
PAGE = DOCS / "evidence" / "reproducibility.md"
MEASUREMENTS = DOCS / "evidence" / "measurements.md"
RUN = "python -m benchmarks.papers "  # what the commands of the tables begin with
PAPERS = ("esipova", "xu", "kulynych", "knolle", "li")  # modules of studies
PICTURES = {
    "fair-comparison": "fair_comparison.png",
    "esipova-table1": "errors.png",
    "esipova-figure4": "error_terms.png",
    "esipova-figure3": "group_paths.png",
    "li-figures": "reaction.png",
    "li-figure2": "step_sizes.png",
}
# studies of one method, whose rows are settings
NAMELESS = {
    "kulynych-figure3": "dpsgd",
    "kulynych-figure7": "is_sgd",
    "li-figure2": "pcsgd",
    "li-figures": "pcsgd",
    "xu-figure2": "dpsgd_f",
    "xu-figure3": "dpsgd_f",
}


def kept(folder):
    """Return the comparison of the runs that a folder holds."""
    study = STUDIES[folder.name.removesuffix("-as-published")]
    return compare(study, rendering.options_of(folder), pd.read_csv(folder / "runs.csv"))


def texts() -> dict[Path, str]:
    """Return the text of each page of the documentation and of the results, by the kept runs."""
    page, found = PAGE.read_text(encoding="utf-8"), {}
    comparisons = {folder: kept(folder) for folder in sorted(RESULTS.iterdir())}
    for module in PAPERS:
        rows = [row for name in STUDIES for row in _claims(comparisons.get(RESULTS / name), module)]
        if rows:
            heads = ["claim", "holds?", "measured", "command"]
            lines = ["", *table(heads, rows, left=(0, 1, 3)), ""]
            page = filled(page, f"claims of {module}", lines)
    if {folder.name.partition("-")[0] for folder in comparisons}.issuperset(PAPERS):
        page = filled(page, "methods", ["", *_by_method(comparisons), ""])
    for folder, comparison in comparisons.items():
        found[folder / "comparison.md"] = rendering.page(comparison)
        if f"<!-- {folder.name} -->" in page:
            lines = [*_section(comparison), f"Trained with {rendering.engine_of(folder)}."]
            text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines))
            page = filled(page, folder.name, ["", text, ""])
        if folder.name == "fair-comparison":
            lines = ["", *_methods(comparison.cells), ""]
            kept_page = MEASUREMENTS.read_text(encoding="utf-8")
            found[MEASUREMENTS] = filled(kept_page, "choosing", lines)
    return found | {PAGE: page}


def write() -> None:
    """Write the pages, and draw the figures that they show."""
    for path, text in texts().items():
        path.write_text(text, encoding="utf-8")
    for name, picture in PICTURES.items():
        path = DOCS / "images" / picture
        rendering.figure(kept(RESULTS / name)).savefig(path, dpi=110)
        shutil.copy(path, RESULTS / name / "comparison.png")


def outdated() -> list[Path]:
    """Return the pages whose text is not that of the kept runs."""
    return [path for path, text in texts().items() if path.read_text(encoding="utf-8") != text]


def _section(found):
    """Return a study's results: cells that differ from print, or all; epsilons; own claims."""
    if (found.cells["verdict"] == "not in print").all():
        lines = _pivoted(found)
    else:
        lines = [rendering.summary(found), ""]
        cells = found.cells[found.cells["verdict"].isin(["differs", "not measured"])]
        if len(cells):
            lines += [*rendering.table(cells), ""]
    own = [*rendering.claims_table(found.claims)[1:], ""] if _is_ours(found.study) else []
    return [*lines, *_spent(found), *own]


def _is_ours(study):
    return study.source.startswith("In no paper")


def _by_method(comparisons):
    """Return one line per method: file, paper, what was trained again, and the verdict."""
    ours, lines = {f.name: c for f, c in comparisons.items() if not _is_ours(c.study)}, []
    for name, method in sorted(METHODS.items()):
        word = re.compile(rf"(?<!\w){name}(?!\w)")
        claims, cells, studies = Counter(), Counter(), []
        for study, found in ours.items():
            is_its = NAMELESS.get(study) == name
            trained = {row for row in found.runs["row"].unique() if is_its or word.search(row)}
            if trained:
                studies.append(study)
            judged = [is_its or bool(word.search(text)) for text in found.claims["claim"]]
            claims.update(found.claims["verdict"][judged])
            cells.update(found.cells["verdict"][found.cells["row"].isin(trained)])
        lines.append(
            [
                f"`{name}`",
                f"`{Path(inspect.getfile(method)).name}`",
                paper(method),
                _in_print(studies) or "not tried",
                _verdict(claims, cells),
            ]
        )
    heads = ["method", "file", "paper", "trained again", "verdict"]
    return table(heads, lines, left=range(5))


def _in_print(studies):
    """Return the tables and figures that studies train again, by paper.

    Examples
    --------
    >>> _in_print(["xu-figure3", "xu-table1", "xu-figure2", "li-figures", "xu-table1-as-published"])
    'Xu: figures 2, 3; table 1<br>Li: figures'
    """
    numbers = {}
    for study in studies:
        paper, kind, number = re.match(r"(\w+)-(figure|table)s?(\d*)", study).groups()
        numbers.setdefault(paper.title(), {}).setdefault(kind, set()).add(number)
    return "<br>".join(
        f"{paper}: " + "; ".join(_plural(kind, kinds[kind]) for kind in sorted(kinds))
        for paper, kinds in numbers.items()
    )


def _plural(kind, numbers):
    listed = sorted(filter(None, numbers), key=int)
    return f"{kind}{'s' * (len(listed) != 1)} {', '.join(listed)}".strip()


def _verdict(claims, cells):
    """Return how many claims and cells have each verdict, a line each; "" if there are none."""
    words = {
        "claims": {"holds": "hold", "fails": "fail", "undecided": "undecided"},
        "cells": {"same": "as printed", "near": "near", "differs": "differ"},
    }
    counts = {
        what: ", ".join(f"{verdicts[v]} {word}" for v, word in words[what].items() if verdicts[v])
        for what, verdicts in {"claims": claims, "cells": cells}.items()
    }
    return "<br>".join(f"{what}: {count}" for what, count in counts.items() if count)


def _claims(found, module):
    """Return one line per claim of a paper's study: claim, verdict, what was measured, command."""
    if found is None or _is_ours(found.study) or not type(found.study).__module__.endswith(module):
        return []
    data, colon, _ = found.study.title.partition(": ")
    command = rendering.command(found.study, found.options).removeprefix(RUN)
    return [
        [f"{data}: {said}" if colon else said, verdict, measured, f"`{command}`"]
        for said, measured, verdict in rendering.claims_of(found.claims)
    ]


def _methods(cells):
    """Return one line per method of the fair comparison: accuracy, costs of the groups, gap."""
    heads, lines = ["accuracy", "women pay", "men pay", "gap"], []
    cells = cells.assign(method=cells["row"].str.split("/").str[1])
    for method, own in cells.groupby("method", sort=False):
        own = own.set_index(["row", "measure"])
        found = [
            own.loc[f"{name}/{method}", measure]
            for name in ("adult", "dutch")
            for measure in ("accuracy", "cost[female]", "cost[male]", "cost gap")
        ]
        values = [rendering.number(cell["ours"], cell["ours_se"], "points") for cell in found]
        name = "untuned defaults" if method == "default" else f"`{method}`"
        lines.append([name, *values])
    return table(
        ["method", f"Adult: {heads[0]}", *heads[1:], f"Dutch: {heads[0]}", *heads[1:]], lines
    )


def _pivoted(found):
    """Return one line per row of the study, one column per measure."""
    rows = {}
    for row, measure, ours, *_ in rendering.lines_of(found.cells):
        rows.setdefault(row, {})[measure] = ours
    measures = list(dict.fromkeys(measure for own in rows.values() for measure in own))
    lines = ([row, *(own.get(measure, "") for measure in measures)] for row, own in rows.items())
    return [*table(["row", *measures], lines), ""]


def _spent(found):
    """Return the epsilons of the private rows, in a sentence."""
    if "epsilon" not in found.runs or found.study.name in ("fair-comparison", "li-figures"):
        return []
    private = {row: value for row, value in rendering.spent(found).items() if value < float("inf")}
    spent = "; ".join(f"{row}: {value:.3f}" for row, value in private.items())
    return [f"Epsilon of these runs, by row: {spent}.", ""] if spent else []
