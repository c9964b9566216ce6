"""``skdpfair reproduce``: a paper's table or figure, trained again and compared with print."""

import json
import warnings

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from skdpfair.cli._input import AS_JSON, AnyPath, Screen, echo, in_options, wrapped

_STYLES = {"same": "green", "holds": "green", "near": "yellow", "undecided": "yellow"}


@click.command(short_help="Train a table of a paper again, and compare.")
@click.argument("name", required=False)
@click.option("--list", "listed", is_flag=True, help="List what can be reproduced, and stop.")
@click.option(
    "--sound/--as-published",
    default=True,
    help="This library's algorithms and settings "
    "that give the table (default), or what the paper prints; epsilon is honest in both.",
)
@click.option("--output", "-o", type=AnyPath(), help="Folder; the same call goes on where it was.")
@click.option("--seeds", type=int, default=5, show_default=True, help="Runs of each row.")
@click.option("--epochs", type=int, help="Fewer epochs than the paper's, to look sooner.")
@click.option("--rows", help="Rows to train, separated by commas; all by default.")
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda.")
@click.option(
    "--jobs", type=int, default=-1, show_default=True, help="Processes; -1 for all cores."
)
@AS_JSON
def reproduce(name, listed, sound, output, seeds, epochs, rows, device, jobs, as_json):
    """Train the table or figure NAME of a paper again, and compare it with print.

    Finished runs are kept; interrupt it when you like, and call it again. Data sets that are not
    in the package are looked for in the folder that SKDPFAIR_DATA names.
    """
    from skdpfair import reproduce as room  # late: it needs most of the package

    if listed or name is None:
        return _list(room.STUDIES, as_json)
    with in_options(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        found = room.reproduce(
            name,
            output,
            sound=sound,
            seeds=seeds,
            epochs=epochs,
            rows=None if rows is None else [row.strip() for row in rows.split(",")],
            device=device,
            n_jobs=jobs,
        )
    if as_json:
        tables = {"cells": found.cells, "claims": found.claims}
        facts = {k: json.loads(table.to_json(orient="records")) for k, table in tables.items()}
        return echo(json.dumps(facts | {"written": str(found.folder)}))
    console = Screen()
    _print(console, found)
    if found.shortness is not None:
        console.print(wrapped(found.shortness), style="bold")
    console.print(wrapped(found.summary))
    for claim in found.claims.itertuples():
        style = _STYLES.get(claim.verdict, "red")
        console.print(f"{claim.verdict}: {claim.claim}", style=style, highlight=False)
    for warning in said:
        if warning.category is UserWarning:
            echo(wrapped(warning.message), err=True)
    console.print(f"Written to {found.folder}/")


def _list(studies, as_json):
    if as_json:
        facts = [{"name": s.name, "what": s.title, "source": s.source} for s in studies.values()]
        return echo(json.dumps(facts))
    table = Table(title="Reproductions", box=SIMPLE_HEAD, title_justify="left")
    for column in ("name", "what", "source"):
        table.add_column(column, no_wrap=column == "name")
    for study in studies.values():
        table.add_row(study.name, study.title, study.source)
    Screen().print(table)


def _print(console, found):
    title = f"{found.study.title} ({found.study.source})"
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", collapse_padding=True)
    for column in ("row", "measure", "ours", "paper", "diff.", "verdict"):
        justify = "left" if column in ("row", "measure", "verdict") else "right"
        table.add_column(column, justify=justify, no_wrap=True)
    for row in found.lines():
        table.add_row(*row, style="red" if row[-1] == "differs" else None)
    console.print(table)
